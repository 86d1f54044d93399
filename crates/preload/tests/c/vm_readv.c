/* A process reads its own memory as a debugger would, part or all of it in one call. The kernel holds the pages of
 * a call until the call is done, and needs more pages meanwhile. Formerly the held pages were chosen as the next
 * victims again and again, while all other pages stayed: neither the call nor the program ever continued. */
#include "check.h"
#include "words.h"
#include <sys/uio.h>

static void read_own(char *from, char *to, size_t len) {
    struct iovec local = {to, len}, remote = {from, len};
    CHECK(process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == (ssize_t)len);
}

/* The call reads 64 MiB, and each MiB goes into the same buffer. */
static void by_the_mebibyte(void) {
    char *at = map(64 * MIB), *seen = malloc(MIB);
    CHECK(seen != NULL);
    put_words(at, 64 * MIB, 9);
    for (size_t n = 0; n < 64; n++) {
        read_own(at + n * MIB, seen, MIB);
        CHECK(memcmp(at + n * MIB, seen, MIB) == 0);
        CHECK(wrong_words(seen, MIB, 9 + n * (MIB / 8)) == 0);
    }
    free(seen);
    CHECK(munmap(at, 64 * MIB) == 0);
}

/* The program copies 16 MiB to 16 MiB in this many calls. With a budget of 32 MiB all memory is held at some time. */
static void in_pieces(size_t pieces) {
    const size_t len = 16 * MIB, piece = len / pieces;
    char *from = map(len), *to = map(len);
    for (int round = 0; round < 3; round++) {
        put_words(from, len, 100 * round);
        for (size_t n = 0; n < pieces; n++) read_own(from + n * piece, to + n * piece, piece);
        CHECK(wrong_words(to, len, 100 * round) == 0);
    }
    CHECK(munmap(from, len) == 0 && munmap(to, len) == 0);
}

int main(int count, char **arguments) {
    if (count > 1)
        in_pieces(strtoul(arguments[1], NULL, 10));
    else
        by_the_mebibyte();
    return 0;
}
