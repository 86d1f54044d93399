/* Pages are touched for the first time right below a mapping of another kind. The pages brought in along with a
 * page end at that boundary. Formerly zeros were mapped page by page up to the boundary and removed again when it
 * was met, along with data that the program had written to them by then. */
#include "check.h"

int main(void) {
    enum { SPAN = 16, OWN = 7 };
    char *wide = map(4 * MIB);
    fill(wide, 4 * MIB, 1);
    CHECK(munmap(wide, 4 * MIB) == 0);
    for (int round = 0; round < 5000; round++) {
        char *at = map(SPAN * PAGE);
        CHECK(mmap(at + OWN * PAGE, (SPAN - OWN) * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED);
        fill(at, OWN * PAGE, round);
        verify(at, OWN * PAGE, round);
        CHECK(munmap(at, SPAN * PAGE) == 0);
    }
    return 0;
}
