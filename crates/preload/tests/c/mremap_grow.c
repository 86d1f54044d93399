/* The contents of memory are correct after mremap grows, shrinks and moves it, including those of absent pages. */
#include "check.h"

int main(void) {
    char *at = map(40 * MIB);
    fill(at, 40 * MIB, 9);
    char *wall = mmap(at + 40 * MIB, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(wall != MAP_FAILED);
    press();
    char *grown = mremap(at, 40 * MIB, 64 * MIB, MREMAP_MAYMOVE);
    CHECK(grown != MAP_FAILED);
    verify(grown, 40 * MIB, 9);
    for (size_t n = 40 * MIB; n < 64 * MIB; n += PAGE) CHECK(grown[n] == 0);
    CHECK(mremap(grown, 64 * MIB, 8 * MIB, 0) == grown);
    verify(grown, 8 * MIB, 9);
    CHECK(mremap(grown, 8 * MIB, 16 * MIB, 0) == grown);
    for (size_t n = 8 * MIB; n < 16 * MIB; n += PAGE) CHECK(grown[n] == 0);
    char *target = map(16 * MIB);
    fill(target, 16 * MIB, 3);
    CHECK(mremap(grown, 16 * MIB, 16 * MIB, MREMAP_MAYMOVE | MREMAP_FIXED, target) == target);
    verify(target, 8 * MIB, 9);
    char *moved = mremap(target, 8 * MIB, 8 * MIB, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
    CHECK(moved != MAP_FAILED && moved != target);
    verify(moved, 8 * MIB, 9);
    for (size_t n = 0; n < 8 * MIB; n += PAGE) CHECK(target[n] == 0);
    CHECK(mprotect(moved, 8 * MIB, PROT_NONE) == 0);
    char *again = mremap(moved, 4 * MIB, 32 * MIB, MREMAP_MAYMOVE);
    CHECK(again != MAP_FAILED);
    CHECK(mprotect(again, 32 * MIB, PROT_READ) == 0);
    verify(again, 4 * MIB, 9);
    return 0;
}
