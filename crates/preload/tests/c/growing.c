/* A growing mapping is made at a fixed address where another mapping was before. Formerly the program died by
 * SIGSEGV at the second page below, because the reservation lay where the mapping had to grow. The mapping does
 * not grow over other memory below it. */
#define _GNU_SOURCE
#include "check.h"

int main(void) {
    char *room = mmap(NULL, 512 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(room != MAP_FAILED);
    munmap(room, 512 * PAGE);
    int flags = MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS;
    char *below = mmap(room, 4 * PAGE, PROT_READ | PROT_WRITE, flags, -1, 0);
    CHECK(below == room);
    memset(below, 5, 4 * PAGE);
    char *top = room + 400 * PAGE;
    char *stack = mmap(top - 4 * PAGE, 4 * PAGE, PROT_READ | PROT_WRITE, flags | MAP_GROWSDOWN, -1, 0);
    CHECK(stack == top - 4 * PAGE);
    for (int n = 1; n <= 64; n++)
        top[-n * (long)PAGE] = (char)n;
    for (int n = 1; n <= 64; n++)
        CHECK(top[-n * (long)PAGE] == n);
    for (size_t n = 0; n < 4 * PAGE; n++)
        CHECK(below[n] == 5);
    return 0;
}
