/* Absent memory: the test programs of direct delivery evict their memory before the kernel touches it. */
#ifndef OUT_H
#define OUT_H
#include "check.h"

/* Returns whether a page is in memory. */
static inline int is_in(const void *at) {
    unsigned char there = 0;
    CHECK(mincore((void *)((uintptr_t)at & ~(PAGE - 1)), PAGE, &there) == 0);
    return there & 1;
}

/* Evicts the pages of a range. Held or shared pages stay. */
static inline void push_out(const void *at, size_t len) {
    uintptr_t start = (uintptr_t)at & ~(PAGE - 1), end = ((uintptr_t)at + len + PAGE - 1) & ~(PAGE - 1);
    CHECK(madvise((void *)start, end - start, MADV_PAGEOUT) == 0);
}

/* Allocates whole pages with malloc, and writes to each page. */
static inline char *block(size_t len) {
    char *at = aligned_alloc(PAGE, (len + PAGE - 1) & ~(PAGE - 1));
    CHECK(at);
    memset(at, 0x55, len);
    return at;
}
#endif
