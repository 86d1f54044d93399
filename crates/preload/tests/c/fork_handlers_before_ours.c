/* rustc hung when it started the linker, by fork. It has its own allocator. The first caller of its `malloc` is
 * the dynamic linker, before any constructor, so its fork handlers were registered before the library's and ran
 * after them. There they touched managed memory while the forking thread held all the locks needed to serve it. In
 * this program, too, `malloc` registers the handlers when it is first called, and memory is short. Like rustc's,
 * the allocator's lock is held across the fork: a thread of the library in the child formerly asked for memory
 * through the C library, and waited for the program's handler.
 *
 * With an argument the allocator's lock is held for so long before the first fork that a thread of the library
 * which creates others, at its first tick, waits for it. The fork formerly waited for that thread. */
#include "check.h"
#include <pthread.h>
#include <sys/wait.h>

#define LEN (64 * MIB)

static volatile char *memory;
static size_t calls[3];

static void touch_all(size_t *count) {
    if (memory)
        for (size_t at = 0; at < LEN; at += PAGE)
            memory[at]++;
    ++*count;
}

static int is_slow;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void prepare(void) {
    touch_all(&calls[0]);
    /* An allocator does this when it makes room, or when a table of its locks grows. */
    char *more = map(MIB);
    fill(more, MIB, 3);
    CHECK(munmap(more, MIB) == 0);
    free(malloc(100000));
    pthread_mutex_lock(&lock);
    if (is_slow && calls[0] == 1)
        usleep(500000);
}

static void in_parent(void) {
    touch_all(&calls[1]);
    pthread_mutex_unlock(&lock);
}

static void in_child(void) {
    touch_all(&calls[2]);
    pthread_mutex_unlock(&lock);
}

/* An allocator that never frees anything. */
static _Alignas(16) char heap[8 * MIB];

void *memalign(size_t alignment, size_t len) {
    static size_t used;
    if (!used) {
        used = 16;
        pthread_atfork(prepare, in_parent, in_child);
    }
    pthread_mutex_lock(&lock);
    pthread_mutex_unlock(&lock);
    size_t begin = __atomic_fetch_add(&used, (len + alignment + 31) & -16ul, __ATOMIC_RELAXED);
    begin = (begin + alignment - 1) & -alignment;
    if (begin + len > sizeof heap)
        _exit(3);
    *(size_t *)(heap + begin - 16) = len;
    return heap + begin;
}

void *malloc(size_t len) { return memalign(16, len); }
void *aligned_alloc(size_t alignment, size_t len) { return memalign(alignment, len); }
int posix_memalign(void **at, size_t alignment, size_t len) { return *at = memalign(alignment, len), 0; }
void *calloc(size_t count, size_t len) { return memalign(16, count * len); }
void free(void *at) { (void)at; }

void *realloc(void *at, size_t len) {
    char *to = memalign(16, len);
    if (at)
        memcpy(to, at, ((size_t *)at)[-2] < len ? ((size_t *)at)[-2] : len);
    return to;
}

int main(int argc, char **argv) {
    (void)argv;
    is_slow = argc > 1;
    free(malloc(1));
    memory = map(LEN);
    for (int round = 0; round < 5; round++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (!child) {
            for (size_t at = 0; at < LEN; at += PAGE)
                CHECK(memory[at] == 2 * round + 2);
            _exit(calls[2] == 1 ? 0 : 2);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
    CHECK(calls[0] == 5 && calls[1] == 5);
    return 0;
}
