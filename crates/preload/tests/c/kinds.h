/* Kinds of memory to give advice about. Sixteen pages of each kind are newly made for every advice. */
#ifndef KINDS_H
#define KINDS_H
#include "check.h"
#include <fcntl.h>
#include <sys/uio.h>

#define PAGES 16ul
#define SPAN (PAGES * PAGE)
#define SEED 1000

static int file = -1;
/* A page that is far from all other mappings. */
static char *hole;

/* Finds addresses for one kind of memory with no adjacent mapping, so that a hole in the memory stays a hole. */
static char *place(int prot, int flags) {
    char *at = mmap(NULL, SPAN, prot, MAP_ANONYMOUS | flags, -1, 0);
    CHECK(at != MAP_FAILED);
    return at;
}
static char *filled(int flags) {
    char *at = place(PROT_READ | PROT_WRITE, flags);
    fill(at, SPAN, SEED);
    return at;
}
static char *read_write(void) { return filled(MAP_PRIVATE); }
static char *untouched(void) { return place(PROT_READ | PROT_WRITE, MAP_PRIVATE); }
static char *reserved(void) { return place(PROT_NONE, MAP_PRIVATE); }
static char *protected_to(int prot, size_t from, size_t pages) {
    char *at = read_write();
    CHECK(mprotect(at + from * PAGE, pages * PAGE, prot) == 0);
    return at;
}
static char *read_only(void) { return protected_to(PROT_READ, 0, PAGES); }
static char *no_access(void) { return protected_to(PROT_NONE, 0, PAGES); }
static char *half_read_only(void) { return protected_to(PROT_READ, 8, 8); }
static char *half_no_access(void) { return protected_to(PROT_NONE, 8, 8); }
static char *with_hole_at(size_t from, size_t pages) {
    char *at = read_write();
    CHECK(munmap(at + from * PAGE, pages * PAGE) == 0);
    return at;
}
static char *hole_inside(void) { return with_hole_at(5, 2); }
static char *hole_first(void) { return with_hole_at(0, 3); }
static char *hole_last(void) { return with_hole_at(12, 4); }
static char *two_holes(void) {
    char *at = with_hole_at(3, 1);
    CHECK(munmap(at + 9 * PAGE, 4 * PAGE) == 0);
    return at;
}
static char *stack_like(void) { return filled(MAP_PRIVATE | MAP_STACK | MAP_NORESERVE); }
static char *grows_down(void) { return filled(MAP_PRIVATE | MAP_GROWSDOWN); }
static char *shared(void) { return filled(MAP_SHARED); }
static char *of_file(int flags) {
    char *at = mmap(NULL, SPAN, PROT_READ | PROT_WRITE, flags, file, 0);
    CHECK(at != MAP_FAILED);
    return at;
}
static void write_file(void) {
    static char content[SPAN];
    fill(content, SPAN, SEED);
    CHECK(pwrite(file, content, SPAN, 0) == (ssize_t)SPAN);
}
/* Half of the file mapping is written, so that it is private memory over a file. */
static char *file_private(void) {
    char *at = of_file(MAP_PRIVATE);
    fill(at + 8 * PAGE, 8 * PAGE, 7);
    fill(at + 8 * PAGE, 8 * PAGE, SEED + 8);
    return at;
}
static char *file_shared(void) { return of_file(MAP_SHARED); }
static char *then_file(int flags) {
    char *at = read_write();
    CHECK(mmap(at + 8 * PAGE, 8 * PAGE, PROT_READ | PROT_WRITE, flags | MAP_FIXED, file, 8 * PAGE) ==
          at + 8 * PAGE);
    return at;
}
static char *then_file_private(void) { return then_file(MAP_PRIVATE); }
static char *then_file_shared(void) { return then_file(MAP_SHARED); }
static char *shared_first(void) {
    char *at = read_write();
    CHECK(mmap(at, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at);
    fill(at, 4 * PAGE, SEED);
    return at;
}
static char *then_stack(void) {
    char *at = read_write();
    CHECK(mmap(at + 8 * PAGE, 8 * PAGE, PROT_READ | PROT_WRITE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK | MAP_FIXED, -1, 0) == at + 8 * PAGE);
    fill(at + 8 * PAGE, 8 * PAGE, SEED + 8);
    return at;
}
static char *file_then_hole(void) {
    char *at = then_file(MAP_PRIVATE);
    CHECK(munmap(at + 4 * PAGE, 2 * PAGE) == 0);
    return at;
}
static char *locked_from(size_t from, size_t pages) {
    char *at = read_write();
    CHECK(mlock(at + from * PAGE, pages * PAGE) == 0);
    return at;
}
static char *locked(void) { return locked_from(0, PAGES); }
static char *locked_inside(void) { return locked_from(6, 4); }
static char *locked_behind_hole(void) {
    char *at = locked_inside();
    CHECK(munmap(at + 2 * PAGE, 2 * PAGE) == 0);
    return at;
}
static char *unlocked(void) {
    char *at = locked();
    CHECK(munlock(at + 4 * PAGE, 12 * PAGE) == 0);
    CHECK(munlock(at, 4 * PAGE) == 0);
    return at;
}
static char *locked_then_mapped_anew(void) {
    char *at = locked();
    CHECK(mmap(at, SPAN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at);
    fill(at, SPAN, SEED);
    return at;
}
static char *locked_then_protected(void) {
    char *at = locked();
    CHECK(mprotect(at + 4 * PAGE, 4 * PAGE, PROT_READ) == 0);
    return at;
}
static char *heap(void) {
    char *now = sbrk(0);
    CHECK(sbrk(2 * SPAN) == now);
    char *at = (char *)(((uintptr_t)now + PAGE - 1) & -PAGE);
    fill(at, SPAN, SEED);
    return at;
}
static char *block(void) {
    void *at;
    CHECK(posix_memalign(&at, PAGE, SPAN) == 0);
    fill(at, SPAN, SEED);
    return at;
}

static const struct kind {
    const char *name;
    char *(*make)(void);
    /* MADV_FREE works on at least part of it. */
    int frees;
} KIND[] = {
    {"read-write", read_write, 1},
    {"untouched", untouched, 1},
    {"reserved", reserved, 1},
    {"read-only", read_only, 1},
    {"no access", no_access, 1},
    {"half read-only", half_read_only, 1},
    {"half no access", half_no_access, 1},
    {"hole inside", hole_inside, 1},
    {"hole first", hole_first, 1},
    {"hole last", hole_last, 1},
    {"two holes", two_holes, 1},
    {"stack-like", stack_like, 1},
    {"grows down", grows_down, 1},
    {"anonymous then stack-like", then_stack, 1},
    {"shared", shared, 0},
    {"shared, then private", shared_first, 0},
    {"file private", file_private, 0},
    {"file shared", file_shared, 0},
    {"anonymous then file private", then_file_private, 1},
    {"anonymous then file shared", then_file_shared, 1},
    {"hole, then file", file_then_hole, 1},
    {"locked", locked, 0},
    {"locked inside", locked_inside, 1},
    {"hole, then locked", locked_behind_hole, 1},
    {"locked and unlocked", unlocked, 1},
    {"locked, mapped anew", locked_then_mapped_anew, 1},
    {"locked, half protected", locked_then_protected, 0},
    {"heap", heap, 1},
    {"block", block, 1},
};
#define KINDS (sizeof KIND / sizeof *KIND)

static inline size_t kind_named(const char *name) {
    size_t kind = 0;
    while (strcmp(KIND[kind].name, name)) CHECK(++kind < KINDS);
    return kind;
}

static char *(*made)(void);
static char *make(size_t kind) {
    /* An advice may have made a hole. */
    write_file();
    made = KIND[kind].make;
    return made();
}
static inline void unmake(char *at) {
    if (made == heap) {
        CHECK(sbrk(-2 * (intptr_t)SPAN) != (void *)-1);
    } else if (made == block) {
        /* No advice about this memory affects memory that malloc returns later. */
        madvise(at, SPAN, MADV_DOFORK);
        madvise(at, SPAN, MADV_KEEPONFORK);
        madvise(at, SPAN, 103);
        free(at);
    } else {
        CHECK(munmap(at, SPAN) == 0);
    }
}

static inline void say(const char *name, long result) { printf("%s %ld %d", name, result, result < 0 ? errno : 0); }

/* Prints one letter for each page: s for its first contents, z for zeros, . for an unreadable page, and ? for
 * anything else. With `either`, as after MADV_FREE, s and z are printed as one letter. */
static inline void say_contents(char *at, int either) {
    static int pipes[2] = {-1, -1};
    if (pipes[0] < 0) CHECK(pipe(pipes) == 0);
    printf(" ");
    for (size_t n = 0; n < PAGES; n++) {
        uint64_t word[512];
        char letter = '?';
        if (write(pipes[1], at + n * PAGE, PAGE) != (ssize_t)PAGE) {
            letter = '.';
        } else {
            CHECK(read(pipes[0], word, PAGE) == (ssize_t)PAGE);
            int zeros = 1;
            for (int w = 0; w < 512; w++) zeros &= word[w] == 0;
            if (zeros)
                letter = either ? 'e' : 'z';
            else if (word[0] == SEED + n && word[511] == ~(uint64_t)(SEED + n))
                letter = either ? 'e' : 's';
        }
        putchar(letter);
    }
    putchar('\n');
}

static void begin(void) {
    char path[] = "/tmp/millpond-kinds-XXXXXX";
    file = mkstemp(path);
    CHECK(file >= 0 && unlink(path) == 0);
    char *wide = mmap(NULL, 64 * MIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(wide != MAP_FAILED && munmap(wide, 64 * MIB) == 0);
    hole = wide + 32 * MIB;
}
#endif
