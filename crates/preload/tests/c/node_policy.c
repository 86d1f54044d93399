/* A program names the node from which some of its pages are to come, and unmaps them. Memory that it next maps at
 * these addresses has no such policy, and is one mapping. Formerly the policy and the mappings stayed with the
 * addresses, until the process ran out of mappings. */
#include "check.h"
#include <sys/syscall.h>

enum { PREFERRED = 1, BY_ADDRESS = 2, LEN = 8 << 20 };

static int mappings(void) {
    FILE *file = fopen("/proc/self/maps", "r");
    CHECK(file);
    int lines = 0;
    for (int c; (c = fgetc(file)) != EOF;) lines += c == '\n';
    fclose(file);
    return lines;
}

int main(void) {
    char *at = map(LEN);
    unsigned long first_node = 1;
    if (syscall(SYS_mbind, at, PAGE, PREFERRED, &first_node, 64ul, 0u) != 0) {
        printf("no nodes here\n");
        return 0;
    }
    CHECK(munmap(at, LEN) == 0);
    int before = mappings();
    for (int round = 0; round < 4; round++) {
        at = map(LEN);
        fill(at, LEN, round);
        for (size_t page = 0; page < LEN / PAGE; page += 10)
            CHECK(syscall(SYS_mbind, at + page * PAGE, PAGE, PREFERRED, &first_node, 64ul, 0u) == 0);
        press();
        verify(at, LEN, round);
        fill(at, LEN, round + 9);
        press();
        verify(at, LEN, round + 9);
        CHECK(munmap(at, LEN) == 0);
        char *again = mmap(at, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        CHECK(again == at);
        int policy = -1;
        CHECK(syscall(SYS_get_mempolicy, &policy, NULL, 0ul, at, (unsigned long)BY_ADDRESS) == 0);
        printf("policy %d\n", policy);
        fill(at, LEN, 5);
        press();
        verify(at, LEN, 5);
        CHECK(munmap(at, LEN) == 0);
    }
    printf("%s\n", mappings() < before + 100 ? "few mappings" : "many mappings");
    return 0;
}
