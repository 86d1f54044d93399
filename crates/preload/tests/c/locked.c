/* The program locks memory: 10 MiB, more than the budget, and all memory. The kernel's lock touches every page,
 * and touched pages once could not be evicted: a program that locked most of the budget or more never ended. With
 * mlockall the kernel touched unused parts of the library's own mappings, and the process was stopped.
 *
 * A lock succeeds, or is refused for lack of memory. Locked memory stays in memory. In either case the memory
 * holds what was written to it, and other memory remains usable. A lock moves with the memory when mremap moves
 * it; formerly the lock stayed at the old address, and the memory was evicted. */
#include "check.h"
#include "words.h"
#include <fcntl.h>

/* The kernel refuses the lock, as it does without the library, if the limit on locked memory is low or the
 * privilege to lock is missing. */
static int was_refused(int result) {
    CHECK(result == 0 || errno == ENOMEM || errno == EAGAIN || errno == EPERM);
    return result != 0;
}

/* Bit 63 of a page's entry says that the page is in memory. */
static int is_in_memory(const char *at, size_t len) {
    int file = open("/proc/self/pagemap", O_RDONLY);
    CHECK(file >= 0);
    size_t present = 0;
    for (size_t page = 0; page < len / PAGE; page++) {
        uint64_t entry;
        CHECK(pread(file, &entry, 8, ((uintptr_t)at / PAGE + page) * 8) == 8);
        present += entry >> 63;
    }
    CHECK(close(file) == 0);
    return present == len / PAGE;
}

static void lock(size_t len, int must_fit) {
    char *at = map(len);
    put_words(at, len / 2, 5);
    press();
    int refused = was_refused(mlock(at, len));
    /* A program that may lock at all may lock a little. */
    if (must_fit && refused) CHECK(errno == EPERM || errno == EAGAIN);
    put_words(at + len / 2, len / 2, 6);
    press();
    if (!refused) CHECK(is_in_memory(at, len));
    CHECK(wrong_words(at, len / 2, 5) == 0);
    CHECK(wrong_words(at + len / 2, len / 2, 6) == 0);
    CHECK(munlock(at, len) == 0);
    press();
    CHECK(wrong_words(at, len / 2, 5) == 0);
    CHECK(munmap(at, len) == 0);
    printf("%zu MiB are locked or refused\n", len / MIB);
}

/* The memory is moved by its page tables, moved to an address where each page has to be copied, and grown. */
static void lock_and_move(void) {
    const size_t len = 2 * MIB;
    char *at = map(len), *places = map(16 * MIB);
    put_words(at, len, 5);
    int refused = was_refused(mlock(at, len));
    for (int n = 0; n < 2; n++) {
        char *to = places + n * 4 * MIB + (n ? 5 * PAGE : 0);
        at = mremap(at, len, len, MREMAP_MAYMOVE | MREMAP_FIXED, to);
        CHECK(at == to);
        press();
        if (!refused) CHECK(is_in_memory(at, len));
        CHECK(wrong_words(at, len, 5) == 0);
    }
    at = mremap(at, len, len + MIB, MREMAP_MAYMOVE);
    CHECK(at != MAP_FAILED || (errno == EAGAIN && refused));
    if (at != MAP_FAILED) {
        put_words(at + len, MIB, 6);
        press();
        if (!refused) CHECK(is_in_memory(at, len + MIB));
        CHECK(wrong_words(at, len, 5) == 0 && wrong_words(at + len, MIB, 6) == 0);
        CHECK(munmap(at, len + MIB) == 0);
    }
    CHECK(munmap(places, 16 * MIB) == 0);
    printf("what is locked has moved\n");
}

static void lock_all(int flags) {
    char *before = map(8 * MIB);
    put_words(before, 8 * MIB, 7);
    was_refused(mlockall(flags));
    char *after = map(8 * MIB);
    put_words(after, 8 * MIB, 8);
    press();
    CHECK(wrong_words(before, 8 * MIB, 7) == 0);
    CHECK(wrong_words(after, 8 * MIB, 8) == 0);
    CHECK(munlockall() == 0);
    CHECK(munmap(before, 8 * MIB) == 0 && munmap(after, 8 * MIB) == 0);
    printf("all with %d are locked or refused\n", flags);
}

int main(void) {
    lock(4 * MIB, 1);
    lock(10 * MIB, 0);
    lock(48 * MIB, 0);
    lock_and_move();
    /* The memory of the earlier locks is freed. */
    lock(4 * MIB, 1);
    lock_all(MCL_CURRENT);
    lock_all(MCL_CURRENT | MCL_FUTURE);
    return 0;
}
