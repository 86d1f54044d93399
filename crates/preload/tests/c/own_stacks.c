/* Threads run on stacks in the program's own memory, from mmap and from an aligned malloc, and some of them fork
 * there. Formerly such a stack was pinned as a whole when its thread started, and never unpinned. After a few
 * rounds the budget was full of stacks that no thread used, and the next fault was never served. */
#include "check.h"
#include <pthread.h>
#include <sys/wait.h>

enum { THREADS = 20, ROUNDS = 3, STACK = 1 << 20 };

static int deep(int depth) {
    char local[3000];
    memset(local, depth, sizeof local);
    int below = depth ? deep(depth - 1) : 0;
    for (size_t n = 0; n < sizeof local; n++) CHECK(local[n] == (char)depth);
    return below + local[7];
}

static void *work(void *argument) {
    uintptr_t number = (uintptr_t)argument;
    for (int n = 0; n < 3; n++) {
        deep(200);
        if (number % 8) continue;
        pid_t child = fork();
        if (child == 0) {
            deep(100);
            _exit(0);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
    return NULL;
}

int main(void) {
    pthread_t threads[THREADS];
    char *stacks[THREADS];
    for (int round = 0; round < ROUNDS; round++) {
        int mapped = round % 2;
        for (uintptr_t n = 0; n < THREADS; n++) {
            pthread_attr_t attributes;
            CHECK(pthread_attr_init(&attributes) == 0);
            stacks[n] = mapped ? map(STACK) : aligned_alloc(PAGE, STACK);
            CHECK(stacks[n] && pthread_attr_setstack(&attributes, stacks[n], STACK) == 0);
            CHECK(pthread_create(&threads[n], &attributes, work, (void *)n) == 0);
        }
        for (int n = 0; n < THREADS; n++) {
            CHECK(pthread_join(threads[n], NULL) == 0);
            if (mapped)
                CHECK(munmap(stacks[n], STACK) == 0);
            else
                free(stacks[n]);
        }
        press();
        printf("round %d is over\n", round);
    }
    return 0;
}
