/* Coroutines with stacks from malloc map, unmap, allocate and fork while their stacks are evicted. */
#include "check.h"
#include <sys/wait.h>
#include <ucontext.h>

enum { COUNT = 8, ROUNDS = 6 };
static ucontext_t hub, contexts[COUNT];
static int done;

static void body(int number) {
    char local[32 << 10];
    memset(local, number, sizeof local);
    for (int round = 0; round < ROUNDS; round++) {
        char *at = map(MIB + number * PAGE);
        fill(at, MIB, number);
        char *block = malloc(3 * MIB);
        fill(block, 3 * MIB, round);
        swapcontext(&contexts[number], &hub);
        verify(at, MIB, number);
        verify(block, 3 * MIB, round);
        CHECK(mprotect(at, MIB, PROT_READ) == 0);
        CHECK(madvise(at, MIB, MADV_DONTNEED) == 0);
        CHECK(munmap(at, MIB + number * PAGE) == 0);
        free(block);
        if (round == 2 && number < 2) {
            pid_t child = fork();
            if (child == 0) {
                for (size_t n = 0; n < sizeof local; n++) CHECK(local[n] == number);
                _exit(9);
            }
            int status;
            CHECK(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 9);
        }
        for (size_t n = 0; n < sizeof local; n++) CHECK(local[n] == number);
    }
    done++;
}

static void prepare(int n) {
    CHECK(getcontext(&contexts[n]) == 0);
    contexts[n].uc_stack.ss_sp = malloc(256 << 10);
    contexts[n].uc_stack.ss_size = 256 << 10;
    contexts[n].uc_link = &hub;
    makecontext(&contexts[n], (void (*)(void))body, 1, n);
}

int main(void) {
    for (int n = 0; n < COUNT; n++) prepare(n);
    for (int round = 0; round <= ROUNDS; round++) {
        for (int n = 0; n < COUNT; n++) CHECK(swapcontext(&hub, &contexts[n]) == 0);
        if (round % 2) press();
    }
    CHECK(done == COUNT);
    return 0;
}
