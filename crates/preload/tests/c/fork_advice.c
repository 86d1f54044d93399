/* After MADV_DONTFORK a child does not have the pages, and after MADV_WIPEONFORK it finds zeros, wherever the
 * pages were. */
#include "check.h"
#include <sys/wait.h>

static int readable(const char *at) {
    static int pipes[2] = {-1, -1};
    if (pipes[0] < 0) CHECK(pipe(pipes) == 0);
    char byte;
    if (write(pipes[1], at, 1) != 1) return 0;
    CHECK(read(pipes[0], &byte, 1) == 1);
    return 1;
}
static void zeros(const char *at, size_t len) {
    for (size_t n = 0; n < len; n++) CHECK(at[n] == 0);
}
static void joined(pid_t child) {
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
}

int main(void) {
    const size_t len = 8 * MIB, third = 2 * MIB;
    char *at = map(len);
    for (int round = 0; round < 2; round++) {
        fill(at, len, 3);
        CHECK(madvise(at + third, third, MADV_WIPEONFORK) == 0);
        CHECK(madvise(at + 2 * third, third, MADV_DONTFORK) == 0);
        if (round == 1) press();
        pid_t child = fork();
        if (child == 0) {
            verify(at, third, 3);
            zeros(at + third, third);
            CHECK(!readable(at + 2 * third) && !readable(at + 3 * third - 1));
            verify(at + 3 * third, len - 3 * third, 3 + 3 * third / PAGE);
            /* The child uses its own memory like any other, and a grandchild again finds zeros. */
            fill(at + third, third, 9);
            verify(at + third, third, 9);
            CHECK(mmap(at + 2 * third, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
                       0) == at + 2 * third);
            at[2 * third] = 1;
            pid_t grandchild = fork();
            if (grandchild == 0) {
                zeros(at + third, third);
                CHECK(at[2 * third] == 1);
                _exit(0);
            }
            joined(grandchild);
            verify(at + third, third, 9);
            _exit(0);
        }
        joined(child);
        verify(at, len, 3);
    }
    /* The advice is revoked. A moved area keeps its advice. */
    CHECK(madvise(at, len, MADV_DOFORK) == 0 && madvise(at, 2 * third, MADV_KEEPONFORK) == 0);
    CHECK(madvise(at, third, MADV_WIPEONFORK) == 0);
    char *moved = mremap(at, third, 2 * third, MREMAP_MAYMOVE);
    CHECK(moved != MAP_FAILED);
    fill(moved, 2 * third, 5);
    CHECK(mprotect(moved, third, PROT_READ) == 0);
    at += third;
    fill(at, third, 6);
    pid_t child = fork();
    if (child == 0) {
        zeros(moved, 2 * third);
        verify(at, third, 6);
        _exit(0);
    }
    joined(child);
    verify(moved, 2 * third, 5);
    return 0;
}
