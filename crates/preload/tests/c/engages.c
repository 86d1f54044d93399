/* A process that begins dormant and engages in the middle: with signals blocked, in a signal handler that has
 * interrupted a read, in a child of a fork, where it makes a thread, and where it gives memory to a userfaultfd of its
 * own. Its memory is of every kind by then. The argument says where.
 *
 * A mapping has one userfaultfd. Formerly a dormant process could give managed memory to its own, could not engage any
 * more, and ended when it grew. */
#include "check.h"
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>

#define SMALL (4 * MIB)
#define LARGE (48 * MIB)

static char *writable, *read_only, *hidden, *moved, *zeros, *heap;
static char *file_page;
static volatile sig_atomic_t handled;

/* Memory of each kind, little enough that the process stays dormant. */
static void prepare(void) {
    writable = map(SMALL);
    fill(writable, SMALL, 1);
    read_only = map(MIB / 2);
    fill(read_only, MIB / 2, 2000);
    CHECK(mprotect(read_only, MIB / 2, PROT_READ) == 0);
    hidden = map(MIB / 2);
    fill(hidden, MIB / 2, 3000);
    CHECK(mprotect(hidden, MIB / 2, PROT_NONE) == 0);
    char *old = map(MIB / 2);
    fill(old, MIB / 2, 4000);
    moved = mremap(old, MIB / 2, MIB, MREMAP_MAYMOVE);
    CHECK(moved != MAP_FAILED);
    zeros = map(MIB);
    for (size_t n = 0; n < MIB / 2; n += PAGE) CHECK(zeros[n] == 0);
    CHECK(madvise(writable + 8 * PAGE, 4 * PAGE, MADV_DONTNEED) == 0);
    fill(writable + 8 * PAGE, 4 * PAGE, 9);
    heap = malloc(MIB);
    CHECK(heap);
    memset(heap, 'h', MIB);
    /* A file on top of memory that was reserved. */
    char *reserved = map(16 * PAGE);
    int fd = open("/proc/self/exe", O_RDONLY);
    CHECK(fd >= 0);
    file_page = mmap(reserved + 4 * PAGE, PAGE, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 0);
    CHECK(file_page == reserved + 4 * PAGE);
    close(fd);
}

static void check(void) {
    verify(writable, SMALL, 1);
    verify(read_only, MIB / 2, 2000);
    CHECK(mprotect(hidden, MIB / 2, PROT_READ | PROT_WRITE) == 0);
    verify(hidden, MIB / 2, 3000);
    CHECK(mprotect(hidden, MIB / 2, PROT_NONE) == 0);
    verify(moved, MIB / 2, 4000);
    for (size_t n = 0; n < MIB; n++) CHECK(zeros[n] == 0);
    for (size_t n = 0; n < MIB; n++) CHECK(heap[n] == 'h');
    CHECK(memcmp(file_page, "\177ELF", 4) == 0);
}

/* Far more than the budget: by the end everything else has been out. */
static void grow(void) {
    char *large = map(LARGE);
    fill(large, LARGE, 100000);
    verify(large, LARGE, 100000);
    CHECK(munmap(large, LARGE) == 0);
}

static void on_alarm(int signal) {
    (void)signal;
    grow();
    handled = 1;
}

/* The call is made again after the handler, and its buffer is out by then. */
static void in_a_handler(void) {
    int ends[2];
    CHECK(pipe(ends) == 0);
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    struct itimerval soon = {.it_value = {.tv_usec = 50000}};
    pid_t writer = fork();
    CHECK(writer >= 0);
    if (writer == 0) {
        /* The parent's handler runs before this is written. */
        char text[] = "late";
        sleep(2);
        CHECK(write(ends[1], text, sizeof text) == sizeof text);
        _exit(0);
    }
    CHECK(setitimer(ITIMER_REAL, &soon, NULL) == 0);
    ssize_t got = read(ends[0], writable + 100 * PAGE, 100);
    CHECK(handled && got == 5 && strcmp(writable + 100 * PAGE, "late") == 0);
    fill(writable + 100 * PAGE, PAGE, 101);
    int status;
    CHECK(waitpid(writer, &status, 0) == writer && status == 0);
}

static void with_signals_blocked(void) {
    sigset_t all, now;
    sigfillset(&all);
    CHECK(sigprocmask(SIG_SETMASK, &all, NULL) == 0);
    grow();
    CHECK(sigprocmask(SIG_SETMASK, NULL, &now) == 0);
    CHECK(sigismember(&now, SIGBUS) && sigismember(&now, SIGSYS) && sigismember(&now, SIGUSR1));
    check();
}

static void in_a_child(void) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        check();
        grow();
        check();
        pid_t grandchild = fork();
        CHECK(grandchild >= 0);
        if (grandchild == 0) {
            check();
            _exit(0);
        }
        int status;
        CHECK(waitpid(grandchild, &status, 0) == grandchild && status == 0);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    check();
    grow();
}

static void *beside(void *argument) {
    grow();
    return argument;
}

static void by_a_thread(void) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, beside, NULL) == 0);
    check();
    CHECK(pthread_join(thread, NULL) == 0);
}

/* Whether that works is documented elsewhere. Either way the process goes on. */
static void with_its_own_userfaultfd(void) {
    int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | 1 /* UFFD_USER_MODE_ONLY */);
    struct uffdio_api api = {.api = UFFD_API};
    CHECK(fd >= 0 && ioctl(fd, UFFDIO_API, &api) == 0);
    char *mine = map(MIB);
    struct uffdio_register all = {.range = {(unsigned long)mine, MIB}, .mode = UFFDIO_REGISTER_MODE_MISSING};
    if (ioctl(fd, UFFDIO_REGISTER, &all) == 0) {
        struct uffdio_zeropage zeros = {.range = {(unsigned long)mine, MIB}};
        CHECK(ioctl(fd, UFFDIO_ZEROPAGE, &zeros) == 0);
    }
    fill(mine, MIB, 50000);
    grow();
    verify(mine, MIB, 50000);
}

/* A file that was mapped and not touched used to be forgotten at the next look. Touched later, with a full heap, it took
 * the process above its budget. (This is for a budget of 96 MiB.) */
static void after_mapping_a_file(void) {
    enum { FILE_LEN = 40 * MIB, HEAP = 56 * MIB };
    int fd = memfd_create("file", MFD_CLOEXEC);
    static char page[PAGE];
    CHECK(fd >= 0);
    for (size_t n = 0; n < FILE_LEN / PAGE; n++) {
        page[1] = (char)n;
        CHECK(write(fd, page, PAGE) == PAGE);
    }
    char *file = mmap(NULL, FILE_LEN, PROT_READ, MAP_SHARED, fd, 0);
    CHECK(file != MAP_FAILED);
    char *more = map(HEAP);
    fill(more, HEAP, 60000);
    /* Slowly, as no page of a file is a fault that the library sees. */
    for (size_t n = 0; n < FILE_LEN / PAGE; n++) {
        CHECK(file[n * PAGE + 1] == (char)n);
        if (n % 16 == 0) usleep(500);
    }
    verify(more, HEAP, 60000);
    CHECK(munmap(file, FILE_LEN) == 0);
    CHECK(munmap(more, HEAP) == 0);
    close(fd);
}

/* The heap grows bit by bit, and each block stays. */
static void by_small_blocks(void) {
    enum { BLOCKS = 40000 };
    static char *blocks[BLOCKS];
    for (size_t n = 0; n < BLOCKS; n++) {
        blocks[n] = malloc(1000);
        CHECK(blocks[n]);
        memset(blocks[n], (int)(n % 251), 1000);
    }
    for (size_t n = 0; n < BLOCKS; n++) {
        for (size_t at = 0; at < 1000; at += 37) CHECK(blocks[n][at] == (char)(n % 251));
        free(blocks[n]);
    }
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    static const struct {
        const char *name;
        void (*run)(void);
    } ways[] = {{"handler", in_a_handler}, {"blocked", with_signals_blocked}, {"child", in_a_child},
                {"thread", by_a_thread},   {"blocks", by_small_blocks},       {"growth", grow},
                {"register", with_its_own_userfaultfd}, {"file", after_mapping_a_file}};
    prepare();
    check();
    for (size_t n = 0; n < sizeof ways / sizeof *ways; n++)
        if (strcmp(ways[n].name, arguments[1]) == 0) ways[n].run();
    check();
    grow();
    check();
    /* A third of what was touched is the budget; natively there is none. */
    const char *budget = getenv("MILLPOND_RAM");
    if (budget) CHECK(peak_kib() <= atol(budget) / 1024 + 4 * 1024);
    printf("%s: everything is as it was\n", arguments[1]);
    return 0;
}
