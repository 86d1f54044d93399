/* Numbers that neither the budget nor a small file holds come back from a store beyond the machine. In a library
 * without such stores the call fails with a status, and the program says so. */
#include "check.h"

#define COUNT (64 * MIB / sizeof(uint64_t))

/* Returns the next of a sequence of numbers that no codec can compress. */
static uint64_t next(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static void refusals(struct millpond_options options) {
    millpond *pond = NULL;
    options.store = "auto,ftp://host/path";
    REFUSED(millpond_open(&options, &pond), MILLPOND_INVALID, "use s3://");
    options.store_file = 0;
    options.store = "zram,redis://:hunter2@host/0";
    REFUSED(millpond_open(&options, &pond), MILLPOND_INVALID, "set REDISCLI_AUTH");
    CHECK(!strstr(millpond_error(), "hunter2"));
    options.store = "auto,memory://";
    options.store_file = MIB;
    REFUSED(millpond_open(&options, &pond), MILLPOND_STORE, "too small for a store");
    CHECK(pond == NULL);
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    struct millpond_options options = {.size = sizeof options, .ram = 16 * MIB, .store = argv[1]};
    options.store_file = strncmp(argv[1], "auto,", 5) ? 0 : 8 * MIB;
    options.store_max = 256 * MIB;
    millpond *pond = NULL;
    int status = millpond_open(&options, &pond);
    if (status == MILLPOND_STORE && strstr(millpond_error(), "built without")) {
        puts(millpond_error());
        return 0;
    }
    CHECK(status == 0);
    millpond_region *region = small_region(pond, 64 * MIB);
    uint64_t *numbers = millpond_region_data(region), state = 5;
    for (size_t i = 0; i < COUNT; i++)
        numbers[i] = next(&state);
    struct millpond_stats stats = {.size = sizeof stats};
    CHECK(millpond_stats(pond, &stats) == 0 && stats.stored > 40 * MIB);
    for (int lap = 0; lap < 2; lap++) {
        state = 5;
        for (size_t i = 0; i < COUNT; i++)
            CHECK(numbers[i] == next(&state));
    }
    millpond_region_free(region);
    millpond_close(pond);
    refusals(options);
    puts("all numbers came back");
    return 0;
}
