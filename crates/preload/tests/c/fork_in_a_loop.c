/* The program creates 400 children, one after another, faster than the manager checks for those that have ended.
 * The memory of each child is correct. */
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define LEN (8u << 20)

int main(void)
{
    unsigned *memory = malloc(LEN);
    for (unsigned i = 0; i < LEN / sizeof *memory; i++)
        memory[i] = i * 2654435761u;
    for (unsigned child = 0; child < 400; child++) {
        pid_t pid = fork();
        if (!pid) {
            for (unsigned i = child; i < LEN / sizeof *memory; i += 65536)
                if (memory[i] != i * 2654435761u)
                    _exit(1);
            _exit(0);
        }
        int status;
        if (waitpid(pid, &status, 0) != pid || status)
            return 1;
    }
    return 0;
}
