/* A single-threaded program wants a user namespace for itself. The kernel refuses it to a process with several
 * threads, and under the library the process has several. A child created by clone gets a namespace. */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static char stack[256 << 10];

static int in_namespace(void *from)
{
    return getuid() == *(uid_t *)from && getuid() != 65534;
}

int main(void)
{
    uid_t from = getuid();
    pid_t child = clone(in_namespace, stack + sizeof stack, SIGCHLD | CLONE_NEWUSER, &from);
    int status = -1;
    if (child < 0) {
        puts("no user namespaces here");
        return 0;
    }
    if (waitpid(child, &status, 0) != child || status)
        return 1;
    for (int n = 0; n < 2; n++)
        if (unshare(CLONE_NEWUSER) != -1 || errno != EINVAL)
            return 2;
    return unshare(CLONE_FS);
}
