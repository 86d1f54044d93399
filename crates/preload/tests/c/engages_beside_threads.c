/* A process that is dormant while it has threads of many kinds, and engages in the middle of what they do. No byte may
 * be lost, no call may fail that would not have failed, and nothing may hang: a thread that was inside read() when the
 * filter came would get EFAULT for a page that had left. */
#include "check.h"
#include "dormant.h"
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#define STACK (192u << 10)
/* Engaging takes more than this. */
#define SMALL_STACK (64u << 10)
#define BLOCK (64u << 10)

static volatile int stop;
extern char **environ;

static pthread_t start_with(size_t stack, void *(*function)(void *), void *argument)
{
    pthread_attr_t attributes;
    pthread_t thread;
    CHECK(pthread_attr_init(&attributes) == 0);
    CHECK(pthread_attr_setstacksize(&attributes, stack) == 0);
    CHECK(pthread_create(&thread, &attributes, function, argument) == 0);
    pthread_attr_destroy(&attributes);
    return thread;
}

static pthread_t start(void *(*function)(void *), void *argument)
{
    return start_with(STACK, function, argument);
}

static void *touches(void *unused)
{
    size_t words = (2 * MIB) / sizeof(uint64_t);
    uint64_t *own = malloc(2 * MIB);
    (void)unused;
    for (uint64_t round = 0; !stop; round++) {
        for (size_t n = 0; n < words; n += 97) {
            if (round) CHECK(own[n] == (round - 1) * words + n);
            own[n] = round * words + n;
        }
    }
    free(own);
    return NULL;
}

/* Pipes on which the main thread sends numbers to those that wait. */
static int reads[2], polls[2], epolls[2];

static void *reads_into_blocks(void *unused)
{
    (void)unused;
    for (uint64_t wanted = 0;; wanted++) {
        /* The page is absent while the thread waits, and the kernel would bring in none once the process has engaged. */
        uint64_t *into = mmap(NULL, BLOCK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(into != MAP_FAILED);
        CHECK(read(reads[0], into + 512, sizeof *into) == sizeof *into);
        CHECK(into[511] == 0 && into[513] == 0);
        if (into[512] == UINT64_MAX) return NULL;
        CHECK(into[512] == wanted);
        CHECK(munmap(into, BLOCK) == 0);
    }
}

static void *polls_from_blocks(void *unused)
{
    struct pollfd *fds = malloc(BLOCK);
    uint64_t number;
    (void)unused;
    do {
        fds[100].fd = polls[0];
        fds[100].events = POLLIN;
        fds[100].revents = 0;
        CHECK(poll(fds + 100, 1, -1) == 1);
        CHECK(fds[100].revents == POLLIN);
        CHECK(read(polls[0], &number, sizeof number) == sizeof number);
    } while (number != UINT64_MAX);
    return NULL;
}

static void *waits_for_events(void *unused)
{
    struct epoll_event *events = malloc(BLOCK), wanted = {.events = EPOLLIN, .data.u64 = 77};
    int epoll = epoll_create1(0);
    uint64_t number;
    (void)unused;
    CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, epolls[0], &wanted) == 0);
    do {
        CHECK(epoll_wait(epoll, events + 50, 8, -1) == 1);
        CHECK(events[50].data.u64 == 77);
        CHECK(read(epolls[0], &number, sizeof number) == sizeof number);
    } while (number != UINT64_MAX);
    return NULL;
}

static void *sleeps(void *unused)
{
    (void)unused;
    while (!stop) nap(30000000);
    return NULL;
}

/* Calls that may have a mask and have none. While a process was dormant they were made where no thread can be parked, and
 * ended with EINTR. */
static void *waits_without_a_mask(void *unused)
{
    struct timespec time = {0, 20000000};
    struct epoll_event event;
    int epoll = epoll_create1(0);
    (void)unused;
    while (!stop) {
        CHECK(ppoll(NULL, 0, &time, NULL) == 0);
        CHECK(pselect(0, NULL, NULL, NULL, &time, NULL) == 0);
        CHECK(epoll_pwait(epoll, &event, 1, 20, NULL) == 0);
        CHECK(time.tv_nsec == 20000000);
    }
    return NULL;
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static uint64_t turn;

static void *takes_turns(void *parity)
{
    uint64_t own = (uint64_t)(uintptr_t)parity;
    CHECK(pthread_mutex_lock(&mutex) == 0);
    while (!stop) {
        struct timespec end;
        clock_gettime(CLOCK_REALTIME, &end);
        end.tv_sec += 1;
        while (!stop && turn % 2 != own) pthread_cond_timedwait(&condition, &mutex, &end);
        turn++;
        pthread_cond_broadcast(&condition);
    }
    pthread_cond_broadcast(&condition);
    CHECK(pthread_mutex_unlock(&mutex) == 0);
    return NULL;
}

static void *allocates(void *seed)
{
    enum { SLOTS = 64 };
    unsigned char *slots[SLOTS] = {0};
    size_t lens[SLOTS] = {0};
    uint64_t random = (uint64_t)(uintptr_t)seed * 2654435761u + 1;
    while (!stop) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        size_t at = (random >> 33) % SLOTS, len = 16 + (random >> 40) % (48u << 10);
        if (slots[at]) {
            CHECK(slots[at][0] == (unsigned char)at && slots[at][lens[at] - 1] == (unsigned char)(at + 1));
            free(slots[at]);
        }
        slots[at] = malloc(len);
        slots[at][0] = (unsigned char)at;
        slots[at][len - 1] = (unsigned char)(at + 1);
        lens[at] = len;
    }
    for (size_t at = 0; at < SLOTS; at++) free(slots[at]);
    return NULL;
}

static void *maps(void *unused)
{
    (void)unused;
    while (!stop) {
        char *at = mmap(NULL, 32 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(at != MAP_FAILED);
        fill(at, 32 * PAGE, 5);
        CHECK(mprotect(at, 16 * PAGE, PROT_READ) == 0);
        at = mremap(at, 16 * PAGE, 16 * PAGE, 0);
        CHECK(at != MAP_FAILED);
        CHECK(*(uint64_t *)(at + 3 * PAGE) == 5 + 3);
        CHECK(madvise(at + 16 * PAGE, 4 * PAGE, MADV_DONTNEED) == 0);
        CHECK(at[16 * PAGE] == 0);
        CHECK(munmap(at, 32 * PAGE) == 0);
    }
    return NULL;
}

static void *ends_at_once(void *argument)
{
    uint64_t *block = malloc(BLOCK);
    *block = (uint64_t)(uintptr_t)argument;
    return block;
}

static void *makes_threads(void *unused)
{
    (void)unused;
    for (uint64_t n = 0; !stop; n++) {
        void *block;
        CHECK(pthread_join(start(ends_at_once, (void *)(uintptr_t)n), &block) == 0);
        CHECK(*(uint64_t *)block == n);
        free(block);
        nap(100000);
    }
    return NULL;
}

static void *forks(void *unused)
{
    uint64_t *own = malloc(BLOCK);
    (void)unused;
    for (uint64_t n = 0; !stop; n++) {
        int status;
        own[700] = n;
        pid_t child = fork();
        if (!child) _exit(own[700] == n ? 7 : 8);
        CHECK(child > 0 && waitpid(child, &status, 0) == child);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
        nap(3000000);
    }
    free(own);
    return NULL;
}

static void *spawns(void *unused)
{
    char **arguments = malloc(BLOCK);
    (void)unused;
    while (!stop) {
        pid_t child;
        int status;
        arguments[0] = strdup("true");
        arguments[1] = NULL;
        CHECK(posix_spawn(&child, "/bin/true", NULL, NULL, arguments, environ) == 0);
        CHECK(waitpid(child, &status, 0) == child && status == 0);
        free(arguments[0]);
        nap(3000000);
    }
    free(arguments);
    return NULL;
}

static void counts(int signal)
{
    (void)signal;
}

static volatile int suspended;

static void *suspends(void *unused)
{
    sigset_t none;
    (void)unused;
    sigemptyset(&none);
    while (!stop) {
        sigsuspend(&none);
        suspended++;
    }
    return NULL;
}

static int word;

/* Rust's standard library waits so. */
static void *waits_by_number(void *unused)
{
    (void)unused;
    while (!stop) syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
    return NULL;
}

static void send(int *pipe, uint64_t number)
{
    CHECK(write(pipe[1], &number, sizeof number) == sizeof number);
}

static pthread_t suspender;
static uint64_t sent;

/* The thread that engages: the first one waits meanwhile. */
static void *grows(void *unused)
{
    enum { BLOCKS = 1600 };
    static char *blocks[BLOCKS];
    (void)unused;
    for (size_t n = 0; n < BLOCKS; n++) {
        blocks[n] = malloc(BLOCK);
        fill(blocks[n], BLOCK, n);
        if (n % 50 == 0) {
            send(reads, sent);
            send(polls, sent);
            send(epolls, sent++);
            pthread_kill(suspender, SIGUSR1);
        }
    }
    for (size_t n = 0; n < BLOCKS; n++)
        for (size_t page = 0; page < BLOCK / PAGE; page++) CHECK(*(uint64_t *)(blocks[n] + page * PAGE) == n + page);
    return NULL;
}

static void run(long moment)
{
    void *(*const kinds[])(void *) = {touches, touches,       reads_into_blocks, polls_from_blocks, waits_for_events,
                                      sleeps,  maps,          makes_threads,     forks,             spawns,
                                      takes_turns, waits_by_number, waits_without_a_mask};
    enum { KINDS = sizeof kinds / sizeof *kinds };
    pthread_t threads[KINDS + 3];

    CHECK(pipe(reads) == 0 && pipe(polls) == 0 && pipe(epolls) == 0);
    signal(SIGUSR1, counts);
    suspender = start(suspends, NULL);
    for (size_t n = 0; n < KINDS; n++)
        threads[n] = start(kinds[n], NULL);
    threads[KINDS] = start(takes_turns, (void *)1);
    threads[KINDS + 1] = start(allocates, (void *)1);
    threads[KINDS + 2] = start(allocates, (void *)2);
    nap(moment);
    CHECK(!is_filtered());

    CHECK(pthread_join(start_with(SMALL_STACK, grows, NULL), NULL) == 0);
    CHECK(is_filtered() == !!getenv("MILLPOND_RAM"));
    nap(50000000);
    stop = 1;
    send(reads, UINT64_MAX);
    send(polls, UINT64_MAX);
    send(epolls, UINT64_MAX);
    for (size_t n = 0; n < KINDS + 3; n++) {
        syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
        CHECK(pthread_join(threads[n], NULL) == 0);
    }
    for (int before = suspended; before == suspended; nap(1000000)) pthread_kill(suspender, SIGUSR1);
    CHECK(pthread_join(suspender, NULL) == 0);
    puts("everything is as it was");
}

/* The arguments: when the process grows, in nanoseconds, and "child" if it is a child of a fork that does all this. */
int main(int count, char **arguments)
{
    long moment = count > 1 ? atol(arguments[1]) : 20000;
    if (count > 2) {
        int status;
        pid_t child = fork();
        CHECK(child >= 0);
        if (child) {
            CHECK(waitpid(child, &status, 0) == child && status == 0);
            return 0;
        }
    }
    run(moment);
    return 0;
}
