/* Two threads use 24 MiB of their stacks each, in a budget of 32 (OpenMP programs do so with OMP_STACKSIZE).
 * Stacks are not managed: they stay in memory, the budget is exceeded with a message that says so, and everything
 * else is evicted in their favour. With "own" the program maps the stacks itself and gives them to the threads. */
#include "check.h"
#include <pthread.h>

#define DEEP (24 * MIB)
#define STACK (DEEP + 4 * MIB)
#define FRAME (64ul << 10)

static __attribute__((noinline)) uint64_t descend(size_t left, uint64_t seed)
{
    volatile uint64_t frame[FRAME / 8];
    for (size_t n = 0; n < FRAME / 8; n += 64)
        frame[n] = seed + n;
    uint64_t sum = left > FRAME ? descend(left - FRAME, seed + 1) : 0;
    for (size_t n = 0; n < FRAME / 8; n += 64)
        CHECK(frame[n] == seed + n);
    return sum + seed;
}

static void *work(void *number)
{
    uint64_t sum = 0;
    for (int round = 0; round < 3; round++)
        sum += descend(DEEP, (size_t)number * 1000);
    return (void *)sum;
}

int main(int argc, char **argv)
{
    int is_own = argc > 1 && !strcmp(argv[1], "own");
    char *heap = map(24 * MIB);
    fill(heap, 24 * MIB, 5);
    pthread_t threads[2];
    for (size_t n = 0; n < 2; n++) {
        pthread_attr_t attributes;
        CHECK(!pthread_attr_init(&attributes));
        if (is_own) {
            void *stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
            CHECK(stack != MAP_FAILED);
            CHECK(!pthread_attr_setstack(&attributes, stack, STACK));
        } else {
            CHECK(!pthread_attr_setstacksize(&attributes, STACK));
        }
        CHECK(!pthread_create(&threads[n], &attributes, work, (void *)(n + 1)));
    }
    const uint64_t steps = DEEP / FRAME;
    for (size_t n = 0; n < 2; n++) {
        void *sum;
        CHECK(!pthread_join(threads[n], &sum));
        CHECK((uint64_t)sum == 3 * (steps * (n + 1) * 1000 + steps * (steps - 1) / 2));
    }
    verify(heap, 24 * MIB, 5);
    return 0;
}
