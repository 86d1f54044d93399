/* A program writes and reads 32 MiB at once, bypassing the page cache, in a budget of 32 MiB. The device works on
 * the pages themselves, so they cannot leave memory until the call is done. Formerly they were chosen as victims
 * again and again, and the program never continued. The argument is a directory to write to. */
#include "check.h"
#include "words.h"
#include <fcntl.h>

int main(int count, char **arguments) {
    const size_t len = 32 * MIB;
    CHECK(count == 2 && chdir(arguments[1]) == 0);
    int file = open("direct", O_RDWR | O_CREAT | O_DIRECT, 0600);
    if (file < 0) {
        printf("no direct input and output here\n");
        return errno != EINVAL;
    }
    char *other = malloc(MIB), *at = aligned_alloc(PAGE, len);
    CHECK(other && at);
    for (int round = 0; round < 3; round++) {
        put_words(other, MIB, round);
        put_words(at, len, 1000 * round);
        CHECK(pwrite(file, at, len, round * len) == (ssize_t)len);
        CHECK(wrong_words(other, MIB, round) == 0);
    }
    for (int round = 0; round < 3; round++) {
        put_words(other, MIB, round);
        CHECK(pread(file, at, len, round * len) == (ssize_t)len);
        CHECK(wrong_words(at, len, 1000 * round) == 0);
        CHECK(wrong_words(other, MIB, round) == 0);
    }
    CHECK(unlink("direct") == 0);
    return 0;
}
