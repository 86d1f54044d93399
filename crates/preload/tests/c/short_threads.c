/* Threads that follow each other, each with buffers of its own: what one has freed, the next one uses. Also in a child,
 * in which the allocator has counted its threads anew. */
#include "dormant.h"
#include <pthread.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>

enum { THREADS = 60, BUFFERS = 4, BYTES = 64 << 10, PAGES = BUFFERS * BYTES / 4096 };

static void *work(void *unused)
{
    (void)unused;
    char *buffers[BUFFERS];
    for (int i = 0; i < BUFFERS; i++) {
        CHECK((buffers[i] = malloc(BYTES)));
        memset(buffers[i], 1, BYTES);
    }
    for (int i = 0; i < BUFFERS; i++) free(buffers[i]);
    return NULL;
}

static void threads(int count)
{
    for (int i = 0; i < count; i++) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, work, NULL) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
    }
}

static long faults(void)
{
    struct rusage usage;
    CHECK(getrusage(RUSAGE_SELF, &usage) == 0);
    return usage.ru_minflt;
}

static void look(const char *who)
{
    threads(10);
    long before = faults();
    threads(THREADS);
    long each = (faults() - before) / THREADS;
    /* The C library alone gives a half of them back. */
    if (each > PAGES * 3 / 4) printf("%s: %ld faults a thread, whose buffers have %d pages\n", who, each, PAGES);
    printf("%s: done\n", who);
    fflush(stdout);
}

int main(void)
{
    look("process");
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        look("child");
        return 0;
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    return 0;
}
