/* A program with its own handlers for SIGBUS, SIGSEGV and SIGSYS, which the library uses under direct delivery.
 * The handlers get what the kernel says about each signal, may leave by siglongjmp, may run on an alternate stack,
 * and may touch absent memory; without a handler the process ends by the correct signal. The test runs this with
 * and without the library and compares. */
#include "check.h"
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>

#define OUT (64 * MIB)

static sigjmp_buf back;
static char *expected, *table;
static size_t turn;
static volatile int calls;

/* Memory of twice the budget, part of which is absent whenever the handlers access it. */
static void look(void) {
    for (int n = 0; n < 64; n++) {
        size_t page = turn++ * 2654435761u % (OUT / PAGE);
        CHECK(*(uint64_t *)(table + page * PAGE) == 9 + page);
    }
}

static void say_blocked(void) {
    sigset_t set;
    CHECK(pthread_sigmask(SIG_BLOCK, NULL, &set) == 0);
    printf(" blocked");
    /* SIGBUS and SIGSYS are skipped: in a handler the program may read them differently. */
    for (int n = 1; n <= 64; n++)
        if (n != SIGBUS && n != SIGSYS && sigismember(&set, n) == 1) printf(" %d", n);
    printf("\n");
}

static void leaves(int signal, siginfo_t *info, void *context) {
    CHECK(context != NULL);
    printf("signal %d code %d, %s address", signal, info->si_code, info->si_addr == expected ? "right" : "wrong");
    say_blocked();
    look();
    siglongjmp(back, 1);
}

static void handle(int signal, void (*handler)(int, siginfo_t *, void *), int flags, int more) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = handler;
    action.sa_flags = SA_SIGINFO | flags;
    if (more) sigaddset(&action.sa_mask, more);
    CHECK(sigaction(signal, &action, NULL) == 0);
}

static char *truncated(void) {
    char name[] = "/tmp/millpond-own-handlers-XXXXXX";
    int fd = mkstemp(name);
    CHECK(fd >= 0 && unlink(name) == 0 && ftruncate(fd, 2 * PAGE) == 0);
    char *at = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(at != MAP_FAILED && ftruncate(fd, 0) == 0 && close(fd) == 0);
    return at;
}

static void faults(void) {
    char *file = truncated(), *closed = map(4 * PAGE);
    memset(closed, 1, 4 * PAGE);
    CHECK(mprotect(closed + PAGE, PAGE, PROT_NONE) == 0);
    CHECK(mprotect(closed + 2 * PAGE, PAGE, PROT_READ) == 0);
    for (int flags = 0; flags < 4; flags++) {
        int given = (flags & 1 ? SA_NODEFER : 0) | (flags & 2 ? SA_ONSTACK : 0);
        handle(SIGBUS, leaves, given, SIGUSR1);
        handle(SIGSEGV, leaves, given, SIGUSR2);
        for (int n = 0; n < 4; n++) {
            expected = file + PAGE + 8;
            if (sigsetjmp(back, 1) == 0) *(volatile char *)expected = 1;
            expected = closed + PAGE + 16;
            if (sigsetjmp(back, 1) == 0) (void)*(volatile char *)expected;
            expected = closed + 2 * PAGE;
            if (sigsetjmp(back, 1) == 0) *(volatile char *)expected = 1;
            expected = (char *)64;
            if (sigsetjmp(back, 1) == 0) (void)*(volatile char *)expected;
            printf("out of it:");
            say_blocked();
        }
    }
}

static void opens(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    calls++;
    CHECK(mprotect((char *)((uintptr_t)info->si_addr & ~(PAGE - 1)), PAGE, PROT_READ | PROT_WRITE) == 0);
}

/* What garbage collectors do: memory is closed, and opened by the handler. */
static void barriers(void) {
    size_t len = 8 * MIB;
    char *at = map(len);
    fill(at, len, 3);
    handle(SIGSEGV, opens, SA_RESTART, 0);
    for (int round = 0; round < 3; round++) {
        CHECK(mprotect(at, len, PROT_NONE) == 0);
        verify(at, len, 3);
    }
    printf("%d opened\n", calls);
    CHECK(munmap(at, len) == 0);
}

static void on_call(int signal, siginfo_t *info, void *context) {
    ucontext_t *at = context;
    printf("signal %d code %d data %d call %d\n", signal, info->si_code, info->si_errno, info->si_syscall);
    at->uc_mcontext.gregs[REG_RAX] = 4000 + info->si_errno;
}

/* The program's own filter, which raises SIGSYS for two calls. */
static void filter(void) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getpgrp, 2, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP | 77),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    handle(SIGSYS, on_call, SA_NODEFER, 0);
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
    printf("%ld", bare_call(SYS_getppid, 0, 0, 0, 0));
    printf(" %ld\n", bare_call(SYS_getpgrp, 0, 0, 0, 0));
    look();
    /* A call on managed memory that the library's filter stops is made between two that the program's stops. */
    char *bytes = map(PAGE);
    int ends[2];
    CHECK(bare_call(SYS_pipe2, (long)bytes, 0, 0, 0) == 0);
    memcpy(ends, bytes, sizeof ends);
    CHECK(bare_call(SYS_write, ends[1], (long)bytes, 5, 0) == 5);
    CHECK(bare_call(SYS_read, ends[0], (long)(bytes + 64), 5, 0) == 5);
    printf("%ld\n", bare_call(SYS_getpgrp, 0, 0, 0, 0));
}

static __attribute__((noinline)) long deep(volatile char *above) {
    volatile char room[512];
    room[0] = above[0];
    return above[0] == 2 ? 0 : room[0] + deep(room) + room[1];
}

static void overflowed(int signal, siginfo_t *info, void *context) {
    (void)context;
    printf("signal %d code %d\n", signal, info->si_code);
    look();
    siglongjmp(back, 2);
}

static void *overflows(void *unused) {
    static char own[64 << 10];
    stack_t stack = {.ss_sp = own, .ss_size = sizeof own};
    CHECK(sigaltstack(&stack, NULL) == 0);
    handle(SIGSEGV, overflowed, SA_ONSTACK, 0);
    for (int n = 0; n < 3; n++) {
        volatile char byte = 1;
        if (sigsetjmp(back, 1) == 0) printf("%ld\n", deep(&byte));
    }
    stack_t old;
    CHECK(sigaltstack(NULL, &old) == 0 && old.ss_flags == 0 && old.ss_sp == own);
    return unused;
}

static void overflow(void) {
    pthread_t thread;
    pthread_attr_t attributes;
    CHECK(pthread_attr_init(&attributes) == 0);
    CHECK(pthread_attr_setstacksize(&attributes, 128 << 10) == 0);
    CHECK(pthread_create(&thread, &attributes, overflows, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
}

static void sent(int signal, siginfo_t *info, void *context) {
    (void)context;
    calls++;
    printf("signal %d code %d from %s", signal, info->si_code, info->si_pid == getpid() ? "itself" : "elsewhere");
    say_blocked();
}

static void one_argument(int signal) { printf("signal %d\n", signal); }

static const int THREE[] = {SIGBUS, SIGSEGV, SIGSYS};

static void sending(void) {
    for (int n = 0; n < 3; n++) {
        handle(THREE[n], sent, 0, SIGUSR1);
        CHECK(raise(THREE[n]) == 0);
        CHECK(kill(getpid(), THREE[n]) == 0);
        union sigval value = {.sival_int = 5};
        CHECK(sigqueue(getpid(), THREE[n], value) == 0);
        CHECK(signal(THREE[n], one_argument) != SIG_ERR);
        CHECK(raise(THREE[n]) == 0);
        CHECK(signal(THREE[n], SIG_IGN) == one_argument);
        CHECK(raise(THREE[n]) == 0);
        CHECK(sysv_signal(THREE[n], one_argument) == SIG_IGN);
        CHECK(raise(THREE[n]) == 0);
        CHECK(signal(THREE[n], SIG_IGN) == SIG_DFL);
        printf("out of it:");
        say_blocked();
    }
}

/* What ends a process: each of these in its own child. */
static void dies(int n) {
    char *file = truncated(), *closed = map(PAGE);
    *closed = 1;
    CHECK(mprotect(closed, PAGE, PROT_NONE) == 0);
    switch (n) {
    case 0: *file = 1; break;
    case 1: (void)*(volatile char *)closed; break;
    case 2: raise(SIGBUS); break;
    case 3: raise(SIGSEGV); break;
    case 4: raise(SIGSYS); break;
    case 5: signal(SIGBUS, SIG_IGN); *file = 1; break;
    case 6: signal(SIGSEGV, SIG_IGN); (void)*(volatile char *)closed; break;
    case 7: sysv_signal(SIGBUS, one_argument); raise(SIGBUS); raise(SIGBUS); break;
    case 8: sysv_signal(SIGSEGV, one_argument); raise(SIGSEGV); raise(SIGSEGV); break;
    case 9: filter(); fflush(stdout); signal(SIGSYS, SIG_DFL); bare_call(SYS_getppid, 0, 0, 0, 0); break;
    case 10: filter(); fflush(stdout); signal(SIGSYS, SIG_IGN); bare_call(SYS_getppid, 0, 0, 0, 0); break;
    case 11: handle(SIGSEGV, leaves, 0, 0); signal(SIGSEGV, SIG_DFL); (void)*(volatile char *)closed; break;
    case 12: kill(getpid(), SIGSYS); break;
    case 13: __asm__ volatile("hlt"); break;
    case 14: abort();
    default: break;
    }
    fflush(stdout);
    _exit(0);
}

static void deaths(void) {
    struct rlimit none = {0, 0};
    CHECK(setrlimit(RLIMIT_CORE, &none) == 0);
    for (int n = 0; n < 16; n++) {
        fflush(stdout);
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) dies(n);
        int status;
        CHECK(waitpid(child, &status, 0) == child);
        printf("%d: %x\n", n, status & ~0x80);
    }
}

int main(void) {
    setvbuf(stdout, malloc(1 << 16), _IOFBF, 1 << 16);
    table = map(OUT);
    fill(table, OUT, 9);
    deaths();
    faults();
    barriers();
    overflow();
    sending();
    filter();
    return 0;
}
