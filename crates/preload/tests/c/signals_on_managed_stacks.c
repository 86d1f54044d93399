/* Signals arrive while a thread or a coroutine runs on a stack in managed memory whose next page is absent. The
 * kernel would write its frame there. The first signal on a new stack killed the program under direct delivery. A
 * timer also interrupts sums of floating-point numbers, whose registers must be restored. */
#include "check.h"
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/time.h>
#include <ucontext.h>

#define OUT (48 * MIB)
#define STACK (1 * MIB)

static char *table;
static volatile int calls, nested;
static __thread sigjmp_buf back;

static void look(int times) {
    static _Atomic size_t turn;
    for (int n = 0; n < times; n++) {
        size_t page = turn++ * 2654435761u % (OUT / PAGE);
        CHECK(*(uint64_t *)(table + page * PAGE) == 9 + page);
    }
}

static void counts(int signal) {
    (void)signal;
    double made = calls;
    for (int n = 0; n < 100; n++) made = made * 1.5 + n;
    CHECK(made > 0);
    look(20);
    calls++;
}

static void says(int signal, siginfo_t *info, void *context) {
    /* The handler's frame is right below the code that it interrupts, and it knows what it interrupts. */
    ucontext_t *at = context;
    char *here = (char *)&at, *there = (char *)at->uc_mcontext.gregs[REG_RSP];
    CHECK(here < there && there - here < 64 << 10);
    CHECK(info->si_signo == signal && info->si_pid == getpid());
    if (signal == SIGUSR2 && nested++ < 3) CHECK(raise(SIGUSR2) == 0);
    look(5);
    calls++;
}

static void leaves(int signal) {
    (void)signal;
    look(5);
    siglongjmp(back, 1);
}

static __attribute__((noinline)) long down(int left) {
    volatile char room[1500];
    room[0] = left;
    raise(SIGUSR1);
    if (sigsetjmp(back, 1) == 0) raise(SIGHUP);
    return left ? room[0] + down(left - 1) : 0;
}

/* The sum is the same whenever it is interrupted. */
static double sums(int rounds) {
    double sum = 0, step = 1.0 / 3;
    for (int n = 0; n < rounds; n++) {
        sum += step * n;
        step = step * 1.0000001 + 1e-9;
        if (n % 20000 == 0) look(3);
    }
    return sum;
}

static double expected;

static void *runs(void *argument) {
    down(100);
    nested = 0;
    CHECK(raise(SIGUSR2) == 0);
    for (int n = 0; n < 5; n++) CHECK(sums(2000000) == expected);
    return argument;
}

static ucontext_t outside, inside;

static void coroutine(void) {
    down(100);
    for (int n = 0; n < 5; n++) {
        CHECK(sums(2000000) == expected);
        CHECK(swapcontext(&inside, &outside) == 0);
    }
}

int main(void) {
    table = map(OUT);
    fill(table, OUT, 9);
    expected = sums(2000000);
    struct sigaction action = {.sa_sigaction = says, .sa_flags = SA_SIGINFO};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    action.sa_flags |= SA_NODEFER;
    CHECK(sigaction(SIGUSR2, &action, NULL) == 0);
    CHECK(signal(SIGHUP, leaves) != SIG_ERR);
    CHECK(signal(SIGALRM, counts) != SIG_ERR);
    struct itimerval timer = {{0, 1000}, {0, 1000}};
    CHECK(setitimer(ITIMER_REAL, &timer, NULL) == 0);
    for (int round = 0; round < 3; round++) {
        pthread_t thread;
        pthread_attr_t attributes;
        CHECK(pthread_attr_init(&attributes) == 0);
        CHECK(pthread_attr_setstack(&attributes, map(STACK), STACK) == 0);
        CHECK(pthread_create(&thread, &attributes, runs, NULL) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
        CHECK(getcontext(&inside) == 0);
        inside.uc_stack = (stack_t){.ss_sp = malloc(STACK), .ss_size = STACK};
        inside.uc_link = &outside;
        makecontext(&inside, coroutine, 0);
        for (int n = 0; n < 6; n++) {
            CHECK(swapcontext(&outside, &inside) == 0);
            CHECK(sums(200000) > 0);
        }
    }
    CHECK(calls > 600);
    return 0;
}
