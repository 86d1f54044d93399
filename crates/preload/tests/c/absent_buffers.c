/* read(2) and write(2) work with absent buffers; so do a futex and a pipe. */
#include "check.h"
#include <pthread.h>

int main(void) {
    char *from = map(24 * MIB), *to = map(24 * MIB);
    fill(from, 24 * MIB, 31);
    fill(to, 24 * MIB, 99);
    press();
    FILE *file = tmpfile();
    CHECK(file);
    int fd = fileno(file);
    CHECK(write(fd, from, 24 * MIB) == 24 * (ssize_t)MIB);
    press();
    CHECK(pread(fd, to, 24 * MIB, 0) == 24 * (ssize_t)MIB);
    verify(to, 24 * MIB, 31);
    pthread_mutex_t *mutex = (pthread_mutex_t *)from;
    pthread_mutex_init(mutex, NULL);
    press();
    CHECK(pthread_mutex_lock(mutex) == 0 && pthread_mutex_unlock(mutex) == 0);
    return 0;
}
