/* Work that the C library does in its own helper threads, which have all signals blocked: timers that start
 * threads, asynchronous I/O, name look-ups. Everything that they touch is evicted meanwhile. */
#include "out.h"
#include <aio.h>
#include <fcntl.h>
#include <mqueue.h>
#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

static volatile int ran, signalled, on_small_stack;
static volatile uint64_t *shared;
/* Whether SIGTERM was blocked in the threads, one bit each. */
static volatile unsigned masks;

static void tick(union sigval value) {
    CHECK(*(uint64_t *)value.sival_ptr == 77);
    sigset_t mask;
    CHECK(pthread_sigmask(SIG_SETMASK, NULL, &mask) == 0);
    masks = masks * 2 + (unsigned)sigismember(&mask, SIGTERM);
    pthread_attr_t own;
    size_t len;
    CHECK(pthread_getattr_np(pthread_self(), &own) == 0 && pthread_attr_getstacksize(&own, &len) == 0);
    on_small_stack += len <= 200 << 10;
    pthread_attr_destroy(&own);
    __atomic_add_fetch(&ran, 1, __ATOMIC_SEQ_CST);
}

static void heard(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    signalled += info->si_code == SI_ASYNCIO && info->si_value.sival_int == 5;
}

static void all_out(void) {
    char *more = block(20 << 20);
    push_out(more, 20 << 20);
    free(more);
    push_out((void *)shared, PAGE);
}

static void timers(void) {
    pthread_attr_t *attributes = (void *)block(PAGE);
    CHECK(pthread_attr_init(attributes) == 0 && pthread_attr_setstacksize(attributes, 128 << 10) == 0);
    struct sigevent *event = (void *)block(PAGE);
    *event = (struct sigevent){.sigev_notify = SIGEV_THREAD, .sigev_notify_function = tick,
        .sigev_value.sival_ptr = (void *)shared, .sigev_notify_attributes = attributes};
    push_out(event, PAGE), push_out(attributes, PAGE);
    timer_t first, second, plain;
    CHECK(timer_create(CLOCK_MONOTONIC, event, &first) == 0);
    event->sigev_notify_attributes = NULL;
    CHECK(timer_create(CLOCK_REALTIME, event, &second) == 0);
    CHECK(timer_create(CLOCK_MONOTONIC, &(struct sigevent){.sigev_notify = SIGEV_NONE}, &plain) == 0);
    struct itimerspec *often = (void *)block(PAGE), left;
    *often = (struct itimerspec){{0, 5000000}, {0, 5000000}};
    push_out(often, PAGE);
    CHECK(timer_settime(first, 0, often, NULL) == 0);
    CHECK(timer_settime(plain, 0, often, NULL) == 0 && timer_gettime(plain, &left) == 0);
    while (ran < 30) all_out();
    CHECK(on_small_stack == ran);
    CHECK(masks == ~0u || masks == 0 || ran < 32);
    printf("timers: SIGTERM is %s\n", masks ? "blocked" : "not blocked");
    CHECK(timer_gettime(first, &left) == 0 && left.it_interval.tv_nsec == 5000000);
    CHECK(timer_getoverrun(first) >= 0 && timer_delete(first) == 0);
    usleep(50000);
    int before = ran;
    usleep(50000);
    CHECK(ran == before);
    *often = (struct itimerspec){{0, 0}, {0, 1000}};
    CHECK(timer_settime(second, 0, often, NULL) == 0);
    while (ran == before) usleep(1000);
    /* A child has no timers, and creates its own. */
    pid_t pid = fork();
    if (pid == 0) {
        timer_t own;
        int so_far = ran;
        CHECK(timer_create(CLOCK_MONOTONIC, event, &own) == 0 && timer_settime(own, 0, often, NULL) == 0);
        while (ran == so_far) usleep(1000);
        _exit(6);
    }
    int status;
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 6);
    CHECK(timer_delete(second) == 0 && timer_delete(plain) == 0);
    CHECK(timer_delete(plain) == -1 && errno == EINVAL);
}

static void finished(struct aiocb *block, ssize_t wanted) {
    const struct aiocb *list[1] = {block};
    while (aio_error(block) == EINPROGRESS) aio_suspend(list, 1, NULL);
    CHECK(aio_error(block) == 0 && aio_return(block) == wanted);
}

static void operations(void) {
    FILE *file = tmpfile();
    char *bytes = block(64 << 10);
    struct aiocb *one = (void *)block(PAGE), *two = (void *)block(PAGE);
    memset(one, 0, sizeof *one);
    one->aio_fildes = fileno(file), one->aio_buf = bytes, one->aio_nbytes = 64 << 10;
    push_out(bytes, 64 << 10), push_out(one, PAGE);
    CHECK(aio_write(one) == 0);
    finished(one, 64 << 10);
    CHECK(aio_fsync(O_SYNC, one) == 0);
    finished(one, 0);
    memset(bytes, 0, 64 << 10);
    int before = ran;
    masks = 0;
    one->aio_sigevent = (struct sigevent){.sigev_notify = SIGEV_THREAD, .sigev_notify_function = tick,
        .sigev_value.sival_ptr = (void *)shared};
    push_out(bytes, 64 << 10), push_out(one, PAGE), push_out((void *)shared, PAGE);
    CHECK(aio_read(one) == 0);
    finished(one, 64 << 10);
    for (int n = 0; n < 64 << 10; n++) CHECK(bytes[n] == 0x55);
    while (ran == before) usleep(1000);
    printf("operations: SIGTERM is %s\n", masks ? "blocked" : "not blocked");
    struct sigaction action = {.sa_sigaction = heard, .sa_flags = SA_SIGINFO | SA_RESTART};
    CHECK(sigaction(SIGRTMIN, &action, NULL) == 0);
    one->aio_sigevent = (struct sigevent){.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN,
        .sigev_value.sival_int = 5};
    one->aio_lio_opcode = LIO_READ;
    *two = *one;
    two->aio_lio_opcode = LIO_WRITE, two->aio_offset = 1 << 20;
    struct aiocb *list[3] = {one, NULL, two};
    push_out(bytes, 64 << 10), push_out(one, PAGE), push_out(two, PAGE);
    CHECK(lio_listio(LIO_NOWAIT, list, 3, NULL) == 0);
    finished(one, 64 << 10), finished(two, 64 << 10);
    while (signalled < 2) usleep(1000);
    /* A pipe has nothing yet: the call does not wait. */
    int ends[2];
    CHECK(pipe(ends) == 0);
    one->aio_sigevent = (struct sigevent){.sigev_notify = SIGEV_NONE};
    one->aio_fildes = ends[0], one->aio_nbytes = 100;
    push_out(bytes, 64 << 10), push_out(one, PAGE);
    CHECK(aio_read(one) == 0 && aio_error(one) == EINPROGRESS);
    CHECK(write(ends[1], "data", 4) == 4);
    finished(one, 4);
    CHECK(memcmp(bytes, "data", 4) == 0);
    one->aio_fildes = -1;
    if (aio_read(one) == 0) {
        while (aio_error(one) == EINPROGRESS) usleep(100);
        CHECK(aio_error(one) == EBADF && aio_return(one) == -1);
    } else CHECK(errno == EBADF);
}

static void lookups(void) {
    struct gaicb *request = (void *)block(PAGE), *list[1] = {request};
    *request = (struct gaicb){.ar_name = strcpy(block(PAGE), "127.0.0.1"), .ar_service = strcpy(block(PAGE), "80")};
    push_out(request->ar_name, PAGE), push_out(request->ar_service, PAGE), push_out(request, PAGE);
    CHECK(getaddrinfo_a(GAI_WAIT, list, 1, NULL) == 0 && gai_error(request) == 0 && request->ar_result);
    freeaddrinfo(request->ar_result);
    int before = ran;
    struct sigevent event = {.sigev_notify = SIGEV_THREAD, .sigev_notify_function = tick,
        .sigev_value.sival_ptr = (void *)shared};
    CHECK(getaddrinfo_a(GAI_NOWAIT, list, 1, &event) == 0);
    while (ran == before) usleep(1000);
    CHECK(gai_error(request) == 0);
}

static void queues(void) {
    char name[64];
    snprintf(name, sizeof name, "/helper_threads.%d", getpid());
    struct mq_attr wanted = {.mq_maxmsg = 4, .mq_msgsize = 64};
    mqd_t queue = mq_open(name, O_CREAT | O_RDWR | O_NONBLOCK, 0600, &wanted);
    if (queue == (mqd_t)-1) return;
    CHECK(mq_unlink(name) == 0);
    pthread_attr_t *attributes = (void *)block(PAGE);
    CHECK(pthread_attr_init(attributes) == 0 && pthread_attr_setstacksize(attributes, 128 << 10) == 0);
    char *message = block(PAGE);
    for (int turn = 0; turn < 5; turn++) {
        int before = ran;
        struct sigevent event = {.sigev_notify = SIGEV_THREAD, .sigev_notify_function = tick,
            .sigev_value.sival_ptr = (void *)shared, .sigev_notify_attributes = attributes};
        push_out(attributes, PAGE);
        CHECK(mq_notify(queue, &event) == 0);
        all_out();
        push_out(message, PAGE);
        CHECK(mq_send(queue, message, 64, 1) == 0);
        while (ran == before) usleep(1000);
        push_out(message, PAGE);
        CHECK(mq_receive(queue, message, 64, NULL) == 64);
    }
    mq_close(queue);
}

int main(void) {
    shared = (void *)block(PAGE);
    *shared = 77;
    timers();
    operations();
    lookups();
    queues();
    puts("all helped");
    return 0;
}
