/* Blocks allocated under the C library's other names for its allocator, freed, resized and measured under either. */
#include "check.h"
#include <malloc.h>

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t), *__libc_valloc(size_t), *__libc_pvalloc(size_t);
extern void __libc_free(void *);

static char *filled(void *block, size_t len) {
    CHECK(block && malloc_usable_size(block) >= len);
    return memset(block, 7, len);
}

int main(void) {
    for (size_t len = 1; len < 20 * MIB; len = len * 7 + 3) {
        free(filled(__libc_malloc(len), len));
        __libc_free(filled(malloc(len), len));
        char *zeros = __libc_calloc(len, 1);
        CHECK(zeros && zeros[0] == 0 && zeros[len - 1] == 0);
        free(zeros);
        char *other = realloc(filled(__libc_malloc(len), len), 2 * len);
        CHECK(other && other[len - 1] == 7);
        other = __libc_realloc(other, 3 * len);
        CHECK(other && other[0] == 7);
        free(other);
        void *aligned = __libc_memalign(512, len);
        CHECK((uintptr_t)aligned % 512 == 0);
        free(filled(aligned, len));
        free(filled(__libc_valloc(len), len));
        free(filled(__libc_pvalloc(len), len));
        __libc_free(filled(aligned_alloc(64, (len + 63) / 64 * 64), len));
    }
    __libc_free(NULL);
    puts("one allocator");
    return 0;
}
