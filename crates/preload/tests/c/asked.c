/* The C library's queries about memory give the same results as without Millpond. Formerly msync and mincore
 * reported unmapped addresses as mapped, mallinfo2 reported nothing as allocated, and aligned_alloc refused an
 * alignment that glibc accepts. */
#define _GNU_SOURCE
#include "check.h"
#include <errno.h>
#include <malloc.h>

/* mallinfo is the older form of mallinfo2, and programs still call it. */
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

int main(void) {
    unsigned char there[8];
    char *at = map(8 * PAGE);
    at[0] = 1;
    CHECK(msync(at, 8 * PAGE, MS_ASYNC) == 0);
    CHECK(mincore(at, 8 * PAGE, there) == 0);
    CHECK(there[0] & 1);
    munmap(at + 2 * PAGE, PAGE);
    CHECK(msync(at, 2 * PAGE, MS_ASYNC) == 0);
    errno = 0;
    CHECK(msync(at, 8 * PAGE, MS_ASYNC) == -1 && errno == ENOMEM);
    errno = 0;
    CHECK(mincore(at, 8 * PAGE, there) == -1 && errno == ENOMEM);
    errno = 0;
    CHECK(mincore(at + 2 * PAGE, PAGE, there) == -1 && errno == ENOMEM);
    errno = 0;
    CHECK(msync(at + 1, PAGE, MS_ASYNC) == -1 && errno == EINVAL);

    size_t before = mallinfo2().uordblks;
    char *block = malloc(3 * MIB);
    CHECK(mallinfo2().uordblks >= before + 3 * MIB);
    CHECK(mallinfo().uordblks >= (int)(3 * MIB));
    free(block);
    CHECK(mallinfo2().uordblks < before + 3 * MIB);

    size_t odd = 24;
    char *aligned = aligned_alloc(odd, 48);
    CHECK(aligned && (uintptr_t)aligned % 16 == 0);
    free(aligned);
    return 0;
}
