/* A runtime frees pages with the system call itself, as Go's does by its own instruction, in no order, and writes
 * all of a page before it reads the page again. No library sees that call. The written data must be there,
 * whichever pages around it were freed. */
#include "check.h"
#include "words.h"

enum { PAGES = 16384, WORDS = PAGE / 8, STEPS = 20000 };
/* The step in which each page was written; 0 while the page is free. */
static uint32_t steps[PAGES];

static uint64_t *page_at(char *at, size_t page) { return (uint64_t *)(at + page * PAGE); }

int main(void) {
    char *at = map(PAGES * PAGE);
    for (uint32_t step = 1; step <= STEPS; step++) {
        size_t from = mix(step) % PAGES, count = 1 + mix(~step) % 16;
        if (from + count > PAGES) count = PAGES - from;
        int what = mix(step * 7ull) % 3;
        if (what == 0) CHECK(bare_madvise(at + from * PAGE, count * PAGE, MADV_DONTNEED) == 0);
        for (size_t page = from; page < from + count; page++) {
            uint64_t *words = page_at(at, page);
            if (what == 0)
                steps[page] = 0;
            else if (what == 1) {
                steps[page] = step;
                for (size_t n = 0; n < WORDS; n++) words[n] = step * 1000003ull + page * WORDS + n;
            } else if (steps[page])
                for (size_t n = 0; n < WORDS; n++)
                    CHECK(words[n] == steps[page] * 1000003ull + page * WORDS + n);
        }
    }
    return 0;
}
