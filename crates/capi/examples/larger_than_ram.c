/*
 * Computes a sum over 256 MiB in a budget of 64 MiB, and prints how much memory that took.
 *
 *     crates/capi/install "$HOME/.local"
 *     export PKG_CONFIG_PATH="$HOME/.local/lib/pkgconfig"
 *     cc crates/capi/examples/larger_than_ram.c -o larger_than_ram $(pkg-config --cflags --libs millpond)
 *     LD_LIBRARY_PATH="$HOME/.local/lib" ./larger_than_ram
 */
#include <err.h>
#include <millpond.h>
#include <stdio.h>

#define MIB (1ull << 20)

int main(void) {
    struct millpond_options options = {
        .size = sizeof options,
        .ram = 64 * MIB,
        .store = "auto",
        .order = "adaptive",
        .publish = "larger_than_ram",
    };
    millpond *pond;
    millpond_region *region;
    if (millpond_open(&options, &pond) || millpond_region_new(pond, 256 * MIB, NULL, &region))
        errx(1, "%s", millpond_error());

    uint64_t *numbers = millpond_region_data(region);
    size_t count = millpond_region_size(region) / sizeof *numbers;
    for (size_t n = 0; n < count; n++)
        numbers[n] = n;
    uint64_t sum = 0;
    for (size_t n = 0; n < count; n++)
        sum += numbers[n];

    struct millpond_stats stats = {.size = sizeof stats};
    if (millpond_stats(pond, &stats))
        errx(1, "%s", millpond_error());
    printf("the sum of the first %zu numbers is %llu\n", count, (unsigned long long)sum);
    printf("at most %.1f MiB in RAM, of a budget of %.1f; %llu pages went to the store and %llu came back\n",
           stats.peak / (double)MIB, stats.ram / (double)MIB, (unsigned long long)stats.pswpout,
           (unsigned long long)stats.pswpin);
    millpond_region_free(region);
    millpond_close(pond);
    return sum != (uint64_t)count * (count - 1) / 2;
}
