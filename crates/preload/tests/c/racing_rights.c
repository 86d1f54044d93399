/* Threads on stacks in managed memory change their user and group, as a server's coroutines may, while other
 * threads evict the memory around them. The C library makes every thread of the process make the call. The
 * arguments are on the caller's stack and in the list of groups that the caller passed. The thread that serves
 * faults also makes the call, and would wait for itself if the stack or the list were absent. */
#define _GNU_SOURCE
#include <grp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define THREADS 3
#define STACK (256u << 10)
#define LEN (96u << 20)
#define GROUPS 3000

static atomic_int over, failed, changes;
static gid_t *groups;

static void *change(void *arg)
{
    char deep[32 << 10];
    memset(deep, (int)(size_t)arg, sizeof deep);
    while (!over) {
        if (setuid(getuid()) || setresgid(getgid(), -1, getgid()) || seteuid(geteuid()))
            failed = 1;
        /* Only root may do this. The first group makes no difference. */
        if (!geteuid() && setgroups(GROUPS, groups))
            failed = 2;
        changes++;
        if (deep[changes % sizeof deep] != (char)(size_t)arg)
            failed = 3;
        usleep(500);
    }
    return 0;
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS];
    time_t end = time(0) + (argc > 1 ? atoi(argv[1]) : 3);
    gid_t had[64];
    int count = getgroups(64, had);

    groups = malloc(GROUPS * sizeof *groups);
    for (int i = 0; i < GROUPS; i++)
        groups[i] = getgid();
    for (size_t i = 0; i < THREADS; i++) {
        pthread_attr_t attr;
        char *stack = aligned_alloc(4096, STACK);
        pthread_attr_init(&attr);
        if (!stack || pthread_attr_setstack(&attr, stack, STACK) ||
            pthread_create(&threads[i], &attr, change, (void *)i))
            return 1;
    }
    unsigned *memory = malloc(LEN);
    for (unsigned round = 0; time(0) < end; round++)
        for (size_t i = 0; i < LEN / sizeof *memory; i += 512) {
            if (round && memory[i] != (round - 1) * 31 + i)
                return 2;
            memory[i] = round * 31 + i;
        }
    over = 1;
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], 0);
    if (failed || changes < 10) {
        fprintf(stderr, "failed %d after %d changes\n", failed, changes);
        return 3;
    }
    return !geteuid() && count >= 0 && setgroups(count, had) ? 4 : 0;
}
