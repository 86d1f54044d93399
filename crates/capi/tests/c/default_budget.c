/* A pond with a budget of 32 MiB and otherwise default options keeps that budget with 160 MiB of random numbers.
 *
 * Formerly it did not: of 1 GiB of random numbers 1031 MiB were resident, because the default store was compressed RAM
 * alone, and random numbers fill it. */
#include "check.h"
#include <stdint.h>
#include <unistd.h>

#define RAM (32 * MIB)
#define DATA (160 * MIB)
/* The process's memory apart from managed memory: its code, and pages that the kernel has not yet counted. */
#define SLACK (4 * MIB)

static size_t resident(void) {
    size_t size = 0, pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file != NULL && fscanf(file, "%zu %zu", &size, &pages) == 2);
    fclose(file);
    return pages * PAGE;
}

static uint64_t next(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

int main(void) {
    struct millpond_options options = {.size = sizeof options, .ram = RAM};
    millpond *pond = NULL;
    size_t before = resident(), most = 0;
    CHECK(millpond_open(&options, &pond) == 0);
    millpond_region *region = small_region(pond, DATA);
    uint64_t *words = millpond_region_data(region), state = 0x28;
    size_t count = DATA / sizeof *words, each = MIB / sizeof *words;
    for (size_t i = 0; i < count; i++) {
        words[i] = next(&state);
        if (i % each == 0 && resident() > most)
            most = resident();
    }
    state = 0x28;
    for (size_t i = 0; i < count; i++) {
        CHECK(words[i] == next(&state));
        if (i % each == 0 && resident() > most)
            most = resident();
    }
    most = most > before ? most - before : 0;
    struct millpond_stats stats = {.size = sizeof stats};
    CHECK(millpond_stats(pond, &stats) == 0);
    printf("resident %zu, peak %zu of %zu\n", most, (size_t)stats.peak, RAM);
    CHECK(most <= RAM + SLACK);
    CHECK(stats.peak <= RAM + SLACK);
    CHECK(most > RAM / 2);
    millpond_region_free(region);
    millpond_close(pond);
    return 0;
}
