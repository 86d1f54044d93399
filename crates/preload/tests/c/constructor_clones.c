/* A library whose constructor creates children: by a bare clone, which runs no fork handlers and inherits the
 * linker's lock in the locked state, by fork and by system. Each of them creates a thread and touches absent
 * memory. Built with PROGRAM, this is the program that loads the library, whose path is its argument. */
#include "out.h"
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#ifdef PROGRAM
char *area;

int main(int argc, char **argv) {
    CHECK(argc == 2);
    area = map(40 * MIB);
    fill(area, 40 * MIB, 9);
    void *loaded = dlopen(argv[1], RTLD_NOW);
    if (!loaded) fputs(dlerror(), stderr);
    CHECK(loaded);
    verify(area, 40 * MIB, 9);
    puts("loaded");
    return 0;
}
#else
extern char *area;

static void *looks(void *unused) {
    verify(area, 40 * MIB, 9);
    return unused;
}

static void in_child(void) {
    pthread_t thread;
    verify(area, 8 * MIB, 9);
    CHECK(pthread_create(&thread, NULL, looks, NULL) == 0 && pthread_join(thread, NULL) == 0);
    _exit(7);
}

static void ends(pid_t child, const char *how) {
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    printf("%s: %d\n", how, WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
}

__attribute__((constructor)) static void makes_children(void) {
    pid_t child = (pid_t)syscall(SYS_clone, (long)SIGCHLD, 0l, 0l, 0l, 0l);
    if (child == 0) in_child();
    ends(child, "clone");
    child = fork();
    if (child == 0) in_child();
    ends(child, "fork");
    int status = system("exit 7");
    printf("system: %d\n", WEXITSTATUS(status));
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, looks, NULL) == 0 && pthread_join(thread, NULL) == 0);
    fflush(stdout);
}
#endif
