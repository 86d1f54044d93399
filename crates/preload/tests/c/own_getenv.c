/* A program defines its own getenv, as sudo and bash do.
 *
 * Every look-up of the name finds the program's function before the C library's. The standard library linked into
 * Millpond called it in the first constructor of the process, for the directory of temporary files and for the
 * size of a thread's stack. sudo's getenv reads `environ`, which was not set yet, so `millpond run -- sudo ...`
 * ended by SIGSEGV as root. (For other users sudo is set-uid and loads no library.) At that time the C library's
 * getenv found no variable set, so TMPDIR was never honoured: this program checks that too. It also creates a
 * child, since threads start there. */
#include "check.h"

#include <dirent.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
static int asked;

char *getenv(const char *name)
{
    size_t length = strlen(name);
    asked++;
    for (char **at = environ; *at; at++)
        if (!strncmp(*at, name, length) && (*at)[length] == '=')
            return *at + length + 1;
    return NULL;
}

/* Returns whether an open unnamed file lies in the directory. */
static int has_file_in(const char *directory)
{
    DIR *open = opendir("/proc/self/fd");
    size_t length = strlen(directory);
    int found = 0;
    CHECK(open);
    for (struct dirent *entry; (entry = readdir(open));) {
        char link[4096] = "";
        if (readlinkat(dirfd(open), entry->d_name, link, sizeof link - 1) > 0)
            found |= !strncmp(link, directory, length) && link[length] == '/' && strstr(link, "(deleted)");
    }
    closedir(open);
    return found;
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    CHECK(asked == 0);
    CHECK(has_file_in(argv[1]));
    pid_t child = fork();
    if (child == 0) {
        char *block = malloc(1 << 20);
        memset(block, 1, 1 << 20);
        usleep(300 * 1000); /* all threads of the child have begun by then */
        _exit(asked ? 1 : 0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
    CHECK(asked == 0);
    CHECK(getenv("TMPDIR"));
    return 0;
}
