/* A child gives up its privileges, as su, runuser, nginx and cron do. The C library makes every thread of the
 * process do so, by a signal, and waits for each thread. Formerly the library's threads had that signal blocked,
 * and the child hung. Changing to the current user needs no privilege, but still sends the signal. */
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
