/* Prints the results of good and bad calls of vmsplice and setsockopt on managed memory. The test runs this with
 * and without the library and compares; lines that start with "refused" are expected to differ. */
#include "check.h"
#include "words.h"
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/time.h>
#include <sys/uio.h>

static void say(const char *what, long result) {
    printf("%s %ld %d\n", what, result, result == -1 ? errno : 0);
}

static char *memory;
static volatile sig_atomic_t signals;
static void count(int signal) { (void)signal, signals++; }

static long give(int fd, char *at, size_t len, int flags) {
    struct iovec range = {at, len};
    return vmsplice(fd, &range, 1, flags);
}

static void empty(int fd) {
    static char sink[4096];
    struct pollfd ready = {fd, POLLIN, 0};
    while (poll(&ready, 1, 0) == 1 && read(fd, sink, sizeof sink) > 0)
        ;
}

static void pipes(void) {
    int fd[2];
    CHECK(pipe(fd) == 0 && fcntl(fd[0], F_SETPIPE_SZ, 16 * PAGE) == (int)(16 * PAGE));
    say("a page", give(fd[1], memory, PAGE, 0));
    say("a gift", give(fd[1], memory, PAGE, SPLICE_F_GIFT));
    say("more than fits", give(fd[1], memory, 64 * PAGE, 0));
    say("full", give(fd[1], memory, PAGE, SPLICE_F_NONBLOCK));
    struct sigaction action = {.sa_handler = count};
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    /* The signal is sent repeatedly, because the first one could arrive before the call waits. */
    struct itimerval often = {{0, 50000}, {0, 50000}}, never = {{0, 0}, {0, 0}};
    CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
    say("interrupted", give(fd[1], memory, PAGE, 0));
    CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0 && signals > 0);
    empty(fd[0]);
    char *closed = memory + 4 * PAGE;
    CHECK(mprotect(closed, PAGE, PROT_NONE) == 0);
    say("ends at closed memory", give(fd[1], memory, 8 * PAGE, 0));
    say("closed memory", give(fd[1], closed, PAGE, 0));
    say("nothing there", give(fd[1], NULL, PAGE, 0));
    CHECK(mprotect(closed, PAGE, PROT_READ | PROT_WRITE) == 0);
    empty(fd[0]);
    struct iovec ranges[3] = {{memory + 5, 100}, {NULL, 0}, {memory + 7 * PAGE, 2 * PAGE}};
    say("three ranges", vmsplice(fd[1], ranges, 3, 0));
    char seen[100];
    CHECK(read(fd[0], seen, 100) == 100 && memcmp(seen, memory + 5, 100) == 0);
    say("out of the pipe", give(fd[0], memory + 20 * PAGE, 2 * PAGE, 0));
    CHECK(memcmp(memory + 20 * PAGE, memory + 7 * PAGE, 2 * PAGE) == 0);
    ranges[2].iov_len = (size_t)-1;
    say("a negative length", vmsplice(fd[1], ranges, 3, 0));
    say("no vector", vmsplice(fd[1], NULL, 1, 0));
    say("no ranges", vmsplice(fd[1], NULL, 0, 0));
    say("too many ranges", vmsplice(fd[1], ranges, 1025, 0));
    say("no bytes", give(fd[1], memory, 0, 0));
    say("bad flags", give(fd[1], memory, PAGE, 0x100));
    say("bad descriptor", give(999, memory, PAGE, 0));
    int null = open("/dev/null", O_WRONLY);
    say("no pipe", give(null, memory, PAGE, 0));
    CHECK(signal(SIGPIPE, SIG_IGN) != SIG_ERR && close(fd[0]) == 0);
    say("no reader", give(fd[1], memory, PAGE, 0));
}

static void sockets(void) {
    const int opt = SO_ZEROCOPY, ulp = 31;
    int fd[2], zero = 0, one = 1, two = 2, value;
    connected(fd);
    int datagrams = socket(AF_INET, SOCK_DGRAM, 0), local = socket(AF_UNIX, SOCK_STREAM, 0);
    say("refused", setsockopt(fd[0], SOL_SOCKET, opt, &one, sizeof one));
    say("refused", setsockopt(datagrams, SOL_SOCKET, opt, &one, sizeof one));
    say("refused", setsockopt(fd[0], IPPROTO_TCP, ulp, "tls", sizeof "tls"));
    say("off", setsockopt(fd[0], SOL_SOCKET, opt, &zero, sizeof zero));
    socklen_t len = sizeof value;
    CHECK(getsockopt(fd[0], SOL_SOCKET, opt, &value, &len) == 0);
    say("is off", value);
    say("neither on nor off", setsockopt(fd[0], SOL_SOCKET, opt, &two, sizeof two));
    say("short", setsockopt(fd[0], SOL_SOCKET, opt, &one, 3));
    say("no value", setsockopt(fd[0], SOL_SOCKET, opt, NULL, sizeof one));
    say("a local socket", setsockopt(local, SOL_SOCKET, opt, &one, sizeof one));
    say("a bad descriptor", setsockopt(999, SOL_SOCKET, opt, &one, sizeof one));
    say("no socket", setsockopt(0, SOL_SOCKET, opt, &one, sizeof one));
    say("another protocol", setsockopt(fd[0], IPPROTO_TCP, ulp, "none of it", 10));
    say("no name", setsockopt(fd[0], IPPROTO_TCP, ulp, "tls", 0));
    say("tls over datagrams", setsockopt(datagrams, IPPROTO_TCP, ulp, "tls", 4));
    say("tls on a bad descriptor", setsockopt(999, IPPROTO_TCP, ulp, "tls", 4));
}

int main(void) {
    memory = map(64 * PAGE);
    put_words(memory, 64 * PAGE, 3);
    pipes();
    sockets();
    return 0;
}
