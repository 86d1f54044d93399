/*
 * Uses a region of two budgets under valgrind's memcheck, which finds nothing wrong:
 *
 *     cc -g crates/capi/examples/under_valgrind.c -o under_valgrind $(pkg-config --cflags --libs millpond)
 *     valgrind --vex-iropt-register-updates=allregs-at-mem-access --leak-check=full \
 *         --suppressions="$HOME/.local/share/millpond/millpond.supp" ./under_valgrind
 *
 * The first option is necessary: a fault can stop the program at any load or store, which then continues with the
 * registers that it had. valgrind does not keep these up to date otherwise. valgrind does not support userfaultfd, so
 * pages are closed by their protection (a line about system call 323 says so). It also has few addresses, so the pond
 * must ask for fewer than the usual 64 GiB. All of a region counts as initialized, so valgrind does not detect uses
 * of bytes that were never written.
 */
#include <err.h>
#include <fcntl.h>
#include <millpond.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define MIB (1ull << 20)

static void check(int status) {
    if (status)
        errx(1, "%s", millpond_error());
}

int main(void) {
    struct millpond_options options = {.size = sizeof options, .ram = 16 * MIB, .address_space = 128 * MIB};
    millpond *pond;
    millpond_region *region;
    check(millpond_open(&options, &pond));
    check(millpond_region_new(pond, 32 * MIB, NULL, &region));

    uint64_t *numbers = millpond_region_data(region);
    size_t count = millpond_region_size(region) / sizeof *numbers;
    for (size_t n = 0; n < count; n++)
        numbers[n] = n;
    uint64_t sum = 0;
    for (size_t n = 0; n < count; n++)
        sum += numbers[n];

    /* Memory that is passed to a system call is pinned. */
    millpond_pin *pin;
    check(millpond_region_pin(region, 0, 4096, &pin));
    int zeros = open("/dev/zero", O_RDONLY);
    if (zeros < 0 || read(zeros, numbers, 4096) != 4096)
        err(1, "/dev/zero");
    close(zeros);
    millpond_pin_free(pin);
    check(millpond_region_discard(region, MIB, MIB));

    struct millpond_stats stats = {.size = sizeof stats};
    check(millpond_stats(pond, &stats));
    printf("the sum is %llu; %llu pages went to the store\n", (unsigned long long)sum,
           (unsigned long long)stats.pswpout);
    int right = sum == (uint64_t)count * (count - 1) / 2 && stats.pswpout > 0;
    right = right && numbers[0] == 0 && numbers[MIB / 8] == 0 && numbers[4 * MIB / 8] == 4 * MIB / 8;
    millpond_region_free(region);
    millpond_close(pond);
    return right ? EXIT_SUCCESS : EXIT_FAILURE;
}
