/* Children whose program, arguments, environment, attributes and actions are all in managed memory, and absent:
 * created by posix_spawn, system, popen, wordexp, the exec functions after fork and vfork, and threads with an
 * affinity. */
#include "out.h"
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <wordexp.h>

extern char **environ;

static char *pages;
static size_t used;

/* Allocates a string in managed memory, sometimes on its own pages. */
static char *text(const char *of) {
    size_t len = strlen(of) + 1;
    if (used % PAGE + len > PAGE / 2) used = (used + PAGE - 1) & ~(PAGE - 1);
    char *at = pages + used;
    CHECK(used + len < MIB);
    memcpy(at, of, len);
    used += len;
    return at;
}

static char **list(const char *first, const char *second, const char *third) {
    char **at = (char **)block(PAGE);
    at[0] = first ? text(first) : NULL;
    at[1] = second ? text(second) : NULL;
    at[2] = third ? text(third) : NULL;
    at[3] = NULL;
    return at;
}

/* Evicts a page. The first stack, which holds the initial environment, is not managed. */
static void out(void *at) {
    madvise((void *)((uintptr_t)at & ~(PAGE - 1)), PAGE, MADV_PAGEOUT);
}

static int ended(pid_t pid) {
    int status;
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
    if (!WIFEXITED(status)) fprintf(stderr, "ended by signal %d\n", WTERMSIG(status));
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Checks what a child has written to a file whose name is in managed memory. */
static void has_written(const char *name, const char *wanted) {
    char found[200] = "";
    int fd = open(name, O_RDONLY);
    CHECK(fd >= 0);
    CHECK(read(fd, found, 199) >= 0);
    if (strcmp(found, wanted)) fprintf(stderr, "found %s\n", found);
    CHECK(strcmp(found, wanted) == 0);
    close(fd), unlink(name);
}

static char name[64];

static void spawned(int by_path) {
    posix_spawn_file_actions_t *actions = (void *)block(PAGE);
    posix_spawnattr_t *attributes = (void *)block(PAGE);
    sigset_t set;
    CHECK(posix_spawn_file_actions_init(actions) == 0 && posix_spawnattr_init(attributes) == 0);
    char *file = text(name);
    CHECK(posix_spawn_file_actions_addopen(actions, 1, file, O_CREAT | O_WRONLY | O_TRUNC, 0600) == 0);
    CHECK(posix_spawn_file_actions_addchdir_np(actions, text("/tmp")) == 0);
    CHECK(posix_spawn_file_actions_adddup2(actions, 1, 2) == 0);
    CHECK(sigemptyset(&set) == 0 && sigaddset(&set, SIGUSR1) == 0);
    CHECK(posix_spawnattr_setsigmask(attributes, &set) == 0 && posix_spawnattr_setsigdefault(attributes, &set) == 0);
    CHECK(posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF) == 0);
    char **words = list("sh", "-c", "echo $WORD in $PWD; exit 7"), **variables = list("WORD=here", NULL, NULL);
    char *program = text(by_path ? "sh" : "/bin/sh");
    for (char *at = pages; at < pages + MIB; at += PAGE) out(at);
    out(actions), out(attributes), out(words), out(variables);
    pid_t pid;
    int error = by_path ? posix_spawnp(&pid, program, actions, attributes, words, variables)
                        : posix_spawn(&pid, program, actions, attributes, words, variables);
    CHECK(error == 0 && ended(pid) == 7);
    has_written(name, "here in /tmp\n");
    CHECK(posix_spawn_file_actions_destroy(actions) == 0);
    /* A missing program is an error of the call. */
    out(words);
    CHECK(posix_spawn(&pid, text("/nowhere"), NULL, NULL, words, environ) == ENOENT);
}

static void shells(void) {
    for (int n = 0; n < 40; n++) {
        char variable[32];
        snprintf(variable, sizeof variable, "VARIABLE%d", n);
        CHECK(setenv(variable, "a value in managed memory", 1) == 0);
    }
    CHECK(putenv(text("PUT=put here")) == 0);
    char *command = text("test \"$VARIABLE39\" = 'a value in managed memory' && test \"$PUT\" = 'put here' && exit 5");
    for (char *at = pages; at < pages + MIB; at += PAGE) out(at);
    for (char **at = environ; *at; at++) out(*at);
    out(environ);
    CHECK(WEXITSTATUS(system(command)) == 5);
    CHECK(setenv("ANOTHER", "one", 1) == 0);
    out(environ), out(command);
    CHECK(WEXITSTATUS(system(command)) == 5 && system(NULL) != 0);
    char *line = block(PAGE), *say = text("echo $ANOTHER $PUT");
    out(say), out(line), out(environ);
    FILE *stream = popen(say, "r");
    CHECK(stream);
    CHECK(fgets(line, PAGE, stream) && strcmp(line, "one put here\n") == 0);
    CHECK(WEXITSTATUS(pclose(stream)) == 0);
    stream = popen(text("read word; test \"$word\" = given"), text("w"));
    CHECK(stream && fputs("given\n", stream) >= 0 && WEXITSTATUS(pclose(stream)) == 0);
    wordexp_t words;
    char *expanded = text("$ANOTHER $(echo $PUT)");
    out(expanded), out(environ);
    CHECK(wordexp(expanded, &words, 0) == 0 && words.we_wordc == 3);
    CHECK(strcmp(words.we_wordv[0], "one") == 0 && strcmp(words.we_wordv[2], "here") == 0);
    wordfree(&words);
}

static void becomes(int way, int by_vfork) {
    char *shell = text("/bin/sh"), *sh = text("sh"), *script = text("test \"$WORD$ANOTHER\" = $0 && exit 9");
    char *dash = text("-c"), *here = text("here"), *one = text("one");
    char **words = list("sh", "-c", NULL), **variables = list("WORD=here", "PATH=/bin", NULL);
    words[2] = script, words[3] = way == 0 || way == 4 || way == 5 || way == 7 ? here : one, words[4] = NULL;
    int fd = open("/bin/sh", O_RDONLY | O_CLOEXEC);
    for (char *at = pages; at < pages + MIB; at += PAGE) out(at);
    out(words), out(variables), out(environ);
    pid_t pid = by_vfork ? vfork() : fork();
    if (pid == 0) {
        if (way == 0) execve(shell, words, variables);
        if (way == 1) execv(shell, words);
        if (way == 2) execvp(sh, words);
        if (way == 3) execl(shell, sh, dash, script, one, (char *)NULL);
        if (way == 4) execle(shell, sh, dash, script, here, (char *)NULL, variables);
        if (way == 5) execvpe(sh, words, variables);
        if (way == 6) execlp(sh, sh, dash, script, one, "2", "3", "4", "5", "6", "7", "8", (char *)NULL);
        if (way == 7) fexecve(fd, words, variables);
        if (way == 8) execl("/nowhere", sh, (char *)NULL), _exit(errno == ENOENT ? 9 : 1);
        _exit(1);
    }
    int status = ended(pid);
    if (status != 9) fprintf(stderr, "way %d by %s: %d\n", way, by_vfork ? "vfork" : "fork", status);
    CHECK(status == 9);
    close(fd);
    /* The holds of a vfork's child are released by its parent's next call. */
    static char *other;
    if (!other) other = block(PAGE);
    push_out(other, PAGE);
    int ends[2];
    CHECK(pipe(ends) == 0 && write(ends[1], other, 10) == 10 && read(ends[0], other, 10) == 10);
    close(ends[0]), close(ends[1]);
    words[0] = sh;
    out(words);
    CHECK(!is_in(words));
}

static void *affine(void *set) {
    CHECK(sched_getaffinity(0, sizeof(cpu_set_t), set) == 0);
    return set;
}

static void *on_own_stack(void *at) {
    volatile char here[10000];
    for (size_t n = 0; n < sizeof here; n++) here[n] = (char)n;
    return at;
}

static void threads(void) {
    pthread_attr_t *attributes = (void *)block(PAGE);
    cpu_set_t *set = (void *)block(PAGE), *found = (void *)block(PAGE);
    CHECK(pthread_attr_init(attributes) == 0 && sched_getaffinity(0, sizeof *set, set) == 0);
    int first = 0;
    while (!CPU_ISSET(first, set)) first++;
    CPU_ZERO(set);
    CPU_SET(first, set);
    CHECK(pthread_attr_setaffinity_np(attributes, sizeof *set, set) == 0);
    out(attributes), out(set);
    pthread_t thread;
    void *result;
    CHECK(pthread_create(&thread, attributes, affine, found) == 0 && pthread_join(thread, &result) == 0);
    CHECK(CPU_COUNT(found) == 1 && CPU_ISSET(first, found));
    CHECK(pthread_attr_destroy(attributes) == 0 && pthread_attr_init(attributes) == 0);
    char *stack = block(256 << 10);
    CHECK(pthread_attr_setstack(attributes, stack, 256 << 10) == 0);
    push_out(stack, 256 << 10);
    CHECK(pthread_create(&thread, attributes, on_own_stack, found) == 0 && pthread_join(thread, &result) == 0);
    CHECK(result == found);
}

int main(void) {
    pages = block(MIB);
    snprintf(name, sizeof name, "/tmp/children_out.%d", getpid());
    spawned(0);
    spawned(1);
    shells();
    for (int way = 0; way < 9; way++) becomes(way, 0), becomes(way, 1);
    threads();
    puts("all ended well");
    return 0;
}
