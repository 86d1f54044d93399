/* Prints the results of the functions about signals: masks, actions and alternate stacks as they are read back,
 * errors. The test runs this with and without the library and compares. Under direct delivery SIGBUS and SIGSYS
 * are never blocked in the kernel, SIGBUS, SIGSEGV and SIGSYS have handlers of the library, and every thread has
 * an alternate stack of the library; none of that may show here. */
#include "check.h"
#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

static const int SOME[] = {SIGINT, SIGBUS, SIGSEGV, SIGSYS, SIGUSR1, 64};
#define SOMES (sizeof SOME / sizeof *SOME)

static void say_set(const char *what, const sigset_t *set) {
    printf("%s", what);
    for (int n = 1; n <= 64; n++)
        if (sigismember(set, n) == 1) printf(" %d", n);
    putchar('\n');
}

/* Prints the thread's mask as read in each possible way. */
static void say_mask(const char *what) {
    sigset_t set;
    sigemptyset(&set);
    CHECK(sigprocmask(SIG_BLOCK, NULL, &set) == 0);
    say_set(what, &set);
    sigset_t other;
    sigemptyset(&other);
    CHECK(pthread_sigmask(SIG_SETMASK, NULL, &other) == 0);
    CHECK(memcmp(&set, &other, 8) == 0);
    uint64_t word = 0;
    CHECK(syscall(SYS_rt_sigprocmask, SIG_BLOCK, NULL, &word, 8) == 0);
    CHECK(memcmp(&set, &word, 8) == 0);
    uint64_t *managed = malloc(8);
    CHECK(syscall(SYS_rt_sigprocmask, SIG_BLOCK, NULL, managed, 8) == 0);
    CHECK(memcmp(&set, managed, 8) == 0);
    free(managed);
    CHECK(sigblock(0) == (int)word);
    CHECK(siggetmask() == (int)word);
}

static void masks(void) {
    sigset_t set, old;
    sigfillset(&set);
    CHECK(sigprocmask(SIG_SETMASK, &set, &old) == 0);
    say_set("before", &old);
    say_mask("all");
    sigemptyset(&set);
    for (size_t n = 0; n < SOMES; n++) sigaddset(&set, SOME[n]);
    CHECK(sigprocmask(SIG_UNBLOCK, &set, &old) == 0);
    say_mask("without some");
    CHECK(pthread_sigmask(SIG_SETMASK, &set, NULL) == 0);
    say_mask("some");
    sigemptyset(&set);
    sigaddset(&set, SIGSYS);
    CHECK(pthread_sigmask(SIG_UNBLOCK, &set, &old) == 0);
    say_set("old", &old);
    say_mask("without SIGSYS");
    CHECK(pthread_sigmask(SIG_BLOCK, &set, &old) == 0);
    say_set("old", &old);
    say_mask("with SIGSYS");
    printf("%d", pthread_sigmask(77, &set, &old));
    printf(" %d", sigprocmask(77, &set, &old));
    printf(" %d\n", errno);
    printf("%d\n", sigprocmask(77, NULL, &old));
    say_mask("as before");
    printf("sighold %d", sighold(SIGBUS));
    printf(" %d", sighold(SIGUSR2));
    printf(" %d %d\n", sighold(0), errno);
    say_mask("held");
    printf("sigrelse %d", sigrelse(SIGBUS));
    printf(" %d %d\n", sigrelse(65), errno);
    say_mask("let go");
    printf("sigsetmask %x\n", sigsetmask(1 << (SIGBUS - 1) | 1 << (SIGHUP - 1)));
    say_mask("old mask");
    printf("sigblock %x\n", sigblock(1 << (SIGSYS - 1)));
    say_mask("old mask and SIGSYS");
    printf("siggetmask %x\n", siggetmask());
    /* The same by number, from and to managed memory, and by the program's own instruction. */
    uint64_t *words = malloc(16);
    words[0] = 1ul << (SIGBUS - 1) | 1ul << (SIGUSR1 - 1);
    words[1] = 5;
    long result = bare_call(SYS_rt_sigprocmask, SIG_SETMASK, (long)words, (long)(words + 1), 8);
    printf("by number %ld %lx %lx\n", result, words[0], words[1]);
    say_mask("by number");
    printf("%ld", bare_call(SYS_rt_sigprocmask, SIG_SETMASK, (long)words, (long)(words + 1), 9));
    printf(" %ld", bare_call(SYS_rt_sigprocmask, 9, (long)words, (long)(words + 1), 8));
    printf(" %ld\n", bare_call(SYS_rt_sigprocmask, 9, 0, (long)(words + 1), 8));
    char *closed = map(PAGE);
    CHECK(mprotect(closed, PAGE, PROT_NONE) == 0);
    printf("%ld", bare_call(SYS_rt_sigprocmask, SIG_BLOCK, (long)closed, 0, 8));
    printf(" %ld\n", bare_call(SYS_rt_sigprocmask, SIG_BLOCK, (long)words, (long)closed, 8));
    say_mask("after errors");
    free(words);
    sigemptyset(&set);
    CHECK(sigprocmask(SIG_SETMASK, &set, NULL) == 0);
}

static void *in_thread(void *unused) {
    (void)unused;
    say_mask("a new thread");
    return NULL;
}

static void inherited(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGBUS);
    sigaddset(&set, SIGUSR2);
    CHECK(pthread_sigmask(SIG_SETMASK, &set, NULL) == 0);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, in_thread, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    fflush(stdout);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        say_mask("a child");
        fflush(stdout);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    sigemptyset(&set);
    CHECK(pthread_sigmask(SIG_SETMASK, &set, NULL) == 0);
}

static void first(int signal) { (void)signal; }
static void second(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)info, (void)context;
}

static const char *name_of(void *handler) {
    if (handler == (void *)SIG_DFL) return "default";
    if (handler == (void *)SIG_IGN) return "ignore";
    if (handler == (void *)SIG_ERR) return "error";
    if (handler == (void *)2) return "hold";
    if (handler == (void *)first) return "first";
    if (handler == (void *)second) return "second";
    return "another";
}

static void say_action(int signal) {
    struct sigaction old;
    memset(&old, 0x55, sizeof old);
    int result = sigaction(signal, NULL, &old);
    printf("  %d: %d", signal, result);
    if (result != 0) {
        printf(" %d\n", errno);
        return;
    }
    printf(" %s %x %s", name_of((void *)old.sa_handler), old.sa_flags, old.sa_restorer ? "restorer" : "none");
    say_set("", &old.sa_mask);
}

static const struct how {
    void *handler;
    int flags;
    int all;
} HOW[] = {
    {first, 0, 0},
    {first, SA_RESTART | SA_NODEFER, 1},
    {second, SA_SIGINFO | SA_ONSTACK, 0},
    {second, SA_SIGINFO | SA_RESETHAND | 0x10000 | 0x2000000, 1},
    {SIG_IGN, SA_RESTART, 0},
    {SIG_DFL, SA_SIGINFO, 1},
};

static void actions(void) {
    const int SIGNALS[] = {SIGBUS, SIGSEGV, SIGSYS, SIGUSR1, SIGCHLD, SIGKILL, 32, 65, 0};
    for (size_t n = 0; n < sizeof SIGNALS / sizeof *SIGNALS; n++) {
        int number = SIGNALS[n];
        say_action(number);
        for (size_t m = 0; m < sizeof HOW / sizeof *HOW; m++) {
            struct sigaction new, old;
            memset(&new, 0, sizeof new);
            memset(&old, 0, sizeof old);
            new.sa_handler = (void (*)(int))HOW[m].handler;
            new.sa_flags = HOW[m].flags;
            sigemptyset(&new.sa_mask);
            if (HOW[m].all) sigfillset(&new.sa_mask);
            else sigaddset(&new.sa_mask, SIGBUS), sigaddset(&new.sa_mask, SIGHUP);
            int result = sigaction(number, &new, &old);
            printf("%d: %d %s %x\n", number, result, name_of((void *)old.sa_handler), old.sa_flags);
            say_action(number);
        }
        printf("signal %s", name_of((void *)signal(number, first)));
        printf(" %s\n", name_of((void *)signal(number, SIG_DFL)));
        CHECK(signal(number, first) || 1);
        say_action(number);
        printf("siginterrupt %d\n", siginterrupt(number, 1));
        say_action(number);
        printf("signal %s\n", name_of((void *)signal(number, first)));
        say_action(number);
        printf("siginterrupt %d\n", siginterrupt(number, 0));
        say_action(number);
        printf("sysv_signal %s\n", name_of((void *)sysv_signal(number, first)));
        say_action(number);
        printf("ssignal %s\n", name_of((void *)ssignal(number, SIG_IGN)));
        if (number == 32) continue;
        printf("sigset %s", name_of((void *)sigset(number, first)));
        printf(" %s", name_of((void *)sigset(number, (void (*)(int))2)));
        printf(" %s", name_of((void *)sigset(number, (void (*)(int))2)));
        printf(" %s", name_of((void *)sigset(number, SIG_DFL)));
        printf(" %s\n", name_of((void *)sigset(number, SIG_DFL)));
        say_action(number);
        printf("sigignore %d\n", sigignore(number));
        say_action(number);
        printf("signal %s %s\n", name_of((void *)signal(number, SIG_DFL)), name_of((void *)signal(number, SIG_ERR)));
        say_mask("mask");
    }
}

struct kernel_action {
    void *handler;
    unsigned long flags;
    void *restorer;
    uint64_t mask;
};

static void actions_by_number(void) {
    struct kernel_action *actions = malloc(2 * sizeof *actions);
    const int SIGNALS[] = {SIGBUS, SIGSEGV, SIGSYS, SIGUSR1};
    for (size_t n = 0; n < 4; n++) {
        for (int round = 0; round < 2; round++) {
            actions[0] = (struct kernel_action){first, 0x10800000, NULL, ~0ul};
            memset(actions + 1, 7, sizeof *actions);
            long result = bare_call(SYS_rt_sigaction, SIGNALS[n], (long)actions, (long)(actions + 1), 8);
            printf("%d: %ld %s %lx %lx\n", SIGNALS[n], result, name_of(actions[1].handler), actions[1].flags,
                   actions[1].mask);
        }
        printf("%ld", bare_call(SYS_rt_sigaction, SIGNALS[n], (long)actions, 0, 128));
        char *closed = map(PAGE);
        CHECK(mprotect(closed, PAGE, PROT_NONE) == 0);
        printf(" %ld", bare_call(SYS_rt_sigaction, SIGNALS[n], (long)closed, 0, 8));
        printf(" %ld\n", bare_call(SYS_rt_sigaction, SIGNALS[n], 0, (long)closed, 8));
        say_action(SIGNALS[n]);
        CHECK(signal(SIGNALS[n], SIG_DFL) == first);
    }
    free(actions);
}

static char *base;

static void say_stack(const char *what) {
    stack_t now;
    memset(&now, 0, sizeof now);
    int result = sigaltstack(NULL, &now);
    printf("%s: %d %s %x %zu\n", what, result, now.ss_sp == NULL ? "none" : now.ss_sp == base ? "base" : "other",
           now.ss_flags, now.ss_size);
}

static void on_stack(int signal) {
    (void)signal;
    say_stack("in a handler");
    stack_t new = {.ss_sp = base, .ss_size = 64 << 10, .ss_flags = 0}, old;
    printf("%d %d\n", sigaltstack(&new, &old), errno);
}

static void stacks(void) {
    base = malloc(1 << 20);
    say_stack("at first");
    const struct {
        size_t size;
        int flags;
    } TRIED[] = {
        {1 << 16, 0},  {2047, 0},        {2048, 0},         {0, SS_DISABLE}, {1 << 16, SS_ONSTACK}, {5, 77},
        {8192, 3},     {8192, 1u << 31}, {8192, 0},         {1 << 20, 0},    {16384, 0},            {77, SS_DISABLE},
        {8192, 1u << 31 | SS_ONSTACK},   {1, SS_DISABLE},   {0, 0},          {~0ul, 0},             {1 << 17, 0},
    };
    for (size_t n = 0; n < sizeof TRIED / sizeof *TRIED; n++) {
        if (TRIED[n].size == ~0ul) continue;
        stack_t new = {.ss_sp = base, .ss_size = TRIED[n].size, .ss_flags = TRIED[n].flags}, old;
        memset(&old, 0, sizeof old);
        errno = 0;
        int result = sigaltstack(&new, &old);
        printf("%zu %x: %d %d, before %zu %x\n", TRIED[n].size, TRIED[n].flags, result, errno, old.ss_size,
               old.ss_flags);
        say_stack("now");
        struct sigaction action = {.sa_handler = on_stack, .sa_flags = SA_ONSTACK};
        CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
        if (result == 0 && new.ss_size >= 16384) CHECK(raise(SIGUSR1) == 0);
        say_stack("later");
    }
    stack_t *both = malloc(2 * sizeof *both);
    both[0] = (stack_t){.ss_sp = base, .ss_size = 1 << 16, .ss_flags = 0};
    printf("by number %ld", bare_call(SYS_sigaltstack, (long)both, (long)(both + 1), 0, 0));
    printf(" %zu %x\n", both[1].ss_size, both[1].ss_flags);
    say_stack("by number");
    CHECK(raise(SIGUSR1) == 0);
    both[0].ss_flags = 5;
    printf("%ld\n", bare_call(SYS_sigaltstack, (long)both, 0, 0, 0));
    both[0].ss_flags = SS_DISABLE;
    printf("%ld\n", bare_call(SYS_sigaltstack, (long)both, 0, 0, 0));
    say_stack("at last");
    free(both);
    free(base);
}

extern int __xpg_sigpause(int);

static volatile int came;
static void count(int signal) { came += signal; }

/* Each kind of wait under a mask is ended by a signal that is otherwise blocked. */
static void waits(void) {
    sigset_t block, under;
    sigemptyset(&block);
    sigaddset(&block, SIGUSR1);
    sigaddset(&block, SIGBUS);
    CHECK(sigprocmask(SIG_SETMASK, &block, NULL) == 0);
    struct sigaction action = {.sa_handler = count};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    sigfillset(&under);
    sigdelset(&under, SIGUSR1);
    struct pollfd *poll = calloc(1, sizeof *poll);
    poll->fd = -1;
    struct epoll_event *events = calloc(4, sizeof *events);
    struct timespec long_time = {5, 0};
    int epoll = epoll_create1(0);
    for (int n = 0; n < 7; n++) {
        CHECK(raise(SIGUSR1) == 0);
        errno = 0;
        int result = 0;
        switch (n) {
        case 0: result = sigsuspend(&under); break;
        case 1: result = ppoll(poll, 1, &long_time, &under); break;
        case 2: result = pselect(0, NULL, NULL, NULL, &long_time, &under); break;
        case 3: result = epoll_pwait(epoll, events, 4, 5000, &under); break;
        case 4: result = epoll_pwait2(epoll, events, 4, &long_time, &under); break;
        case 5: result = __xpg_sigpause(SIGUSR1); break;
        case 6: result = syscall(SYS_rt_sigsuspend, &under, 8); break;
        }
        printf("wait %d: %d %d %d\n", n, result, errno, came);
        say_mask("after it");
    }
    struct timespec short_time = {0, 1000000};
    printf("%d %d %d\n", ppoll(poll, 1, &short_time, &under), pselect(0, NULL, NULL, NULL, &short_time, NULL),
           epoll_pwait(epoll, events, 4, 1, NULL));
    printf("%ld\n", short_time.tv_nsec);
    CHECK(close(epoll) == 0);
    free(poll);
    free(events);
}

int main(void) {
    masks();
    inherited();
    actions();
    actions_by_number();
    stacks();
    waits();
    return 0;
}
