/* The program calls MADV_DONTNEED by a bare system call, which no library sees. The next thread that touches the
 * pages gets them, as zeros if they were in memory, and keeps what it writes. Formerly the access waited forever. */
#include "check.h"
#include <pthread.h>

static char *at;

static void *touch(void *argument) {
    /* Two threads take turns at pages that are absent. */
    for (size_t n = (uintptr_t)argument; n < 8 * MIB / PAGE; n += 2) {
        uint64_t *word = (uint64_t *)(at + n * PAGE);
        CHECK(word[0] == 0 || word[0] == 50 + n);
        word[0] = 7 * n;
    }
    return NULL;
}

int main(void) {
    at = map(8 * MIB);
    for (int round = 0; round < 4; round++) {
        fill(at, 8 * MIB, 50);
        CHECK(bare_madvise(at, 8 * MIB, MADV_DONTNEED) == 0);
        if (round % 2) press();
        pthread_t threads[2];
        for (uintptr_t n = 0; n < 2; n++) CHECK(pthread_create(&threads[n], NULL, touch, (void *)n) == 0);
        for (int n = 0; n < 2; n++) CHECK(pthread_join(threads[n], NULL) == 0);
        press();
        for (size_t n = 0; n < 8 * MIB / PAGE; n++) CHECK(*(uint64_t *)(at + n * PAGE) == 7 * n);
    }
    CHECK(bare_madvise(at, 4 * MIB, MADV_DONTNEED) == 0);
    CHECK(munmap(at, 8 * MIB) == 0);
    return 0;
}
