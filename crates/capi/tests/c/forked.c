/* In a forked child every call on the parent's pond is refused, and freeing a handle leaves the parent's memory as it
 * is. The child may open a pond of its own. */
#include "check.h"
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static int child(millpond *pond, millpond_region *region, millpond_pin *pin, millpond_group *group) {
    struct millpond_stats stats = {.size = sizeof stats};
    struct millpond_group_stats of_group = {.size = sizeof of_group};
    millpond_region *copy;
    REFUSED(millpond_stats(pond, &stats), MILLPOND_FORKED, "a parent of this process");
    REFUSED(millpond_region_discard(region, 0, PAGE), MILLPOND_FORKED, "open another one");
    REFUSED(millpond_region_snapshot(region, &copy), MILLPOND_FORKED, "after the fork");
    REFUSED(millpond_group_stats(group, &of_group), MILLPOND_FORKED, "a parent");
    CHECK(millpond_region_data(region) == NULL);
    millpond_pin_free(pin);
    millpond_region_free_async(region);
    millpond_group_free(group);
    millpond_close(pond);

    millpond *own = small_pond(NULL);
    region = small_region(own, 32 * MIB);
    unsigned char *bytes = millpond_region_data(region);
    memset(bytes, 9, 32 * MIB);
    for (size_t at = 0; at < 32 * MIB; at++)
        CHECK(bytes[at] == 9);
    millpond_region_free(region);
    millpond_close(own);
    return 0;
}

/* An access formerly ended the child by SIGSEGV without a message, and a pool of such children hung. */
static void touch(unsigned char *bytes) {
    char said[1024];
    int ends[2];
    CHECK(pipe(ends) == 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        dup2(ends[1], 2);
        _exit(*(volatile unsigned char *)bytes);
    }
    close(ends[1]);
    ssize_t len = read(ends[0], said, sizeof said - 1);
    close(ends[0]);
    CHECK(len > 0);
    said[len] = 0;
    CHECK(strstr(said, "millpond: ") == said && strstr(said, "before the fork"));
    int status = -1;
    CHECK(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

int main(void) {
    const char *deliveries[] = {"in-thread", "handler"};
    for (int n = 0; n < 2; n++) {
        millpond *pond = small_pond(deliveries[n]);
        millpond_region *region = small_region(pond, 32 * MIB);
        millpond_group *group;
        millpond_pin *pin;
        unsigned char *bytes = millpond_region_data(region);
        memset(bytes, 7, 32 * MIB);
        CHECK(millpond_group_new(pond, NULL, "a", NULL, &group) == 0);
        CHECK(millpond_region_pin(region, 0, PAGE, &pin) == 0);
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0)
            _exit(child(pond, region, pin, group));
        int status = -1;
        CHECK(waitpid(pid, &status, 0) == pid && status == 0);
        touch(bytes);
        for (size_t at = 0; at < 32 * MIB; at++)
            CHECK(bytes[at] == 7);
        millpond_pin_free(pin);
        millpond_group_free(group);
        millpond_region_free(region);
        millpond_close(pond);
    }
    return 0;
}
