/* The limit on locked memory applies to managed memory. The results are the kernel's, and the kernel's figure
 * includes the memory. Formerly every program could lock managed memory beyond any limit. Freed memory is no
 * longer locked: formerly a program that locked its allocations and freed them without unlocking eventually could
 * not lock anything. */
#include "check.h"
#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#define SAY(call)                                                                          \
    do {                                                                                   \
        errno = 0;                                                                         \
        int is_bad = (call) == -1;                                                         \
        printf("%-40s %s, %ld KiB\n", #call, is_bad ? strerrorname_np(errno) : "done", locked()); \
    } while (0)

static long locked(void) {
    char line[256];
    long kib = -1;
    FILE *status = fopen("/proc/self/status", "r");
    CHECK(status);
    while (fgets(line, sizeof line, status)) sscanf(line, "VmLck: %ld", &kib);
    fclose(status);
    return kib;
}

static void limit(size_t bytes) {
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_MEMLOCK, &limit) == 0);
    limit.rlim_cur = bytes < limit.rlim_max ? bytes : limit.rlim_max;
    CHECK(setrlimit(RLIMIT_MEMLOCK, &limit) == 0);
}

/* The program loses the privilege to exceed the limit. */
static void give_up_the_right(void) {
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2];
    CHECK(syscall(SYS_capget, &header, data) == 0);
    data[0].effective &= ~(1u << CAP_IPC_LOCK);
    CHECK(syscall(SYS_capset, &header, data) == 0);
}

int main(void) {
    give_up_the_right();
    limit(256 << 10);
    char *at = map(MIB);
    fill(at, MIB, 3);
    SAY(mlock(at, 128 << 10));
    SAY(mlock(at, 128 << 10));
    SAY(mlock(at, 256 << 10));
    SAY(mlock(at + (256 << 10), PAGE));
    SAY(mlock(at, 512 << 10));
    SAY(munlock(at, 64 << 10));
    SAY(mlock2(at + (512 << 10), 64 << 10, MLOCK_ONFAULT));
    SAY(mlock(at + (600 << 10), 1));
    SAY(madvise(at, 512 << 10, MADV_DONTNEED));
    SAY(munmap(at + (128 << 10), 128 << 10));
    SAY(mlock(at, 64 << 10));
    SAY(munlockall());
    for (int round = 0; round < 100; round++) {
        char *block = malloc(200 << 10);
        CHECK(mlock(block, 200 << 10) == 0);
        memset(block, round, 200 << 10);
        free(block);
    }
    /* Memory that an allocator keeps for later stays locked, and the amount depends on where it put the blocks: a
     * freed slab of 20 KiB below them once moved them. */
    CHECK(locked() <= 256);
    limit(0);
    errno = 0;
    CHECK(mlock(at, PAGE) == -1 && errno == EPERM);
    CHECK(munmap(at, MIB) == 0);
    return 0;
}
