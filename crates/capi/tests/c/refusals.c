/* A wrong argument is refused with a status and a message, and no data is lost. */
#include "check.h"

static void options(void) {
    millpond *pond = NULL;
    struct millpond_options options = {.size = sizeof options};
    REFUSED(millpond_open(NULL, &pond), MILLPOND_INVALID, "null was passed for a struct millpond_options");
    REFUSED(millpond_open(&options, &pond), MILLPOND_INVALID, "set .ram");
    options.ram = MIB;
    REFUSED(millpond_open(&options, &pond), MILLPOND_INVALID, "1048576 bytes is below the minimum");
    options.ram = 16 * MIB;
    REFUSED(millpond_open(&options, NULL), MILLPOND_INVALID, "where the pond goes");
    options.size = 0;
    REFUSED(millpond_open(&options, &pond), MILLPOND_INVALID, "set its .size to sizeof");
    options.size = sizeof options;
    options.store = "tape";
    REFUSED(millpond_open(&options, &pond), MILLPOND_INVALID, "`tape` is no store");
    options.store = "auto";
    options.store_max = MIB;
    REFUSED(millpond_open(&options, &pond), MILLPOND_INVALID, "takes no .store_max");
    options.store_max = 0;
    options.store = "file:/nowhere/at/all";
    REFUSED(millpond_open(&options, &pond), MILLPOND_STORE, "/nowhere/at");
    options.store = NULL;
    options.store_file = 4 * MIB;
    REFUSED(millpond_open(&options, &pond), MILLPOND_INVALID, "for the file of auto,URL");
    options.store = "auto";
    options.store_file = 0;
    options.store_directory = "/var/tmp";
    REFUSED(millpond_open(&options, &pond), MILLPOND_INVALID, "for the file of auto,URL");
    options.store_directory = NULL;
    options.store = "s3://user:hunter2@bucket/prefix";
    REFUSED(millpond_open(&options, &pond), MILLPOND_INVALID, "write auto,URL");
    CHECK(!strstr(millpond_error(), "hunter2"));
    options.store = "tape,s3://bucket/prefix";
    REFUSED(millpond_open(&options, &pond), MILLPOND_INVALID, "`tape` is no store that a URL");
    options.store = "zram,s3://bucket/prefix";
    options.store_file = 4 * MIB;
    REFUSED(millpond_open(&options, &pond), MILLPOND_INVALID, "`zram,URL` has no file");
    options.store_file = 0;
    options.store = "\xff";
    REFUSED(millpond_open(&options, &pond), MILLPOND_INVALID, "is not UTF-8");
    options.store = NULL;
    options.order = "10";
    REFUSED(millpond_open(&options, &pond), MILLPOND_INVALID, "10");
    options.order = NULL;
    options.delivery = "by hand";
    REFUSED(millpond_open(&options, &pond), MILLPOND_INVALID, "`by hand` is no delivery");
    options.delivery = NULL;
    options.flags = 1u << 31;
    REFUSED(millpond_open(&options, &pond), MILLPOND_INVALID, "0x80000000 is no flag");
    options.flags = MILLPOND_BACKGROUND_ALWAYS | MILLPOND_BACKGROUND_NEVER;
    REFUSED(millpond_open(&options, &pond), MILLPOND_INVALID, "always and never");
    CHECK(pond == NULL);
}

static void ranges(millpond *pond) {
    millpond_region *region = small_region(pond, 4 * MIB), *other = NULL;
    unsigned char *bytes = millpond_region_data(region);
    memset(bytes, 7, 4 * MIB);
    millpond_pin *pin = NULL;
    int purged = 7;
    struct millpond_range odd = {1, PAGE}, beyond = {4 * MIB, PAGE};
    REFUSED(millpond_region_discard(region, 1, PAGE), MILLPOND_UNALIGNED, "multiples of 4096");
    REFUSED(millpond_region_discard(region, PAGE, (size_t)-1), MILLPOND_INVALID, "not within the region's 4194304");
    REFUSED(millpond_region_discard(region, PAGE, 0), MILLPOND_INVALID, "empty");
    REFUSED(millpond_region_will_overwrite(region, 0, 8 * MIB), MILLPOND_INVALID, "not within");
    REFUSED(millpond_region_populate(region, 4 * MIB, 1), MILLPOND_INVALID, "not within");
    REFUSED(millpond_region_advise(region, 0, 8 * MIB, MILLPOND_COLD), MILLPOND_INVALID, "not within");
    REFUSED(millpond_region_advise(region, 0, MIB, (enum millpond_advice)6), MILLPOND_INVALID, "6 is no advice");
    REFUSED(millpond_region_pin(region, 0, 8 * MIB, &pin), MILLPOND_INVALID, "not within");
    REFUSED(millpond_region_try_pin(region, 0, 8 * MIB, &pin, &purged), MILLPOND_INVALID, "not within");
    REFUSED(millpond_region_try_pin(region, 0, PAGE, &pin, NULL), MILLPOND_INVALID, "`there`");
    REFUSED(millpond_region_try_read(region, 4 * MIB - 1, bytes, 2, &purged), MILLPOND_INVALID, "not within");
    REFUSED(millpond_region_try_read(region, 0, NULL, 2, &purged), MILLPOND_INVALID, "a buffer");
    REFUSED(millpond_region_try_write(region, (size_t)-1, bytes, 2, &purged), MILLPOND_INVALID, "not within");
    REFUSED(millpond_region_prefetch(region, 0, 8 * MIB), MILLPOND_INVALID, "not within");
    REFUSED(millpond_region_pin(region, 0, PAGE, NULL), MILLPOND_INVALID, "where the pin goes");
    REFUSED(millpond_region_lazy_free(region, &odd, 1), MILLPOND_UNALIGNED, "multiples of 4096");
    REFUSED(millpond_region_lazy_free_shared(region, &beyond, 1), MILLPOND_INVALID, "not within");
    REFUSED(millpond_region_lazy_free(region, NULL, 1), MILLPOND_INVALID, "null was passed for ranges");
    REFUSED(millpond_region_mark_nonvolatile(region, 0, PAGE, &purged), MILLPOND_VOLATILE, "was not marked");
    REFUSED(millpond_region_mark_nonvolatile(region, 0, PAGE, NULL), MILLPOND_INVALID, "null was passed");
    CHECK(millpond_region_mark_volatile(region, 0, PAGE) == 0);
    REFUSED(millpond_region_mark_volatile(region, 0, PAGE), MILLPOND_VOLATILE, "volatile already");
    CHECK(millpond_region_mark_nonvolatile(region, 0, PAGE, &purged) == 0 && purged == 0);
    REFUSED(millpond_region_grow(region, PAGE), MILLPOND_INVALID, "not within");
    REFUSED(millpond_region_grow(region, (size_t)1 << 45), MILLPOND_NO_ADDRESSES, "address space");
    REFUSED(millpond_region_shrink(region, 0), MILLPOND_INVALID, "empty");
    REFUSED(millpond_region_move(region, 0, PAGE, region, 0), MILLPOND_INVALID, "into itself");
    REFUSED(millpond_region_split(region, 0, 2 * PAGE, PAGE, &other), MILLPOND_INVALID, "0..8192");
    REFUSED(millpond_region_snapshot(region, NULL), MILLPOND_INVALID, "where the region goes");
    REFUSED(millpond_region_new(pond, 0, NULL, &other), MILLPOND_INVALID, "0 bytes");
    REFUSED(millpond_region_new(pond, PAGE, "large", &other), MILLPOND_INVALID, "large");
    REFUSED(millpond_region_new(pond, (size_t)1 << 43, NULL, &other), MILLPOND_NO_ADDRESSES, "address space");
    CHECK(pin == NULL && other == NULL && purged == 0);
    for (size_t at = 0; at < 4 * MIB; at++)
        CHECK(bytes[at] == 7);
    millpond_region_free(region);
    region = small_region(pond, 32 * MIB);
    REFUSED(millpond_region_pin(region, 0, 32 * MIB, &pin), MILLPOND_OVER_BUDGET, "pin less");
    millpond_region_free(region);
}

static void others(millpond *pond) {
    millpond *second = small_pond(NULL);
    millpond_region *region = small_region(pond, MIB), *other = small_region(second, MIB);
    millpond_group *group, *taken = NULL;
    millpond_shrinker *shrinker = NULL;
    struct millpond_limits limits = {.size = sizeof limits, .low = 8 * MIB, .max = 4 * MIB};
    struct millpond_stats stats = {.size = 8};
    uint64_t value = 7;
    REFUSED(millpond_region_move(region, 0, MIB, other, 0), MILLPOND_OTHER_POND, "different managers");
    CHECK(millpond_group_new(pond, NULL, "a", NULL, &group) == 0);
    REFUSED(millpond_group_new(pond, NULL, "a", NULL, &taken), MILLPOND_BUSY, "\"a\" already");
    REFUSED(millpond_group_new(pond, NULL, "b/c", NULL, &taken), MILLPOND_INVALID, "slash");
    REFUSED(millpond_group_new(pond, NULL, NULL, NULL, &taken), MILLPOND_INVALID, "must not be empty");
    REFUSED(millpond_group_new(pond, NULL, "b", &limits, &taken), MILLPOND_INVALID, "8388608");
    REFUSED(millpond_region_set_group(other, group), MILLPOND_OTHER_POND, "another manager");
    REFUSED(millpond_shrinker_new(pond, group, NULL, NULL, NULL, &shrinker), MILLPOND_INVALID, "`count` or `scan`");
    CHECK(millpond_group_remove(group) == 0);
    REFUSED(millpond_group_remove(group), MILLPOND_REMOVED, "removed");
    REFUSED(millpond_region_set_group(region, group), MILLPOND_REMOVED, "removed");
    millpond_group_free(group);
    REFUSED(millpond_stats(pond, &stats), MILLPOND_INVALID, "struct millpond_stats of 8 bytes");
    REFUSED(millpond_stats(NULL, &stats), MILLPOND_INVALID, "null was passed for a pond");
    REFUSED(millpond_counter(pond, "pgmagic", &value), MILLPOND_INVALID, "`pgmagic` is no counter");
    REFUSED(millpond_counter(pond, "budget_bytes", NULL), MILLPOND_INVALID, "where the value goes");
    REFUSED(millpond_counters(pond, NULL, 1), MILLPOND_INVALID, "where the values go");
    REFUSED(millpond_avoided(pond, 0, NULL), MILLPOND_INVALID, "where the share goes");
    REFUSED(millpond_set_ram(pond, 1), MILLPOND_INVALID, "1 bytes");
    REFUSED(millpond_quiesce(NULL), MILLPOND_INVALID, "null was passed for a pond");
    REFUSED(millpond_region_grow(NULL, 1), MILLPOND_INVALID, "null was passed for a region");
    REFUSED(millpond_file_grow(NULL, 1), MILLPOND_INVALID, "null was passed for a file");
    REFUSED(millpond_group_stats(NULL, NULL), MILLPOND_INVALID, "null was passed for a group");
    CHECK(value == 7 && millpond_region_data(NULL) == NULL && millpond_region_size(NULL) == 0);
    millpond_region_free(region);
    millpond_region_free(other);
    millpond_close(second);
}

int main(void) {
    /* Freeing null does nothing. */
    millpond_region_free(NULL);
    millpond_region_free_async(NULL);
    millpond_pin_free(NULL);
    millpond_group_free(NULL);
    millpond_shrinker_free(NULL);
    millpond_close(NULL);
    CHECK(strcmp(millpond_error(), "") == 0);
    options();
    millpond *pond = small_pond(NULL);
    ranges(pond);
    others(pond);
    millpond_close(pond);
    return 0;
}
