/* Helpers of the test programs: a check that ends the program with its line and with the library's last message. */
#include <millpond.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB ((size_t)1 << 20)
#define PAGE 4096

#define CHECK(what)                                                                                                    \
    do {                                                                                                               \
        if (!(what)) {                                                                                                 \
            fprintf(stderr, "%s:%d: %s (\"%s\")\n", __FILE__, __LINE__, #what, millpond_error());                      \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

/* Checks that a call fails with this status, and that its message contains this part. */
#define REFUSED(call, with, part)                                                                                      \
    do {                                                                                                               \
        int status = (call);                                                                                           \
        CHECK(status == (with));                                                                                       \
        CHECK(strstr(millpond_error(), (part)));                                                                       \
    } while (0)

/* Opens a pond with a budget of 16 MiB. */
static inline millpond *small_pond(const char *delivery) {
    struct millpond_options options = {.size = sizeof options, .ram = 16 * MIB, .delivery = delivery};
    millpond *pond = NULL;
    CHECK(millpond_open(&options, &pond) == 0);
    return pond;
}

static inline millpond_region *small_region(millpond *pond, size_t len) {
    millpond_region *region = NULL;
    CHECK(millpond_region_new(pond, len, NULL, &region) == 0);
    CHECK(millpond_region_size(region) == len);
    return region;
}
