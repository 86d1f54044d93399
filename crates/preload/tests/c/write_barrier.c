/* A collector uses mprotect and SIGSEGV to find out which pages were written since it last checked. Each written
 * page counts once in each round, even if it was absent. The whole heap is read-only, and larger than the budget.
 * Formerly read-only memory could not be evicted, and the program never ended. */
#include "check.h"
#include "words.h"
#include <signal.h>

enum { PAGES = 1 << 14, WRITES = 3000, ROUNDS = 3 };
static char *heap;
static volatile long faults;
static unsigned char dirty[PAGES], written[PAGES];

static void on_write(int number, siginfo_t *info, void *context) {
    (void)number, (void)context;
    char *at = info->si_addr;
    /* A fault of the library, or a signal whose fields differ from the kernel's, is not a write by the program. */
    if (at < heap || at >= heap + PAGES * PAGE || info->si_code != SEGV_ACCERR) {
        static const char message[] = "a fault that is none of the program's\n";
        if (write(2, message, sizeof message - 1) < 0) _exit(8);
        _exit(9);
    }
    size_t page = (at - heap) / PAGE;
    faults++;
    dirty[page] = 1;
    if (mprotect(heap + page * PAGE, PAGE, PROT_READ | PROT_WRITE)) _exit(10);
}

int main(void) {
    struct sigaction action = {.sa_sigaction = on_write, .sa_flags = SA_SIGINFO | SA_NODEFER};
    heap = map(PAGES * PAGE);
    put_words(heap, PAGES * PAGE, 0);
    CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
    for (int round = 0; round < ROUNDS; round++) {
        CHECK(mprotect(heap, PAGES * PAGE, PROT_READ) == 0);
        memset(dirty, 0, sizeof dirty);
        memset(written, 0, sizeof written);
        faults = 0;
        long expected = 0;
        for (int n = 0; n < WRITES; n++) {
            size_t page = mix(n * 3 + round) % PAGES;
            *(volatile uint64_t *)(heap + page * PAGE + 8) += 1;
            expected += !written[page];
            written[page] = 1;
        }
        printf("round %d: %ld faults of %ld\n", round, faults, expected);
        CHECK(faults == expected && memcmp(written, dirty, PAGES) == 0);
    }
    /* The pages that were not written have their old contents. */
    for (size_t page = 0; page < PAGES; page++) {
        CHECK(*(uint64_t *)(heap + page * PAGE) == word(0, page * 512));
        CHECK(*(uint64_t *)(heap + page * PAGE + 16) == word(0, page * 512 + 2));
    }
    return 0;
}
