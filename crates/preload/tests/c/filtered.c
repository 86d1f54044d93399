/* A program forbids itself all calls except those that it needs to end, and ends by exit and by _exit, in a child
 * and in itself. Formerly it was killed at its end, for calls that the library made. */
#include "check.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static const int allowed[] = {SYS_write, SYS_exit, SYS_exit_group, SYS_fstat, SYS_newfstatat};
enum { CALLS = sizeof allowed / sizeof *allowed };

static void forbid_the_rest(int by_number) {
    struct sock_filter filter[CALLS + 3] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
    };
    for (int n = 0; n < CALLS; n++)
        filter[1 + n] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, allowed[n], CALLS - n, 0);
    filter[1 + CALLS] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    filter[2 + CALLS] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {CALLS + 3, filter};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    if (by_number)
        CHECK(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0);
    else
        CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

int main(void) {
    char *at = map(MIB);
    fill(at, MIB, 1);
    for (int way = 0; way < 4; way++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            verify(at, MIB, 1);
            forbid_the_rest(way & 1);
            if (write(1, "forbidden\n", 10) != 10 || way & 2) _exit(way);
            exit(way);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == way);
    }
    forbid_the_rest(0);
    return 0;
}
