/* A library with its own malloc that is preloaded before ours, like heaptrack's. It initialises itself at its
 * first block, according to the environment. Formerly our constructor requested that block through the linker,
 * before the C library had its environment: heaptrack did not find the pipe that it writes to, and its reader
 * waited forever. The program asks the library what it found, and forks. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef PROGRAM
static int found = -1;
static char early[4096];
static size_t used;

static void *(*real_malloc(void))(size_t)
{
    static void *(*real)(size_t);
    static int looking;
    if (!real && !looking) {
        looking = 1;
        found = getenv("FIRST_ALLOCATOR") != NULL;
        real = (void *(*)(size_t))dlsym(RTLD_NEXT, "malloc");
    }
    return real;
}

void *malloc(size_t len)
{
    void *(*real)(size_t) = real_malloc();
    if (real)
        return real(len);
    void *block = early + used;
    used += (len + 15) & ~15ul;
    return block;
}

int first_allocator_found(void)
{
    return found;
}
#else
int main(void)
{
    int (*ask)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "first_allocator_found");
    char *block = malloc(60 << 20);
    for (size_t i = 0; i < 60 << 20; i += 4096)
        block[i] = (char)(i >> 12);
    for (int i = 0; i < 3; i++) {
        pid_t child = fork();
        if (!child)
            _exit(block[4096 * 77] != 77);
        int status;
        if (waitpid(child, &status, 0) != child || status)
            return 2;
    }
    printf("found: %d\n", ask ? ask() : -2);
    return 0;
}
#endif
