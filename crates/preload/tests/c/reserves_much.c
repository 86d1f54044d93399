/* A process that maps far more than its budget and touches little of it stays dormant: a thread looks at what is in
 * memory. One that then fills memory at full speed engages in time, and so does one that has the kernel fill it. */
#include "check.h"
#include "dormant.h"
#include <pthread.h>
#include <sys/wait.h>

/* Areas as large as threads' stacks, apart from each other. */
#define AREA (8 * MIB)
#define AREAS 1000ul
#define LITTLE 6ul

static long budget;

static char *areas[AREAS];

static void reserve(void)
{
    for (size_t n = 0; n < AREAS; n++) {
        areas[n] = mmap(NULL, AREA + PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        CHECK(areas[n] != MAP_FAILED && mprotect(areas[n], AREA, PROT_READ | PROT_WRITE) == 0);
    }
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

static void touch_little(void)
{
    for (size_t n = 0; n < AREAS; n++)
        for (size_t page = 0; page < LITTLE; page++) areas[n][page * PAGE + n] = (char)(n + page);
}

static void check_little(void)
{
    for (size_t n = 0; n < AREAS; n++)
        for (size_t page = 0; page < LITTLE; page++) CHECK(areas[n][page * PAGE + n] == (char)(n + page));
}

static void *waits(void *unused)
{
    (void)unused;
    nap(300000000);
    return NULL;
}

/* Thirty threads have 240 MiB of stacks, which count as mapped. */
static void with_threads(void)
{
    pthread_t threads[30];
    for (size_t n = 0; n < 30; n++) CHECK(pthread_create(&threads[n], NULL, waits, NULL) == 0);
    touch_little();
    for (size_t n = 0; n < 30; n++) CHECK(pthread_join(threads[n], NULL) == 0);
    CHECK(!is_filtered());
    check_little();
}

struct share {
    size_t first, end;
    int huge;
};

static void *fills(void *argument)
{
    struct share *share = argument;
    for (size_t n = share->first; n < share->end; n++) {
        if (share->huge) madvise(areas[n], AREA, MADV_HUGEPAGE);
        fill(areas[n], AREA, n);
    }
    return NULL;
}

static void fill_by(size_t workers, int huge)
{
    pthread_t threads[8];
    struct share shares[8];
    size_t each = (budget ? (size_t)budget * MIB * 5 / 4 / AREA : 16) / workers;
    for (size_t n = 0; n < workers; n++) {
        shares[n] = (struct share){n * each, (n + 1) * each, huge};
        if (workers > 1) CHECK(pthread_create(&threads[n], NULL, fills, &shares[n]) == 0);
    }
    if (workers == 1) fills(&shares[0]);
    for (size_t n = 0; n < workers && workers > 1; n++) CHECK(pthread_join(threads[n], NULL) == 0);
    for (size_t n = 0; n < workers * each; n++) verify(areas[n], AREA, n);
    engages_in_time();
}

/* The kernel reads a file to its end whatever signals there are, so looks would be too late. */
static void read_at_once(void)
{
    size_t len = budget ? (size_t)budget * MIB * 5 / 4 : MIB;
    int file = memfd_create("zeros", 0);
    char *into;
    CHECK(file >= 0 && ftruncate(file, (off_t)len) == 0 && pwrite(file, "end", 3, (off_t)len - 3) == 3);
    into = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(into != MAP_FAILED && read(file, into, len) == (ssize_t)len);
    CHECK(!memcmp(into + len - 3, "end", 3));
    engages_in_time();
}

static void *fills_alone(void *unused)
{
    (void)unused;
    nap(20000000);
    fill_by(1, 0);
    puts("as it was, by the last thread");
    return NULL;
}

int main(int count, char **arguments)
{
    const char *ram = getenv("MILLPOND_RAM"), *way = count > 1 ? arguments[1] : "";
    budget = ram ? atol(ram) >> 20 : 0;
    reserve();
    nap(20000000);
    CHECK(!is_filtered());
    if (!strcmp(way, "little")) {
        touch_little();
        nap(300000000);
        CHECK(!is_filtered());
        check_little();
    } else if (!strcmp(way, "threads")) {
        with_threads();
    } else if (!strcmp(way, "fills")) {
        fill_by(1, 0);
    } else if (!strcmp(way, "huge")) {
        fill_by(1, 1);
    } else if (!strcmp(way, "eight")) {
        fill_by(8, 1);
    } else if (!strcmp(way, "reads")) {
        read_at_once();
    } else if (!strcmp(way, "child")) {
        int status;
        pid_t child = fork();
        CHECK(child >= 0);
        if (!child) {
            fill_by(1, 1);
            _exit(0);
        }
        CHECK(waitpid(child, &status, 0) == child && status == 0);
        CHECK(!is_filtered());
    } else if (!strcmp(way, "first ends")) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, fills_alone, NULL) == 0);
        pthread_exit(NULL);
    }
    puts("as it was");
    return 0;
}
