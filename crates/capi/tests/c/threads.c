/*
 * Threads concurrently write and read one region, pin parts of it, free other parts lazily, and take snapshots of
 * another region. Each word has its own place as its value, so a page that is lost, invented or in the wrong place is
 * detected. Then they read a mapped file through calls, while it grows and moves.
 */
#include "check.h"
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#define THREADS 4
#define PART (12 * MIB)

static millpond *pond;
static millpond_region *all, *other;

static void *work(void *number) {
    size_t start = (size_t)number * PART;
    uint64_t *words = (uint64_t *)((char *)millpond_region_data(all) + start);
    size_t count = PART / sizeof *words;
    for (uint64_t round = 1; round < 6; round++) {
        for (size_t n = 0; n < count; n++)
            words[n] = n * 8 + round;
        millpond_pin *pin;
        CHECK(millpond_region_pin(all, start, 64 * PAGE, &pin) == 0);
        for (size_t n = 0; n < count; n++)
            CHECK(words[n] == n * 8 + round);
        millpond_pin_free(pin);
        struct millpond_range half = {start + PART / 2, PART / 2};
        CHECK(millpond_region_lazy_free_shared(all, &half, 1) == 0);
        for (size_t n = count / 2; n < count; n++)
            CHECK(words[n] == n * 8 + round || words[n] == 0);
        CHECK(millpond_region_advise(all, start, PART / 4, MILLPOND_PAGEOUT) == 0);
        for (size_t n = 0; n < count / 2; n++)
            CHECK(words[n] == n * 8 + round);
        millpond_region *copy;
        CHECK(millpond_region_snapshot(other, &copy) == 0);
        CHECK(*(uint64_t *)millpond_region_data(copy) == 77);
        millpond_region_free(copy);
    }
    return NULL;
}

static millpond_file *file;
static atomic_int grown;

static void *read_file(void *unused) {
    unsigned char bytes[3 * PAGE];
    do {
        CHECK(millpond_file_read(file, PAGE - 10, bytes, sizeof bytes) == 0);
        for (size_t at = 0; at < sizeof bytes; at++)
            CHECK(bytes[at] == 3);
        CHECK(millpond_file_size(file) >= 4 * PAGE && millpond_file_sync(file, 0, PAGE) == 0);
    } while (!atomic_load(&grown));
    return unused;
}

/* A growth ends the mapping that it replaces: a call still using the old one would read memory that is gone. */
static void growth(void) {
    char path[] = "/tmp/millpond-file-XXXXXX";
    int descriptor = mkstemp(path);
    CHECK(descriptor >= 0 && unlink(path) == 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", descriptor);
    CHECK(millpond_map_file(pond, path, 0, 4 * PAGE, MILLPOND_FILE_SHARED, &file) == 0);
    memset(millpond_file_data(file), 3, 4 * PAGE);
    atomic_store(&grown, 0);
    pthread_t threads[THREADS];
    for (size_t thread = 0; thread < THREADS; thread++)
        CHECK(pthread_create(&threads[thread], NULL, read_file, NULL) == 0);
    for (size_t pages = 5; pages < 60; pages++)
        CHECK(millpond_file_grow(file, pages * PAGE) == 0);
    atomic_store(&grown, 1);
    for (size_t thread = 0; thread < THREADS; thread++)
        CHECK(pthread_join(threads[thread], NULL) == 0);
    millpond_file_free(file);
    CHECK(close(descriptor) == 0);
}

int main(void) {
    const char *deliveries[] = {"in-thread", "handler"};
    for (int n = 0; n < 2; n++) {
        pond = small_pond(deliveries[n]);
        all = small_region(pond, THREADS * PART);
        other = small_region(pond, MIB);
        *(uint64_t *)millpond_region_data(other) = 77;
        pthread_t threads[THREADS];
        for (size_t thread = 0; thread < THREADS; thread++)
            CHECK(pthread_create(&threads[thread], NULL, work, (void *)thread) == 0);
        for (size_t thread = 0; thread < THREADS; thread++)
            CHECK(pthread_join(threads[thread], NULL) == 0);
        millpond_region_free(all);
        millpond_region_free(other);
        growth();
        millpond_close(pond);
    }
    return 0;
}
