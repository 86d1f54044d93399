/* The program fills its memory, and then its unmanaged memory grows: shared memory, one MiB every 20 ms. Meanwhile
 * it touches none of its own memory. Formerly only a fault triggered reclaim, so it stayed 11 MiB above its budget
 * of 32 until it used its own memory again. */
#include "check.h"
#include <fcntl.h>

#define BUDGET (32 * MIB)

/* Reads the resident bytes into the stack, which is not managed. */
static size_t resident(int statm)
{
    char text[128] = "";
    unsigned long size, pages;
    CHECK(pread(statm, text, sizeof text - 1, 0) > 0);
    CHECK(sscanf(text, "%lu %lu", &size, &pages) == 2);
    return pages * PAGE;
}

int main(void)
{
    char *own = map(48 * MIB);
    char *shared = mmap(NULL, 12 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int statm = open("/proc/self/statm", O_RDONLY);
    CHECK(shared != MAP_FAILED && statm >= 0);
    fill(own, 48 * MIB, 3);
    for (size_t at = 0; at < 12 * MIB; at += PAGE) {
        shared[at] = 1;
        if (at % MIB == 0)
            usleep(20000);
    }
    int waited = 0;
    while (resident(statm) > BUDGET + MIB && waited++ < 500)
        usleep(20000);
    CHECK(waited < 500);
    verify(own, 48 * MIB, 3);
    return 0;
}
