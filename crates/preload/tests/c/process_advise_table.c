/* Prints the results of process_madvise about this process and others, with good and bad vectors, and the contents of
 * the pages afterwards. The test runs this with and without the library and compares. */
#include "check.h"
#include "kinds.h"
#include <dlfcn.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>

/* The C library has had the function since 2.36; the library under test always has it. */
typedef ssize_t process_madvise_fn(int, const struct iovec *, size_t, int, unsigned);
static process_madvise_fn *found;

static long advise(int pidfd, const void *vector, size_t count, int advice, unsigned flags) {
    if (found) return found(pidfd, vector, count, advice, flags);
    return syscall(SYS_process_madvise, pidfd, vector, count, advice, flags);
}

static int own;
/* The kind of memory that the ranges are in. */
static char *target;

static void try(const char *name, int pidfd, const void *vector, size_t count, int advice, unsigned flags) {
    fill(target, SPAN, SEED);
    const long result = advise(pidfd, vector, count, advice, flags);
    say(name, result);
    say_contents(target, advice == MADV_FREE && result > 0);
}

/* Does what the function above does, with ranges given in pages from the start of a kind of memory. */
struct pages {
    size_t from, len;
};
static void try_pages(const char *name, const char *kind, const struct pages *pages, size_t count, int advice) {
    char *at = make(kind_named(kind));
    struct iovec vector[8];
    for (size_t n = 0; n < count; n++) {
        vector[n].iov_base = at + pages[n].from * PAGE;
        vector[n].iov_len = pages[n].len * PAGE;
    }
    printf("%s: ", kind);
    say(name, advise(own, vector, count, advice, 0));
    say_contents(at, advice == MADV_FREE);
    unmake(at);
}

static void ranges(void) {
    static const struct pages THREE[] = {{0, 4}, {6, 3}, {12, 4}}, OVERLAPPING[] = {{0, 8}, {4, 8}},
                              EMPTY[] = {{3, 0}, {2, 0}}, WITH_EMPTY[] = {{1, 2}, {3, 0}, {5, 1}},
                              BACKWARD[] = {{12, 4}, {0, 4}};
    static const int SOME[] = {MADV_DONTNEED, MADV_FREE,   MADV_COLD,     MADV_PAGEOUT,       MADV_WILLNEED,
                               MADV_NORMAL,   MADV_REMOVE, MADV_DONTFORK, MADV_POPULATE_READ, 12345};
    static const char *const KINDS_OF[] = {"read-write",      "read-only",  "reserved",
                                           "hole inside",     "hole first", "locked inside",
                                           "shared",          "two holes",  "anonymous then file shared",
                                           "half no access"};
    for (size_t k = 0; k < sizeof KINDS_OF / sizeof *KINDS_OF; k++)
        for (size_t a = 0; a < sizeof SOME / sizeof *SOME; a++) {
            char name[32];
            snprintf(name, sizeof name, "%d three", SOME[a]);
            try_pages(name, KINDS_OF[k], THREE, 3, SOME[a]);
        }
    try_pages("overlapping", "read-write", OVERLAPPING, 2, MADV_DONTNEED);
    try_pages("overlapping", "locked inside", OVERLAPPING, 2, MADV_DONTNEED);
    try_pages("backward", "hole last", BACKWARD, 2, MADV_DONTNEED);
    try_pages("empty", "read-write", EMPTY, 2, MADV_DONTNEED);
    try_pages("empty, unknown advice", "read-write", EMPTY, 2, 12345);
    try_pages("empty among others", "read-write", WITH_EMPTY, 3, MADV_DONTNEED);
}

static void vectors(void) {
    char *area = map(8 * PAGE);
    struct iovec *two = (struct iovec *)area;
#define TWO(base0, len0, base1, len1)                                                                \
    (two[0] = (struct iovec){base0, len0}, two[1] = (struct iovec){base1, len1}, (const void *)two)
    static char *const KERNEL = (char *)0xffff800000000000ul;
    try("no ranges", own, NULL, 0, MADV_DONTNEED, 0);
    try("no ranges, unknown advice", own, NULL, 0, 12345, 0);
    try("flags", own, TWO(target, PAGE, target, PAGE), 2, MADV_DONTNEED, 1);
    try("flags before the vector", own, NULL, 2, MADV_DONTNEED, 1);
    try("vector at zero", own, NULL, 2, MADV_DONTNEED, 0);
    try("vector in a hole", own, hole, 2, MADV_DONTNEED, 0);
    try("vector half in a hole", own, hole - 8, 2, MADV_DONTNEED, 0);
    try("vector of the kernel", own, KERNEL, 2, MADV_DONTNEED, 0);
    try("vector before the descriptor", -1, hole, 2, MADV_DONTNEED, 0);
    try("descriptor before the advice", -1, TWO(target, PAGE, target, PAGE), 2, 12345, 0);
    try("too many", own, area, 1025, MADV_DONTNEED, 0);
    try("far too many", own, area, (size_t)-1, MADV_DONTNEED, 0);
    try("unaligned first", own, TWO(target + 1, PAGE, target, PAGE), 2, MADV_DONTNEED, 0);
    try("unaligned second", own, TWO(target, PAGE, target + 1, PAGE), 2, MADV_DONTNEED, 0);
    try("parts of pages", own, TWO(target, 1, target + 2 * PAGE, PAGE + 1), 2, MADV_DONTNEED, 0);
    try("negative", own, TWO(target, (size_t)-1, target, PAGE), 2, MADV_DONTNEED, 0);
    try("negative second", own, TWO(target + 4 * PAGE, PAGE, target, (size_t)-PAGE), 2, MADV_DONTNEED, 0);
    try("kernel", own, TWO(target + 4 * PAGE, PAGE, KERNEL, PAGE), 2, MADV_DONTNEED, 0);
    try("kernel, nothing", own, TWO(target + 4 * PAGE, PAGE, KERNEL, 0), 2, MADV_DONTNEED, 0);
    try("hole, then good", own, TWO(hole, PAGE, target + 5 * PAGE, PAGE), 2, MADV_DONTNEED, 0);
    try("good, then hole", own, TWO(target + 6 * PAGE, PAGE, hole, PAGE), 2, MADV_DONTNEED, 0);
    try("good, then zero", own, TWO(target + 6 * PAGE, PAGE, NULL, PAGE), 2, MADV_DONTNEED, 0);

    /* The vector lies in the memory that is discarded. */
    fill(area, 8 * PAGE, SEED);
    try("vector in the first range", own, TWO(area, PAGE, area + 4 * PAGE, PAGE), 2, MADV_DONTNEED, 0);
    CHECK(two[0].iov_base == NULL && two[1].iov_len == 0 && area[4 * PAGE] == 0);

    /* The vector is readable only up to its end, and has a negative length before that. */
    struct iovec *last = (struct iovec *)(area + PAGE) - 1;
    CHECK(munmap(area + PAGE, PAGE) == 0);
    *last = (struct iovec){area + 2 * PAGE, PAGE};
    try("vector at the end", own, last, 1, MADV_DONTNEED, 0);
    try("vector over the end", own, last, 2, MADV_DONTNEED, 0);
    last->iov_len = (size_t)-1;
    try("negative before the end", own, last, 2, MADV_DONTNEED, 0);
    CHECK(munmap(area, PAGE) == 0 && munmap(area + 2 * PAGE, 6 * PAGE) == 0);

    /* The vector has the maximum number of ranges, and more bytes than one call handles. */
    static struct iovec many[1024];
    char *wide = map(1024 * PAGE);
    fill(wide, 1024 * PAGE, SEED);
    for (int n = 0; n < 1024; n++) many[n] = (struct iovec){wide + n * PAGE, n % 2 ? PAGE : 0};
    try("many", own, many, 1024, MADV_DONTNEED, 0);
    for (int n = 0; n < 1024; n++) CHECK((wide[n * PAGE] == 0) == (n % 2 == 1 || (SEED + n) % 256 == 0));
    CHECK(munmap(wide, 1024 * PAGE) == 0);
    char *reserved = mmap(NULL, 3ul << 30, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(reserved != MAP_FAILED);
    struct iovec big[3] = {{reserved, 1ul << 30}, {reserved + (1ul << 30), 2ul << 30}, {reserved, PAGE}};
    try("two gibibytes", own, big, 3, MADV_DONTNEED, 0);
    try("two gibibytes at once", own, big + 1, 1, MADV_DONTNEED, 0);
    CHECK(munmap(reserved, 3ul << 30) == 0);
}

static void descriptors(void) {
    const struct iovec vector = {target + 3 * PAGE, PAGE};
    int ready[2];
    CHECK(pipe(ready) == 0);
    pid_t child = fork();
    if (child == 0) {
        CHECK(write(ready[1], "", 1) == 1);
        for (;;) pause();
    }
    char byte;
    CHECK(child > 0 && read(ready[0], &byte, 1) == 1);
    const int other = syscall(SYS_pidfd_open, child, 0), closed = dup(own);
    CHECK(other >= 0 && close(closed) == 0);
    const struct {
        const char *name;
        int pidfd;
    } OF[] = {{"own", own},   {"-1", -1},           {"no pidfd", ready[0]}, {"closed", closed},
              {"other", other}, {"this thread", -10000}, {"this process", -10001},  {"neither", -10002}};
    static const int SOME[] = {MADV_COLD, MADV_PAGEOUT, MADV_WILLNEED, MADV_DONTNEED, MADV_FREE, 12345};
    for (size_t d = 0; d < sizeof OF / sizeof *OF; d++)
        for (size_t a = 0; a < sizeof SOME / sizeof *SOME; a++) {
            char name[64];
            snprintf(name, sizeof name, "descriptor: %s, advice %d:", OF[d].name, SOME[a]);
            try(name, OF[d].pidfd, &vector, 1, SOME[a], 0);
        }
    CHECK(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
    try("dead", other, &vector, 1, MADV_COLD, 0);
}

int main(void) {
    begin();
    *(void **)&found = dlsym(RTLD_DEFAULT, "process_madvise");
    own = syscall(SYS_pidfd_open, getpid(), 0);
    target = map(SPAN);
    CHECK(own >= 0);
    ranges();
    vectors();
    descriptors();
    return 0;
}
