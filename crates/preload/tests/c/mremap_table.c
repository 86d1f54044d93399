/* Prints the results of mremap for every kind of memory and every combination of flags, and the contents and
 * protection of the old and the new range afterwards. The test runs this with and without the library and
 * compares. */
#include "check.h"
#include "kinds.h"
#include <signal.h>

#define WIDE (64 * PAGE)

static int pipes[2];

/* Prints one letter for each page: w for writable, r for readable only, . for unreadable. The contents stay. */
static void say_access(char *at, size_t pages) {
    for (size_t n = 0; n < pages; n++) {
        char *page = at + n * PAGE, letter = '.';
        if (write(pipes[1], page, 1) == 1) {
            letter = read(pipes[0], page, 1) == 1 ? 'w' : 'r';
            char sink;
            if (letter == 'r') CHECK(read(pipes[0], &sink, 1) == 1);
        }
        putchar(letter);
    }
}

/* Does what say_contents does, for any number of pages: one letter stands for the seed, and z for zeros. */
static void say_pages(char *at, size_t pages) {
    putchar(' ');
    for (size_t n = 0; n < pages; n++) {
        uint64_t word[512];
        char letter = '?';
        if (write(pipes[1], at + n * PAGE, PAGE) != (ssize_t)PAGE) {
            letter = '.';
        } else {
            CHECK(read(pipes[0], word, PAGE) == (ssize_t)PAGE);
            int zeros = 1;
            for (int w = 0; w < 512; w++) zeros &= word[w] == 0;
            if (zeros)
                letter = 'z';
            else
                for (size_t m = 0; m < WIDE / PAGE; m++)
                    if (word[0] == SEED + m && word[511] == ~(uint64_t)(SEED + m)) letter = "0123456789abcdef"[m % 16];
            if (word[0] == 5000 + n) letter = 't';
        }
        putchar(letter);
    }
    putchar(' ');
}

static const struct how {
    const char *name;
    /* The numbers are in pages. The old range starts at page `from` of the area. */
    size_t from, old_len, new_len;
    int flags;
    /* Where the target is: none, at the source's offset within 2 MiB, or a page further. */
    enum { NOWHERE, ALIKE, UNALIKE } target;
} HOW[] = {
    {"same", 0, 16, 16, 0, NOWHERE},
    {"same, may move", 0, 16, 16, MREMAP_MAYMOVE, NOWHERE},
    {"shrink", 0, 16, 8, 0, NOWHERE},
    {"shrink, may move", 0, 16, 7, MREMAP_MAYMOVE, NOWHERE},
    {"grow", 0, 16, 24, 0, NOWHERE},
    {"grow, may move", 0, 16, 24, MREMAP_MAYMOVE, NOWHERE},
    {"grow by a byte", 0, 16, 17, MREMAP_MAYMOVE, NOWHERE},
    {"move", 0, 16, 16, MREMAP_MAYMOVE | MREMAP_FIXED, ALIKE},
    {"move unlike", 0, 16, 16, MREMAP_MAYMOVE | MREMAP_FIXED, UNALIKE},
    {"move and shrink", 0, 16, 8, MREMAP_MAYMOVE | MREMAP_FIXED, ALIKE},
    {"move and shrink less", 0, 16, 12, MREMAP_MAYMOVE | MREMAP_FIXED, ALIKE},
    {"move unlike and shrink less", 0, 16, 12, MREMAP_MAYMOVE | MREMAP_FIXED, UNALIKE},
    {"move and grow", 0, 16, 24, MREMAP_MAYMOVE | MREMAP_FIXED, ALIKE},
    {"move unlike and grow", 0, 16, 24, MREMAP_MAYMOVE | MREMAP_FIXED, UNALIKE},
    {"keep", 0, 16, 16, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NOWHERE},
    {"keep, move", 0, 16, 16, MREMAP_MAYMOVE | MREMAP_DONTUNMAP | MREMAP_FIXED, ALIKE},
    {"keep, move unlike", 0, 16, 16, MREMAP_MAYMOVE | MREMAP_DONTUNMAP | MREMAP_FIXED, UNALIKE},
    {"keep and grow", 0, 16, 24, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NOWHERE},
    {"keep and shrink", 0, 16, 8, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NOWHERE},
    {"keep, may not move", 0, 16, 16, MREMAP_DONTUNMAP, NOWHERE},
    {"move, may not", 0, 16, 16, MREMAP_FIXED, ALIKE},
    {"again", 0, 0, 16, 0, NOWHERE},
    {"again, may move", 0, 0, 16, MREMAP_MAYMOVE, NOWHERE},
    {"again, there", 0, 0, 16, MREMAP_MAYMOVE | MREMAP_FIXED, ALIKE},
    {"again, keep", 0, 0, 16, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NOWHERE},
    {"part same", 4, 8, 8, 0, NOWHERE},
    {"part shrink", 4, 8, 4, 0, NOWHERE},
    {"part grow", 4, 8, 12, 0, NOWHERE},
    {"part grow, may move", 4, 8, 12, MREMAP_MAYMOVE, NOWHERE},
    {"part move", 4, 8, 8, MREMAP_MAYMOVE | MREMAP_FIXED, ALIKE},
    {"part move unlike and grow", 4, 8, 9, MREMAP_MAYMOVE | MREMAP_FIXED, UNALIKE},
    {"part keep", 4, 8, 8, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NOWHERE},
    {"last grow, may move", 12, 4, 12, MREMAP_MAYMOVE, NOWHERE},
    {"one page move", 7, 1, 1, MREMAP_MAYMOVE | MREMAP_FIXED, ALIKE},
    {"unknown flag", 0, 16, 16, 8, NOWHERE},
};
#define HOWS (sizeof HOW / sizeof *HOW)

enum state { IN_MEMORY, PAGED_OUT, PUSHED_OUT };

static char *wall_at(char *at) {
    return mmap(at, PAGE, PROT_READ, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
}

static void one(size_t k, const struct how *how, enum state state) {
    static const char *const STATE[] = {"", "paged out, ", "pushed out, "};
    /* The target is inside another mapping of the program. */
    char *wide = map(2 * MIB + 4 * WIDE);
    char *at = make(k);
    /* No memory can grow in place, and holes stay small, whatever is mapped next to them. */
    char *wall = wall_at(at + SPAN), *front = wall_at(at - PAGE);
    char *target = wide + WIDE + ((uintptr_t)at + how->from * PAGE - (uintptr_t)(wide + WIDE)) % (2 * MIB);
    if (how->target == UNALIKE) target += PAGE;
    fill(target - PAGE, 32 * PAGE, 5000 - 1);
    if (state == PAGED_OUT)
        for (size_t n = 0; n < PAGES; n++) madvise(at + n * PAGE, PAGE, MADV_PAGEOUT);
    if (state == PUSHED_OUT) press();
    char *old = at + how->from * PAGE;
    const size_t new_len = how->new_len * PAGE;
    char *new = mremap(old, how->old_len * PAGE, new_len, how->flags, how->target ? target : NULL);
    const int failed = new == MAP_FAILED;
    printf("%s%s, %s: %s %d ", STATE[state], KIND[k].name, how->name,
           failed ? "fails" : new == old ? "stays" : new == target ? "target" : "moves", failed ? errno : 0);
    say_access(at, PAGES);
    say_pages(at, PAGES);
    say_access(target, 28);
    say_pages(target, 28);
    if (!failed && new != old && new != target) {
        say_access(new, how->new_len);
        say_pages(new, how->new_len);
        CHECK(munmap(new, new_len) == 0);
    }
    putchar('\n');
    CHECK(munmap(wide, 2 * MIB + 4 * WIDE) == 0);
    if (wall != MAP_FAILED) CHECK(munmap(wall, PAGE) == 0);
    if (front != MAP_FAILED) CHECK(munmap(front, PAGE) == 0);
    CHECK(munmap(at, SPAN) == 0);
}

static int is_of_the_heap(size_t k) { return KIND[k].make == heap || KIND[k].make == block; }

static void every_way_of_every_kind(void) {
    for (size_t k = 0; k < KINDS; k++)
        for (size_t h = 0; !is_of_the_heap(k) && h < HOWS; h++)
            for (enum state state = IN_MEMORY; state <= PAGED_OUT; state++) one(k, &HOW[h], state);
    static const char *const SOME[] = {"read-write", "read-only", "no access", "locked", "anonymous then file private"};
    for (size_t s = 0; s < sizeof SOME / sizeof *SOME; s++)
        for (size_t h = 5; h < 15; h++) one(kind_named(SOME[s]), &HOW[h], PUSHED_OUT);
}

static void bad_arguments(void) {
    enum { M = MREMAP_MAYMOVE, F = MREMAP_FIXED, D = MREMAP_DONTUNMAP };
    static const int FLAGS[] = {0, M, F, M | F, D, M | D, M | F | D, 8, M | 16, -1};
    for (size_t f = 0; f < sizeof FLAGS / sizeof *FLAGS; f++) {
        char *at = make(0), *to = map(WIDE);
        const size_t top = (size_t)-(uintptr_t)at;
        const struct {
            const char *name;
            char *at;
            size_t old_len, new_len;
            char *to;
        } BAD[] = {
            {"no new length", at, SPAN, 0, to},
            {"no lengths", at, 0, 0, to},
            {"unaligned", at + 1, PAGE, PAGE, to},
            {"unaligned target", at, PAGE, PAGE, to + 1},
            {"round the end", at, top + PAGE, PAGE, to},
            {"up to the end", at, top, PAGE, to},
            {"new length of all", at, SPAN, (size_t)-1, to},
            {"new length of nearly all", at, SPAN, (size_t)-PAGE, to},
            {"new length of half", at, SPAN, (size_t)1 << 62, to},
            {"target round the end", at, SPAN, SPAN, (char *)-PAGE},
            {"target of the kernel", at, SPAN, SPAN, (char *)0xffff800000000000ul},
            {"target over itself", at, SPAN, SPAN, at},
            {"target over its end", at, SPAN, SPAN, at + SPAN - PAGE},
            {"target over its start", at + PAGE, SPAN - PAGE, SPAN - PAGE, at},
            {"target over what grows", at + 8 * PAGE, PAGE, 9 * PAGE, at},
            {"a hole", hole, PAGE, PAGE, to},
            {"a hole that grows", hole, PAGE, 2 * PAGE, to},
            {"a hole of no length", hole, 0, PAGE, to},
            {"address of the kernel", (char *)0xffff800000000000ul, PAGE, PAGE, to},
            {"address zero", NULL, PAGE, PAGE, to},
        };
        for (size_t b = 0; b < sizeof BAD / sizeof *BAD; b++) {
            /* Kernels use the hint of a move without MREMAP_FIXED; the library ignores it. */
            char *given = FLAGS[f] & F ? BAD[b].to : NULL;
            char *new = mremap(BAD[b].at, BAD[b].old_len, BAD[b].new_len, FLAGS[f], given);
            printf("%d, %s: %d\n", FLAGS[f], BAD[b].name, new == MAP_FAILED ? errno : 0);
            if (new != MAP_FAILED && new != BAD[b].at) CHECK(munmap(new, BAD[b].new_len) == 0);
            /* Whatever the call did, the next one starts afresh. */
            munmap(at, SPAN);
            CHECK(mmap(at, SPAN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at);
            CHECK(mmap(to, WIDE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == to);
        }
        CHECK(munmap(at, SPAN) == 0 && munmap(to, WIDE) == 0);
    }
}

/* An area with room after it grows in place, again and again, and freed memory reads as zeros. */
static void in_place(void) {
    char *at = map(WIDE);
    CHECK(munmap(at + SPAN, WIDE - SPAN) == 0);
    fill(at, SPAN, SEED);
    static const size_t LENGTHS[] = {20, 12, 24, 24, 32, 8, 64, 63, 64};
    size_t len = PAGES;
    for (size_t n = 0; n < sizeof LENGTHS / sizeof *LENGTHS; n++) {
        char *new = mremap(at, len * PAGE, LENGTHS[n] * PAGE, 0);
        printf("to %zu: %d ", LENGTHS[n], new == at ? 0 : errno);
        len = LENGTHS[n];
        say_pages(at, len);
        putchar('\n');
    }
}

int main(void) {
    begin();
    CHECK(pipe(pipes) == 0);
    every_way_of_every_kind();
    bad_arguments();
    in_place();
    return 0;
}
