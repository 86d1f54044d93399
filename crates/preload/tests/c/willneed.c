/* MADV_WILLNEED brings in what was paged out. Of a large area it brings in only as much as leaves room for all
 * other memory. */
#include "check.h"

static size_t present(char *at, size_t len) {
    static unsigned char map_of[64 * MIB / PAGE];
    size_t count = 0;
    CHECK(mincore(at, len, map_of) == 0);
    for (size_t n = 0; n < len / PAGE; n++) count += map_of[n] & 1;
    return count * PAGE;
}

int main(void) {
    /* Paging out is a hint: a page that the kernel holds at that moment stays. */
    const size_t few = 256 * 1024;
    char *at = map(4 * MIB);
    /* The most recently written pages were skipped in one of thirty runs: their arrival had not been reported yet. */
    for (int round = 0; round < 50; round++) {
        CHECK(madvise(at, 4 * MIB, MADV_DONTNEED) == 0);
        fill(at, 4 * MIB, 1);
        CHECK(madvise(at, 4 * MIB, MADV_PAGEOUT) == 0);
        CHECK(present(at, 4 * MIB) <= few);
    }
    CHECK(madvise(at, 4 * MIB, MADV_WILLNEED) == 0);
    CHECK(present(at, 4 * MIB) == 4 * MIB);
    verify(at, 4 * MIB, 1);

    char *wide = map(64 * MIB);
    fill(wide, 64 * MIB, 2);
    CHECK(madvise(wide, 16 * MIB, MADV_PAGEOUT) == 0);
    CHECK(present(wide, 16 * MIB) <= few);
    CHECK(madvise(wide, 64 * MIB, MADV_WILLNEED) == 0);
    /* All of the area is in memory. The policy may have unmapped some of the pages that have just come in, to see
     * whether they are used. */
    CHECK(present(wide, 8 * MIB) >= 7 * MIB && present(wide + 8 * MIB, 8 * MIB) <= few);
    verify(wide, 64 * MIB, 2);

    /* The call reports a hole, but still brings in the pages after it. */
    CHECK(munmap(at, MIB) == 0 && madvise(at + MIB, 3 * MIB, MADV_PAGEOUT) == 0);
    CHECK(madvise(at, 4 * MIB, MADV_WILLNEED) == -1 && errno == ENOMEM);
    CHECK(present(at + MIB, 3 * MIB) >= 2 * MIB);
    return 0;
}
