/* A single-threaded program may make some calls for that thread alone before it changes its user: keep its rights,
 * lock its securebits, drop capabilities, and change the user by the bare system call. Formerly the library's
 * threads, which the program does not know about, kept their own rights and got a different result from the
 * program's, and the C library aborted the process (`setpriv`). Each case runs in a child. The test needs root,
 * without which there is nothing to keep. */
#define _GNU_SOURCE
#include <grp.h>
#include <linux/capability.h>
#include <linux/securebits.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define BIT(n) (1u << (n))

static int keep(unsigned kept)
{
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct sets[2];
    memset(sets, 0, sizeof sets);
    sets[0].effective = sets[0].permitted = kept;
    return syscall(SYS_capset, &header, sets);
}

static int way(int number)
{
    gid_t group = 65534;
    switch (number) {
    case 0: /* setpriv and libcap-ng do this */
        if (prctl(PR_SET_KEEPCAPS, 1) || setresgid(65534, 65534, 65534) ||
            setresuid(65534, 65534, 65534) || keep(BIT(CAP_SETUID) | BIT(CAP_SETGID)))
            return 1;
        return setgroups(1, &group) || setgid(1) || setuid(2) || keep(0) || setuid(2);
    case 1: /* rights go first, and all threads are refused alike */
        if (keep(BIT(CAP_SETGID)))
            return 2;
        return setgroups(0, 0) || setgid(1) || !setuid(65534);
    case 2: /* root without root's rights */
        if (prctl(PR_SET_SECUREBITS, SECBIT_NOROOT | SECBIT_NO_SETUID_FIXUP))
            return 3;
        return setuid(65534) || setgid(1) || setuid(0) || setuid(65534);
    case 3: /* by the bare system call */
        if (syscall(SYS_setresgid, 1, 1, 1) || syscall(SYS_setresuid, 1, 1, 1))
            return 4;
        return !setuid(0) || !setgid(0) || setuid(1) || setgid(1) || !setgroups(0, 0);
    default: /* root with no right at all */
        return keep(0) || !setgroups(0, 0) || !setuid(1) || setuid(0);
    }
}

int main(void)
{
    if (geteuid())
        return 0;
    for (int number = 0; number < 5; number++) {
        pid_t child = fork();
        if (!child)
            _exit(way(number));
        int status;
        if (waitpid(child, &status, 0) != child || status) {
            fprintf(stderr, "way %d: status %#x\n", number, status);
            return 1;
        }
    }
    return way(0);
}
