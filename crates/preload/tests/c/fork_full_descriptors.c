/* A server with as many descriptors open as allowed forks. Formerly the child died, because it had no descriptor
 * for its store. The child must find its memory, and be able to close the descriptors that it inherited. */
#include "check.h"
#include "words.h"
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>

enum { WANTED = 20000, SPARE = 61 };

int main(int count, char **arguments) {
    /* With an argument no descriptor at all is left. */
    int spare = count > 1 && arguments[1] ? 0 : SPARE;
    const size_t len = 48 * MIB;
    char *at = map(len);
    put_words(at, len, 3);
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    limit.rlim_cur = limit.rlim_max < WANTED ? limit.rlim_max : WANTED;
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    int last = -1, next;
    while ((next = open("/dev/null", O_RDONLY)) >= 0) last = next;
    CHECK(errno == EMFILE && last >= 0);
    for (int n = 0; n < spare; n++) CHECK(close(last - n) == 0);
    pid_t child = fork();
    if (child == 0) {
        CHECK(wrong_words(at, len, 3) == 0);
        for (int fd = 3; fd <= last; fd++) close(fd);
        put_words(at, len, 4);
        CHECK(wrong_words(at, len, 4) == 0);
        _exit(0);
    }
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK(status == 0);
    CHECK(wrong_words(at, len, 3) == 0);
    return 0;
}
