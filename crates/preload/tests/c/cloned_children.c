/* The program creates children without `fork`: by `_Fork`, which runs no handlers, by `clone` on a stack of their
 * own, and by call number, as sandboxes do. Each child has a copy of the memory, most of which is absent, and
 * formerly died by SIGSEGV when it first accessed it. A child that shares the memory has always been served. */
#define _GNU_SOURCE
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define LEN (64u << 20)
#define STACK (256u << 10)

extern pid_t _Fork(void);

static unsigned *memory;

static int look(void *wanted)
{
    for (unsigned i = 0; i < LEN / sizeof *memory; i += 512)
        if (memory[i] != i * 2654435761u)
            return 1;
    char *more = malloc(1000);
    snprintf(more, 1000, "%s", (char *)wanted);
    int same = !strcmp(more, "as it was");
    free(more);
    return !same;
}

static int ends_well(pid_t child)
{
    int status = -1;
    return child > 0 && waitpid(child, &status, __WALL) == child && status == 0;
}

int main(void)
{
    char *managed = malloc(STACK), *word = strdup("as it was");
    char *unmanaged = mmap(0, STACK, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    memory = malloc(LEN);
    for (unsigned i = 0; i < LEN / sizeof *memory; i++)
        memory[i] = i * 2654435761u;
    for (int round = 0; round < 3; round++) {
        pid_t child = _Fork();
        if (!child)
            _exit(look(word));
        if (!ends_well(child))
            return 1;
        child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
        if (!child)
            _exit(look(word));
        if (!ends_well(child))
            return 6;
        struct clone_args how = {.exit_signal = SIGCHLD};
        child = (pid_t)syscall(SYS_clone3, &how, sizeof how);
        if (!child)
            _exit(look(word));
        if (!ends_well(child))
            return 7;
#ifdef SYS_fork
        child = (pid_t)syscall(SYS_fork);
        if (!child)
            _exit(look(word));
        if (!ends_well(child))
            return 8;
#endif
        if (!ends_well(clone(look, managed + STACK, SIGCHLD, word)))
            return 2;
        if (!ends_well(clone(look, unmanaged + STACK, SIGCHLD, word)))
            return 3;
        if (!ends_well(clone(look, unmanaged + STACK, SIGCHLD | CLONE_VM, word)))
            return 4;
        /* The parent continues as before. */
        if (look(word))
            return 5;
    }
    if (syscall(SYS_clone3, 0, 8) != -1 || syscall(SYS_clone, CLONE_SIGHAND, 0, 0, 0, 0) != -1)
        return 9;
    return clone(look, unmanaged + STACK, CLONE_SIGHAND, word) != -1;
}
