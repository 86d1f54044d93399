/* Calls that are abandoned before they finish: by an interruption, by longjmp from a signal handler, by
 * cancellation. Their holds are then released, and unwinding works as in the C library: handlers run, and the lock
 * of a stream that was being read is free. */
#include "out.h"
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>

static int ends[2];
static sigjmp_buf back;
static volatile int handled;

static void handle(int signal) {
    (void)signal;
    handled++;
}

/* Makes a call of its own while it interrupts one. */
static void handle_and_call(int signal) {
    (void)signal;
    static char *own;
    if (!own) own = block(PAGE);
    int pair[2];
    CHECK(pipe(pair) == 0);
    memset(own, 1, 100);
    push_out(own, PAGE);
    CHECK(write(pair[1], own, 100) == 100);
    push_out(own, PAGE);
    CHECK(read(pair[0], own, 100) == 100);
    close(pair[0]), close(pair[1]);
    handled++;
    if (handled == 3) CHECK(write(ends[1], "data", 4) == 4);
}

static void leave(int signal) {
    (void)signal;
    siglongjmp(back, 1);
}

static void every(long microseconds, void (*handler)(int), int flags) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    struct itimerval time = {{0, microseconds}, {0, microseconds}};
    CHECK(setitimer(ITIMER_REAL, &time, NULL) == 0);
}

/* Returns whether a page can be evicted, which is impossible while it is held. */
static int is_free(char *at) {
    at[0] = 1;
    push_out(at, PAGE);
    return !is_in(at);
}

static void interrupted(void) {
    char *room = block(2 * PAGE);
    push_out(room, 2 * PAGE);
    every(20000, handle, 0);
    CHECK(read(ends[0], room, 2 * PAGE) == -1 && errno == EINTR && handled > 0);
    every(0, handle, 0);
    CHECK(is_free(room) && is_free(room + PAGE));
    handled = 0;
    push_out(room, 2 * PAGE);
    every(20000, handle_and_call, SA_RESTART);
    CHECK(read(ends[0], room, 2 * PAGE) == 4 && handled >= 3 && memcmp(room, "data", 4) == 0);
    every(0, handle, 0);
    CHECK(is_free(room) && is_free(room + PAGE));
    free(room);
}

static char *held_page;

static void look(int signal) {
    (void)signal;
    push_out(held_page, PAGE);
    handled = is_in(held_page) ? 1 : 2;
}

static void held_meanwhile(void) {
    held_page = block(PAGE);
    handled = 0;
    push_out(held_page, PAGE);
    every(20000, look, 0);
    CHECK(read(ends[0], held_page, PAGE) == -1 && errno == EINTR);
    every(0, look, 0);
    CHECK(handled == 1);
    CHECK(is_free(held_page));
    free(held_page);
}

static void jumped(void) {
    static char *room;
    room = block(PAGE);
    for (volatile int turn = 0; turn < 30; turn++) {
        push_out(room, PAGE);
        if (sigsetjmp(back, 1) == 0) {
            every(3000, leave, 0);
            read(ends[0], room, PAGE);
            CHECK(0);
        }
        every(0, leave, 0);
    }
    /* The next call releases the abandoned holds. */
    char *other = block(PAGE);
    CHECK(write(ends[1], "data", 4) == 4 && read(ends[0], other, 4) == 4);
    CHECK(is_free(room));
    free(room), free(other);
}

static char *thread_room;
static volatile int cleaned;

static void clean(void *one) {
    cleaned += *(int *)one;
}

static void *waits(void *unused) {
    int one = 1;
    pthread_cleanup_push(clean, &one);
    push_out(thread_room, PAGE);
    struct iovec part = {thread_room, PAGE};
    if (unused) read(ends[0], thread_room, PAGE);
    else readv(ends[0], &part, 1);
    pthread_cleanup_pop(0);
    return NULL;
}

static FILE *stream;

static void *waits_in_stream(void *unused) {
    (void)unused;
    char *line = NULL;
    size_t len = 0;
    push_out(thread_room, PAGE);
    getline(&line, &len, stream);
    return NULL;
}

static void cancelled(void) {
    thread_room = block(PAGE);
    pthread_t thread;
    void *result;
    for (int turn = 0; turn < 40; turn++) {
        cleaned = 0;
        CHECK(pthread_create(&thread, NULL, waits, turn % 2 ? &thread : NULL) == 0);
        if (turn % 4 < 3) usleep(3000);
        CHECK(pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0);
        CHECK(result == PTHREAD_CANCELED);
        if (turn % 4 < 3) CHECK(cleaned == 1);
        CHECK(is_free(thread_room));
    }
    /* The stream's buffer is managed, so the filter stops its read. */
    stream = fdopen(ends[0], "r");
    CHECK(setvbuf(stream, thread_room, _IOFBF, PAGE) == 0);
    for (int turn = 0; turn < 10; turn++) {
        CHECK(pthread_create(&thread, NULL, waits_in_stream, NULL) == 0);
        usleep(5000);
        CHECK(pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0);
        CHECK(result == PTHREAD_CANCELED);
        CHECK(ftrylockfile(stream) == 0);
        funlockfile(stream);
        CHECK(is_free(thread_room));
    }
    char line[100];
    CHECK(write(ends[1], "a line\n", 7) == 7);
    CHECK(fgets(line, 100, stream) && strcmp(line, "a line\n") == 0);
}

int main(int count, char **words) {
    CHECK(pipe(ends) == 0);
    interrupted();
    if (count > 1 && strcmp(words[1], "held") == 0) held_meanwhile();
    jumped();
    cancelled();
    puts("all left");
    return 0;
}
