/* One byte in each 2 MiB over 40 GiB, of a mapping of one TiB. Natively that takes 80 MB. A table of entries was 4
 * KiB for each leaf whatever it held, so the process took 90 MB in a budget of 32, nearly all of it tables. */
#include "check.h"

#define LEAF (2 * MIB)
#define LEAVES 20000ul
#define MOST_KIB (40l << 10)

int main(void)
{
    unsigned char *memory =
        mmap(NULL, 1ul << 40, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(memory != MAP_FAILED);
    for (size_t n = 0; n < LEAVES; n++)
        memory[n * LEAF + n % 512 * PAGE] = n * 7 + 1;
    for (size_t n = 0; n < LEAVES; n++)
        CHECK(memory[n * LEAF + n % 512 * PAGE] == (unsigned char)(n * 7 + 1));
    /* The budget is 32 MiB. Without the library the rest does not hold. */
    if (getenv("LD_PRELOAD"))
        CHECK(peak_kib() < MOST_KIB);
    return 0;
}
