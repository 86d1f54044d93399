/* Helpers of the programs that begin dormant. */
#ifndef DORMANT_H
#define DORMANT_H
#include "check.h"
#include <time.h>

static inline void nap(long nanoseconds)
{
    struct timespec time = {0, nanoseconds};
    CHECK(nanosleep(&time, NULL) == 0);
}

/* A process that is engaged has a filter. */
static inline int is_filtered(void)
{
    char line[256];
    int mode = -1;
    FILE *status = fopen("/proc/self/status", "r");
    CHECK(status);
    while (fgets(line, sizeof line, status)) sscanf(line, "Seccomp: %d", &mode);
    fclose(status);
    return mode == 2;
}

#endif
