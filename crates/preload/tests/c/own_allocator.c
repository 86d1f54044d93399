/* A program with an allocator linked in, as many include jemalloc or mimalloc. The dynamic linker and the C
 * library get their blocks from it, in managed memory. Formerly up to five out of six forked children died: for
 * the first thread that a child created, the one that serves faults, the C library called the allocator, which
 * touched memory that nobody served yet. Threads use the allocator while the program forks; each child finds its
 * parent's memory, and creates a thread. */
#include "check.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>

#define CHUNK (1ul << 20)
#define CLASSES 28
#define KEPT 500
#define KEPT_LEN 5000
#define BLOCKS 60000

struct head {
    size_t class;
    struct head *next;
};
static struct head *free_lists[CLASSES];
static char *chunk, *chunk_end;
static atomic_flag busy = ATOMIC_FLAG_INIT;

static void lock(void)
{
    while (atomic_flag_test_and_set(&busy))
        sched_yield();
}

static void unlock(void)
{
    atomic_flag_clear(&busy);
}

void *malloc(size_t len)
{
    size_t class = 5;
    while ((1ul << class) < len + sizeof(struct head))
        class++;
    if (class >= CLASSES)
        return NULL;
    lock();
    struct head *block = free_lists[class];
    if (block) {
        free_lists[class] = block->next;
    } else {
        size_t need = 1ul << class;
        if ((size_t)(chunk_end - chunk) < need) {
            size_t bytes = need > CHUNK ? need : CHUNK;
            chunk = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            if (chunk == MAP_FAILED)
                _exit(9);
            chunk_end = chunk + bytes;
        }
        block = (struct head *)chunk;
        chunk += need;
    }
    block->class = class;
    unlock();
    return block + 1;
}

void free(void *at)
{
    if (!at)
        return;
    struct head *block = (struct head *)at - 1;
    lock();
    block->next = free_lists[block->class];
    free_lists[block->class] = block;
    unlock();
}

void *calloc(size_t count, size_t each)
{
    void *at = malloc(count * each);
    return at ? memset(at, 0, count * each) : at;
}

void *realloc(void *at, size_t len)
{
    size_t had = at ? (1ul << ((struct head *)at - 1)->class) - sizeof(struct head) : 0;
    if (at && len <= had)
        return at;
    void *grown = malloc(len);
    if (grown && at)
        memcpy(grown, at, had);
    free(at);
    return grown;
}

static void *work(void *number)
{
    static uint64_t *blocks[4][BLOCKS];
    uint64_t **mine = blocks[(size_t)number], random = (size_t)number * 77 + 1;
    for (int round = 0; round < 2; round++)
        for (size_t i = 0; i < BLOCKS; i++) {
            random = random * 6364136223846793005ull + 1442695040888963407ull;
            if (mine[i])
                CHECK(mine[i][0] == i * 31 + round - 1 && mine[i][1] == mine[i][2]);
            free(mine[i]);
            mine[i] = malloc(24 + (random >> 33) % 700);
            mine[i][0] = i * 31 + round;
            mine[i][1] = mine[i][2] = random;
        }
    return NULL;
}

static void *small(void *number)
{
    static __thread char bytes[20000];
    char *block = malloc(100);
    memset(block, (int)(size_t)number, 100);
    bytes[5] = block[7];
    free(block);
    return (void *)(size_t)bytes[5];
}

static int is_right(char **kept)
{
    for (int i = 0; i < KEPT; i++)
        for (int j = 0; j < KEPT_LEN; j += 100)
            if (kept[i][j] != (char)i)
                return 0;
    free(memset(malloc(1 << 20), 1, 1 << 20));
    pthread_t thread;
    void *result;
    return !pthread_create(&thread, NULL, small, (void *)3) && !pthread_join(thread, &result) && result == (void *)3;
}

int main(void)
{
    static char *kept[KEPT];
    CHECK(!pthread_atfork(lock, unlock, unlock));
    for (int i = 0; i < KEPT; i++)
        kept[i] = memset(malloc(KEPT_LEN), i, KEPT_LEN);
    pthread_t threads[4];
    for (size_t i = 0; i < 4; i++)
        CHECK(!pthread_create(&threads[i], NULL, work, (void *)i));
    for (int i = 0; i < 12; i++) {
        usleep(30000);
        pid_t child = fork();
        if (!child)
            _exit(!is_right(kept));
        int status;
        CHECK(waitpid(child, &status, 0) == child);
        if (status)
            return 10 + i;
    }
    for (int i = 0; i < 4; i++)
        CHECK(!pthread_join(threads[i], NULL));
    return 0;
}
