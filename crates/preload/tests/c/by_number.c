/* Calls made by number, through the C library's syscall, do what the functions do. Formerly they bypassed the
 * library: memory discarded this way came back with its old contents, and memory unmapped this way left a hole in
 * the reservation, where any library's next mapping could land. */
#include "check.h"
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>

enum { LEN = 8 << 20 };

static size_t other_than_zero(const char *at, size_t len) {
    size_t count = 0;
    for (size_t n = 0; n < len / PAGE; n++) count += *(const uint64_t *)(at + n * PAGE) != 0;
    return count;
}

static char *map_by_number(size_t len) {
    long at = syscall(SYS_mmap, NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(at != -1);
    return (char *)at;
}

static void give_back(void) {
    char *at = map_by_number(LEN);
    for (int out = 0; out < 2; out++) {
        fill(at, LEN, 50);
        if (out) press();
        CHECK(syscall(SYS_madvise, at, LEN, MADV_DONTNEED) == 0);
        press();
        printf("given back: %zu pages are not zeros\n", other_than_zero(at, LEN));
        fill(at, LEN, 60);
        if (out) press();
        int self = (int)syscall(SYS_pidfd_open, getpid(), 0);
        struct iovec parts[2] = {{at, MIB}, {at + 4 * MIB, MIB}};
        long done = syscall(SYS_process_madvise, self, parts, 2, MADV_DONTNEED, 0);
        /* Kernels before 6.13 accept only hints. */
        printf("given back in parts: %zu of %ld\n", done < 0 ? 0 : other_than_zero(at, MIB), done < 0 ? 0 : done);
        verify(at + MIB, MIB, 60 + MIB / PAGE);
        if (self >= 0) CHECK(close(self) == 0);
    }
    CHECK(syscall(SYS_munmap, at, LEN) == 0);
    CHECK(syscall(SYS_mincore, at, PAGE, &(char){0}) == -1 && errno == ENOMEM);
    CHECK(syscall(SYS_msync, at, PAGE, MS_ASYNC) == -1 && errno == ENOMEM);
}

/* Unmapped addresses are free for the program, and for no other mapping. */
static void map_again(void) {
    for (int round = 0; round < 64; round++) {
        char *at = map_by_number(MIB);
        fill(at, MIB, round);
        CHECK(syscall(SYS_munmap, at, MIB) == 0);
        long again = syscall(SYS_mmap, at, MIB, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        CHECK(again == (long)at);
        CHECK(other_than_zero(at, MIB) == 0);
        CHECK(munmap(at, MIB) == 0);
    }
    printf("mapped again\n");
}

static void move_and_protect(void) {
    char *at = map_by_number(LEN);
    fill(at, LEN, 70);
    char *to = map(LEN);
    long moved = syscall(SYS_mremap, at, (size_t)LEN, (size_t)LEN, MREMAP_MAYMOVE | MREMAP_FIXED, to);
    CHECK(moved == (long)to);
    press();
    verify(to, LEN, 70);
    CHECK(syscall(SYS_mprotect, to, LEN, PROT_READ) == 0);
    press();
    verify(to, LEN, 70);
    CHECK(syscall(SYS_mlock, to, MIB) == 0 || errno == EPERM || errno == ENOMEM);
    CHECK(syscall(SYS_munlock, to, MIB) == 0);
    errno = 0;
    CHECK(syscall(SYS_madvise, to + 1, MIB, MADV_DONTNEED) == -1);
    printf("moved and protected, unaligned: %d\n", errno);
    CHECK(munmap(to, LEN) == 0);
}

/* The sixth argument is passed on the stack. */
static void map_a_file(void) {
    char name[] = "/tmp/by-number-XXXXXX";
    int file = mkstemp(name);
    CHECK(file >= 0 && unlink(name) == 0);
    CHECK(pwrite(file, "second", 6, PAGE) == 6);
    char *at = map(2 * PAGE);
    long there = syscall(SYS_mmap, at, PAGE, PROT_READ, MAP_PRIVATE | MAP_FIXED, file, PAGE);
    CHECK(there == (long)at);
    printf("%.6s %d\n", at, at[PAGE]);
    CHECK(munmap(at, 2 * PAGE) == 0 && close(file) == 0);
}

static void move_the_break(void) {
    long start = syscall(SYS_brk, 0);
    CHECK(start > 0 && syscall(SYS_brk, start + 3 * MIB) == start + (long)(3 * MIB));
    char *heap = (char *)(((uintptr_t)start + PAGE - 1) / PAGE * PAGE);
    fill(heap, 2 * MIB, 80);
    press();
    verify(heap, 2 * MIB, 80);
    CHECK(syscall(SYS_brk, start) == start && syscall(SYS_brk, 0) == start);
    printf("the break has moved\n");
}

static void give_to_a_pipe(void) {
    int ends[2];
    CHECK(pipe(ends) == 0);
    char *at = map(MIB);
    fill(at, MIB, 90);
    struct iovec part = {at, 16 * PAGE};
    CHECK(syscall(SYS_vmsplice, ends[1], &part, 1, 0) == 16 * (long)PAGE);
    press();
    char *copy = map(MIB);
    for (size_t done = 0; done < 16 * PAGE;) {
        ssize_t got = read(ends[0], copy + done, 16 * PAGE - done);
        CHECK(got > 0);
        done += got;
    }
    verify(copy, 16 * PAGE, 90);
    printf("spliced\n");
}

int main(void) {
    give_back();
    map_again();
    move_and_protect();
    map_a_file();
    move_the_break();
    give_to_a_pipe();
    /* A call that the library does not serve goes to the kernel, which gives its errors. */
    CHECK(syscall(SYS_getpid) == getpid());
    CHECK(syscall(100000) == -1 && errno == ENOSYS);
    CHECK(syscall(SYS_close, -1) == -1 && errno == EBADF);
    CHECK(syscall(SYS_prctl, PR_SET_NAME, "by number", 0, 0, 0) == 0);
    char own[16];
    CHECK(prctl(PR_GET_NAME, own, 0, 0, 0) == 0 && strcmp(own, "by number") == 0);
    return 0;
}
