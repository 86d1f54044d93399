/* The allocator keeps freed memory for a short time while memory goes to the store, and for its usual time
 * afterwards. If the program has set that time, the library never changes it. */
#include "check.h"

extern int mallctl(const char *, void *, size_t *, void *, size_t) __attribute__((weak));

static ssize_t dirty_ms(int arena) {
    char name[40];
    ssize_t ms;
    size_t len = sizeof ms;
    snprintf(name, sizeof name, "arena.%d.dirty_decay_ms", arena);
    CHECK(mallctl != NULL && mallctl(name, &ms, &len, NULL, 0) == 0);
    return ms;
}
static void set_dirty_ms(int arena, ssize_t ms) {
    char name[40];
    snprintf(name, sizeof name, "arena.%d.dirty_decay_ms", arena);
    CHECK(mallctl(name, NULL, NULL, &ms, sizeof ms) == 0);
}
static void free_something(void) {
    void *volatile some = malloc(100);
    free(some);
}
/* Frees memory now and then, for up to ten seconds, until the time is as wanted. */
static int becomes(int arena, ssize_t wanted, int pressed) {
    for (int n = 0; n < 500; n++) {
        if (pressed) press();
        free_something();
        if (dirty_ms(arena) == wanted) return 1;
        usleep(20000);
    }
    return 0;
}

int main(void) {
    const ssize_t calm = dirty_ms(0);
    CHECK(calm > 0);
    CHECK(becomes(0, 0, 1));
    CHECK(becomes(0, calm, 0));

    /* The program sets its own time, and then one equal to the library's under pressure. */
    set_dirty_ms(0, 12345);
    for (int n = 0; n < 40; n++) {
        press();
        free_something();
        CHECK(dirty_ms(0) == 12345);
    }
    set_dirty_ms(0, 0);
    for (int n = 0; n < 100; n++) {
        free_something();
        CHECK(dirty_ms(0) == 0);
        usleep(20000);
    }
    return 0;
}
