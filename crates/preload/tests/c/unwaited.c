/* A long message sent by non-blocking calls: each call takes as much as the socket has room for, and brings in
 * little more. Then random bytes for a long buffer. The budget is 32 MiB. */
#include "out.h"
#include <fcntl.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>

#define LEN (48 * MIB)

static void drain(int fd) {
    static char some[1 << 16];
    size_t came = 0;
    for (ssize_t now; (now = read(fd, some, sizeof some)) > 0; came += (size_t)now)
        for (ssize_t n = 0; n < now; n++) CHECK(some[n] == (char)((came + (size_t)n) / PAGE % 251));
    _exit(came != LEN);
}

int main(void) {
    int pair[2], status;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    pid_t reader = fork();
    CHECK(reader >= 0);
    if (reader == 0) {
        close(pair[0]);
        drain(pair[1]);
    }
    close(pair[1]);
    CHECK(fcntl(pair[0], F_SETFL, O_NONBLOCK) == 0);
    char *all = map(LEN);
    for (size_t n = 0; n < LEN / PAGE; n++) memset(all + n * PAGE, (int)(n % 251), PAGE);
    for (size_t sent = 0; sent < LEN;) {
        size_t quarter = (LEN - sent) / 4;
        struct iovec parts[4] = {{all + sent, quarter}, {all + sent + quarter, quarter}, {all + sent + 2 * quarter, quarter},
            {all + sent + 3 * quarter, LEN - sent - 3 * quarter}};
        struct msghdr message = {.msg_iov = parts, .msg_iovlen = 4};
        ssize_t now = sendmsg(pair[0], &message, 0);
        CHECK(now > 0 || errno == EAGAIN);
        if (now > 0) sent += (size_t)now;
        else CHECK(poll(&(struct pollfd){pair[0], POLLOUT, 0}, 1, -1) == 1);
    }
    close(pair[0]);
    CHECK(waitpid(reader, &status, 0) == reader && status == 0);
    CHECK(getrandom(all, LEN, 0) == (ssize_t)LEN);
    long peak = peak_kib();
    /* An eighth is left for what is in flight. */
    if (peak > 36 << 10) printf("%ld KiB were resident\n", peak);
    else puts("kept to the budget");
    return 0;
}
