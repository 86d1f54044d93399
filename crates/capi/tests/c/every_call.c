/* Every call does what the header says when its arguments are right. */
#include "check.h"
#include <fcntl.h>
#include <unistd.h>

static void figures(millpond *pond) {
    struct millpond_stats stats = {.size = sizeof stats};
    CHECK(millpond_stats(pond, &stats) == 0);
    CHECK(stats.ram == 16 * MIB && stats.peak > 0 && stats.pgfault > 0 && stats.pswpout > 0);
    CHECK(stats.fault_p50_ns <= stats.fault_p99_ns && stats.fault_p99_ns <= stats.fault_max_ns);
    uint64_t value = 0, names = 0;
    CHECK(millpond_counter(pond, "budget_bytes", &value) == 0 && value == 16 * MIB);
    for (const char *name; (name = millpond_counter_name(names)); names++)
        CHECK(millpond_counter(pond, name, &value) == 0);
    CHECK(names > 50);
    uint64_t values[3] = {7, 7, 7};
    CHECK(millpond_counters(pond, values, 2) == 0 && values[0] == 16 * MIB && values[1] > 0 && values[2] == 7);
    CHECK(millpond_counter(pond, "pgfault", &value) == 0 && value >= stats.pgfault);
    CHECK(millpond_counter(pond, "rss_bytes", &value) == 0 && value > 0);
    double share = 7;
    CHECK(millpond_avoided(pond, 16 * MIB, &share) == 0 && share <= 1);
    struct millpond_pressure pressure = {.size = sizeof pressure};
    CHECK(millpond_pressure(pond, NULL, &pressure) == 0 && pressure.some[0] >= pressure.full[0]);
    CHECK(millpond_set_ram(pond, 16 * MIB) == 0);
    CHECK(millpond_quiesce(pond) == 0);
}

/* The calls that do not wait find a range that was just brought in. They do not find one that was paged out until
 * another call has brought it in. */
static void no_wait(millpond_region *region, int in_thread) {
    unsigned char *bytes = millpond_region_data(region), page[PAGE];
    int there = 7;
    millpond_pin *pin = NULL;
    bytes[MIB] = MIB / PAGE % 251;
    CHECK(millpond_region_try_read(region, MIB, page, PAGE, &there) == 0 && there == in_thread);
    CHECK(!there || (page[0] == MIB / PAGE % 251 && page[PAGE - 1] == page[0]));
    CHECK(millpond_region_try_write(region, MIB, page, there ? PAGE : 0, &there) == 0 && there == in_thread);
    CHECK(millpond_region_try_pin(region, MIB, PAGE, &pin, &there) == 0 && there == 1);
    millpond_pin_free(pin);
    CHECK(millpond_region_advise(region, MIB, PAGE, MILLPOND_PAGEOUT) == 0);
    CHECK(millpond_region_try_read(region, MIB, page, PAGE, &there) == 0 && there == 0);
    pin = NULL;
    CHECK(millpond_region_try_pin(region, MIB, PAGE, &pin, &there) == 0 && there == 0 && pin == NULL);
    CHECK(millpond_region_prefetch(region, MIB, PAGE) == 0);
    while (!there)
        CHECK(millpond_region_try_pin(region, MIB, PAGE, &pin, &there) == 0);
    millpond_pin_free(pin);
}

static void contents(millpond *pond, int in_thread) {
    millpond_region *region = small_region(pond, 64 * MIB);
    unsigned char *bytes = millpond_region_data(region);
    CHECK((uintptr_t)bytes % (2 * MIB) == 0);
    for (size_t at = 0; at < 64 * MIB; at += PAGE)
        memset(bytes + at, (int)(at / PAGE % 251), PAGE);
    for (size_t at = 0; at < 64 * MIB; at++)
        CHECK(bytes[at] == at / PAGE % 251);
    figures(pond);

    CHECK(millpond_region_discard(region, PAGE, PAGE) == 0 && bytes[PAGE] == 0 && bytes[2 * PAGE] == 2);
    CHECK(millpond_region_will_overwrite(region, 2 * PAGE, PAGE) == 0);
    for (int advice = MILLPOND_NORMAL; advice <= MILLPOND_PAGEOUT; advice++)
        CHECK(millpond_region_advise(region, 0, 4 * MIB, (enum millpond_advice)advice) == 0);
    CHECK(millpond_region_populate(region, 0, 2 * MIB) == 0);
    no_wait(region, in_thread);
    struct millpond_region_stats where = {.size = sizeof where};
    CHECK(millpond_region_stats(region, &where) == 0);
    CHECK(where.resident >= 2 * MIB && where.swapped > 16 * MIB && where.lost == 0);

    struct millpond_range ranges[] = {{4 * MIB, MIB}, {6 * MIB, PAGE}};
    CHECK(millpond_region_lazy_free(region, ranges, 2) == 0);
    CHECK(millpond_region_lazy_free_shared(region, ranges, 2) == 0);
    CHECK(bytes[6 * MIB] == 0 || bytes[6 * MIB] == 6 * MIB / PAGE % 251);
    int purged = 7;
    CHECK(millpond_region_mark_volatile(region, 8 * MIB, 2 * MIB) == 0);
    CHECK(millpond_region_mark_nonvolatile(region, 8 * MIB, 2 * MIB, &purged) == 0 && (purged == 0 || purged == 1));
    CHECK(bytes[8 * MIB + PAGE] == (purged ? 0 : (8 * MIB + PAGE) / PAGE % 251));
    millpond_region_free(region);
}

static void lengths(millpond *pond) {
    millpond_region *region = small_region(pond, PAGE), *other = small_region(pond, 8 * MIB), *part, *copy;
    unsigned char *bytes = millpond_region_data(region);
    bytes[0] = 7;
    CHECK(millpond_region_grow(region, 8 * MIB) == 0 && millpond_region_size(region) == 8 * MIB);
    bytes = millpond_region_data(region);
    CHECK(bytes[0] == 7 && bytes[8 * MIB - 1] == 0);
    bytes[4 * MIB] = 9;
    CHECK(millpond_region_move(region, 4 * MIB, 4 * MIB, other, 0) == 0);
    CHECK(*(unsigned char *)millpond_region_data(other) == 9 && bytes[4 * MIB] == 0);
    CHECK(millpond_region_split(region, 0, 2 * MIB, 3 * MIB, &part) == 0 && millpond_region_size(part) == 3 * MIB);
    CHECK(*(unsigned char *)millpond_region_data(part) == 7 && bytes[0] == 0);
    CHECK(millpond_region_snapshot(part, &copy) == 0);
    *(unsigned char *)millpond_region_data(part) = 8;
    CHECK(*(unsigned char *)millpond_region_data(copy) == 7);
    CHECK(millpond_region_shrink(region, PAGE) == 0 && millpond_region_size(region) == PAGE);
    millpond_region_free_async(region);
    millpond_region_free(other);
    millpond_region_free_async(part);
    millpond_region_free(copy);
}

static void groups(millpond *pond) {
    struct millpond_limits limits = {.size = sizeof limits, .low = MIB, .max = 4 * MIB};
    millpond_group *scans, *part;
    CHECK(millpond_group_new(pond, NULL, "scans", &limits, &scans) == 0);
    CHECK(millpond_group_new(pond, scans, "part", NULL, &part) == 0);
    millpond_region *region = small_region(pond, 12 * MIB);
    CHECK(millpond_region_set_group(region, scans) == 0);
    memset(millpond_region_data(region), 7, 12 * MIB);
    struct millpond_group_stats stats = {.size = sizeof stats};
    CHECK(millpond_group_stats(scans, &stats) == 0 && stats.usage <= 4 * MIB && stats.stored > 0);
    struct millpond_pressure pressure = {.size = sizeof pressure};
    CHECK(millpond_pressure(pond, scans, &pressure) == 0 && pressure.some_total_us >= pressure.full_total_us);
    limits.max = 8 * MIB;
    CHECK(millpond_group_set_limits(scans, &limits) == 0);
    CHECK(millpond_region_set_group(region, NULL) == 0);
    CHECK(millpond_group_stats(scans, &stats) == 0 && stats.usage == 0);
    CHECK(millpond_group_remove(part) == 0 && millpond_group_remove(scans) == 0);
    millpond_group_free(part);
    millpond_group_free(scans);
    millpond_region_free(region);
}

/* The pond's thread and this thread both read it. */
static _Atomic size_t objects = 100000, scanned;

static size_t count(void *context) {
    CHECK(context == &objects);
    return objects;
}

static size_t scan(void *context, size_t many) {
    CHECK(context == &objects);
    size_t left = objects, freed = many < left ? many : left;
    objects = left - freed;
    scanned += many;
    return freed;
}

static void shrinkers(millpond *pond) {
    millpond_shrinker *shrinker;
    CHECK(millpond_shrinker_new(pond, NULL, count, scan, &objects, &shrinker) == 0);
    millpond_region *region = small_region(pond, 64 * MIB);
    for (int round = 0; round < 1000 && scanned == 0; round++)
        memset(millpond_region_data(region), round, 64 * MIB);
    millpond_shrinker_free(shrinker);
    CHECK(scanned > 0 && objects < 100000);
    millpond_region_free(region);
}

/* A system call may write to pinned memory with either delivery of faults. */
static void pins(millpond *pond) {
    millpond_region *region = small_region(pond, 16 * MIB);
    millpond_pin *pin, *again;
    CHECK(millpond_region_pin(region, 1, 8191, &pin) == 0);
    CHECK(millpond_region_pin(region, 0, PAGE, &again) == 0);
    FILE *zeros = fopen("/dev/zero", "r");
    unsigned char *bytes = millpond_region_data(region);
    memset(bytes, 7, 8192);
    CHECK(zeros && setvbuf(zeros, NULL, _IONBF, 0) == 0 && fread(bytes, 1, 8192, zeros) == 8192);
    CHECK(bytes[0] == 0 && bytes[8191] == 0);
    fclose(zeros);
    REFUSED(millpond_region_discard(region, 0, 8192), MILLPOND_PINNED, "offset 0 is pinned");
    millpond_pin_free(again);
    REFUSED(millpond_region_discard(region, 0, 8192), MILLPOND_PINNED, "offset 0 is pinned");
    /* The region ends with its last pin. */
    bytes[1] = 7;
    millpond_region_free(region);
    CHECK(bytes[1] == 7);
    millpond_pin_free(pin);
}

/* A shared file that grows beyond the budget keeps what was written to it before and afterwards. */
static void growth(millpond *pond, const char *path, int descriptor) {
    const size_t from = 10, first = 3 * PAGE, all = 24 * MIB;
    unsigned char read[2] = {0};
    millpond_file *file = NULL;
    CHECK(ftruncate(descriptor, 0) == 0);
    CHECK(millpond_map_file(pond, path, from, first, MILLPOND_FILE_SHARED, &file) == 0);
    memset(millpond_file_data(file), 5, first);
    CHECK(millpond_file_grow(file, all) == 0);
    CHECK(millpond_file_size(file) == all && lseek(descriptor, 0, SEEK_END) == (off_t)(from + all));
    unsigned char *bytes = millpond_file_data(file);
    for (size_t at = 0; at < all; at += PAGE)
        CHECK(bytes[at] == (at < first ? 5 : 0));
    memset(bytes + first, 6, all - first);
    /* A mapping that is already that long stays where it is. */
    CHECK(millpond_file_grow(file, PAGE) == 0 && millpond_file_data(file) == bytes);
    CHECK(millpond_file_sync(file, 0, all) == 0);
    CHECK(pread(descriptor, read, 2, (off_t)(from + first - 1)) == 2 && read[0] == 5 && read[1] == 6);
    CHECK(pread(descriptor, read, 2, (off_t)(from + all - 1)) == 1 && read[0] == 6);
    millpond_file_free(file);
}

/* A file of four pages, only a part of which is mapped. */
static void files(millpond *pond) {
    char path[] = "/tmp/millpond-file-XXXXXX";
    int descriptor = mkstemp(path);
    CHECK(descriptor >= 0);
    unsigned char written[4 * PAGE], read[PAGE];
    for (size_t at = 0; at < sizeof written; at++)
        written[at] = (unsigned char)(at / 1000 + 1);
    CHECK(write(descriptor, written, sizeof written) == (ssize_t)sizeof written);
    millpond_file *file = NULL;
    CHECK(millpond_map_file(pond, path, 100, 0, MILLPOND_FILE_READ, &file) == 0);
    CHECK(millpond_file_size(file) == sizeof written - 100);
    CHECK(memcmp(millpond_file_data(file), written + 100, sizeof written - 100) == 0);
    CHECK(millpond_file_advise(file, 0, PAGE, MILLPOND_PAGEOUT) == 0);
    CHECK(millpond_file_read(file, 5000, read, PAGE) == 0 && memcmp(read, written + 5100, PAGE) == 0);
    CHECK(millpond_file_read(file, sizeof written - 100, read, 1) == MILLPOND_INVALID);
    CHECK(ftruncate(descriptor, PAGE) == 0);
    millpond_file_free(file);
    CHECK(millpond_map_file(pond, path, 0, PAGE + 1, MILLPOND_FILE_READ, &file) == MILLPOND_INVALID);
    CHECK(millpond_map_file(pond, path, 0, PAGE, 7, &file) == MILLPOND_INVALID);
    CHECK(millpond_map_file(pond, "/nowhere/at/all", 0, 0, MILLPOND_FILE_READ, &file) == MILLPOND_SYSTEM);
    CHECK(strstr(millpond_error(), "/nowhere/at/all"));
    CHECK(millpond_map_file(pond, path, 0, PAGE, MILLPOND_FILE_PRIVATE, &file) == 0);
    unsigned char *bytes = millpond_file_data(file);
    bytes[7] = 200;
    CHECK(millpond_file_read(file, 7, read, 1) == 0 && read[0] == 200);
    CHECK(pread(descriptor, read, 1, 7) == 1 && read[0] == written[7]);
    CHECK(millpond_file_grow(file, 2 * PAGE) == MILLPOND_INVALID && strstr(millpond_error(), "only a shared region"));
    CHECK(ftruncate(descriptor, 0) == 0);
    CHECK(millpond_file_advise(file, 0, PAGE, MILLPOND_PAGEOUT) == 0 && bytes[7] == 200);
    millpond_file_free(file);
    millpond_file_free(NULL);
    CHECK(millpond_map_file(pond, path, 10, PAGE, MILLPOND_FILE_SHARED, &file) == 0);
    bytes = millpond_file_data(file);
    memset(bytes, 9, PAGE);
    CHECK(millpond_file_sync(file, 0, PAGE) == 0);
    CHECK(pread(descriptor, read, PAGE, 10) == PAGE && memcmp(read, bytes, PAGE) == 0);
    CHECK(millpond_file_sync(file, PAGE, 1) == MILLPOND_INVALID);
    millpond_file_free(file);
    growth(pond, path, descriptor);
    CHECK(unlink(path) == 0 && close(descriptor) == 0);
}

int main(void) {
    const char *deliveries[] = {"in-thread", "handler"};
    for (int n = 0; n < 2; n++) {
        millpond *pond = small_pond(deliveries[n]);
        scanned = 0;
        objects = 100000;
        contents(pond, n == 0);
        lengths(pond);
        groups(pond);
        shrinkers(pond);
        pins(pond);
        files(pond);
        /* Regions outlive their pond's handle. */
        millpond_region *region = small_region(pond, 32 * MIB);
        millpond_close(pond);
        memset(millpond_region_data(region), 7, 32 * MIB);
        CHECK(((unsigned char *)millpond_region_data(region))[32 * MIB - 1] == 7);
        millpond_region_free(region);
    }
    int major, minor, patch;
    CHECK(sscanf(millpond_version(), "%d.%d.%d", &major, &minor, &patch) == 3);
    CHECK(major == MILLPOND_VERSION_MAJOR && minor == MILLPOND_VERSION_MINOR && patch == MILLPOND_VERSION_PATCH);
    return 0;
}
