/* Gives up root and becomes another program, as su and runuser do. The other program's memory may not be managed,
 * so it runs without a budget; formerly it was ended for that. The arguments are the other program's. Without root
 * there is nothing to give up. */
#include <grp.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    if (argc < 2 || geteuid())
        return 2;
    if (setgroups(0, 0) || setgid(65534) || setuid(65534))
        return 3;
    execv(argv[1], argv + 1);
    return 4;
}
