/* A program whose own allocator maps memory while it holds its lock, as most do. When a dormant process engages at such
 * a mapping, the library creates its threads, and for each the C library takes memory from the program's allocator. It
 * formerly did so in the thread that held the lock, which then waited for itself. */
#include "check.h"
#include "locked_allocator.h"

#define BLOCKS 1500
#define LEN (64u << 10)

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
