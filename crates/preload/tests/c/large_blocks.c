/* Three threads grow and shrink blocks of 1 to 12 MiB by realloc, at twice the budget, while the main thread
 * forks. The blocks keep their contents, memory from calloc is zero whichever thread had it before, and the number
 * of kernel mappings does not keep growing. */
#include "check.h"
#include <malloc.h>
#include <pthread.h>
#include <sys/wait.h>
#include <time.h>

static volatile int over;

static size_t some(unsigned *seed) { return (256 + (size_t)rand_r(seed) % 2800) * PAGE + (size_t)rand_r(seed) % PAGE; }

/* Every page is checked, and the last bytes. */
static void fill_all(char *at, size_t len, uint64_t seed) {
    for (size_t n = 0; n < len / PAGE; n++) *(uint64_t *)(at + n * PAGE) = seed + n;
    memset(at + len - 8, (int)seed & 127, 8);
}
static void verify_all(const char *at, size_t len, uint64_t seed) {
    for (size_t n = 0; n < len / PAGE; n++) CHECK(*(const uint64_t *)(at + n * PAGE) == seed + n || n * PAGE + 8 > len - 8);
    for (int n = 1; n <= 8; n++) CHECK(at[len - n] == ((int)seed & 127));
}

static void *work(void *argument) {
    unsigned seed = (unsigned)(uintptr_t)argument;
    enum { KEPT = 3 };
    char *kept[KEPT] = {0};
    size_t len[KEPT] = {0};
    while (!over) {
        const int n = rand_r(&seed) % KEPT;
        const size_t wanted = some(&seed);
        if (!kept[n]) {
            kept[n] = rand_r(&seed) % 2 ? calloc(1, wanted) : NULL;
            for (size_t at = 0; kept[n] && at < wanted; at += PAGE / 2) CHECK(kept[n][at] == 0);
            if (!kept[n]) kept[n] = malloc(wanted);
            fill_all(kept[n], wanted, wanted);
        } else if (rand_r(&seed) % 4 == 0) {
            verify_all(kept[n], len[n], len[n]);
            free(kept[n]);
            kept[n] = NULL;
        } else {
            const size_t both = len[n] < wanted ? len[n] : wanted;
            kept[n] = realloc(kept[n], wanted);
            CHECK(kept[n] && malloc_usable_size(kept[n]) >= wanted);
            for (size_t m = 0; m < (both - 8) / PAGE; m++)
                CHECK(*(uint64_t *)(kept[n] + m * PAGE) == len[n] + m);
            fill_all(kept[n], wanted, wanted);
        }
        len[n] = wanted;
    }
    for (int n = 0; n < KEPT; n++) free(kept[n]);
    return NULL;
}

static int mappings(void) {
    FILE *maps = fopen("/proc/self/maps", "r");
    CHECK(maps);
    int lines = 0;
    for (int c; (c = getc(maps)) != EOF;) lines += c == '\n';
    fclose(maps);
    return lines;
}

int main(int argc, char **argv) {
    const int seconds = argc > 1 ? atoi(argv[1]) : 4;
    pthread_t threads[3];
    for (uintptr_t n = 0; n < 3; n++) CHECK(pthread_create(&threads[n], NULL, work, (void *)(n + 1)) == 0);
    struct timespec start, now;
    clock_gettime(CLOCK_MONOTONIC, &start);
    size_t len = 2 * MIB;
    char *at = malloc(len);
    fill_all(at, len, 5);
    int rounds = 0;
    do {
        const pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            verify_all(at, len, 5);
            at = realloc(at, 3 * len);
            for (size_t n = 0; n < len / PAGE - 1; n++) CHECK(*(uint64_t *)(at + n * PAGE) == 5 + n);
            fill_all(at, 3 * len, 6);
            verify_all(at, 3 * len, 6);
            _exit(0);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        verify_all(at, len, 5);
        len = len > 8 * MIB ? 2 * MIB : len + 300 * PAGE;
        at = realloc(at, len);
        CHECK(at);
        fill_all(at, len, 5);
        rounds++;
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (now.tv_sec - start.tv_sec < seconds);
    over = 1;
    for (int n = 0; n < 3; n++) CHECK(pthread_join(threads[n], NULL) == 0);
    free(at);
    CHECK(mappings() < 1000);
    if (argc > 2) printf("%d rounds, %d mappings\n", rounds, mappings());
    return 0;
}
