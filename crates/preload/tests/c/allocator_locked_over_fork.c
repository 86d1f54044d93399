/* Firefox hung when it created its first child. Its allocator has a lock, which its own fork handlers take before
 * a fork and release in the child. There the library's handler runs before them, and formerly created its threads
 * at once: for a thread the C library takes memory from the program's allocator, so the child waited for itself.
 *
 * Two threads fork at once, and register handlers meanwhile. Each child finds the memory of its parent, moves
 * memory and creates a thread. With "moves" a handler in the child moves memory, which the kernel reports in an
 * event, before the threads exist; with "forks" it creates a child of its own. With "clone" the program locks its
 * allocator itself and creates a child by clone, which runs no handlers and unlocks the allocator, as Firefox's
 * fork server does. */
#include "check.h"
#include "locked_allocator.h"
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>

#define LEN (48 * MIB)
#define ROUNDS 8

static const char *special = "";
static unsigned char *memory, *moved;

static int is_moved(void)
{
    unsigned char *to = mremap(moved, MIB, 2 * MIB, MREMAP_MAYMOVE);
    CHECK(to != MAP_FAILED);
    moved = to;
    for (size_t at = 0; at < MIB; at += PAGE)
        if (to[at] != (unsigned char)(at / PAGE * 7))
            return 0;
    return 1;
}

static int is_right(void)
{
    for (size_t at = 0; at < LEN; at += PAGE)
        if (memory[at] != (unsigned char)(at / PAGE * 3))
            return 0;
    return 1;
}

static void *small(void *number)
{
    static __thread char bytes[20000];
    char *block = memset(malloc(100), (int)(size_t)number, 100);
    bytes[5] = block[7];
    free(block);
    return (void *)(size_t)bytes[5];
}

static int makes_a_thread(void)
{
    pthread_t thread;
    void *result;
    return !pthread_create(&thread, NULL, small, (void *)3) && !pthread_join(thread, &result) && result == (void *)3;
}

static void ends_well(pid_t child)
{
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK(status == 0);
}

static void prepare(void) { pthread_mutex_lock(&mutex); }
static void in_parent(void) { pthread_mutex_unlock(&mutex); }

static void in_child(void)
{
    static int is_inner;
    pthread_mutex_init(&mutex, NULL);
    if (!strcmp(special, "moves"))
        CHECK(is_moved());
    if (!strcmp(special, "forks") && !is_inner) {
        is_inner = 1;
        pid_t child = fork();
        if (!child)
            _exit(!is_right() || !is_moved() || !makes_a_thread());
        ends_well(child);
    }
}

static void nothing(void) {}

static int child(void *unused)
{
    (void)unused;
    if (!strcmp(special, "clone"))
        in_child();
    int moves = strcmp(special, "moves") ? is_moved() : 1;
    return !is_right() ? 2 : !moves ? 3 : !makes_a_thread() ? 4 : 0;
}

static pid_t make_child(void)
{
    if (strcmp(special, "clone")) {
        pid_t pid = fork();
        if (!pid)
            _exit(child(NULL));
        return pid;
    }
    static _Alignas(16) char stacks[2][256 << 10];
    static _Thread_local char *stack;
    static int used;
    if (!stack)
        stack = stacks[__atomic_fetch_add(&used, 1, __ATOMIC_RELAXED)];
    prepare();
    pid_t pid = clone(child, stack + sizeof stacks[0], SIGCHLD, NULL);
    in_parent();
    return pid;
}

static void *forks(void *number)
{
    (void)number;
    for (int i = 0; i < ROUNDS; i++) {
        CHECK(!pthread_atfork(nothing, nothing, nothing));
        ends_well(make_child());
    }
    return NULL;
}

int main(int argc, char **argv)
{
    special = argc > 1 ? argv[1] : special;
    memory = (unsigned char *)map(LEN);
    for (size_t at = 0; at < LEN; at += PAGE)
        memory[at] = at / PAGE * 3;
    moved = (unsigned char *)map(MIB);
    for (size_t at = 0; at < MIB; at += PAGE)
        moved[at] = at / PAGE * 7;
    CHECK(!pthread_atfork(prepare, in_parent, in_child));
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        CHECK(!pthread_create(&threads[i], NULL, forks, NULL));
    for (int i = 0; i < 2; i++)
        CHECK(!pthread_join(threads[i], NULL));
    puts("all ended well");
    return 0;
}
