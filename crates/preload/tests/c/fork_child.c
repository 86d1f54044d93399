/* A forked child reads its parent's absent pages. Parent and child do not see each other's writes. */
#include "check.h"
#include <sys/wait.h>
#include <pthread.h>

enum { LEN = 96 };
static pthread_key_t keys[64];
static volatile int stop;

static void *worker(void *unused) {
    for (int n = 0; n < 64; n++) pthread_setspecific(keys[n], unused);
    while (!stop) free(malloc(100000));
    return NULL;
}

int main(void) {
    for (int n = 0; n < 64; n++) CHECK(pthread_key_create(&keys[n], NULL) == 0);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, worker, keys) == 0);
    FILE *file = fopen("/dev/null", "w");
    char *at = map(LEN * MIB);
    fill(at, LEN * MIB, 1000);
    char *heap = malloc(8 * MIB);
    fill(heap, 8 * MIB, 5);
    for (int round = 0; round < 3; round++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            fprintf(file, "x");
            verify(at, LEN * MIB, 1000);
            verify(heap, 8 * MIB, 5);
            fill(at, LEN * MIB, 2000);
            pid_t grandchild = fork();
            CHECK(grandchild >= 0);
            if (grandchild == 0) {
                verify(at, LEN * MIB, 2000);
                _exit(42);
            }
            int status;
            CHECK(waitpid(grandchild, &status, 0) == grandchild);
            CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 42);
            verify(at, LEN * MIB, 2000);
            exit(41);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 41);
        verify(at, LEN * MIB, 1000);
        verify(heap, 8 * MIB, 5);
    }
    CHECK(system("exit 3") == 3 << 8);
    stop = 1;
    CHECK(pthread_join(thread, NULL) == 0);
    return 0;
}
