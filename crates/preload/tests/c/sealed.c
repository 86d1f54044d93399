/* Each call on sealed memory has the same result as without the library, and so have the contents of the memory.
 * Formerly a seal by number applied to the library's own mapping, where no page could be brought in afterwards. */
#include "check.h"
#include <sys/syscall.h>
#include <sys/wait.h>

#define MSEAL 462
#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#endif
enum { LEN = 16 * 4096 };

static int seal(char *at, size_t len) { return (int)syscall(MSEAL, at, len, 0ul); }

#define SAY(call)                                                                          \
    do {                                                                                   \
        errno = 0;                                                                         \
        int is_bad = (long)(call) == -1;                                                   \
        printf("%-60s %s\n", #call, is_bad ? strerrorname_np(errno) : "done");             \
    } while (0)

static void arguments(void) {
    char *at = map(4 * PAGE);
    CHECK(munmap(at + 2 * PAGE, PAGE) == 0);
    SAY(syscall(MSEAL, at, PAGE, 1ul));
    SAY(syscall(MSEAL, at, 0ul, 1ul));
    SAY(seal(at, 0));
    SAY(seal(at + 1, PAGE));
    SAY(seal(at, -4096ul));
    SAY(seal(at, 3 * PAGE));
    SAY(seal(at, 4 * PAGE));
    /* No page was sealed. */
    SAY(munmap(at, 4 * PAGE));
}

static char *part_sealed(int prot) {
    char *at = map(LEN);
    fill(at, LEN, 5);
    CHECK(mprotect(at, LEN, prot) == 0);
    CHECK(seal(at + 4 * PAGE, 4 * PAGE) == 0);
    press();
    return at;
}

static void unmapping(void) {
    char *at = part_sealed(PROT_READ | PROT_WRITE);
    SAY(munmap(at, LEN));
    SAY(munmap(at + 7 * PAGE, PAGE));
    SAY(mmap(at, LEN, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
    SAY(mmap(at + 6 * PAGE, 4 * PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
    SAY(mmap(at, LEN, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0));
    verify(at, LEN, 5);
    SAY(munmap(at, 4 * PAGE));
    SAY(munmap(at + 8 * PAGE, 8 * PAGE));
    verify(at + 4 * PAGE, 4 * PAGE, 9);
}

static void protecting(void) {
    char *at = part_sealed(PROT_READ | PROT_WRITE);
    SAY(mprotect(at + 4 * PAGE, 4 * PAGE, PROT_READ));
    SAY(mprotect(at + 4 * PAGE, PAGE, PROT_READ | PROT_WRITE));
    SAY(mprotect(at + 8 * PAGE, PAGE, PROT_READ));
    SAY(mprotect(at + 9 * PAGE, PAGE, PROT_READ));
    press();
    at[4 * PAGE + 8] = 1;
    verify(at, LEN, 5);
}

static void moving(void) {
    char *at = part_sealed(PROT_READ | PROT_WRITE), *to = map(LEN), *kept = map(LEN);
    CHECK(seal(kept, PAGE) == 0);
    SAY(mremap(at + 4 * PAGE, 4 * PAGE, 4 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to));
    SAY(mremap(at + 4 * PAGE, 4 * PAGE, 2 * PAGE, 0));
    SAY(mremap(at + 4 * PAGE, 4 * PAGE, LEN, MREMAP_MAYMOVE));
    SAY(mremap(at + 4 * PAGE, 4 * PAGE, 4 * PAGE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL));
    SAY(mremap(at + 8 * PAGE, 4 * PAGE, 4 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, kept));
    SAY(mremap(at, 4 * PAGE, 2 * PAGE, 0));
    verify(at + 4 * PAGE, 12 * PAGE, 9);
    at = map(LEN);
    CHECK(seal(at + 12 * PAGE, 4 * PAGE) == 0);
    SAY(mremap(at, LEN, 8 * PAGE, 0));
}

static void advising(int prot) {
    char *at = part_sealed(prot);
    char *sealed = at + 4 * PAGE;
    SAY(madvise(sealed, PAGE, MADV_DONTNEED));
    SAY(madvise(sealed + PAGE, PAGE, MADV_FREE));
    SAY(madvise(sealed, PAGE, MADV_DONTFORK));
    SAY(madvise(sealed, PAGE, MADV_DOFORK));
    SAY(madvise(sealed, PAGE, MADV_WIPEONFORK));
    SAY(madvise(sealed, PAGE, MADV_KEEPONFORK));
    SAY(madvise(sealed, PAGE, MADV_WILLNEED));
    SAY(madvise(sealed, PAGE, MADV_COLD));
    SAY(madvise(at, 6 * PAGE, MADV_DONTNEED));
    printf("%d %d\n", ((uint64_t *)at)[0] == 0, ((uint64_t *)sealed)[0] == 0);
    verify(sealed + 2 * PAGE, 2 * PAGE, 11);
}

static void forked(void) {
    char *at = part_sealed(PROT_READ);
    fflush(stdout);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        SAY(munmap(at, LEN));
        verify(at, LEN, 5);
        fflush(stdout);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

int main(void) {
    char *at = map(PAGE);
    if (seal(at, PAGE) != 0) {
        printf("no seals here: %s\n", strerrorname_np(errno));
        return 0;
    }
    arguments();
    unmapping();
    protecting();
    moving();
    advising(PROT_READ);
    advising(PROT_READ | PROT_WRITE);
    forked();
    return 0;
}
