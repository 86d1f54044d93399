/* A program whose own allocator maps memory while it holds its lock, as most do. When a dormant process engages at such
 * a mapping, the library creates its threads, and for each the C library takes memory from the program's allocator. It
 * formerly did so in the thread that held the lock, which then waited for itself. */
#include "check.h"
#include <pthread.h>

#define BLOCKS 1500
#define LEN (64u << 10)

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static char *chunk, *chunk_end;

static void *take(size_t alignment, size_t len)
{
    size_t need = 16 + len + alignment;
    if ((size_t)(chunk_end - chunk) < need) {
        size_t bytes = need > MIB ? need : MIB;
        chunk = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (chunk == MAP_FAILED)
            _exit(9);
        chunk_end = chunk + bytes;
    }
    char *block = (char *)(((size_t)chunk + 16 + alignment - 1) & -alignment);
    chunk = (char *)(((size_t)block + len + 15) & -16ul);
    ((size_t *)block)[-2] = len;
    return block;
}

void *memalign(size_t alignment, size_t len)
{
    pthread_mutex_lock(&mutex);
    void *block = take(alignment < 16 ? 16 : alignment, len);
    pthread_mutex_unlock(&mutex);
    return block;
}

void free(void *at)
{
    (void)at;
    pthread_mutex_lock(&mutex);
    pthread_mutex_unlock(&mutex);
}

void *malloc(size_t len) { return memalign(16, len); }
void *aligned_alloc(size_t alignment, size_t len) { return memalign(alignment, len); }
int posix_memalign(void **at, size_t alignment, size_t len) { return *at = memalign(alignment, len), 0; }
void *calloc(size_t count, size_t len) { return memset(memalign(16, count * len), 0, count * len); }

void *realloc(void *at, size_t len)
{
    char *to = memalign(16, len);
    if (at)
        memcpy(to, at, ((size_t *)at)[-2] < len ? ((size_t *)at)[-2] : len);
    return to;
}

int main(void)
{
    static char *blocks[BLOCKS];
    for (size_t n = 0; n < BLOCKS; n++) {
        blocks[n] = malloc(LEN);
        memset(blocks[n], (int)(n % 251), LEN);
    }
    for (size_t n = 0; n < BLOCKS; n++) {
        for (size_t at = 0; at < LEN; at += 61) CHECK(blocks[n][at] == (char)(n % 251));
        free(blocks[n]);
    }
    puts("every block is as it was");
    return 0;
}
