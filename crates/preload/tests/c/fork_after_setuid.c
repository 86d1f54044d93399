/* A daemon is started as root, gives up root, and then forks workers. Agents also forbid other processes to
 * inspect them. Formerly no child could then create a userfaultfd or open its page map. Without root there is
 * nothing to give up. */
#include <grp.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define LEN (60u << 20)

int main(void)
{
    char *memory = malloc(LEN);
    if (!memory)
        return 1;
    for (size_t i = 0; i < LEN; i++)
        memory[i] = i * 2654435761u >> 13;
    if (!geteuid() && (setgroups(0, 0) || setgid(65534) || setuid(65534)))
        return 2;
    for (int hidden = 0; hidden < 2; hidden++) {
        if (hidden)
            prctl(PR_SET_DUMPABLE, 0);
        pid_t child = fork();
        if (!child) {
            for (size_t i = 0; i < LEN; i++)
                if (memory[i] != (char)(i * 2654435761u >> 13))
                    _exit(1);
            _exit(hidden && prctl(PR_GET_DUMPABLE) ? 2 : 0);
        }
        int status;
        if (waitpid(child, &status, 0) != child || status)
            return 3 + hidden;
    }
    return 0;
}
