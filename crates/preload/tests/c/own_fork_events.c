/* A program with its own userfaultfd, on shared memory, which is notified of forks: the kernel lets the fork
 * continue once a thread has read the event. That thread has just been created, and may be anywhere in its
 * startup. */
#include "check.h"
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static int faults;

static void *reads(void *unused) {
    struct uffd_msg message;
    struct pollfd asked = {faults, POLLIN, 0};
    CHECK(poll(&asked, 1, -1) == 1);
    CHECK(read(faults, &message, sizeof message) == sizeof message);
    CHECK(message.event == UFFD_EVENT_FORK && close((int)message.arg.fork.ufd) == 0);
    return unused;
}

int main(void) {
    char *at = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED);
    char *more = map(40 * MIB);
    fill(more, 40 * MIB, 3);
    faults = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
    struct uffdio_api api = {.api = UFFD_API, .features = UFFD_FEATURE_EVENT_FORK};
    if (faults < 0 || ioctl(faults, UFFDIO_API, &api) != 0) {
        puts("no events of forks here");
        return 0;
    }
    struct uffdio_register range = {.range = {(uintptr_t)at, MIB}, .mode = UFFDIO_REGISTER_MODE_MISSING};
    CHECK(ioctl(faults, UFFDIO_REGISTER, &range) == 0);
    for (int round = 0; round < 200; round++) {
        pthread_t reader;
        int status;
        CHECK(pthread_create(&reader, NULL, reads, NULL) == 0);
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) _exit(5);
        CHECK(pthread_join(reader, NULL) == 0);
        CHECK(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 5);
    }
    verify(more, 40 * MIB, 3);
    puts("forked");
    return 0;
}
