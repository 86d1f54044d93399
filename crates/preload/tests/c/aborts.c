/* Dies with a core. All of the reservation was in it, 327 GiB by its length, and dying took 11 s. With an argument it
 * unmaps something first, by which the closed memory became a part of the reservation that the kernel dumps. */
#define _GNU_SOURCE
#include "check.h"

int main(int count, char **names) {
    (void)names;
    char *kept = malloc(8 * MIB);
    memset(kept, 7, 8 * MIB);
    if (count > 1) {
        char *given_back = map(4 * MIB);
        memset(given_back, 1, 4 * MIB);
        munmap(given_back, 4 * MIB);
    }
    abort();
}
