/* Tries for half a second, with two threads, to become something that is not a program. While one of them is
 * trying, the kernel creates no thread (EAGAIN: copy_fs finds in_exec). So the library's own threads, which it
 * creates when a process is a tenth of a second old, could not be created: a line advised raising a limit, and
 * from then on nothing was freed in the background. */
#include "check.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static char name[] = "/tmp/no-program-XXXXXX";

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static pthread_barrier_t both;

static void *try(void *nothing)
{
    pthread_barrier_wait(&both);
    char *words[] = {name, NULL}, *variables[] = {NULL};
    for (double end = now() + 0.5; now() < end;)
        CHECK(execve(name, words, variables) == -1 && errno == ENOEXEC);
    return nothing;
}

int main(void)
{
    int fd = mkstemp(name);
    CHECK(fd >= 0 && write(fd, "none", 4) == 4 && fchmod(fd, 0700) == 0 && close(fd) == 0);
    pthread_t threads[2];
    CHECK(pthread_barrier_init(&both, NULL, 2) == 0);
    for (int n = 0; n < 2; n++)
        CHECK(pthread_create(&threads[n], NULL, try, NULL) == 0);
    for (int n = 0; n < 2; n++)
        CHECK(pthread_join(threads[n], NULL) == 0);
    unlink(name);
    puts("done");
    return 0;
}
