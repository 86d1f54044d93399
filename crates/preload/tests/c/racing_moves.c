/* mremap at three times the budget, by threads that fill, grow, shrink and move areas of their own, while one thread counts in
 * an area that another moves to and fro, and the main thread forks. What is counted must be there at the end, wherever the
 * area was at the moment; an access to where it is not must be SIGSEGV, never zeros. */
#include "check.h"
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

static int seconds;
static volatile int over;

/* Owners. Nothing of theirs fits where the counted area is not at the moment. */
enum { COUNTED = 600 };
static size_t some(unsigned *seed, size_t most) { return (COUNTED + 1 + (size_t)rand_r(seed) % most) * PAGE; }

static void *own(void *argument) {
    unsigned seed = (unsigned)(uintptr_t)argument;
    size_t len = some(&seed, 1000);
    char *at = map(len);
    fill(at, len, 1);
    while (!over) {
        const size_t new_len = some(&seed, 2400), kept = len < new_len ? len : new_len;
        char *new;
        switch (rand_r(&seed) % 5) {
        case 0: /* To a place of our own, which may lie alike or not. */
        case 1: {
            char *wide = map(new_len + 3 * MIB);
            char *to = wide + (rand_r(&seed) % 2 ? (size_t)rand_r(&seed) % 512 * PAGE : (size_t)(at - wide) % (2 * MIB));
            fill(wide, new_len + 3 * MIB, 99);
            new = mremap(at, len, new_len, MREMAP_MAYMOVE | MREMAP_FIXED, to);
            CHECK(new == to);
            verify(wide, (size_t)(to - wide), 99);
            if (to > wide) CHECK(munmap(wide, (size_t)(to - wide)) == 0);
            CHECK(munmap(to + new_len, 3 * MIB - (size_t)(to - wide)) == 0);
            break;
        }
        case 2:
            new = mremap(at, len, len, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
            CHECK(new != MAP_FAILED && new != at);
            for (size_t n = 0; n < len; n += 16 * PAGE) CHECK(at[n] == 0);
            fill(at, len / 2, 5);
            verify(at, len / 2 / PAGE * PAGE, 5);
            CHECK(munmap(at, len) == 0);
            verify(new, len, 1);
            at = new;
            continue;
        default:
            new = mremap(at, len, new_len, MREMAP_MAYMOVE);
        }
        CHECK(new != MAP_FAILED);
        verify(new, kept, 1);
        for (size_t n = kept; n < new_len; n += PAGE) CHECK(new[n] == 0);
        fill(new, new_len, 1);
        at = new;
        len = new_len;
    }
    verify(at, len, 1);
    CHECK(munmap(at, len) == 0);
    return NULL;
}

/* Counting in what moves. */
static char *volatile place;
static uint64_t counts[COUNTED];
static unsigned long missed;
static __thread sigjmp_buf back;

static void missing(int signal) {
    (void)signal;
    siglongjmp(back, 1);
}

static void *count(void *argument) {
    unsigned seed = (unsigned)(uintptr_t)argument;
    while (!over) {
        const size_t n = (size_t)rand_r(&seed) % COUNTED;
        if (sigsetjmp(back, 1)) {
            missed++;
            continue;
        }
        const uint64_t before = __atomic_fetch_add((uint64_t *)(place + n * PAGE), 1, __ATOMIC_RELAXED);
        CHECK(before == 1 + counts[n]);
        counts[n]++;
    }
    return NULL;
}

static void *move(void *argument) {
    char *wide = argument;
    char *here = place, *there = wide + 8 * MIB + (size_t)(here - wide);
    while (!over) {
        CHECK(mremap(here, COUNTED * PAGE, COUNTED * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, there) == there);
        place = there;
        there = here;
        here = place;
        usleep(200);
    }
    return NULL;
}

int main(int argc, char **argv) {
    seconds = argc > 1 ? atoi(argv[1]) : 5;
    struct sigaction action = {.sa_handler = missing};
    CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
    char *wide = map(16 * MIB);
    place = wide + 5 * PAGE;
    for (size_t n = 0; n < COUNTED; n++) *(uint64_t *)(place + n * PAGE) = 1;
    pthread_t threads[4];
    CHECK(pthread_create(&threads[0], NULL, own, (void *)1) == 0);
    CHECK(pthread_create(&threads[1], NULL, own, (void *)2) == 0);
    CHECK(pthread_create(&threads[2], NULL, count, (void *)3) == 0);
    CHECK(pthread_create(&threads[3], NULL, move, wide) == 0);
    struct timespec start, now;
    clock_gettime(CLOCK_MONOTONIC, &start);
    size_t len = 4 * MIB;
    char *at = map(len);
    fill(at, len, 1000);
    do {
        const pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            verify(at, len, 1000);
            char *moved = mremap(at, len, 2 * len, MREMAP_MAYMOVE);
            CHECK(moved != MAP_FAILED);
            verify(moved, len, 1000);
            fill(moved, 2 * len, 7);
            verify(moved, 2 * len, 7);
            _exit(0);
        }
        at = mremap(at, len, len + PAGE, MREMAP_MAYMOVE);
        CHECK(at != MAP_FAILED);
        fill(at + len, PAGE, 1000 + len / PAGE);
        len += PAGE;
        int status;
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        verify(at, len, 1000);
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (now.tv_sec - start.tv_sec < seconds);
    over = 1;
    for (int n = 0; n < 4; n++) CHECK(pthread_join(threads[n], NULL) == 0);
    uint64_t sum = 0;
    for (size_t n = 0; n < COUNTED; n++) {
        CHECK(*(uint64_t *)(place + n * PAGE) == 1 + counts[n]);
        sum += counts[n];
    }
    CHECK(sum > 0);
    if (argc > 2) printf("%lu counted, %lu missed\n", (unsigned long)sum, missed);
    return 0;
}
