/* The allocator creates a thread's arena along with the thread, and the one for large blocks with the first of
 * these. All take their memory through the library's hooks. Formerly all were created at startup, uselessly in
 * most processes: 24 pages for each processor, whose faults took a third of the startup time. */
#include "check.h"
#include <pthread.h>
#include <stdbool.h>

enum { LARGE = 8 * MIB };

extern int mallctl(const char *, void *, size_t *, void *, size_t) __attribute__((weak));

static bool is_made(unsigned arena) {
    char name[40];
    bool made;
    size_t len = sizeof made;
    uint64_t epoch = 1;
    /* The figure dates from the last refresh of the statistics, which this repeats. */
    CHECK(mallctl("epoch", NULL, NULL, &epoch, sizeof epoch) == 0);
    snprintf(name, sizeof name, "arena.%u.initialized", arena);
    CHECK(mallctl(name, &made, &len, NULL, 0) == 0);
    return made;
}

static void *hooks(unsigned arena) {
    char name[40];
    void *hooks = NULL;
    size_t len = sizeof hooks;
    snprintf(name, sizeof name, "arena.%u.extent_hooks", arena);
    CHECK(mallctl(name, &hooks, &len, NULL, 0) == 0);
    return hooks;
}

static void *arena_of_thread(void *answer) {
    size_t len = sizeof(unsigned);
    void *volatile some = malloc(100);
    free(some);
    CHECK(mallctl("thread.arena", answer, &len, NULL, 0) == 0);
    return NULL;
}

/* Each kind of large block is the first one of its process. */
static void check_large(int kind, unsigned count) {
    CHECK(!is_made(count));
    void *volatile block = malloc(100);
    switch (kind) {
    case 0: block = malloc(LARGE); break;
    case 1: block = calloc(LARGE, 1); break;
    case 2: block = realloc(block, LARGE); break;
    case 3: block = aligned_alloc(64, LARGE); break;
    default: {
        void *aligned = NULL;
        CHECK(posix_memalign(&aligned, 64, LARGE) == 0);
        block = aligned;
    }
    }
    CHECK(block != NULL);
    CHECK(is_made(count));
    CHECK(hooks(count) == hooks(0));
    memset(block, 1, LARGE);
    free(block);
}

int main(int argc, char **argv) {
    unsigned count;
    size_t len = sizeof count;
    CHECK(argc == 2 && mallctl != NULL && mallctl("opt.narenas", &count, &len, NULL, 0) == 0);
    for (unsigned arena = 1; arena < count; arena++) CHECK(!is_made(arena));
    check_large(atoi(argv[1]), count);
    for (unsigned n = 1; n < count + 2; n++) {
        pthread_t thread;
        unsigned arena = ~0u;
        CHECK(pthread_create(&thread, NULL, arena_of_thread, &arena) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
        CHECK(arena < count && is_made(arena) && hooks(arena) == hooks(0));
        CHECK(n >= count || is_made(n));
    }
    return 0;
}
