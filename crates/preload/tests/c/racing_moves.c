/* Threads call mremap at three times the budget. Some fill, grow, shrink and move their own areas. One thread each
 * counts in two areas that other threads move back and forth, and the main thread forks. At the end the counts
 * must be correct, wherever the area was at each moment. An access to an address where the area is not must raise
 * SIGSEGV, and never read zeros. */
#include "check.h"
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

static int seconds;
static volatile int over;

/* These threads own their areas. None of these areas fits at an address that the counted area has left. */
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
        case 0: /* The target is an address of the thread's own, which may have the same offset within 2 MiB or not. */
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

/* These threads count in an area that is moved by its page tables, and to an address with another offset within 2
 * MiB. */
struct counted {
    char *wide;
    size_t away;
    char *volatile place;
    uint64_t counts[COUNTED];
    unsigned long missed;
};
static struct counted sets[2] = {{.away = 8 * MIB}, {.away = 8 * MIB + 37 * PAGE}};
static __thread sigjmp_buf back;

static void missing(int signal) {
    (void)signal;
    siglongjmp(back, 1);
}

static void *count(void *argument) {
    struct counted *set = argument;
    unsigned seed = (unsigned)set->away;
    while (!over) {
        const size_t n = (size_t)rand_r(&seed) % COUNTED;
        if (sigsetjmp(back, 1)) {
            set->missed++;
            continue;
        }
        const uint64_t before = __atomic_fetch_add((uint64_t *)(set->place + n * PAGE), 1, __ATOMIC_RELAXED);
        CHECK(before == 1 + set->counts[n]);
        set->counts[n]++;
    }
    return NULL;
}

static void *move(void *argument) {
    struct counted *set = argument;
    char *here = set->place, *there = here + set->away;
    while (!over) {
        CHECK(mremap(here, COUNTED * PAGE, COUNTED * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, there) == there);
        set->place = there;
        there = here;
        here = set->place;
        usleep(200);
    }
    return NULL;
}

int main(int argc, char **argv) {
    seconds = argc > 1 ? atoi(argv[1]) : 5;
    struct sigaction action = {.sa_handler = missing};
    CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
    pthread_t threads[6];
    for (int n = 0; n < 2; n++) {
        struct counted *set = &sets[n];
        set->wide = map(16 * MIB);
        set->place = set->wide + 5 * PAGE;
        for (size_t n = 0; n < COUNTED; n++) *(uint64_t *)(set->place + n * PAGE) = 1;
        CHECK(pthread_create(&threads[3 * n], NULL, own, (void *)(uintptr_t)(n + 1)) == 0);
        CHECK(pthread_create(&threads[3 * n + 1], NULL, count, set) == 0);
        CHECK(pthread_create(&threads[3 * n + 2], NULL, move, set) == 0);
    }
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
    for (int n = 0; n < 6; n++) CHECK(pthread_join(threads[n], NULL) == 0);
    for (int set = 0; set < 2; set++) {
        uint64_t sum = 0;
        for (size_t n = 0; n < COUNTED; n++) {
            CHECK(*(uint64_t *)(sets[set].place + n * PAGE) == 1 + sets[set].counts[n]);
            sum += sets[set].counts[n];
        }
        CHECK(sum > 0);
        if (argc > 2) printf("%lu counted, %lu missed\n", (unsigned long)sum, sets[set].missed);
    }
    return 0;
}
