/* Kernels built without a system call, as simulated by a filter: each call named in the first argument answers
 * ENOSYS (the one that sets a filter by prctl: EINVAL). Then the program runs itself under the library in the
 * second argument, with more memory than its budget, and a child. */
#include "check.h"
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static const struct {
    const char *name;
    long number;
} CALLS[] = {
    {"userfaultfd", SYS_userfaultfd}, {"seccomp", SYS_seccomp}, {"process_madvise", 440}, {"mincore", SYS_mincore},
    {"membarrier", SYS_membarrier}, {"rseq", 334}, {"clone3", 435}, {"close_range", 436}, {"pidfd_open", 434},
    {"process_vm_readv", SYS_process_vm_readv}, {"process_vm_writev", SYS_process_vm_writev}, {"mbind", SYS_mbind},
    {"set_mempolicy", SYS_set_mempolicy}, {"get_mempolicy", SYS_get_mempolicy}, {"fallocate", SYS_fallocate},
    {"copy_file_range", SYS_copy_file_range}, {"io_uring_setup", 425},
};
#define COUNT (sizeof CALLS / sizeof *CALLS)

static void do_without(const char *names)
{
    struct sock_filter filter[3 * COUNT + 8] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
    };
    unsigned short len = 1;
    for (size_t n = 0; n < COUNT; n++)
        if (strstr(names, CALLS[n].name)) {
            filter[len++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, CALLS[n].number, 0, 1);
            filter[len++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS);
        }
    if (strstr(names, "seccomp")) {
        filter[len++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_prctl, 0, 3);
        filter[len++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0]));
        filter[len++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PR_SET_SECCOMP, 0, 1);
        filter[len++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL);
    }
    filter[len++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {len, filter};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

int main(int count, char **arguments)
{
    if (count == 3) {
        do_without(arguments[1]);
        CHECK(!setenv("LD_PRELOAD", arguments[2], 1));
        execl(arguments[0], arguments[0], "work", NULL);
        CHECK(!"execl");
    }
    size_t len = 60 * MIB;
    char *memory = map(len);
    fill(memory, len, 7);
    verify(memory, len, 7);
    pid_t child = fork();
    if (!child) {
        verify(memory, len, 7);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    puts("right");
    return 0;
}
