/* A program at fixed addresses that takes the address of malloc and free, as Debian's python3 does. The linker gives
 * everybody the address of a stub in the program, which was taken for an allocator of the program's own: such a program
 * never began dormant. A dormant process has no filter. */
#include "check.h"

static void *(*volatile allocate)(size_t) = malloc;
static void (*volatile release)(void *) = free;

int main(void)
{
    char *block = allocate(1000);
    CHECK(block);
    memset(block, 1, 1000);
    release(block);

    char line[256];
    FILE *status = fopen("/proc/self/status", "r");
    CHECK(status);
    while (fgets(line, sizeof line, status))
        if (!strncmp(line, "Seccomp", 7)) fputs(line, stdout);
    fclose(status);
    return 0;
}
