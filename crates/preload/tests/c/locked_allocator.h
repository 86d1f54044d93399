/* An allocator of the program's own: it has one lock, maps memory while it holds it, and reuses nothing. */
#include <pthread.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static char *chunk, *chunk_end;

static void *take(size_t alignment, size_t len)
{
    size_t need = 16 + len + alignment;
    if ((size_t)(chunk_end - chunk) < need) {
        size_t bytes = need > 4 * MIB ? need : 4 * MIB;
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
