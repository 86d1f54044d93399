/* Memory reads as zeros after the program's own MADV_DONTNEED, whether the pages were in memory or not. */
#include "check.h"

int main(void) {
    char *at = map(64 * MIB);
    for (int round = 0; round < 3; round++) {
        fill(at, 64 * MIB, 7 * round);
        CHECK(madvise(at + MIB, 62 * MIB, round == 1 ? MADV_FREE : MADV_DONTNEED) == 0);
        verify(at, MIB, 7 * round);
        if (round != 1)
            for (size_t n = MIB; n < 63 * MIB; n += PAGE) CHECK(at[n] == 0);
        verify(at + 63 * MIB, MIB, 7 * round + 63 * (MIB / PAGE));
    }
    CHECK(madvise(at, 64 * MIB, MADV_PAGEOUT) == 0);
    CHECK(madvise(at, 64 * MIB, MADV_COLD) == 0);
    verify(at, MIB, 14);
    CHECK(madvise(at, 8 * MIB, MADV_POPULATE_WRITE) == 0 || errno == EINVAL);
    verify(at, MIB, 14);
    CHECK(munmap(at, 64 * MIB) == 0);
    return 0;
}
