/* The program loads forty plug-ins with thread-local storage, and memory is short. Formerly the dynamic linker's
 * data about them lay in managed memory and had been evicted. The child of a fork read the data when it created
 * its first thread, the one that serves faults, and hung. The argument is the source directory of the plug-in, in
 * which the copies are made. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define LEN (100u << 20)

int main(int count, char **arguments)
{
    if (count != 2 || chdir(arguments[1]))
        return 1;
    if (system("echo '__thread int a[100]; int *get(void) { return a; }' > plugin.c && "
               "cc -shared -fPIC -o plugin.so plugin.c && "
               "for i in $(seq 40); do cp plugin.so plugin$i.so; done"))
        return 2;
    for (int i = 1; i <= 40; i++) {
        char path[64];
        snprintf(path, sizeof path, "./plugin%d.so", i);
        if (!dlopen(path, RTLD_NOW))
            return 3;
    }
    volatile char *memory = malloc(LEN);
    if (!memory)
        return 4;
    for (int round = 0; round < 3; round++)
        for (size_t i = 0; i < LEN; i++)
            memory[i] = i * 2654435761u >> 13;
    pid_t child = fork();
    if (!child)
        _exit(memory[LEN / 2] != (char)(LEN / 2 * 2654435761u >> 13));
    int status;
    if (waitpid(child, &status, 0) != child || status)
        return 5;
    return 0;
}
