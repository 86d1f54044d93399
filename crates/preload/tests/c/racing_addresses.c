/* Three threads ask for memory of different kinds at the same few addresses, low and high, by hints, by MAP_32BIT
 * and by MAP_FIXED_NOREPLACE, use it, and free it, at three times the budget. Meanwhile a fourth thread forks
 * children, which find all memory as it was at the fork. The pages of a thread hold the thread's own numbers, so
 * two threads with the same address would notice. */
#include "check.h"
#include <fcntl.h>
#include <pthread.h>
#include <sys/wait.h>
#include <time.h>

enum { KEPT = 12, THREADS = 3 };
#define LONGEST (4 * MIB)

static int seconds, file;
static struct kept {
    char *at;
    size_t len;
    uint64_t seed;
    pthread_mutex_t held;
} kept[THREADS][KEPT];

static int is_over(void) {
    static struct timespec start;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (!start.tv_sec) start = now;
    return now.tv_sec - start.tv_sec >= seconds;
}

static char *ask(unsigned *seed, size_t len) {
    static const uintptr_t PLACE[] = {0x50000000, 0x7ff00000, 0xffe00000, 0x800000000, 0x4200000000, 0xc000000000};
    void *place = (void *)(PLACE[rand_r(seed) % 6] + rand_r(seed) % 4 * MIB);
    const int prot = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS;
    char *at;
    switch (rand_r(seed) % 6) {
    case 0:
        at = mmap(place, len, prot, flags | MAP_FIXED_NOREPLACE, -1, 0);
        CHECK(at == place || (at == MAP_FAILED && errno == EEXIST));
        return at == MAP_FAILED ? NULL : at;
    case 1: at = mmap(NULL, len, prot, flags | MAP_32BIT, -1, 0); break;
    case 2: at = mmap(place, len, prot | PROT_EXEC, flags, -1, 0); break;
    case 3: at = mmap(place, len, prot, MAP_PRIVATE, file, 0); break;
    case 4:
        at = mmap(place, len, PROT_NONE, flags | MAP_NORESERVE, -1, 0);
        CHECK(at != MAP_FAILED && mprotect(at, len, prot) == 0);
        break;
    default: at = mmap(place, len, prot, flags, -1, 0);
    }
    CHECK(at != MAP_FAILED);
    return at;
}

static void *work(void *argument) {
    struct kept *mine = kept[(uintptr_t)argument];
    unsigned seed = (uintptr_t)argument + 1;
    uint64_t count = 0;
    while (!is_over()) {
        struct kept *one = &mine[rand_r(&seed) % KEPT];
        CHECK(pthread_mutex_lock(&one->held) == 0);
        if (one->at) {
            verify(one->at, one->len, one->seed);
            CHECK(munmap(one->at, one->len) == 0);
            one->at = NULL;
        } else {
            one->len = (1 + rand_r(&seed) % (LONGEST / PAGE)) * PAGE;
            one->seed = ((uintptr_t)argument << 40) + (++count << 20);
            if ((one->at = ask(&seed, one->len))) fill(one->at, one->len, one->seed);
        }
        CHECK(pthread_mutex_unlock(&one->held) == 0);
    }
    return NULL;
}

/* Each child checks the memory that no thread was working on when the child was created. */
static void *make_children(void *nothing) {
    while (!is_over()) {
        pid_t child = fork();
        if (child == 0) {
            for (int n = 0; n < THREADS * KEPT; n++) {
                struct kept *one = &kept[0][n];
                if (pthread_mutex_trylock(&one->held) || !one->at) continue;
                verify(one->at, one->len, one->seed);
                fill(one->at, one->len, 5);
                verify(one->at, one->len, 5);
            }
            _exit(0);
        }
        int status;
        CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    }
    return nothing;
}

int main(int count, char **arguments) {
    seconds = count > 1 ? atoi(arguments[1]) : 3;
    FILE *content = tmpfile();
    file = fileno(content);
    CHECK(ftruncate(file, LONGEST) == 0);
    for (int n = 0; n < THREADS * KEPT; n++) CHECK(pthread_mutex_init(&kept[0][n].held, NULL) == 0);
    is_over();
    pthread_t thread[THREADS + 1];
    for (uintptr_t n = 0; n < THREADS; n++) CHECK(pthread_create(&thread[n], NULL, work, (void *)n) == 0);
    CHECK(pthread_create(&thread[THREADS], NULL, make_children, NULL) == 0);
    for (int n = 0; n <= THREADS; n++) CHECK(pthread_join(thread[n], NULL) == 0);
    return 0;
}
