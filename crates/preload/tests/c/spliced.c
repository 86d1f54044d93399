/* A producer gives a part of its arena to a pipe by vmsplice and goes on using the rest of the arena. Found
   with it: the pages were moved out while the pipe referred to them, their frames held other data, and the
   reader got that, in five runs of six. */
#include "check.h"
#include "words.h"
#include <fcntl.h>
#include <sys/uio.h>

int main(void) {
    const size_t len = 100 * MIB, part = MIB;
    int fd[2];
    CHECK(pipe(fd) == 0 && fcntl(fd[0], F_SETPIPE_SZ, part) >= (int)part);
    char *arena = map(len), *given = arena + len / 2;
    put_words(arena, len, 7);
    put_words(given, part, 7);
    struct iovec range = {given, part};
    ssize_t spliced = vmsplice(fd[1], &range, 1, 0);
    CHECK(spliced == (ssize_t)part);
    for (uint64_t n = 0; n < 60000; n++) {
        char *at = arena + mix(n) % (len / PAGE) * PAGE;
        if (at < given || at >= given + part)
            *(uint64_t *)at = ~0ull;
    }
    char *seen = malloc(part);
    read_all(fd[0], seen, part);
    CHECK(wrong_words(seen, part, 7) == 0);
    return 0;
}
