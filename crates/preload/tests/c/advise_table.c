/* Prints the result of madvise for every advice about every kind of memory, and the contents of the pages
 * afterwards. The test runs this with and without the library and compares. Advice that breaks the machine's pages
 * (MADV_HWPOISON, MADV_SOFT_OFFLINE) is omitted. */
#include "check.h"
#include "kinds.h"

#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#define GUARD_INSTALL 102
#define GUARD_REMOVE 103

static const struct advice {
    const char *name;
    int value;
} ADVICE[] = {
    {"NORMAL", MADV_NORMAL},
    {"RANDOM", MADV_RANDOM},
    {"SEQUENTIAL", MADV_SEQUENTIAL},
    {"WILLNEED", MADV_WILLNEED},
    {"DONTNEED", MADV_DONTNEED},
    {"FREE", MADV_FREE},
    {"REMOVE", MADV_REMOVE},
    {"DONTFORK", MADV_DONTFORK},
    {"DOFORK", MADV_DOFORK},
    {"MERGEABLE", MADV_MERGEABLE},
    {"UNMERGEABLE", MADV_UNMERGEABLE},
    {"HUGEPAGE", MADV_HUGEPAGE},
    {"NOHUGEPAGE", MADV_NOHUGEPAGE},
    {"DONTDUMP", MADV_DONTDUMP},
    {"DODUMP", MADV_DODUMP},
    {"WIPEONFORK", MADV_WIPEONFORK},
    {"KEEPONFORK", MADV_KEEPONFORK},
    {"COLD", MADV_COLD},
    {"PAGEOUT", MADV_PAGEOUT},
    {"POPULATE_READ", MADV_POPULATE_READ},
    {"POPULATE_WRITE", MADV_POPULATE_WRITE},
    {"DONTNEED_LOCKED", MADV_DONTNEED_LOCKED},
    {"COLLAPSE", MADV_COLLAPSE},
    {"GUARD_INSTALL", GUARD_INSTALL},
    {"GUARD_REMOVE", GUARD_REMOVE},
    {"(5)", 5},
    {"(26)", 26},
    {"(104)", 104},
    {"(-1)", -1},
};

/* Where the pages are when the advice is given. */
enum state { IN_MEMORY, PAGED_OUT, PUSHED_OUT };

static void one(size_t k, size_t a, enum state state) {
    static const char *const STATE[] = {"", "paged out, ", "pushed out, "};
    char *at = make(k), name[64];
    if (state == PAGED_OUT)
        for (size_t n = 0; n < PAGES; n++) madvise(at + n * PAGE, PAGE, MADV_PAGEOUT);
    if (state == PUSHED_OUT) press();
    const long result = madvise(at, SPAN, ADVICE[a].value);
    snprintf(name, sizeof name, "%s%s %s", STATE[state], KIND[k].name, ADVICE[a].name);
    say(name, result);
    /* Reading a guard page raises a signal. */
    if (ADVICE[a].value != GUARD_INSTALL)
        say_contents(at, ADVICE[a].value == MADV_FREE && KIND[k].frees);
    else
        putchar('\n');
    unmake(at);
}

static void every_advice_about_every_kind(void) {
    for (size_t k = 0; k < KINDS; k++)
        for (size_t a = 0; a < sizeof ADVICE / sizeof *ADVICE; a++)
            for (enum state state = IN_MEMORY; state <= PAGED_OUT; state++) one(k, a, state);
    static const char *const SOME[] = {"read-write",  "read-only", "half no access",
                                       "hole inside", "locked inside", "anonymous then file private"};
    for (size_t s = 0; s < sizeof SOME / sizeof *SOME; s++)
        for (size_t a = 0; a < sizeof ADVICE / sizeof *ADVICE; a++)
            switch (ADVICE[a].value) {
            case MADV_DONTNEED:
            case MADV_FREE:
            case MADV_COLD:
            case MADV_PAGEOUT:
            case MADV_WILLNEED:
            case MADV_POPULATE_WRITE:
                one(kind_named(SOME[s]), a, PUSHED_OUT);
            }
}

static void bad_ranges(void) {
    static const int SOME[] = {MADV_DONTNEED, MADV_FREE, MADV_COLD, MADV_PAGEOUT, MADV_WILLNEED,
                               MADV_NORMAL, MADV_DONTFORK, MADV_POPULATE_READ, 12345};
    for (size_t a = 0; a < sizeof SOME / sizeof *SOME; a++) {
        char *at = make(0);
        const size_t top = (size_t)-(uintptr_t)at;
        const struct {
            const char *name;
            char *at;
            size_t len;
        } RANGE[] = {
            {"nothing", at, 0},
            {"nothing in a hole", hole, 0},
            {"nothing unaligned", at + 1, 0},
            {"unaligned", at + 1, PAGE},
            {"unaligned by 2048", at + 2048, 4 * PAGE},
            {"one byte", at, 1},
            {"a page and a byte", at + 2 * PAGE, PAGE + 1},
            {"round the end", at, top + PAGE},
            {"up to the end", at, top},
            {"all ones", at, (size_t)-1},
            {"all ones less a page", at, (size_t)-PAGE},
            {"a hole", hole, PAGE},
            {"address of the kernel", (char *)0xffff800000000000ul, PAGE},
            {"above the program", (char *)0x7ffffffff000ul, PAGE},
            {"address zero", NULL, PAGE},
        };
        for (size_t r = 0; r < sizeof RANGE / sizeof *RANGE; r++) {
            char name[64];
            snprintf(name, sizeof name, "%d, %s:", SOME[a], RANGE[r].name);
            say(name, madvise(RANGE[r].at, RANGE[r].len, SOME[a]));
            putchar('\n');
        }
        say_contents(at, SOME[a] == MADV_FREE);
        unmake(at);
    }
}

/* Pages that were discarded and rewritten stay, and a second advice finds them as the first left them. */
static void one_after_the_other(void) {
    static const int PAIR[][2] = {{MADV_DONTNEED, MADV_FREE},   {MADV_FREE, MADV_DONTNEED},
                                  {MADV_PAGEOUT, MADV_DONTNEED}, {MADV_COLD, MADV_PAGEOUT},
                                  {MADV_PAGEOUT, MADV_WILLNEED}, {MADV_DONTNEED, MADV_WILLNEED}};
    for (size_t p = 0; p < sizeof PAIR / sizeof *PAIR; p++) {
        char *at = make(0), name[64];
        snprintf(name, sizeof name, "%d then %d:", PAIR[p][0], PAIR[p][1]);
        say("", madvise(at, SPAN, PAIR[p][0]));
        say(name, madvise(at + 4 * PAGE, 8 * PAGE, PAIR[p][1]));
        say_contents(at, PAIR[p][0] == MADV_FREE);
        fill(at, SPAN, SEED);
        say_contents(at, 0);
        unmake(at);
    }
    char *at = make(0);
    CHECK(madvise(at, SPAN, MADV_FREE) == 0);
    fill(at + 4 * PAGE, 4 * PAGE, SEED + 4);
    verify(at + 4 * PAGE, 4 * PAGE, SEED + 4);
    unmake(at);
}

int main(void) {
    begin();
    every_advice_about_every_kind();
    bad_ranges();
    one_after_the_other();
    return 0;
}
