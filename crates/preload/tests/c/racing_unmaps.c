/* Large areas are unmapped while threads touch them, and are gone when the call returns. Forks come in between. */
#include "check.h"
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <time.h>

enum { TOUCHERS = 2, OTHERS = 2 };

static const size_t LEN = 24 * MIB + 5 * PAGE;

static __thread sigjmp_buf *way_out;
static char *window;
static atomic_int touching, round_number, done;

static void caught(int signal) {
    if (!way_out) _exit(signal);
    siglongjmp(*way_out, 1);
}

/* Returns whether an access raises SIGSEGV. */
static int is_gone(char *at, int writes) {
    sigjmp_buf here;
    way_out = &here;
    int gone = sigsetjmp(here, 1);
    if (!gone) {
        if (writes) *(volatile char *)at = 1;
        else (void)*(volatile char *)at;
    }
    way_out = NULL;
    return gone;
}

static void all_gone(char *at, size_t len) {
    for (size_t n = 0; n < len; n += 61 * PAGE) CHECK(is_gone(at + n, n % 2));
    CHECK(is_gone(at + len - PAGE, 1));
}

static void all_zero(const char *at, size_t len) {
    for (size_t n = 0; n < len; n += PAGE) CHECK(*(const uint64_t *)(at + n) == 0);
}

static char *map_at(char *at, size_t len) {
    char *got = mmap(at, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    CHECK(got == at);
    return got;
}

/* Ends an area in every possible way, while no other thread runs. */
static void alone(void) {
    for (int n = 0; n < 6; n++) {
        char *at = map(LEN);
        fill(at, LEN, n);
        CHECK(munmap(at, LEN) == 0);
        all_gone(at, LEN);
        map_at(at, LEN);
        all_zero(at, LEN);
        fill(at, LEN, n);
        /* The call unmaps the middle of the area, starting and ending anywhere. */
        size_t from = (size_t)(n + 1) * 77 * PAGE, len = 16 * MIB + (size_t)n * PAGE;
        if (n % 2) CHECK(mprotect(at + from + MIB, 3 * MIB, n % 3 ? PROT_READ : PROT_NONE) == 0);
        CHECK(munmap(at + from, len) == 0);
        all_gone(at + from, len);
        verify(at, from, n);
        verify(at + from + len, LEN - from - len, n + (from + len) / PAGE);
        /* The mapping that replaces it is also new. */
        map_at(at, LEN);
        all_zero(at, LEN);
        fill(at, LEN, n);
        pid_t child = fork();
        CHECK(child >= 0);
        if (!child) {
            CHECK(munmap(at, LEN - 12 * MIB) == 0);
            all_gone(at, LEN - 12 * MIB);
            verify(at + LEN - 12 * MIB, 12 * MIB, n + (LEN - 12 * MIB) / PAGE);
            _exit(0);
        }
        CHECK(munmap(at + 12 * MIB, LEN - 12 * MIB) == 0);
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
        verify(at, 12 * MIB, n);
        CHECK(munmap(at, 12 * MIB) == 0);
        all_gone(at, LEN);
    }
}

/* Touches the window in each round until the window is gone. */
static void *touch(void *argument) {
    unsigned seed = (unsigned)(uintptr_t)argument;
    for (int round = 1;; round++) {
        while (atomic_load(&round_number) < round) {
            if (atomic_load(&done)) return NULL;
            usleep(50);
        }
        while (!is_gone(window + (size_t)rand_r(&seed) % (LEN / PAGE) * PAGE, rand_r(&seed) % 2))
            ;
        atomic_fetch_sub(&touching, 1);
    }
}

/* Maps, fills, verifies and unmaps other memory meanwhile. */
static void *churn(void *argument) {
    uint64_t seed = (uintptr_t)argument;
    while (!atomic_load(&done)) {
        size_t len = (10 + seed % 3) * MIB;
        char *at = map(len);
        all_zero(at, len);
        fill(at, len, seed);
        verify(at, len, seed);
        CHECK(munmap(at, len) == 0);
        seed++;
    }
    return NULL;
}

int main(int count, char **arguments) {
    int seconds = count > 1 ? atoi(arguments[1]) : 3;
    struct sigaction action = {.sa_handler = caught};
    CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
    alone();
    /* No other mapping gets these addresses, because the rest of the area stays mapped. The kernel's signal frames
     * must not lie there. */
    window = map(LEN);
    pthread_t threads[TOUCHERS + OTHERS];
    for (uintptr_t n = 0; n < TOUCHERS + OTHERS; n++)
        CHECK(pthread_create(&threads[n], NULL, n < TOUCHERS ? touch : churn, (void *)(n + 1)) == 0);
    struct timespec start, now;
    clock_gettime(CLOCK_MONOTONIC, &start);
    do {
        fill(window, LEN, 7);
        atomic_store(&touching, TOUCHERS);
        atomic_fetch_add(&round_number, 1);
        usleep(200);
        /* A PROT_NONE mapping takes the addresses at once, so the other threads do not get them. */
        CHECK(mmap(window, LEN, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == window);
        all_gone(window, LEN);
        while (atomic_load(&touching) > 0) usleep(50);
        map_at(window, LEN);
        all_zero(window, LEN);
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (now.tv_sec - start.tv_sec < seconds);
    atomic_store(&done, 1);
    for (int n = 0; n < TOUCHERS + OTHERS; n++) CHECK(pthread_join(threads[n], NULL) == 0);
    return 0;
}
