/* Features that managed memory does not have are refused as by a kernel without them: merging of pages (KSM), and
 * guards without their own mappings. Such a request must neither succeed without effect nor wait. Formerly merging
 * was accepted and not done, so a program that waited for it waited forever. And in a program whose parent enabled
 * merging, the library's own pages were merged and then could not be evicted.
 *
 * With the argument "outer" the program asks for merging, as a service manager may, and runs itself under the
 * library that the second argument names. */
#include "check.h"
#include <sys/prctl.h>
#include <sys/syscall.h>

#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#define MADV_GUARD_REMOVE 103
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#define SET_MERGE 67
#define GET_MERGE 68

static void refused(int result) {
    CHECK(result == -1 && errno == EINVAL);
    errno = 0;
}

int main(int count, char **words) {
    if (count > 2 && strcmp(words[1], "outer") == 0) {
        if (prctl(SET_MERGE, 1, 0, 0, 0) != 0) {
            printf("no merging here\n");
            return 0;
        }
        CHECK(prctl(GET_MERGE, 0, 0, 0, 0) == 1);
        setenv("LD_PRELOAD", words[2], 1);
        execl(words[0], words[0], (char *)NULL);
        CHECK(!"executed");
    }
    CHECK(prctl(GET_MERGE, 0, 0, 0, 0) <= 0);
    char *at = map(8 * MIB);
    fill(at, 8 * MIB, 1);
    refused(madvise(at, 8 * MIB, MADV_MERGEABLE));
    refused(madvise(at, 8 * MIB, MADV_UNMERGEABLE));
    refused((int)syscall(SYS_madvise, at, 8 * MIB, MADV_MERGEABLE));
    refused(prctl(SET_MERGE, 1, 0, 0, 0));
    refused((int)syscall(SYS_prctl, SET_MERGE, 1, 0, 0, 0));
    refused(madvise(at, 8 * MIB, MADV_GUARD_INSTALL));
    refused(madvise(at, 8 * MIB, MADV_GUARD_REMOVE));
    refused(madvise(at, 8 * MIB, MADV_COLLAPSE));
    press();
    verify(at, 8 * MIB, 1);
    printf("refused\n");
    return 0;
}
