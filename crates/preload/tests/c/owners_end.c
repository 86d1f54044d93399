/* What a thread leaves behind: robust mutexes that it held, and a word to be cleared at its end. Their pages are
 * absent when the thread ends, in each way that a thread or process can end, and the waiters are notified. */
#include "out.h"
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { RETURNS, EXITS, CANCELLED, ALONE, WAYS };
enum { EXIT_GROUP, SIGNALLED, KILLED, PROCESSES };
#define MUTEXES 5

static pthread_mutex_t *ours[MUTEXES];
static pthread_barrier_t barrier;

static void make(pthread_mutex_t *mutex, int shared) {
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    CHECK(pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST) == 0);
    if (shared) CHECK(pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED) == 0);
    CHECK(pthread_mutex_init(mutex, &attributes) == 0);
}

/* Creates mutexes on their own pages, one of them across a page boundary. */
static void make_all(void) {
    for (int n = 0; n < MUTEXES; n++) {
        ours[n] = (pthread_mutex_t *)(block(2 * PAGE) + (n == 2 ? PAGE - 16 : 8ul * (unsigned)n));
        make(ours[n], 0);
    }
}

static void push_all_out(void) {
    for (int n = 0; n < MUTEXES; n++) push_out((void *)((uintptr_t)ours[n] & ~(PAGE - 1)), 2 * PAGE);
}

static void *owns(void *way) {
    for (int n = 0; n < MUTEXES; n++) CHECK(pthread_mutex_lock(ours[n]) == 0);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    if ((long)way == EXITS) pthread_exit(NULL);
    if ((long)way == CANCELLED) for (;;) pause();
    if ((long)way == ALONE) syscall(SYS_exit, 0);
    return NULL;
}

/* Waits for a mutex for some seconds, and returns how that ended. */
static const char *found(pthread_mutex_t *mutex) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 5;
    int answer = pthread_mutex_timedlock(mutex, &until);
    if (answer == EOWNERDEAD) CHECK(pthread_mutex_consistent(mutex) == 0 && pthread_mutex_unlock(mutex) == 0);
    return answer == EOWNERDEAD ? "its owner is dead" : answer == ETIMEDOUT ? "waited for ever" : "locked";
}

static void threads(void) {
    for (long way = 0; way < WAYS; way++) {
        pthread_t thread;
        make_all();
        CHECK(pthread_barrier_init(&barrier, NULL, 2) == 0);
        CHECK(pthread_create(&thread, NULL, owns, (void *)way) == 0);
        pthread_barrier_wait(&barrier);
        push_all_out();
        press();
        pthread_barrier_wait(&barrier);
        if (way == CANCELLED) CHECK(pthread_cancel(thread) == 0);
        if (way == ALONE) usleep(200000);
        else CHECK(pthread_join(thread, NULL) == 0);
        for (int n = 0; n < MUTEXES; n++) printf("thread %ld, mutex %d: %s\n", way, n, found(ours[n]));
    }
}

/* The kernel walks from the most recently locked mutex to the shared ones. */
static void processes(void) {
    for (int way = 0; way < PROCESSES; way++) {
        pthread_mutex_t *shared = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        int ends[2], status;
        char one;
        make(shared, 1);
        CHECK(pipe(ends) == 0);
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            CHECK(pthread_mutex_lock(shared) == 0);
            make_all();
            for (int n = 0; n < MUTEXES; n++) CHECK(pthread_mutex_lock(ours[n]) == 0);
            push_all_out();
            press();
            CHECK(write(ends[1], "x", 1) == 1);
            if (way == EXIT_GROUP) _exit(0);
            for (;;) pause();
        }
        CHECK(read(ends[0], &one, 1) == 1);
        if (way != EXIT_GROUP) kill(child, way == KILLED ? SIGKILL : SIGTERM);
        CHECK(waitpid(child, &status, 0) == child);
        printf("process %d: %s\n", way, found(shared));
    }
}

static volatile int stop;

static int waits(void *word) {
    if (word) syscall(SYS_set_tid_address, word);
    while (!stop) usleep(1000);
    return 0;
}

/* The word of a child that shares the memory: named by its creator, or by itself. */
static void words(void) {
    for (int itself = 0; itself < 2; itself++) {
        volatile int *word = (int *)block(PAGE);
        char *stack = mmap(NULL, 1 << 18, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
        int flags = CLONE_VM | SIGCHLD | (itself ? 0 : CLONE_CHILD_CLEARTID | CLONE_CHILD_SETTID), status;
        *word = 1, stop = 0;
        pid_t child = clone(waits, stack + (1 << 18), flags, itself ? (void *)word : NULL, NULL, NULL, (void *)word);
        CHECK(child > 0);
        usleep(50000);
        push_out((void *)word, PAGE);
        press();
        stop = 1;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
        printf("word %d: %s\n", itself, *word ? "as it was" : "cleared");
    }
}

int main(void) {
    threads();
    processes();
    words();
    return 0;
}
