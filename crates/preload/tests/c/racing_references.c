/* Threads keep giving managed memory to pipes (vmsplice) and to a socket (MSG_ZEROCOPY), while other threads push
 * all memory out of a small budget. At each far end a reader, in this process or in a forked one, knows which
 * pages must arrive, and checks every byte of them. */
#include "check.h"
#include "words.h"
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>

enum { RUN = 16, ENDS = 3 };
static const size_t LEN = 64 * MIB;
static char *arena, *other;
static atomic_bool over;

/* A stream: the writer's descriptor, the reader's, and the seed of the pages that go through it. */
struct stream {
    int to, from, is_socket;
    uint64_t seed;
};

static size_t page_of(struct stream *stream, uint64_t turn) {
    return mix(stream->seed + turn) % (LEN / PAGE - RUN);
}

/* Writes runs of pages until the time is up. The end of the stream is its end of file. */
static void *writer(void *argument) {
    struct stream *stream = argument;
    for (uint64_t turn = 0; !over; turn++) {
        char *at = arena + page_of(stream, turn) * PAGE;
        for (size_t done = 0; done < RUN * PAGE;) {
            size_t left = RUN * PAGE - done;
            /* There are two ranges, and the first ends inside a page. */
            struct iovec ranges[2] = {{at + done, left / 3}, {at + done + left / 3, left - left / 3}};
            ssize_t n = stream->is_socket ? send(stream->to, at + done, left, MSG_ZEROCOPY)
                                          : vmsplice(stream->to, ranges, 2, 0);
            CHECK(n > 0);
            done += n;
        }
    }
    CHECK(shutdown(stream->to, SHUT_WR) == 0 || close(stream->to) == 0);
    return NULL;
}

/* Reads in laps: the data waits a while, as with a slow reader. */
static void *reader(void *argument) {
    struct stream *stream = argument;
    static _Thread_local char seen[RUN * PAGE];
    uint64_t turn = 0;
    for (;; turn++) {
        size_t done = 0;
        while (done < sizeof seen) {
            ssize_t n = read(stream->from, seen + done, sizeof seen - done);
            CHECK(n >= 0);
            if (n == 0)
                break;
            done += n;
        }
        if (done == 0)
            break;
        CHECK(done == sizeof seen);
        for (size_t n = 0; n < RUN; n++)
            CHECK(wrong_words(seen + n * PAGE, PAGE, (page_of(stream, turn) + n) * PAGE) == 0);
        if (turn % 16 == 0)
            nanosleep(&(struct timespec){0, 20 * 1000 * 1000}, NULL);
    }
    CHECK(turn > 0);
    return NULL;
}

static void *presser(void *argument) {
    for (uint64_t n = (uintptr_t)argument; !over; n += 2)
        *(uint64_t *)(other + mix(n) % (LEN / PAGE) * PAGE) = n;
    return NULL;
}

/* The reader is in a separate process, which must not hold the other end of the pipe. */
static pid_t forked_reader(struct stream *stream) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(close(stream->to) == 0);
        reader(stream);
        _exit(0);
    }
    CHECK(close(stream->from) == 0);
    return child;
}

int main(int count, char **arguments) {
    int seconds = count > 1 ? atoi(arguments[1]) : 3, one = 1, fd[2], status;
    pid_t child = 0;
    struct stream streams[ENDS];
    pthread_t writers[ENDS], readers[ENDS], pressers[2];
    for (int n = 0; n < ENDS; n++) {
        int is_socket = n == 2;
        if (is_socket)
            connected(fd);
        else
            CHECK(pipe(fd) == 0 && fcntl(fd[0], F_SETPIPE_SZ, MIB) >= (int)MIB);
        streams[n] = is_socket ? (struct stream){fd[0], fd[1], 1, 77}
                               : (struct stream){fd[1], fd[0], 0, n * 1000003ul};
        if (is_socket)
            setsockopt(fd[0], SOL_SOCKET, SO_ZEROCOPY, &one, sizeof one);
        /* This happens before there is a thread, and before the descriptors of the other streams exist. */
        if (n == 0)
            child = forked_reader(&streams[0]);
    }
    arena = map(LEN);
    other = map(LEN);
    for (size_t n = 0; n < LEN / PAGE; n++)
        put_words(arena + n * PAGE, PAGE, n * PAGE);
    for (int n = 0; n < ENDS; n++) {
        CHECK(pthread_create(&writers[n], NULL, writer, &streams[n]) == 0);
        if (n > 0)
            CHECK(pthread_create(&readers[n], NULL, reader, &streams[n]) == 0);
    }
    for (int n = 0; n < 2; n++)
        CHECK(pthread_create(&pressers[n], NULL, presser, (void *)(uintptr_t)n) == 0);
    sleep(seconds);
    over = 1;
    for (int n = 0; n < ENDS; n++) {
        CHECK(pthread_join(writers[n], NULL) == 0);
        if (n > 0)
            CHECK(pthread_join(readers[n], NULL) == 0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    return 0;
}
