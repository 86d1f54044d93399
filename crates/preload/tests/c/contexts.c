/* Coroutines whose contexts block all signals, and which touch absent memory. */
#include "out.h"
#include <signal.h>
#include <ucontext.h>

static ucontext_t ours, theirs;
static char stack[256 << 10], *area;

static void coroutine(void) {
    for (int round = 0; round < 3; round++) {
        verify(area, 40 * MIB, 5);
        CHECK(swapcontext(&theirs, &ours) == 0);
    }
}

int main(void) {
    sigset_t mask;
    area = map(40 * MIB);
    fill(area, 40 * MIB, 5);
    CHECK(getcontext(&theirs) == 0);
    theirs.uc_stack = (stack_t){.ss_sp = stack, .ss_size = sizeof stack};
    theirs.uc_link = &ours;
    sigfillset(&theirs.uc_sigmask);
    makecontext(&theirs, coroutine, 0);
    for (int round = 0; round < 4; round++) {
        CHECK(swapcontext(&ours, &theirs) == 0);
        CHECK(sigprocmask(SIG_SETMASK, NULL, &mask) == 0);
        printf("round %d: TERM is %s\n", round, sigismember(&mask, SIGTERM) ? "blocked" : "open");
    }
    return 0;
}
