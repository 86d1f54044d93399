/* A program whose filter answers EPERM to all calls except those that the C library's malloc and streams need, for
 * one thread or for all ("all"). It then uses more memory than its budget. With handler delivery, threads without
 * the filter serve that; calls that its own threads must make are forbidden. It must end, and say what is missing. */
#include "check.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

static const int needed[] = {SYS_read, SYS_write, SYS_exit, SYS_exit_group, SYS_brk, SYS_mmap, SYS_munmap, SYS_mremap, SYS_mprotect,
    SYS_madvise, SYS_futex, SYS_newfstatat, SYS_fstat, SYS_rt_sigreturn, SYS_rt_sigprocmask, SYS_clock_gettime, SYS_sched_yield, SYS_getrandom};
enum { CALLS = sizeof needed / sizeof *needed };

int main(int argc, char **argv) {
    (void)argv;
    struct sock_filter filter[CALLS + 3] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))};
    for (int n = 0; n < CALLS; n++)
        filter[1 + n] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, needed[n], CALLS - n, 0);
    filter[1 + CALLS] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
    filter[2 + CALLS] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {CALLS + 3, filter};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, argc > 1 ? SECCOMP_FILTER_FLAG_TSYNC : 0, &program) == 0);
    for (int round = 0; round < 3; round++) {
        char *at = malloc(48 * MIB);
        CHECK(at);
        at += -(uintptr_t)at % PAGE;
        fill(at, 47 * MIB, (uint64_t)round);
        verify(at, 47 * MIB, (uint64_t)round);
    }
    puts("all there");
    return 0;
}
