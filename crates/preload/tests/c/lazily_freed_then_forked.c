/* The program forks while memory is lazily freed, and some of that memory is in use again. The child starts, and
 * afterwards parent and child each have their own contents. */
#include "check.h"
#include <sys/wait.h>

int main(void) {
    for (int round = 0; round < 4; round++) {
        /* The block is large enough to be purged when it is freed. */
        char *at = malloc(9 * MIB);
        fill(at, 9 * MIB, round);
        free(at);
        at = malloc(9 * MIB);
        at[5 * MIB] = 7;
        pid_t child = fork();
        if (child == 0) {
            CHECK(at[5 * MIB] == 7 && at[6 * MIB] == 0);
            fill(at, 9 * MIB, 9);
            press();
            verify(at, 9 * MIB, 9);
            free(at);
            _exit(0);
        }
        int status;
        CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
        CHECK(at[5 * MIB] == 7);
        free(at);
    }
    return 0;
}
