/* Prints the results and errors of good and bad calls. The test runs this with and without the library and
 * compares. */
#include "check.h"
#include <fcntl.h>

static int row;
static void say(long result) {
    printf("%d: %s %d\n", row++, result == -1 ? "fails" : "works", result == -1 ? errno : 0);
}
static void say_map(void *at) { say(at == MAP_FAILED ? -1 : 0); }

/* The compiler does not know the value, since it would warn of it. */
static volatile size_t all_ones = (size_t)-1;

int main(void) {
    const int anon = MAP_PRIVATE | MAP_ANONYMOUS, rw = PROT_READ | PROT_WRITE;
    say_map(mmap(NULL, 0, rw, anon, -1, 0));
    say_map(mmap(NULL, PAGE, rw, MAP_ANONYMOUS, -1, 0));
    say_map(mmap(NULL, PAGE, rw, MAP_PRIVATE, -1, 0));
    say_map(mmap(NULL, PAGE, rw, anon, -1, 17));
    say_map(mmap(NULL, (size_t)-1, rw, anon, -1, 0));
    say_map(mmap((void *)17, PAGE, rw, anon, -1, 0));
    char *at = map(16 * PAGE);
    say_map(mmap(at + 1, PAGE, rw, anon | MAP_FIXED, -1, 0));
    say_map(mmap(at, PAGE, rw, anon | MAP_FIXED_NOREPLACE, -1, 0));
    say_map(mmap(at, PAGE, rw, MAP_PRIVATE | MAP_FIXED, 999, 0));
    at[0] = 1; /* the failed calls have left it alone */
    say(munmap(at, 0));
    say(munmap(at + 1, PAGE));
    say(munmap(at + 4 * PAGE, 2 * PAGE));
    say(munmap(at + 4 * PAGE, 2 * PAGE));
    say(mprotect(at + 1, PAGE, PROT_READ));
    say(mprotect(at, 0, PROT_READ));
    say(mprotect(at, 8 * PAGE, PROT_READ));
    say(mprotect(at, PAGE, 0x40000000));
    say(mprotect(at, 4 * PAGE, rw));
    say(madvise(at + 1, PAGE, MADV_DONTNEED));
    say(madvise(at, PAGE, 12345));
    say(madvise(at, 8 * PAGE, MADV_DONTNEED));
    say(madvise(at, 0, MADV_DONTNEED));
    say(madvise(at, PAGE, MADV_REMOVE));
    say(madvise(at, 4 * PAGE, MADV_SEQUENTIAL));
    say(madvise(at, PAGE, MADV_WILLNEED));
    say(madvise(at, PAGE, MADV_FREE));
    say(madvise(at, 4 * PAGE, MADV_DONTDUMP));
    say(madvise(at, 4 * PAGE, MADV_DODUMP));
    say(posix_madvise(at, 4 * PAGE, POSIX_MADV_RANDOM));
    say(posix_madvise(at, PAGE, 99) == 0 ? 0 : -1);
    say_map(mremap(at, PAGE, 0, 0));
    say_map(mremap(at + 1, PAGE, PAGE, 0));
    say_map(mremap(at, 4 * PAGE, 4 * PAGE, 0x100));
    say_map(mremap(at, PAGE, PAGE, MREMAP_FIXED, at + PAGE));
    say_map(mremap(at, 2 * PAGE, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, at + PAGE));
    say_map(mremap(at, 0, PAGE, MREMAP_MAYMOVE));
    say_map(mremap(at, 6 * PAGE, 8 * PAGE, MREMAP_MAYMOVE));
    say_map(mremap(at, 3 * PAGE, 4 * PAGE, 0));
    say_map(mremap(at, 4 * PAGE, 5 * PAGE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP));
    char *none = mmap(NULL, 4 * PAGE, PROT_NONE, anon, -1, 0);
    say_map(none);
    say(mprotect(none, PAGE, rw));
    none[0] = 1;
    say(mprotect(none, 4 * PAGE, PROT_READ));
    say(none[0] == 1 && none[3 * PAGE] == 0 ? 0 : -1);
    char *far = mmap(none + 64 * MIB, PAGE, rw, anon, -1, 0);
    say_map(far);
    void *aligned = NULL;
    say(posix_memalign(&aligned, 3, 100) == EINVAL ? 0 : -1);
    say(posix_memalign(&aligned, 4096, 100) == 0 && (uintptr_t)aligned % 4096 == 0 ? 0 : -1);
    errno = 0;
    say(malloc(all_ones) == NULL && errno == ENOMEM ? 0 : -1);
    errno = 0;
    say(calloc(all_ones, 16) == NULL && errno == ENOMEM ? 0 : -1);
    errno = 0;
    say(reallocarray(NULL, all_ones, 16) == NULL && errno == ENOMEM ? 0 : -1);
    char *brk0 = sbrk(0);
    say(sbrk(3 * 4096) == brk0 ? 0 : -1);
    brk0[0] = brk0[3 * 4096 - 1] = 7;
    say(brk(brk0));
    say(sbrk(0) == brk0 ? 0 : -1);
    say(sbrk(8192) == brk0 && brk0[0] == 0 ? 0 : -1);
    return 0;
}
