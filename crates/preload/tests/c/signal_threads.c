/* Threads that have all signals blocked, in every way available to a program, touch absent memory and make calls
 * on it: under direct delivery each touch is a SIGBUS and each such call a SIGSYS, and a thread with one of them
 * blocked would be killed. Other threads are interrupted and cancelled in calls that the library makes for them,
 * or end there. */
#include "check.h"
#include <locale.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

#define OUT (64 * MIB)
#define THREADS 8

static char *table;
static volatile int interrupted;

static void look(size_t *turn, int times) {
    for (int n = 0; n < times; n++) {
        size_t page = (*turn)++ * 2654435761u % (OUT / PAGE);
        CHECK(*(uint64_t *)(table + page * PAGE) == 9 + page);
    }
}

/* A call by the program's own instruction, on a page that may be absent. */
static void call(size_t *turn, int fd) {
    size_t page = (*turn)++ * 2654435761u % (OUT / PAGE);
    char *at = table + page * PAGE;
    CHECK(bare_call(SYS_write, fd, (long)at, 8, 0) == 8);
}

static void *blocks(void *number) {
    size_t turn = (size_t)number * 1000;
    sigset_t all, old;
    sigfillset(&all);
    int ends[2];
    CHECK(pipe(ends) == 0);
    for (int round = 0; round < 20; round++) {
        switch (round % 5) {
        case 0: CHECK(pthread_sigmask(SIG_SETMASK, &all, &old) == 0); break;
        case 1: CHECK(sigprocmask(SIG_BLOCK, &all, &old) == 0); break;
        case 2: CHECK(syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, NULL, 8) == 0); break;
        case 3: sighold(SIGBUS), sighold(SIGSYS), sighold(SIGSEGV); break;
        case 4: sigsetmask(-1); break;
        }
        look(&turn, 300);
        for (int n = 0; n < 20; n++) {
            char bytes[8];
            call(&turn, ends[1]);
            CHECK(read(ends[0], bytes, 8) == 8);
        }
        struct pollfd one = {-1, 0, 0};
        struct timespec moment = {0, 1000};
        CHECK(ppoll(&one, 1, &moment, &all) == 0);
        look(&turn, 100);
        sigset_t now;
        CHECK(pthread_sigmask(SIG_BLOCK, NULL, &now) == 0);
        CHECK(sigismember(&now, SIGBUS) && sigismember(&now, SIGSYS));
    }
    close(ends[0]), close(ends[1]);
    return NULL;
}

/* On a stack of 64 KiB in managed memory. */
static void on_managed_stacks(void) {
    pthread_t threads[THREADS];
    sigset_t all, old;
    sigfillset(&all);
    CHECK(pthread_sigmask(SIG_SETMASK, &all, &old) == 0);
    for (size_t n = 0; n < THREADS; n++) {
        pthread_attr_t attributes;
        CHECK(pthread_attr_init(&attributes) == 0);
        /* Some start with their own mask. */
        if (n % 4 > 1) CHECK(pthread_attr_setsigmask_np(&attributes, &all) == 0);
        if (n % 2) CHECK(pthread_attr_setstack(&attributes, map(128 << 10), 128 << 10) == 0);
        CHECK(pthread_create(&threads[n], &attributes, blocks, (void *)n) == 0);
    }
    for (int n = 0; n < THREADS; n++) CHECK(pthread_join(threads[n], NULL) == 0);
    CHECK(pthread_sigmask(SIG_SETMASK, &old, NULL) == 0);
}

static void interrupts(int signal) {
    size_t turn = 77;
    (void)signal;
    look(&turn, 50);
    interrupted++;
}

static int ends[2];

/* Reads into managed memory, which blocks. */
static void *reads(void *buffer) {
    long result = bare_call(SYS_read, ends[0], (long)buffer, 8, 0);
    return (void *)result;
}

static void restarts(void) {
    CHECK(pipe(ends) == 0);
    char *buffer = map(PAGE);
    for (int flags = 0; flags < 2; flags++) {
        struct sigaction action = {.sa_handler = interrupts, .sa_flags = flags ? SA_RESTART : 0};
        CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, reads, buffer) == 0);
        interrupted = 0;
        for (int n = 0; n < 10; n++) {
            CHECK(usleep(20000) == 0);
            if (flags || !interrupted) pthread_kill(thread, SIGUSR1);
        }
        CHECK(interrupted > 0);
        if (flags) CHECK(write(ends[1], "12345678", 8) == 8);
        void *result;
        CHECK(pthread_join(thread, &result) == 0);
        CHECK((long)result == (flags ? 8 : -EINTR));
    }
    CHECK(memcmp(buffer, "12345678", 8) == 0);
}

static volatile int cleaned;
static void clean(void *unused) {
    (void)unused;
    cleaned++;
}

static void *waits(void *buffer) {
    pthread_cleanup_push(clean, NULL);
    CHECK(pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL) == 0);
    bare_call(SYS_read, ends[0], (long)buffer, 8, 0);
    pthread_cleanup_pop(0);
    return NULL;
}

static void *polls(void *unused) {
    struct pollfd *one = calloc(1, sizeof *one);
    sigset_t all;
    sigfillset(&all);
    one->fd = ends[0];
    one->events = POLLIN;
    pthread_cleanup_push(clean, unused);
    ppoll(one, 1, NULL, &all);
    pthread_cleanup_pop(0);
    return NULL;
}

static void *suspends(void *unused) {
    sigset_t all;
    sigfillset(&all);
    pthread_cleanup_push(clean, unused);
    sigsuspend(&all);
    pthread_cleanup_pop(0);
    return NULL;
}

static void cancels(void) {
    void *(*const how[])(void *) = {waits, polls, suspends};
    for (int n = 0; n < 30; n++) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, how[n % 3], map(PAGE)) == 0);
        CHECK(usleep(n < 3 ? 50000 : 2000) == 0);
        CHECK(pthread_cancel(thread) == 0);
        void *result;
        CHECK(pthread_join(thread, &result) == 0);
        CHECK(result == PTHREAD_CANCELED);
    }
    CHECK(cleaned >= 3);
}

static void *ends_itself(void *number) {
    size_t turn = (size_t)number;
    look(&turn, 3);
    if (turn % 2) pthread_exit(number);
    return number;
}

#define GIVEN (256ul << 10)

/* Descends a stack page by page, and ends at the bottom. */
static __attribute__((noinline)) long descends(char *base, int how, volatile char *above) {
    volatile char room[2 * PAGE];
    room[0] = above[0] + 1;
    if ((char *)room > base + 8 * PAGE) return room[0] + descends(base, how, room);
    if (how == 1) pthread_exit((void *)77);
    if (how == 2)
        for (;;) pause();
    return 77;
}

static void *on_given(void *argument) {
    void *base;
    size_t len;
    pthread_attr_t attributes;
    CHECK(pthread_getattr_np(pthread_self(), &attributes) == 0);
    CHECK(pthread_attr_getstack(&attributes, &base, &len) == 0);
    CHECK(pthread_attr_destroy(&attributes) == 0);
    char *here = (char *)&len;
    CHECK(len == GIVEN && here > (char *)base && here < (char *)base + len);
    volatile char byte = 0;
    pthread_cleanup_push(clean, NULL);
    descends(base, (int)(intptr_t)argument, &byte);
    pthread_cleanup_pop(0);
    return (void *)77;
}

/* A thread that has been given a stack runs on it, and may end on it in each way. */
static void given(void) {
    pthread_attr_t attributes;
    CHECK(pthread_attr_init(&attributes) == 0);
    char *stack = map(GIVEN);
    CHECK(pthread_attr_setstack(&attributes, stack, GIVEN) == 0);
    for (intptr_t n = 0; n < 30; n++) {
        pthread_t thread;
        cleaned = 0;
        CHECK(pthread_create(&thread, &attributes, on_given, (void *)(n % 3)) == 0);
        if (n % 3 == 2) CHECK(usleep(3000) == 0 && pthread_cancel(thread) == 0);
        void *result;
        CHECK(pthread_join(thread, &result) == 0);
        CHECK(result == (n % 3 == 2 ? PTHREAD_CANCELED : (void *)77));
        CHECK(cleaned == (n % 3 != 0));
    }
    CHECK(munmap(stack, GIVEN) == 0);
}

static size_t lines(void) {
    FILE *maps = fopen("/proc/self/maps", "r");
    CHECK(maps != NULL);
    size_t count = 0;
    for (int c; (c = getc(maps)) != EOF;) count += c == '\n';
    CHECK(fclose(maps) == 0);
    return count;
}

/* The stacks of ended threads are freed. */
static void many(void) {
    size_t before = 0;
    for (int round = 0; round < 30; round++) {
        pthread_t threads[40];
        for (size_t n = 0; n < 40; n++) CHECK(pthread_create(&threads[n], NULL, ends_itself, (void *)n) == 0);
        for (size_t n = 0; n < 40; n++) {
            void *result;
            CHECK(pthread_join(threads[n], &result) == 0);
            CHECK(result == (void *)n);
        }
        if (round == 10) before = lines();
    }
    CHECK(lines() < before + 200);
}

/* The child of a fork has an alternate stack and a mask like its parent. */
static void children(void) {
    stack_t stack = {.ss_sp = malloc(1 << 16), .ss_size = 1 << 16};
    CHECK(sigaltstack(&stack, NULL) == 0);
    for (int n = 0; n < 5; n++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            size_t turn = n;
            stack_t now;
            CHECK(sigaltstack(NULL, &now) == 0 && now.ss_sp == stack.ss_sp && now.ss_size == stack.ss_size);
            blocks((void *)turn);
            pthread_t thread;
            CHECK(pthread_create(&thread, NULL, blocks, (void *)turn) == 0);
            CHECK(pthread_join(thread, NULL) == 0);
            _exit(0);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
}

int main(void) {
    /* A new thread reads the locale before it unblocks its signals. */
    CHECK(setlocale(LC_ALL, "C.UTF-8") != NULL);
    table = map(OUT);
    fill(table, OUT, 9);
    on_managed_stacks();
    restarts();
    cancels();
    given();
    many();
    children();
    return 0;
}
