/* A process that maps far more than its budget and touches little of it stays dormant: a thread looks at what is in
 * memory. One that then fills memory at full speed engages in time. */
#include "check.h"
#include <pthread.h>
#include <sys/wait.h>
#include <time.h>

#define RESERVED (8ul << 30)
#define LITTLE (24 * MIB)

static long budget;

static char *reserve(void)
{
    char *at = mmap(NULL, RESERVED, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(at != MAP_FAILED);
    return at;
}

static void nap(long nanoseconds)
{
    struct timespec time = {0, nanoseconds};
    CHECK(nanosleep(&time, NULL) == 0);
}

/* A process that is engaged has a filter. */
static int is_filtered(void)
{
    char line[256];
    int mode = -1;
    FILE *status = fopen("/proc/self/status", "r");
    CHECK(status);
    while (fgets(line, sizeof line, status)) sscanf(line, "Seccomp: %d", &mode);
    fclose(status);
    return mode == 2;
}

static void engages_in_time(void)
{
    long peak = peak_kib() >> 10, most = budget + budget / 100 + 4;
    CHECK(is_filtered() == !!budget);
    if (budget && peak > most) {
        fprintf(stderr, "%ld MiB of %ld\n", peak, budget);
        exit(1);
    }
}

static void touch_little(char *at)
{
    for (size_t n = 0; n < LITTLE / PAGE; n++) at[n * (RESERVED / LITTLE) * PAGE] = (char)n;
}

static void check_little(const char *at)
{
    for (size_t n = 0; n < LITTLE / PAGE; n++) CHECK(at[n * (RESERVED / LITTLE) * PAGE] == (char)n);
}

static void *waits(void *unused)
{
    (void)unused;
    nap(300000000);
    return NULL;
}

/* Thirty threads have 240 MiB of stacks, which count as mapped. */
static void with_threads(char *at)
{
    pthread_t threads[30];
    for (size_t n = 0; n < 30; n++) CHECK(pthread_create(&threads[n], NULL, waits, NULL) == 0);
    touch_little(at);
    for (size_t n = 0; n < 30; n++) CHECK(pthread_join(threads[n], NULL) == 0);
    CHECK(!is_filtered());
    check_little(at);
}

struct share {
    char *at;
    size_t len;
    int huge;
};

static void *fills(void *argument)
{
    struct share *share = argument;
    if (share->huge) madvise(share->at, share->len, MADV_HUGEPAGE);
    fill(share->at, share->len, 3);
    verify(share->at, share->len, 3);
    return NULL;
}

static void fill_by(char *at, size_t workers, int huge)
{
    pthread_t threads[8];
    struct share shares[8];
    size_t len = (size_t)budget * MIB * 5 / 4 / workers & ~(2 * MIB - 1);
    if (!len) len = 32 * MIB;
    for (size_t n = 0; n < workers; n++) {
        shares[n] = (struct share){at + n * len, len, huge};
        if (workers > 1) CHECK(pthread_create(&threads[n], NULL, fills, &shares[n]) == 0);
    }
    if (workers == 1) fills(&shares[0]);
    for (size_t n = 0; n < workers && workers > 1; n++) CHECK(pthread_join(threads[n], NULL) == 0);
    for (size_t n = 0; n < workers; n++) verify(shares[n].at, len, 3);
    engages_in_time();
}

static void *fills_alone(void *at)
{
    nap(20000000);
    fill_by(at, 1, 0);
    puts("as it was, by the last thread");
    return NULL;
}

int main(int count, char **arguments)
{
    const char *ram = getenv("MILLPOND_RAM"), *way = count > 1 ? arguments[1] : "";
    char *at;
    budget = ram ? atol(ram) >> 20 : 0;
    at = reserve();
    nap(20000000);
    CHECK(!is_filtered());
    if (!strcmp(way, "little")) {
        touch_little(at);
        nap(300000000);
        CHECK(!is_filtered());
        check_little(at);
    } else if (!strcmp(way, "threads")) {
        with_threads(at);
    } else if (!strcmp(way, "fills")) {
        fill_by(at, 1, 0);
    } else if (!strcmp(way, "huge")) {
        fill_by(at, 1, 1);
    } else if (!strcmp(way, "eight")) {
        fill_by(at, 8, 1);
    } else if (!strcmp(way, "child")) {
        int status;
        pid_t child = fork();
        CHECK(child >= 0);
        if (!child) {
            fill_by(at, 1, 1);
            _exit(0);
        }
        CHECK(waitpid(child, &status, 0) == child && status == 0);
        CHECK(!is_filtered());
    } else if (!strcmp(way, "first ends")) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, fills_alone, at) == 0);
        pthread_exit(NULL);
    }
    puts("as it was");
    return 0;
}
