/* A program that asks for a signal at each of its own system calls (syscall user dispatch). This is impossible if
 * the faulting thread serves its own faults: our own calls would be stopped too. */
#include "check.h"
#include <sys/prctl.h>

static char selector;

int main(void) {
    char *at = map(40 * MIB);
    int answer = prctl(59, 1, 0, 0, &selector), error = errno;
    fill(at, 40 * MIB, 2);
    verify(at, 40 * MIB, 2);
    if (answer == 0) CHECK(prctl(59, 0, 0, 0, 0) == 0);
    printf("%s\n", answer == 0 ? "dispatched" : error == EINVAL ? "refused" : "another error");
    return 0;
}
