/* A child gives up its rights, as su, runuser, nginx and cron do. The C library has every thread of the process do so,
 * by a signal, and waits for each thread. Formerly the library's threads had that signal blocked, and the child hung. A
 * change to the current user needs no right, and the signal is sent in this case too. */
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void)
{
    for (int in_child = 0; in_child < 2; in_child++) {
        pid_t child = in_child ? fork() : 0;
        if (!child) {
            if (setgid(getgid()) || setuid(getuid()))
                return 1;
            if (in_child)
                _exit(0);
            continue;
        }
        int status;
        if (waitpid(child, &status, 0) != child || status)
            return 2;
    }
    return 0;
}
