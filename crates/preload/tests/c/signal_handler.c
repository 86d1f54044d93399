/* A signal handler touches absent memory while the program maps and allocates. */
#include "check.h"
#include <signal.h>
#include <sys/time.h>

static char *table;
static volatile unsigned long hits, wrong;

static void handler(int signal) {
    (void)signal;
    size_t page = (hits * 2654435761u) % (48 * MIB / PAGE);
    uint64_t *word = (uint64_t *)(table + page * PAGE);
    if (word[0] != 4 + page) wrong++;
    word[100]++;
    hits++;
}

int main(void) {
    table = map(48 * MIB);
    fill(table, 48 * MIB, 4);
    struct sigaction action = {.sa_handler = handler};
    stack_t stack = {.ss_sp = malloc(64 << 10), .ss_size = 64 << 10};
    CHECK(sigaltstack(&stack, NULL) == 0);
    action.sa_flags = SA_ONSTACK | SA_RESTART;
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    struct itimerval timer = {{0, 1000}, {0, 1000}};
    CHECK(setitimer(ITIMER_REAL, &timer, NULL) == 0);
    for (int n = 0; n < 400 || hits < 100; n++) {
        char *at = map(2 * MIB);
        fill(at, 2 * MIB, n);
        char *block = malloc(100000 + n);
        memset(block, n, 100000);
        verify(at, 2 * MIB, n);
        CHECK(munmap(at, 2 * MIB) == 0);
        free(block);
    }
    CHECK(wrong == 0);
    return 0;
}
