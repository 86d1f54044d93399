/* Aborts, so that the kernel writes a core. Formerly the core contained the whole reservation, 327 GiB long, and
 * writing it took 11 s. With an argument the program first unmaps memory, which formerly made the closed memory
 * part of the reservation that the kernel writes. */
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
