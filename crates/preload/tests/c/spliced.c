/* A producer gives parts of its arena to pipes by vmsplice and continues to use the rest of the arena. Formerly
 * the pages were evicted while the pipe referred to them, and their frames held other data: the reader got that
 * data in five runs of six. The argument is the number of accesses. */
#include "check.h"
#include "words.h"
#include <fcntl.h>
#include <stdbool.h>
#include <sys/uio.h>

/* There are four pipes, because with one pipe no frame was reused in two runs of three. */
enum { PIPES = 4 };
static const size_t LEN = 100 * MIB, PART = MIB;

static size_t part(int n) { return LEN / (PIPES + 1) * (n + 1) / PAGE * PAGE; }

static bool is_given(size_t at) {
    for (int n = 0; n < PIPES; n++)
        if (at >= part(n) && at < part(n) + PART)
            return true;
    return false;
}

int main(int count, char **arguments) {
    const uint64_t touches = count > 1 ? strtoul(arguments[1], NULL, 10) : 60000;
    int fd[PIPES][2];
    char *arena = map(LEN);
    put_words(arena, LEN, 7);
    for (int n = 0; n < PIPES; n++) {
        CHECK(pipe(fd[n]) == 0 && fcntl(fd[n][0], F_SETPIPE_SZ, PART) >= (int)PART);
        put_words(arena + part(n), PART, 7 + n);
        struct iovec range = {arena + part(n), PART};
        ssize_t spliced = vmsplice(fd[n][1], &range, 1, 0);
        CHECK(spliced == (ssize_t)PART);
    }
    for (uint64_t n = 0; n < touches; n++) {
        size_t at = mix(n) % (LEN / PAGE) * PAGE;
        if (!is_given(at))
            *(uint64_t *)(arena + at) = ~0ull;
    }
    char *seen = malloc(PART);
    for (int n = 0; n < PIPES; n++) {
        read_all(fd[n][0], seen, PART);
        CHECK(wrong_words(seen, PART, 7 + n) == 0);
    }
    return 0;
}
