/* Threads run on stacks from malloc and from mmap, under memory pressure, and are joined and freed. */
#include "check.h"
#include <pthread.h>

static void *work(void *argument) {
    char local[64 << 10];
    memset(local, (int)(intptr_t)argument, sizeof local);
    char *block = malloc(MIB);
    memset(block, 1, MIB);
    usleep(1000);
    press();
    for (size_t n = 0; n < sizeof local; n++) CHECK(local[n] == (char)(intptr_t)argument);
    free(block);
    return argument;
}

int main(void) {
    for (int round = 0; round < 3; round++) {
        enum { COUNT = 4 };
        pthread_t threads[COUNT];
        char *stacks[COUNT];
        for (intptr_t n = 0; n < COUNT; n++) {
            pthread_attr_t attributes;
            CHECK(pthread_attr_init(&attributes) == 0);
            stacks[n] = n % 2 ? map(512 << 10) : aligned_alloc(4096, 512 << 10);
            CHECK(pthread_attr_setstack(&attributes, stacks[n], 512 << 10) == 0);
            CHECK(pthread_create(&threads[n], &attributes, work, (void *)(n + 1)) == 0);
            pthread_attr_destroy(&attributes);
        }
        for (intptr_t n = 0; n < COUNT; n++) {
            void *result;
            CHECK(pthread_join(threads[n], &result) == 0 && result == (void *)(n + 1));
            if (n % 2) CHECK(munmap(stacks[n], 512 << 10) == 0);
            else free(stacks[n]);
        }
    }
    return 0;
}
