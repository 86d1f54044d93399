/* Prints how many filters check the system calls of this process: one under direct delivery. With -DLIBRARY this
 * is a library that defines a function of libaio, and with -DLINKED a program that is linked with it. */
#include "check.h"

#ifdef LIBRARY
int io_setup(int count, void *context) {
    (void)count;
    (void)context;
    return -1;
}
#else
extern int io_setup(int count, void *context);

int main(void) {
#ifdef LINKED
    int (*volatile linked)(int, void *) = io_setup;
    CHECK(linked != NULL);
#endif
    char line[256];
    FILE *status = fopen("/proc/self/status", "r");
    CHECK(status != NULL);
    while (fgets(line, sizeof line, status))
        if (strncmp(line, "Seccomp:", 8) == 0)
            fputs(line, stdout);
    fclose(status);
    return 0;
}
#endif
