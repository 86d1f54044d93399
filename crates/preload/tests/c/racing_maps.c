/* Four threads map, write, check, unmap, allocate, free and reallocate at once, at three times the budget. */
#include "check.h"
#include <pthread.h>
#include <time.h>

static int seconds;

static void *work(void *argument) {
    unsigned seed = (unsigned)(uintptr_t)argument;
    enum { KEPT = 24 };
    char *kept[KEPT] = {0};
    size_t len[KEPT] = {0};
    struct timespec start, now;
    clock_gettime(CLOCK_MONOTONIC, &start);
    do {
        int n = rand_r(&seed) % KEPT;
        if (kept[n]) {
            verify(kept[n], len[n], n);
            if (n % 3 == 0) CHECK(munmap(kept[n], len[n]) == 0);
            else free(kept[n]);
            kept[n] = NULL;
        } else {
            len[n] = (1 + rand_r(&seed) % 512) * PAGE;
            kept[n] = n % 3 == 0 ? map(len[n]) : aligned_alloc(PAGE, len[n]);
            CHECK(kept[n]);
            fill(kept[n], len[n], n);
            if (n % 3 == 1) {
                size_t longer = len[n] + 64 * PAGE;
                char *moved = realloc(kept[n], longer);
                verify(moved, len[n], n);
                kept[n] = moved;
                if ((uintptr_t)moved % 8) _exit(1);
            }
        }
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (now.tv_sec - start.tv_sec < seconds);
    return NULL;
}

int main(int count, char **arguments) {
    seconds = count > 1 ? atoi(arguments[1]) : 3;
    pthread_t threads[4];
    for (uintptr_t n = 0; n < 4; n++) CHECK(pthread_create(&threads[n], NULL, work, (void *)(n + 1)) == 0);
    for (int n = 0; n < 4; n++) CHECK(pthread_join(threads[n], NULL) == 0);
    return 0;
}
