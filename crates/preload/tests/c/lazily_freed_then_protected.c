/* Memory is lazily freed, allocated again and made inaccessible before the program writes to it. The reclaimer
 * must not read it to check whether it was used. */
#include "check.h"

int main(void) {
    for (int round = 0; round < 6; round++) {
        void *at;
        CHECK(posix_memalign(&at, PAGE, 9 * MIB) == 0);
        fill(at, 9 * MIB, round);
        free(at);
        CHECK(posix_memalign(&at, PAGE, 9 * MIB) == 0);
        CHECK(mprotect((char *)at + MIB, 4 * MIB, PROT_NONE) == 0);
        press();
        CHECK(mprotect((char *)at + MIB, 4 * MIB, PROT_READ | PROT_WRITE) == 0);
        for (size_t n = 0; n < 9 * MIB; n += 64) CHECK(((char *)at)[n] == 0 || n < MIB || n >= 5 * MIB);
        free(at);
    }
    return 0;
}
