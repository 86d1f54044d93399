/* A program gets managed memory at the addresses that it names, as runtimes do for their heaps. The memory holds
 * what was written even if it exceeds the budget, and the budget is kept. Formerly all memory below 4 GiB came
 * from the kernel, and hints above 4 GiB were ignored. */
#include "check.h"
#include <fcntl.h>
#include <pthread.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define GIB (1ul << 30)
#define TIB (1ul << 40)
#define NONE PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE
#define RW PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS
#define RWX PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS

/* The macros RW, NONE and RWX each stand for two arguments of mmap. */
#define AT(addr, len, how) mmap((void *)(addr), len, how, -1, 0)
#define AT_WITH(addr, len, how, more) mmap((void *)(addr), len, how | (more), -1, 0)

static void is_within_the_budget(void) {
    const char *ram = getenv("MILLPOND_RAM");
    long peak = peak_kib();
    /* Memory freed 64 MiB at a time can hide the true amount from a single reading. Unmanaged memory would be
     * twice the budget. */
    if (ram && peak * 1024 > atol(ram) / 2 * 3) {
        fprintf(stderr, "%ld KiB resident of %s\n", peak, ram);
        _exit(1);
    }
}

/* The memory is filled, evicted, verified, rewritten by another thread, verified by a child, and freed. */
static char *used_at;
static size_t used_len;
static void *write_again(void *nothing) {
    fill(used_at, used_len, 5);
    return nothing;
}
static void use(char *at, size_t len) {
    fill(at, len, 1);
    press();
    verify(at, len, 1);
    used_at = at, used_len = len;
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, write_again, NULL) == 0 && pthread_join(thread, NULL) == 0);
    pid_t child = fork();
    if (child == 0) {
        verify(at, len, 5);
        fill(at, len / 4, 9);
        press();
        verify(at, len / 4, 9);
        _exit(0);
    }
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    verify(at, len, 5);
    CHECK(madvise(at, len, MADV_DONTNEED) == 0);
    for (size_t n = 0; n < len; n += PAGE) CHECK(at[n] == 0);
    is_within_the_budget();
}

/* Reserves a heap at the requested address, and commits it piece by piece in one of two ways. */
static void reserve_and_commit(uintptr_t wanted, size_t reserved, int by_mprotect) {
    char *at = AT(wanted, reserved, NONE);
    printf("reserved at %p\n", (void *)at);
    CHECK(at == (char *)wanted);
    const size_t len = 64 * MIB;
    for (size_t n = 0; n < len; n += MIB) {
        if (by_mprotect) CHECK(mprotect(at + n, MIB, PROT_READ | PROT_WRITE) == 0);
        else CHECK(AT_WITH(at + n, MIB, RW, MAP_FIXED) == at + n);
    }
    use(at, len);
    /* Memory that is uncommitted and committed again reads as zeros. */
    CHECK(AT_WITH(at, MIB, NONE, MAP_FIXED) == at && AT_WITH(at, MIB, RW, MAP_FIXED) == at);
    CHECK(at[0] == 0 && munmap(at, reserved) == 0);
}

/* HotSpot places its heap so that it ends at 4 GiB, and references fit in 32 bits. */
static void below_4_gib(void) {
    reserve_and_commit(0xe0000000, 512 * MIB, 0);
    reserve_and_commit(0xe0000000, 512 * MIB, 1);
    reserve_and_commit(0x800000000, GIB, 1);
}

static void across_4_gib(void) { reserve_and_commit(4 * GIB - 32 * MIB, 128 * MIB, 0); }

/* The heap of ghc. */
static void a_terabyte(void) {
    reserve_and_commit(0x4200000000, TIB, 0);
    reserve_and_commit(0x4200000000, TIB, 1);
}

/* The arenas of Go. */
static void of_64_mib(void) {
    reserve_and_commit(0xc000000000, 64 * MIB, 0);
    reserve_and_commit(0xc004000000, 64 * MIB, 0);
}

/* If its arenas start at random addresses, Go tries each of 128 addresses, and then does without. */
static void at_random_places(void) {
    for (uintptr_t n = 0; n < 128; n++) {
        char *at = AT(0xd0000000000 + n * TIB / 2, 64 * MIB, NONE);
        if (at == (char *)(0xd0000000000 + n * TIB / 2)) break;
        CHECK(at != MAP_FAILED && munmap(at, 64 * MIB) == 0);
    }
    char *at = AT(0, 64 * MIB, NONE);
    CHECK(mprotect(at, 64 * MIB, PROT_READ | PROT_WRITE) == 0);
    use(at, 64 * MIB);
}

static void of_32_bits(void) {
    char *at = AT_WITH(0, 64 * MIB, RW, MAP_32BIT);
    CHECK(at != MAP_FAILED && (uintptr_t)at + 64 * MIB <= 2 * GIB);
    use(at, 64 * MIB);
    char *code = AT_WITH(0, MIB, RWX, MAP_32BIT);
    CHECK(code != MAP_FAILED && (uintptr_t)code + MIB <= 2 * GIB && (code + MIB <= at || at + 64 * MIB <= code));
    code[0] = (char)0xc3;
#ifdef __x86_64__
    ((void (*)(void))(uintptr_t)code)();
#endif
    int zero = open("/proc/self/exe", O_RDONLY);
    char *file = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_32BIT, zero, 0);
    CHECK(file != MAP_FAILED && (uintptr_t)file < 2 * GIB && memcmp(file, "\177ELF", 4) == 0);
    CHECK(munmap(file, PAGE) == 0 && munmap(code, MIB) == 0 && munmap(at, 64 * MIB) == 0);
    /* The program asks for more addresses than exist. */
    CHECK(AT_WITH(0, 2 * GIB, RW, MAP_32BIT) == MAP_FAILED && errno == ENOMEM);
}

static void at_fixed_places(void) {
    char *at = AT_WITH(0x70000000, 64 * MIB, RW, MAP_FIXED_NOREPLACE);
    CHECK(at == (char *)0x70000000);
    CHECK(AT_WITH(0x70000000 + 63 * MIB, 2 * MIB, RW, MAP_FIXED_NOREPLACE) == MAP_FAILED && errno == EEXIST);
    /* A hint at addresses that are taken must not fail. */
    char *other = AT(0x70000000, MIB, RW);
    CHECK(other != MAP_FAILED && (other + MIB <= at || at + 64 * MIB <= other) && munmap(other, MIB) == 0);
    use(at, 64 * MIB);
    CHECK(AT_WITH(at, MIB, RW, MAP_FIXED) == at && at[0] == 0);
    CHECK(munmap(at, 64 * MIB) == 0);
}

/* Unmanaged memory is also at the requested address, and can be unmapped again. */
static void of_other_kinds(void) {
    int file = open("/proc/self/exe", O_RDONLY);
    for (int round = 0; round < 3; round++) {
        char *at = mmap((void *)0x90000000, 4 * PAGE, PROT_READ, MAP_PRIVATE, file, 0);
        CHECK(at == (char *)0x90000000 && memcmp(at, "\177ELF", 4) == 0);
        char *code = AT(0xa00000000, MIB, RWX);
        CHECK(code == (char *)0xa00000000);
        code[MIB - 1] = 3;
        char *shared = mmap((void *)0xb00000000, MIB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        CHECK(shared == (char *)0xb00000000);
        pid_t child = fork();
        if (child == 0) {
            shared[5] = 7;
            _exit(code[MIB - 1]);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 3 && shared[5] == 7);
        CHECK(munmap(at, 4 * PAGE) == 0 && munmap(code, MIB) == 0 && munmap(shared, MIB) == 0);
    }
}

/* Databases attach their memory at the same address in all of their processes. */
static void of_system_v(void) {
    const uintptr_t wanted = 0x380000000;
    int id = shmget(IPC_PRIVATE, 4 * MIB, 0600);
    CHECK(id >= 0);
    struct shmid_ds about;
    for (int round = 0; round < 3; round++) {
        char *at = shmat(id, (void *)(wanted + 77), SHM_RND);
        CHECK(at == (char *)wanted);
        at[round] = 7;
        CHECK(shmat(id, at, 0) == (void *)-1 && errno == EINVAL);
        CHECK(shmat(id, (void *)(wanted + 77), 0) == (void *)-1 && errno == EINVAL);
        char *beside = shmat(id, at + 4 * MIB, SHM_RDONLY), *anywhere = shmat(id, NULL, 0);
        CHECK(beside == at + 4 * MIB && beside[round] == 7 && anywhere[round] == 7);
        /* The memory is attached over another mapping, which is replaced. */
        char *over = AT_WITH(wanted + 16 * MIB, 8 * MIB, RW, MAP_FIXED);
        fill(over, 8 * MIB, 3);
        CHECK(shmat(id, over, SHM_REMAP) == over && over[round] == 7);
        verify(over + 4 * MIB, 4 * MIB, 3 + 4 * MIB / PAGE);
        CHECK(shmctl(id, IPC_STAT, &about) == 0 && about.shm_nattch == 4);
        pid_t child = fork();
        if (child == 0) {
            beside = at, beside[100] = 9;
            _exit(shmdt(at));
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0 && at[100] == 9);
        CHECK(shmdt(at) == 0 && shmdt(at) == -1 && errno == EINVAL && shmdt(anywhere) == 0);
        CHECK(shmdt(at + 4 * MIB) == 0 && shmdt(over) == 0 && munmap(over + 4 * MIB, 4 * MIB) == 0);
        CHECK(shmctl(id, IPC_STAT, &about) == 0 && about.shm_nattch == 0);
        /* The addresses are free for any mapping. */
        use(AT_WITH(wanted, 32 * MIB, RW, MAP_FIXED_NOREPLACE), 32 * MIB);
        CHECK(munmap((void *)wanted, 32 * MIB) == 0);
    }
    CHECK(shmctl(id, IPC_RMID, NULL) == 0);
}

/* The heap of sbcl contains code among its data. */
static void executable_heap(void) {
    char *at = AT_WITH(0x1000000000, GIB, RWX, MAP_NORESERVE);
    CHECK(at == (char *)0x1000000000);
    use(at, 64 * MIB);
    at[5] = (char)0xc3;
    press();
#ifdef __x86_64__
    ((void (*)(void))(uintptr_t)(at + 5))();
#endif
    CHECK(munmap(at, GIB) == 0);
}

/* Calls mmap and the other functions by number. */
static void by_number(void) {
    char *at = (char *)syscall(SYS_mmap, 0x50000000, 64 * MIB, RW, -1, 0L);
    CHECK(at == (char *)0x50000000);
    use(at, 64 * MIB);
    CHECK(syscall(SYS_mprotect, at, PAGE, PROT_READ) == 0);
    char *moved = (char *)syscall(SYS_mremap, at + MIB, MIB, 2 * MIB, MREMAP_MAYMOVE);
    CHECK(moved != MAP_FAILED && moved != at + MIB);
    CHECK(syscall(SYS_munmap, at, 64 * MIB) == 0 && syscall(SYS_munmap, moved, 2 * MIB) == 0);
    /* The error is the kernel's, and other numbers are passed to the kernel with all their arguments. */
    CHECK(syscall(SYS_munmap, 1, PAGE) == -1 && errno == EINVAL);
    CHECK(syscall(SYS_close, 12345) == -1 && errno == EBADF);
    CHECK(syscall(SYS_getpid) == getpid());
    int file = open("/proc/self/exe", O_RDONLY), to = fileno(tmpfile());
    off_t from = 1, where = 0;
    CHECK(syscall(SYS_copy_file_range, file, &from, to, &where, 3, 0) >= -1);
    char *second = (char *)syscall(SYS_mmap, 0, PAGE, PROT_READ, MAP_PRIVATE, file, PAGE), *first;
    first = mmap(NULL, 2 * PAGE, PROT_READ, MAP_PRIVATE, file, 0);
    CHECK(second != MAP_FAILED && memcmp(first + PAGE, second, PAGE) == 0);
}

/* Sanitizers and databases reserve memory longer than a space, readable and writable, and hardly touch it. */
static void longer_than_the_space(void) {
    for (size_t len = TIB; len <= 16 * TIB; len *= 2) {
        char *at = AT_WITH(0, len, RW, MAP_NORESERVE);
        CHECK(at != MAP_FAILED);
        for (size_t n = 0; n < 64; n++) at[len / 64 * n] = (char)n;
        for (size_t n = 0; n < 64; n++) CHECK(at[len / 64 * n] == (char)n);
        CHECK(munmap(at, len) == 0);
    }
    is_within_the_budget();
}

/* ZGC's heap is one memory at several addresses that differ in single bits. ZGC tries other addresses, and exits
 * if it gets none of those that it asks for. */
static void of_several_views(void) {
    const size_t len = GIB;
    int memory = memfd_create("heap", 0);
    CHECK(memory >= 0 && ftruncate(memory, 16 * MIB) == 0);
    for (long n = 0; n < 1000; n++) {
        char *view[3];
        int good = 1;
        for (int bit = 0; bit < 3; bit++) {
            char *wanted = (char *)((4 * TIB << bit) + n * 4 * GIB);
            view[bit] = AT(wanted, len, NONE);
            CHECK(view[bit] != MAP_FAILED);
            if (view[bit] != wanted) {
                good = 0;
                for (; bit >= 0; bit--) CHECK(munmap(view[bit], len) == 0);
                break;
            }
        }
        if (!good) continue;
        for (int bit = 0; bit < 3; bit++)
            CHECK(mmap(view[bit], 16 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, memory, 0) == view[bit]);
        view[0][77] = 7;
        CHECK(view[1][77] == 7 && view[2][77] == 7);
        return;
    }
    CHECK(!"got none of the addresses");
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*run)(void);
    } CASE[] = {
        {"below_4_gib", below_4_gib},   {"across_4_gib", across_4_gib},
        {"a_terabyte", a_terabyte},     {"of_64_mib", of_64_mib},
        {"at_random_places", at_random_places}, {"of_32_bits", of_32_bits},     {"at_fixed_places", at_fixed_places},
        {"of_other_kinds", of_other_kinds}, {"of_system_v", of_system_v},   {"executable_heap", executable_heap},
        {"by_number", by_number},       {"longer_than_the_space", longer_than_the_space},
        {"of_several_views", of_several_views},
    };
    CHECK(argc == 2);
    for (size_t n = 0; n < sizeof CASE / sizeof *CASE; n++)
        if (!strcmp(CASE[n].name, argv[1])) return CASE[n].run(), printf("%s\n", argv[1]), 0;
    CHECK(!"no such case");
}
