/* Two hundred threads wait in read, each with a buffer of 256 KiB: together that exceeds the budget, and the
 * buffers cannot all stay in memory meanwhile. Each receives the correct data. */
#include "out.h"
#include <pthread.h>

enum { THREADS = 200, BUFFER = 256 << 10, COMES = 3000 };
static int pipes[THREADS][2];
static pthread_barrier_t ready;

static size_t resident(void) {
    size_t all = 0, there = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file && fscanf(file, "%zu %zu", &all, &there) == 2);
    fclose(file);
    return there * PAGE;
}

static void *reader(void *which) {
    long k = (long)which;
    unsigned char *at = (unsigned char *)block(BUFFER);
    memset(at, (int)k, BUFFER);
    pthread_barrier_wait(&ready);
    CHECK(read(pipes[k][0], at, BUFFER) == COMES);
    for (int i = 0; i < BUFFER; i++) CHECK(at[i] == (unsigned char)(i < COMES ? k + i : k));
    return NULL;
}

int main(void) {
    static pthread_t threads[THREADS];
    pthread_attr_t small;
    CHECK(pthread_attr_init(&small) == 0 && pthread_attr_setstacksize(&small, 64 << 10) == 0);
    CHECK(pthread_barrier_init(&ready, NULL, THREADS + 1) == 0);
    for (long k = 0; k < THREADS; k++) {
        CHECK(pipe(pipes[k]) == 0);
        CHECK(pthread_create(&threads[k], &small, reader, (void *)k) == 0);
    }
    pthread_barrier_wait(&ready);
    usleep(300000);
    char *other = map(64 * MIB);
    fill(other, 64 * MIB, 1);
    CHECK(resident() <= 35 * MIB);
    verify(other, 64 * MIB, 1);
    for (long k = 0; k < THREADS; k++) {
        unsigned char comes[COMES];
        for (int i = 0; i < COMES; i++) comes[i] = (unsigned char)(k + i);
        CHECK(write(pipes[k][1], comes, COMES) == COMES);
    }
    for (long k = 0; k < THREADS; k++) CHECK(pthread_join(threads[k], NULL) == 0);
    printf("all have read\n");
    return 0;
}
