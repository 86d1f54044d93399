/* A program with 24 MiB of constants, which it reads once. Under a tight budget they must leave the resident set,
 * and read as before. Pages of them that the program has changed stay changed: one that stays writable, one that
 * does not, and one that is changed again and again. */
#include "check.h"

#define CONSTANTS (24 * MIB)

extern const unsigned char constants[];
__asm__(".section .rodata\n"
        ".balign 4096\n"
        ".globl constants\n"
        "constants:\n"
        ".rept 6144\n"
        ".fill 1024, 4, 0x7a3b5c1d\n"
        ".endr\n"
        ".previous\n");

static long rss_of_files(void) {
    char line[256];
    long kib = 0;
    FILE *status = fopen("/proc/self/status", "r");
    CHECK(status);
    while (fgets(line, sizeof line, status)) sscanf(line, "RssFile: %ld", &kib);
    fclose(status);
    return kib;
}

static uint64_t sum(void) {
    const volatile uint32_t *words = (const volatile uint32_t *)constants;
    uint64_t sum = 0;
    for (size_t n = 0; n < CONSTANTS / 4; n += 16) sum += words[n] * (n + 1);
    return sum;
}

/* Writes to a page of the constants like a program that changes its own code. */
static void change(size_t page, uint64_t value) {
    char *at = (char *)constants + page * PAGE;
    CHECK(mprotect(at, PAGE, PROT_READ | PROT_WRITE) == 0);
    *(volatile uint64_t *)(at + 8) = value;
    if (page % 2) CHECK(mprotect(at, PAGE, PROT_READ) == 0);
}

static uint64_t changed(size_t page) {
    return *(const volatile uint64_t *)(constants + page * PAGE + 8);
}

int main(void) {
    CHECK((uintptr_t)constants % PAGE == 0);
    uint64_t before = sum();
    CHECK(rss_of_files() >= (long)(CONSTANTS >> 10));
    change(100, 1);
    change(1001, 2);
    size_t len = 64 * MIB;
    char *memory = map(len);
    fill(memory, len, 7);
    int managed = getenv("MILLPOND_RAM") != NULL;
    long least = rss_of_files();
    for (uint64_t round = 0; round < 60; round++) {
        verify(memory, len, 7);
        change(3003, round);
        usleep(50000);
        long now = rss_of_files();
        least = now < least ? now : least;
        CHECK(changed(100) == 1 && changed(1001) == 2 && changed(3003) == round);
    }
    if (managed && least > 12 << 10) {
        fprintf(stderr, "%ld KiB of files were resident at least\n", least);
        return 1;
    }
    CHECK(sum() == before);
    CHECK(changed(100) == 1 && changed(1001) == 2 && changed(3003) == 59);
    return 0;
}
