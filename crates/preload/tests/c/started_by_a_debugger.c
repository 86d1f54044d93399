/* What a debugger does to start its program: vfork, PTRACE_TRACEME and execvp, by path and by name, including a
 * script. The child stops for its parent at each signal, and the parent waits until the child has become the
 * program. Like gdb's, it touches absent memory in between. */
#include "out.h"
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/wait.h>

static void starts(const char *what, char **list) {
    int status;
    volatile int stops = 0;
    volatile char *out = block(PAGE);
    fflush(stdout);
    push_out((const void *)out, PAGE);
    pid_t child = vfork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(ptrace(PTRACE_TRACEME, 0, 0, 0) == 0);
        *out += 1;
        execvp(list[0], list);
        _exit(99);
    }
    while (waitpid(child, &status, 0) == child && WIFSTOPPED(status)) {
        stops++;
        ptrace(PTRACE_CONT, child, 0, WSTOPSIG(status) == SIGTRAP ? 0 : WSTOPSIG(status));
    }
    printf("%s: %s, status %d\n", what, stops ? "stopped" : "never stopped", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
}

int main(void) {
    char **list = malloc(4 * sizeof *list), name[] = "/tmp/started_XXXXXX";
    list[1] = list[2] = list[3] = NULL;
    list[0] = strdup("/bin/true");
    starts("by path", list);
    list[0] = strdup("true");
    starts("by name", list);
    list[0] = strdup("no such program");
    starts("by a wrong name", list);
    int file = mkstemp(name);
    CHECK(file >= 0 && write(file, "exit $1\n", 8) == 8 && fchmod(file, 0755) == 0 && close(file) == 0);
    list[0] = strdup(name), list[1] = strdup("7");
    starts("a script", list);
    CHECK(unlink(name) == 0);
    return 0;
}
