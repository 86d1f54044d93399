/* Threads with the smallest stack that the C library allows, which allocate, map, touch and fork. What they called
 * needed more stack than that when it had to evict something: SIGSEGV in free() and in the child of a fork. */
#include "check.h"
#include <limits.h>
#include <pthread.h>
#include <sys/wait.h>

#define LEN (8 * MIB)

static void churn(uint64_t seed)
{
    char *at = map(LEN), *block = malloc(MIB);
    fill(at, LEN, seed);
    fill(block, MIB, seed);
    verify(at, LEN, seed);
    CHECK(mprotect(at, LEN / 2, PROT_READ) == 0 && mprotect(at, LEN / 2, PROT_READ | PROT_WRITE) == 0);
    at = mremap(at, LEN, 2 * LEN, MREMAP_MAYMOVE);
    CHECK(at != MAP_FAILED);
    verify(at, LEN, seed);
    CHECK(madvise(at + LEN, LEN, MADV_DONTNEED) == 0 && madvise(at + LEN / 2, LEN / 2, MADV_FREE) == 0);
    verify(block, MIB, seed);
    block = realloc(block, 3 * MIB);
    verify(block, MIB, seed);
    free(block);
    CHECK(munmap(at, 2 * LEN) == 0);
}

static void *forks(void *seed)
{
    char *at = map(LEN);
    fill(at, LEN, 3);
    for (int n = 0; n < 6; n++) {
        int status;
        pid_t child = fork();
        if (!child) {
            verify(at, LEN, 3);
            churn(7);
            _exit(0);
        }
        CHECK(waitpid(child, &status, 0) == child && status == 0);
        churn((uint64_t)(uintptr_t)seed);
    }
    verify(at, LEN, 3);
    return NULL;
}

int main(void)
{
    pthread_attr_t attributes;
    pthread_t threads[3];
    char *rest = map(32 * MIB);
    fill(rest, 32 * MIB, 1);
    CHECK(pthread_attr_init(&attributes) == 0);
    CHECK(pthread_attr_setstacksize(&attributes, PTHREAD_STACK_MIN) == 0);
    for (uintptr_t n = 0; n < 3; n++) CHECK(pthread_create(&threads[n], &attributes, forks, (void *)(n + 11)) == 0);
    for (int n = 0; n < 3; n++) CHECK(pthread_join(threads[n], NULL) == 0);
    verify(rest, 32 * MIB, 1);
    puts("everything is as it was");
    return 0;
}
