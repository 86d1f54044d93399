/* Processes that share their parent's memory, and run on stacks that the program supplies: both touch absent
 * memory at the same time. First one process after another, then several at once. */
#include "out.h"
#include <sched.h>
#include <sys/wait.h>

enum { LENGTH = 48 << 20, STACK = 1 << 20, AT_ONCE = 3, ROUNDS = 40 };
static unsigned char *memory;
static volatile long sums[AT_ONCE];

/* Adds one to every fourth page, starting from this one. */
static long walk(int first) {
    long sum = 0;
    for (size_t i = (size_t)first * PAGE; i < LENGTH; i += 4 * PAGE) {
        memory[i]++;
        sum += memory[i];
    }
    return sum;
}

static int child(void *which) {
    sums[(long)which] = walk((int)(long)which);
    return 0;
}

static int at_once(void *which) {
    return (int)(long)which;
}

static int ended(pid_t pid) {
    int status;
    CHECK(waitpid(pid, &status, __WALL) == pid && WIFEXITED(status));
    return WEXITSTATUS(status);
}

int main(void) {
    memory = (unsigned char *)map(LENGTH);
    memset(memory, 1, LENGTH);
    pid_t children[AT_ONCE];
    char *stacks[AT_ONCE];
    for (long k = 0; k < AT_ONCE; k++) {
        stacks[k] = map(STACK);
        push_out(stacks[k], STACK);
        children[k] = clone(child, stacks[k] + STACK, CLONE_VM | SIGCHLD, (void *)k);
        CHECK(children[k] > 0);
    }
    long own = walk(AT_ONCE);
    for (int k = 0; k < AT_ONCE; k++) {
        int status = ended(children[k]);
        printf("%d %ld\n", status, sums[k]);
    }
    long all = 0;
    for (size_t i = 0; i < LENGTH; i += PAGE) all += memory[i];
    printf("%ld %ld\n", own, all);
    for (long k = 0; k < ROUNDS; k++) {
        pid_t pid = clone(at_once, stacks[0] + STACK, CLONE_VM | SIGCHLD, (void *)k);
        CHECK(pid > 0 && ended(pid) == k);
    }
    return 0;
}
