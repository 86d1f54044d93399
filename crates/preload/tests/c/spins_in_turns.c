/* One thread touches absent memory while the other spins until its turn, as with OpenMP's active waiting and with
 * barriers that spin. Each has its own processor, which the spinning one does not give up. With "fifo" they are in
 * a real-time class, if they may be: a handler of an ordinary class then had no processor until the kernel
 * throttled the class, and a loop took 297 times as long as natively. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include "check.h"

#define LEN (40 * MIB)
#define ROUNDS 12

static atomic_int turn;
static char *memory;

static void *work(void *number)
{
    int me = (int)(size_t)number;
    for (int round = 0; round < ROUNDS; round++) {
        while (atomic_load(&turn) != me)
            ;
        for (size_t at = (size_t)(round % 16) * PAGE; at < LEN; at += 16 * PAGE)
            memory[at]++;
        atomic_store(&turn, !me);
    }
    return NULL;
}

static void begin(pthread_t *thread, size_t number, int fifo)
{
    pthread_attr_t attributes;
    cpu_set_t own;
    CHECK(!pthread_attr_init(&attributes));
    if (sysconf(_SC_NPROCESSORS_ONLN) > 1) {
        CPU_ZERO(&own);
        CPU_SET(number, &own);
        pthread_attr_setaffinity_np(&attributes, sizeof own, &own);
    }
    if (fifo) {
        struct sched_param priority = {10};
        pthread_attr_setinheritsched(&attributes, PTHREAD_EXPLICIT_SCHED);
        pthread_attr_setschedpolicy(&attributes, SCHED_FIFO);
        pthread_attr_setschedparam(&attributes, &priority);
    }
    int error = pthread_create(thread, &attributes, work, (void *)number);
    /* An ordinary user may lack access to the class, and the process may lack these processors. */
    if (error)
        error = pthread_create(thread, NULL, work, (void *)number);
    CHECK(!error);
}

int main(int argc, char **argv)
{
    int fifo = argc > 1 && !strcmp(argv[1], "fifo");
    /* On one processor a spinning thread of the class would wait for the kernel to throttle it, natively too. */
    if (fifo && sysconf(_SC_NPROCESSORS_ONLN) < 2)
        return 0;
    memory = map(LEN);
    fill(memory, LEN, 3);
    pthread_t threads[2];
    for (size_t n = 0; n < 2; n++)
        begin(&threads[n], n, fifo);
    for (int n = 0; n < 2; n++)
        CHECK(!pthread_join(threads[n], NULL));
    for (size_t page = 0; page < LEN / PAGE; page++) {
        uint64_t word = 3 + page;
        /* Both threads added one to each of the first twelve pages of sixteen. */
        ((char *)&word)[0] += page % 16 < ROUNDS ? 2 : 0;
        CHECK(*(uint64_t *)(memory + page * PAGE) == word);
    }
    return 0;
}
