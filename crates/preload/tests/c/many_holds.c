/* Many ranges at once: threads that wait in calls with vectors, each range on its own page, and a program with
 * more arguments than that. Formerly a process could hold only 4096 ranges, and the next call was refused. */
#include "out.h"
#include <pthread.h>
#include <sys/uio.h>
#include <sys/wait.h>

#define THREADS 300
#define EACH 16
#define ARGUMENTS 5000

static int ends[2];
static char *pages;

static void *waits(void *number) {
    struct iovec parts[EACH];
    for (long n = 0; n < EACH; n++) parts[n] = (struct iovec){pages + ((long)number * EACH + n) * PAGE, 1};
    ssize_t came = readv(ends[0], parts, EACH);
    CHECK(came > 0 && came <= EACH);
    for (ssize_t n = 0; n < came; n++) CHECK(pages[((long)number * EACH + n) * PAGE] == 'x');
    return (void *)(long)came;
}

static void threads(void) {
    static char text[THREADS * EACH];
    pthread_t all[THREADS];
    pthread_attr_t small;
    long came = 0;
    pages = block(THREADS * EACH * PAGE);
    push_out(pages, THREADS * EACH * PAGE);
    CHECK(pipe(ends) == 0);
    CHECK(pthread_attr_init(&small) == 0 && pthread_attr_setstacksize(&small, 64 << 10) == 0);
    for (long n = 0; n < THREADS; n++) CHECK(pthread_create(&all[n], &small, waits, (void *)n) == 0);
    usleep(500000);
    /* This thread's calls come after those of all others. */
    char *own = block(PAGE);
    int other[2];
    push_out(own, PAGE);
    CHECK(pipe(other) == 0 && write(other[1], own, 100) == 100 && read(other[0], own, 100) == 100);
    memset(text, 'x', sizeof text);
    /* A thread takes the data of one write, or part of it. */
    CHECK(write(ends[1], text, sizeof text) == sizeof text);
    for (int n = 0; n < THREADS; n++) {
        void *answer;
        CHECK(pthread_join(all[n], &answer) == 0);
        came += (long)answer;
    }
    CHECK(came == THREADS * EACH);
    free(pages);
}

int main(int argc, char **argv) {
    if (argc > 1) {
        for (int n = 1; n < argc; n++) CHECK(atoi(argv[n]) == n);
        puts(argc == ARGUMENTS + 1 ? "all arguments" : "too few");
        return 0;
    }
    threads();
    static char *list[ARGUMENTS + 2];
    char *texts = block(ARGUMENTS * PAGE);
    for (int n = 1; n <= ARGUMENTS; n++) sprintf(list[n] = texts + (n - 1) * PAGE, "%d", n);
    list[0] = argv[0];
    push_out(texts, ARGUMENTS * PAGE);
    fflush(stdout);
    execv(argv[0], list);
    CHECK(!"execv");
    return 1;
}
