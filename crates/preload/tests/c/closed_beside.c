/* Every other 16 KiB of the memory is closed: freed, or temporarily inaccessible, as in the heaps of collectors.
 * Formerly a fault brought in the pages around its page whether they were closed or not, so that a third to a half
 * of the pages in memory after a sequential pass were useless. The argument says how the memory is closed. */
#include "check.h"
#include <stdbool.h>

enum { CHUNK = 16 << 10, PASSES = 3 };
static const size_t LEN = 64 * MIB;

/* Returns the resident KiB of those mappings of the range that can be used, or of those that cannot. */
static long resident(char *from, bool usable) {
    FILE *maps = fopen("/proc/self/smaps", "r");
    CHECK(maps);
    char line[512], rights[8];
    unsigned long start, end;
    long kib, total = 0;
    bool counts = false;
    while (fgets(line, sizeof line, maps)) {
        if (sscanf(line, "%lx-%lx %7s", &start, &end, rights) == 3)
            counts = start < (uintptr_t)from + LEN && end > (uintptr_t)from && (rights[0] == 'r') == usable;
        else if (counts && sscanf(line, "Rss: %ld kB", &kib) == 1)
            total += kib;
    }
    fclose(maps);
    return total;
}

static bool is_open(size_t at) { return at / CHUNK % 2 == 0; }

int main(int count, char **arguments) {
    const char *how = count > 1 ? arguments[1] : "protect";
    char *at = map(LEN);
    if (strcmp(how, "blank") != 0)
        fill(at, LEN, 5);
    for (size_t n = CHUNK; n < LEN; n += 2 * CHUNK) {
        int done = strcmp(how, "unmap") == 0 ? munmap(at + n, CHUNK) : mprotect(at + n, CHUNK, PROT_NONE);
        CHECK(done == 0);
    }
    /* Sequential passes have the longest windows. Pages that were in memory when they were closed are evicted in
     * the first pass. */
    for (int pass = 0; pass < PASSES; pass++)
        for (size_t n = 0; n < LEN; n += PAGE)
            if (is_open(n)) {
                if (strcmp(how, "blank") != 0)
                    CHECK(*(uint64_t *)(at + n) == 5 + n / PAGE);
                *(uint64_t *)(at + n) = 5 + n / PAGE;
            }
    long closed = resident(at, false), open = resident(at, true);
    if (closed > open / 32)
        fprintf(stderr, "%ld KiB in memory are closed, and %ld open\n", closed, open);
    CHECK(open > 0);
    if (strcmp(how, "protect") == 0) {
        /* The closed memory has its old contents. */
        CHECK(mprotect(at, LEN, PROT_READ | PROT_WRITE) == 0);
        verify(at, LEN, 5);
    }
    return closed > open / 32;
}
