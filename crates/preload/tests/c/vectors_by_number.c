// Calls by `syscall` whose arguments name memory that names more: vectors, messages and lists that are not managed,
// with absent buffers and strings.

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, LENGTH = 64 << 20, PARTS = 3 };

static char *memory;
// The linker puts these in unmanaged memory.
static struct iovec parts[PARTS];
static struct msghdr message;
static struct mmsghdr messages[1];
static char *words[4];
static char *none[1];

// Points the vector to pages that have not been touched for a long time, each with its own string.
static void renew(int round) {
    for (int part = 0; part < PARTS; part++) {
        char *page = memory + (size_t)(round * PARTS + part) * 16 * PAGE;
        parts[part] = (struct iovec){page + 100, 6};
    }
    message = (struct msghdr){.msg_iov = parts, .msg_iovlen = PARTS};
    messages[0].msg_hdr = message;
}

static void print(const char *name, long answer) {
    printf("%s %ld %d", name, answer, answer < 0 ? errno : 0);
    for (int part = 0; part < PARTS; part++)
        printf(" %.6s", (char *)parts[part].iov_base);
    printf("\n");
}

int main(int count, char **arguments) {
    if (count > 1) {
        printf("%s %s\n", arguments[1], getenv("WORD"));
        return 0;
    }
    memory = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (size_t at = 0; at < LENGTH; at += PAGE)
        snprintf(memory + at + 100, 20, "%06zu", at / PAGE);
    int file = memfd_create("file", 0), ends[2], pair[2];
    // Nothing waits for data that an earlier call has not sent.
    if (pipe2(ends, O_NONBLOCK) || socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, pair))
        return 1;
    int round = 0;
    renew(round++), print("pwritev", syscall(SYS_pwritev, file, parts, PARTS, 0L, 0L));
    renew(round++), print("preadv", syscall(SYS_preadv, file, parts, PARTS, 0L, 0L));
    renew(round++), print("pwritev2", syscall(SYS_pwritev2, file, parts, PARTS, 6L, 0L, 0L));
    renew(round++), print("preadv2", syscall(SYS_preadv2, file, parts, PARTS, 6L, 0L, 0L));
    renew(round++), print("writev", syscall(SYS_writev, ends[1], parts, PARTS));
    renew(round++), print("readv", syscall(SYS_readv, ends[0], parts, PARTS));
    renew(round++), print("sendmsg", syscall(SYS_sendmsg, pair[0], &message, 0));
    renew(round++), print("recvmsg", syscall(SYS_recvmsg, pair[1], &message, 0));
    renew(round++), print("sendmmsg", syscall(SYS_sendmmsg, pair[0], messages, 1L, 0));
    renew(round++), print("recvmmsg", syscall(SYS_recvmmsg, pair[1], messages, 1L, 0, NULL));
    for (int at = 0; at < 2; at++) {
        char *texts = memory + (size_t)(1000 + at) * 16 * PAGE;
        strcpy(texts, "/proc/self/exe"), strcpy(texts + 5 * PAGE, "word"), strcpy(texts + 9 * PAGE, "WORD=right");
        // The written memory is evicted.
        for (size_t other = LENGTH / 4; other < LENGTH - (4 << 20); other += PAGE)
            memory[other]++;
        words[0] = texts + 5 * PAGE, words[1] = texts + 5 * PAGE, none[0] = NULL;
        char *settings[] = {texts + 9 * PAGE, NULL};
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            if (at)
                syscall(SYS_execveat, AT_FDCWD, texts, words, settings, 0);
            else
                syscall(SYS_execve, texts, words, settings);
            printf("%d\n", errno), fflush(stdout), _exit(1);
        }
        int status;
        waitpid(child, &status, 0);
        printf("%s %d\n", at ? "execveat" : "execve", WEXITSTATUS(status));
    }
}
