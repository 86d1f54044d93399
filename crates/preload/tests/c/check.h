/* Helpers of the test programs: a check that names its line, and pages that contain their number. */
#ifndef CHECK_H
#define CHECK_H
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096ul
#define MIB (1ul << 20)

#define CHECK(condition)                                                                   \
    do {                                                                                   \
        if (!(condition)) {                                                                \
            fprintf(stderr, "%s:%d: not so: %s (errno %d)\n", __FILE__, __LINE__,          \
                    #condition, errno);                                                    \
            _exit(1);                                                                      \
        }                                                                                  \
    } while (0)

static inline void fill(char *at, size_t len, uint64_t seed) {
    for (size_t n = 0; n < len / PAGE; n++) {
        uint64_t *word = (uint64_t *)(at + n * PAGE);
        word[0] = seed + n;
        word[511] = ~(seed + n);
    }
}

static inline void verify(const char *at, size_t len, uint64_t seed) {
    for (size_t n = 0; n < len / PAGE; n++) {
        const uint64_t *word = (const uint64_t *)(at + n * PAGE);
        CHECK(word[0] == seed + n && word[511] == ~(seed + n));
    }
}

static inline char *map(size_t len) {
    char *at = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED);
    return at;
}

/* The maximum memory that was resident since the program started, in KiB. (getrusage also counts the time before
 * the process became this program, when it was the test's.) */
static inline long peak_kib(void) {
    char line[256];
    long peak = 0;
    FILE *status = fopen("/proc/self/status", "r");
    CHECK(status);
    while (fgets(line, sizeof line, status)) sscanf(line, "VmHWM: %ld", &peak);
    fclose(status);
    return peak;
}

/* Calls madvise by the program's own instruction, which no library sees. */
static inline long bare_madvise(void *at, size_t len, long advice) {
#if defined(__x86_64__)
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(28L), "D"(at), "S"(len), "d"(advice) : "rcx", "r11", "memory");
    return result;
#elif defined(__aarch64__)
    register long number __asm__("x8") = 233, first __asm__("x0") = (long)at;
    register long second __asm__("x1") = (long)len, third __asm__("x2") = advice;
    __asm__ volatile("svc 0" : "+r"(first) : "r"(number), "r"(second), "r"(third) : "memory");
    return first;
#else
#error "which instruction makes a system call here?"
#endif
}

#if defined(__x86_64__)
/* Makes a system call by the program's own instruction. */
static inline long bare_call(long number, long a, long b, long c, long d) {
    long result;
    register long fourth __asm__("r10") = d;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(fourth)
                     : "rcx", "r11", "memory");
    return result;
}
#endif

static inline void press(void) {
    /* This evicts all other memory from a budget of 32 MiB. */
    char *at = map(48 * MIB);
    fill(at, 48 * MIB, 77);
    CHECK(munmap(at, 48 * MIB) == 0);
}
#endif
