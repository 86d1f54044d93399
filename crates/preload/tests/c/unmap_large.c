/* Fills as many MiB as the argument says and frees them, by munmap, or by free if the next argument says so. */
#include "check.h"
#include <sys/wait.h>

int mallctl(const char *name, void *old, size_t *old_len, void *new, size_t new_len) __attribute__((weak));

int main(int count, char **arguments) {
    CHECK(count == 3);
    size_t len = (size_t)atoi(arguments[1]) * MIB;
    int frees = !strcmp(arguments[2], "free");
    char *at = frees ? aligned_alloc(PAGE, len) : map(len);
    CHECK(at);
    fill(at, len, 1);
    verify(at, len, 1);
    if (frees) {
        free(at);
        /* This is what would happen after the memory has been unused for a long time. */
        CHECK(mallctl("arena.4096.purge", NULL, NULL, NULL, 0) == 0);
    } else CHECK(munmap(at, len) == 0);
    /* A fork waits until all memory has been freed. */
    pid_t child = fork();
    CHECK(child >= 0);
    if (!child) _exit(0);
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    return 0;
}
