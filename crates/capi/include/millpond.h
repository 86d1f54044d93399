/*
 * Millpond: Linux memory management for one process.
 *
 * A pond has a RAM budget and a store. Its regions are ordinary memory to the program. Pages that do not fit into the
 * budget go to the store, and come back when the program touches them.
 *
 *     struct millpond_options options = { .size = sizeof options, .ram = 1ull << 30 };
 *     millpond *pond;
 *     millpond_region *region;
 *     if (millpond_open(&options, &pond) || millpond_region_new(pond, 8ull << 30, NULL, &region))
 *         errx(1, "%s", millpond_error());
 *     uint64_t *numbers = millpond_region_data(region);
 *     numbers[1 << 29] = 7;                                  // a plain store
 *     millpond_region_free(region);
 *     millpond_close(pond);
 *
 * Link with -lmillpond. `pkg-config --cflags --libs millpond` prints the compiler's and the linker's options.
 *
 * Conventions
 * - A call that can fail returns 0 when it succeeds, and one of the statuses below when it fails. After a failure
 *   `millpond_error` has a message that names the refused value and a remedy. The call writes its results, such as a
 *   handle, only when it returns 0.
 * - Sizes, offsets and lengths are in bytes. A range is given by its offset and its length. Some calls need a
 *   page-aligned range, and say so: the offset and the length are multiples of 4096. A page-aligned range may also end
 *   where the region ends.
 * - Structures that a caller passes begin with their own size, so that a program built with an older header continues
 *   to work. Set `size`, and leave fields that you do not need zero.
 * - Handles belong to the caller until it frees them. All calls may be made from any thread, but none from a signal
 *   handler. Calls on one region wait for each other where necessary. They do not order the accesses of other threads
 *   to the region's *bytes*: that is up to the caller, and the comment on each call says which accesses must not
 *   overlap it.
 * - The faulting thread resolves its fault, in a SIGBUS handler. So threads that touch a region must leave SIGBUS
 *   unblocked, and memory that is passed to a system call must be pinned, or the call fails with EFAULT. The program
 *   must not replace that handler later. If the program had a SIGBUS handler before, Millpond's calls it for signals
 *   that do not concern a region. With `.delivery = "handler"` a thread of the pond resolves faults instead: each
 *   fault takes longer, and none of these requirements applies.
 * - A child of fork() cannot use its parent's pond. Calls on it return MILLPOND_FORKED, freeing a handle leaves the
 *   parent's memory unchanged, and an access to a region ends the child by SIGABRT with a line on standard error. The
 *   child may open its own pond.
 * - valgrind needs --vex-iropt-register-updates=allregs-at-mem-access, and a pond with a small `.address_space`, such
 *   as 1 GiB. examples/under_valgrind.c explains why, and share/millpond/millpond.supp lists what to suppress.
 * - If the store cannot give a page back, the page is lost, and an access to it raises SIGBUS. A lost page never reads
 *   as zeros. `millpond_region_populate` reports lost pages by its status instead.
 */
#ifndef MILLPOND_H
#define MILLPOND_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MILLPOND_VERSION_MAJOR 0
#define MILLPOND_VERSION_MINOR 1
#define MILLPOND_VERSION_PATCH 0

/* The statuses that a call can return. */
enum millpond_status {
    MILLPOND_OK = 0,
    /* An argument is not allowed: a null pointer, a range outside of its region, or an unknown word. */
    MILLPOND_INVALID = 1,
    /* A range is not page-aligned. */
    MILLPOND_UNALIGNED = 2,
    /* A page of the range is pinned. */
    MILLPOND_PINNED = 3,
    /* A page of the range is lost: the store could not give it back. Discard it to use it again. */
    MILLPOND_LOST = 4,
    /* No addresses are left: open the pond with a larger .address_space. */
    MILLPOND_NO_ADDRESSES = 5,
    /* The call needs more memory than the budget allows. */
    MILLPOND_OVER_BUDGET = 6,
    /* The system refused memory, a thread, or a permission. */
    MILLPOND_SYSTEM = 7,
    /* The store cannot be opened, or this library was built without such stores. */
    MILLPOND_STORE = 8,
    /* A volatile range overlaps the range, or the range was not marked as volatile. */
    MILLPOND_VOLATILE = 9,
    /* A name is taken, or something else uses the object. */
    MILLPOND_BUSY = 10,
    /* The group was removed. */
    MILLPOND_REMOVED = 11,
    /* The handles belong to two different ponds. */
    MILLPOND_OTHER_POND = 12,
    /* The pond was opened by a parent of this process. */
    MILLPOND_FORKED = 13
};

/*
 * The message of the last call that failed in this thread. It is empty while no call of the thread has failed, and
 * valid until the thread's next call.
 */
const char *millpond_error(void);

/* The version of the loaded library, as "major.minor.patch". */
const char *millpond_version(void);

typedef struct millpond millpond;
typedef struct millpond_region millpond_region;
typedef struct millpond_file millpond_file;
typedef struct millpond_group millpond_group;
typedef struct millpond_pin millpond_pin;
typedef struct millpond_shrinker millpond_shrinker;

/* ------------------------------------------------------------------------------------------------------- ponds */

enum millpond_flag {
    /* The store's RAM is not charged to the budget. Linux does not charge zram's RAM to the memory cgroup either. */
    MILLPOND_STORE_OUTSIDE_BUDGET = 1 << 0,
    /* The budget covers all resident memory of the process, whether it is managed or not. */
    MILLPOND_COVER_PROCESS = 1 << 1,
    /* A full or failing store aborts the process. Without this flag the budget is exceeded, and no data is lost. */
    MILLPOND_ABORT_WHEN_FULL = 1 << 2,
    /*
     * A thread always reclaims memory ahead of need, or never. Without either flag it does so where that helps. The
     * two flags exclude each other.
     */
    MILLPOND_BACKGROUND_ALWAYS = 1 << 3,
    MILLPOND_BACKGROUND_NEVER = 1 << 4,
    /* Data in a file is encrypted (AES-256-XTS). The key exists only in this process's memory. */
    MILLPOND_ENCRYPT = 1 << 5
};

struct millpond_options {
    size_t size;            /* the size of this structure */
    uint64_t ram;           /* the budget, at least 16 MiB */
    const char *store;      /* "zram" is compressed RAM; "file" and "file:PATH" are a file; "auto" is compressed RAM
                               first and then a file; "none" is no store. Null means "auto". If no file can be made in
                               TMPDIR, "auto" is the same as "zram", and a line on standard error says so. With
                               "auto,URL" and "zram,URL", what these do not hold goes on to objects beyond the
                               machine, in libraries that are built with that feature. The URL is
                               "s3://BUCKET/PREFIX?region=NAME", "redis://HOST:PORT/DB" or "fs:///DIRECTORY".
                               Credentials come from the environment. docs/remote.md has the rest */
    uint64_t store_max;     /* the most bytes that "zram" or "file", or the objects at a URL, may take; 0 means that
                               the library chooses, or no limit in the case of objects. If `store` is null, a limit
                               selects "zram" */
    const char *order;      /* a folio has 2^order pages: "0" to "9", "adaptive" or "adaptive:9"; null means
                               "adaptive" */
    const char *delivery;   /* which thread resolves a fault: "in-thread" or "handler"; null means "in-thread" */
    uint64_t address_space; /* how many addresses to reserve; 0 means 16 times the budget, and at least 64 GiB */
    uint64_t lazyfree_max;  /* the most lazily freed bytes that stay in RAM; 0 means no separate limit */
    const char *publish;    /* the name under which `millpond stat` shows the pond; null means it is not shown */
    uint32_t flags;         /* values of enum millpond_flag, joined by `|` */
    const char *store_directory; /* the directory of the file of "auto,URL"; null means TMPDIR, or /var/tmp */
    uint64_t store_file;    /* the most bytes of that file, at least 4 MiB; 0 means half of what is free there */
};

/* Opens a pond: reserves addresses, opens the store and starts the pond's threads. */
int millpond_open(const struct millpond_options *options, millpond **pond);

/* Frees the handle. The pond ends when all its regions, pins, groups and shrinkers are freed too. Null is allowed. */
void millpond_close(millpond *pond);

/* Changes the budget, up to the one that the pond was opened with. A lower budget holds when the call returns. */
int millpond_set_ram(millpond *pond, uint64_t bytes);

/* Waits until all memory that is being freed in the background has gone back to the kernel. */
int millpond_quiesce(millpond *pond);

/*
 * The most wanted figures of a pond. `ram` to `peak` are in bytes, `pgfault` to `store_failures` are counts, and the
 * last three are in nanoseconds. `millpond_counter` has all other figures.
 */
struct millpond_stats {
    size_t size;              /* the size of this structure, set by the caller */
    uint64_t ram;             /* the budget */
    uint64_t resident;        /* memory that is mapped and in use */
    uint64_t limbo;           /* pages that are unmapped and still in RAM; an access maps them again */
    uint64_t lazyfree;        /* pages in RAM that were lazily freed and not used since */
    uint64_t stored;          /* data in the store, before compression */
    uint64_t store_bytes;     /* memory that the data in the store takes, in RAM and on a device */
    uint64_t store_ram;       /* RAM that the store takes */
    uint64_t metadata;        /* the pond's own tables */
    uint64_t peak;            /* the most memory that was charged to the budget at one time */
    uint64_t pgfault;         /* faults */
    uint64_t pgmajfault;      /* faults that read from the store, or from a file */
    uint64_t pswpin;          /* pages that were read from the store */
    uint64_t pswpout;         /* pages that were written to the store */
    uint64_t store_failures;  /* how often the store was found full or failing */
    uint64_t fault_p50_ns;    /* half of the faults took less time than this */
    uint64_t fault_p99_ns;    /* 99 of 100 faults took less time than this */
    uint64_t fault_max_ns;    /* no fault took longer than this */
};

int millpond_stats(millpond *pond, struct millpond_stats *stats);

/* Reads one counter by the name that `millpond stat` prints, such as "workingset_refault_anon" or "pgscan_kswapd". */
int millpond_counter(millpond *pond, const char *name, uint64_t *value);

/* Returns the name of counter number `index`, counting from 0, or null for an index after the last counter. */
const char *millpond_counter_name(size_t index);

/* Reads the first `count` counters at one point in time, in the order of `millpond_counter_name`. */
int millpond_counters(millpond *pond, uint64_t *values, size_t count);

/*
 * Estimates the fraction of the major faults so far, 0 to 1, that would not have happened with a budget larger by
 * `more` bytes. The result is below 0 while there have been too few major faults to tell.
 */
int millpond_avoided(millpond *pond, uint64_t more, double *share);

/* ----------------------------------------------------------------------------------------------------- regions */

/*
 * Makes a region of `len` bytes of zeros, aligned to 2 MiB. `order` is as in the options; null means the pond's order.
 * The region's address never changes, unless the region grows.
 */
int millpond_region_new(millpond *pond, size_t len, const char *order, millpond_region **region);

/*
 * Return the address of the region's first byte, and the region's length: null and 0 if the region is null, and in a
 * forked child.
 */
void *millpond_region_data(const millpond_region *region);
size_t millpond_region_size(const millpond_region *region);

/*
 * Frees the handle. The region ends now, or with its last pin. With `_async` the addresses are free at once, and the
 * memory is freed in the background, however large the region is. No thread may access the bytes any more. Null is
 * allowed.
 */
void millpond_region_free(millpond_region *region);
void millpond_region_free_async(millpond_region *region);

/*
 * How many bytes of a region are in each place. `millpond_region_stats` takes time in proportion to the region's
 * length.
 */
struct millpond_region_stats {
    size_t size;        /* the size of this structure, set by the caller */
    uint64_t resident;  /* pages that are mapped */
    uint64_t limbo;     /* pages that are unmapped and still in RAM; an access maps them again */
    uint64_t lazyfree;  /* pages in RAM that were lazily freed */
    uint64_t swapped;   /* pages in the store */
    uint64_t inherited; /* pages that are shared with a snapshot, or with the source of the snapshot */
    uint64_t lost;      /* pages that were lost when a read of the store failed */
};

int millpond_region_stats(millpond_region *region, struct millpond_region_stats *stats);

enum millpond_advice {
    MILLPOND_NORMAL = 0,     /* withdraws earlier advice about the order of accesses; applies to blocks of 2 MiB */
    MILLPOND_SEQUENTIAL = 1, /* accesses in order: large folios from the first fault on; applies to blocks of 2 MiB */
    MILLPOND_RANDOM = 2,     /* random accesses: single pages; applies to blocks of 2 MiB */
    MILLPOND_WILLNEED = 3,   /* the pages are needed soon: they are brought in now */
    MILLPOND_COLD = 4,       /* the pages are not needed soon: they leave first when memory is short */
    MILLPOND_PAGEOUT = 5     /* the pages are not needed for long: they are taken out of the program's memory now */
};

/* Advises the pond about the pages that the range touches. */
int millpond_region_advise(millpond_region *region, size_t offset, size_t len, enum millpond_advice advice);

/*
 * Brings in the pages that the range touches, as many of them as the budget can hold at once. It returns MILLPOND_LOST
 * if a page is lost.
 */
int millpond_region_populate(millpond_region *region, size_t offset, size_t len);

/* Brings in the pages that the range touches, and keeps them in memory until the pin is freed. */
int millpond_region_pin(millpond_region *region, size_t offset, size_t len, millpond_pin **pin);
void millpond_pin_free(millpond_pin *pin);

/*
 * Calls for threads that must not wait. `try_read` and `try_write` copy between `buffer` and the region, from `offset`
 * on, if the whole range is mapped now, and writable in the case of `try_write`. `try_pin` pins the range if it is
 * mapped now. These three set `there` to 1 if they succeed. Otherwise they set it to 0, and a part of the range may
 * have been copied. They also set it to 0 while another call discards in the region, grows, shrinks or moves it,
 * because they do not wait for that call. A copy makes no system call and takes none of the pond's locks. Copies are
 * not available with handler delivery. `prefetch` asks a thread of the pond to bring the range in, and returns at once.
 */
int millpond_region_try_read(millpond_region *region, size_t offset, void *buffer, size_t len, int *there);
int millpond_region_try_write(millpond_region *region, size_t offset, const void *buffer, size_t len, int *there);
int millpond_region_try_pin(millpond_region *region, size_t offset, size_t len, millpond_pin **pin, int *there);
int millpond_region_prefetch(millpond_region *region, size_t offset, size_t len);

/*
 * Drops the pages of the page-aligned range, which then read as zeros. No other thread may access the range during the
 * call.
 */
int millpond_region_discard(millpond_region *region, size_t offset, size_t len);

/*
 * Announces that the program will write all of the page-aligned range, so its data in the store is dropped and never
 * read back. Until a byte is written it has its old value or zero. No other thread may access the range during the
 * call.
 */
int millpond_region_will_overwrite(millpond_region *region, size_t offset, size_t len);

struct millpond_range {
    size_t offset;
    size_t len;
};

/*
 * Frees the page-aligned ranges lazily: their contents stay until memory is short. A read sees the old bytes or zeros;
 * once it has seen zeros, it sees zeros from then on. A write to a page ends the lazy free of that page. During
 * `millpond_region_lazy_free` no other thread may access the ranges. During `millpond_region_lazy_free_shared` other
 * threads may read and write there, at the cost of one round of write protection.
 */
int millpond_region_lazy_free(millpond_region *region, const struct millpond_range *ranges, size_t count);
int millpond_region_lazy_free_shared(millpond_region *region, const struct millpond_range *ranges, size_t count);

/*
 * `millpond_region_mark_volatile` allows the pond to purge the page-aligned range, as a whole, when memory is short.
 * The program must not access the range until `millpond_region_mark_nonvolatile` of the same range has returned. That
 * call sets `purged` to 1 if the range was purged and reads as zeros, and to 0 if it has its contents. Neither call
 * makes a system call, whatever the length.
 */
int millpond_region_mark_volatile(millpond_region *region, size_t offset, size_t len);
int millpond_region_mark_nonvolatile(millpond_region *region, size_t offset, size_t len, int *purged);

/*
 * Change the region's length without copying. `grow` may move the region, so ask for its address again; the new bytes
 * read as zeros. No other thread may access the region's bytes during the call. A region that has to move must not have
 * pinned pages.
 */
int millpond_region_grow(millpond_region *region, size_t len);
int millpond_region_shrink(millpond_region *region, size_t len);

/*
 * `move` moves the bytes of a page-aligned range to another region, from `to_offset` on; `split` moves them to a new
 * region of `new_len` bytes. The range reads as zeros afterwards. Blocks of 2 MiB are moved by one pointer each if the
 * source and the target have the same offset within their blocks, as they have in a new region. Otherwise pages are
 * copied. No other thread may access the source or the target during the call.
 */
int millpond_region_move(millpond_region *from, size_t offset, size_t len, millpond_region *to, size_t to_offset);
int millpond_region_split(millpond_region *from, size_t offset, size_t len, size_t new_len, millpond_region **region);

/*
 * Makes a copy of the region as it is now. The region and the copy share each page until one of them writes to it. No
 * other thread may write to the region during the call, and no page of the region may be pinned.
 */
int millpond_region_snapshot(millpond_region *region, millpond_region **snapshot);

/* ------------------------------------------------------------------------------------------------------- files */

/* What happens to the bytes of a mapped file when they leave memory. */
enum millpond_file_mode {
    MILLPOND_FILE_READ = 0,    /* the file is only read; the memory must not be written to */
    MILLPOND_FILE_PRIVATE = 1, /* changes go to the store, and the file stays as it is */
    MILLPOND_FILE_SHARED = 2,  /* changes go to the file, which is extended to the length of the range */
};

/*
 * Maps `len` bytes of a file from `offset` on, or all bytes from there if `len` is 0. Bytes are read from the file when
 * they are touched, and count toward the pond's budget. The offset can be any number.
 *
 * While the file is mapped nobody else may change these bytes in it. If a page cannot be read, because the file has
 * become shorter or its medium fails, touching it raises SIGBUS, and a call that needs the page returns
 * MILLPOND_LOST; the next touch or call tries again.
 */
int millpond_map_file(millpond *pond, const char *path, uint64_t offset, uint64_t len, int mode, millpond_file **file);

/* Return the address of the first mapped byte, and how many there are: null and 0 in a forked child. */
void *millpond_file_data(const millpond_file *file);
size_t millpond_file_size(const millpond_file *file);

/*
 * Ends the mapping. Changes in a private mapping are lost. Changes in a shared one go to the file, and if that fails
 * a line on standard error says so: call `millpond_file_sync` first. Null is allowed.
 */
void millpond_file_free(millpond_file *file);

/* Copies bytes of the mapped file to `buffer`, which may be any memory, and raises no signal. */
int millpond_file_read(const millpond_file *file, size_t offset, void *buffer, size_t len);

/* Gives a hint about a range, as `millpond_region_advise` does. */
int millpond_file_advise(const millpond_file *file, size_t offset, size_t len, int advice);

/*
 * Writes the changes in a range of a shared mapping to the file, and returns when the device has them. Returns
 * MILLPOND_SYSTEM if a page cannot be written: it stays in memory, and the next call tries again.
 */
int millpond_file_sync(const millpond_file *file, size_t offset, size_t len);

/*
 * Makes a shared mapping `len` bytes long, and extends its file accordingly; a mapping that is already that long
 * stays as it is. The new bytes read as the file does there: as zeros, where the file was shorter. All changes are
 * synced first. The mapping has moved afterwards, so ask for its address again. No other thread may access its bytes
 * during the call. If the call fails the mapping stays as it was, at its address: MILLPOND_INVALID means that it is
 * not shared, and MILLPOND_SYSTEM that the file cannot be written or extended.
 */
int millpond_file_grow(millpond_file *file, size_t len);

/* ------------------------------------------------------------------------------------------------------ groups */

/* The limits of a group, in bytes, with the names of memory cgroups. 0 means no protection, or no limit. */
struct millpond_limits {
    size_t size;           /* the size of this structure */
    uint64_t min;          /* this much is safe from other groups while anything else can be reclaimed */
    uint64_t low;          /* this much is safe from other groups while any group has more than its own `low` */
    uint64_t high;         /* above this usage, the group's own faults first reclaim in the group */
    uint64_t max;          /* the usage never exceeds this; at least 4 MiB */
    uint64_t lazyfree_max; /* the most lazily freed bytes that stay in RAM */
};

/* Makes a group below `parent`, or below the pond itself if `parent` is null. `limits` may be null. */
int millpond_group_new(millpond *pond, millpond_group *parent, const char *name, const struct millpond_limits *limits,
                       millpond_group **group);
int millpond_group_set_limits(millpond_group *group, const struct millpond_limits *limits);

/* Removes the group. Its parent gets its regions and their memory. The handle must still be freed. */
int millpond_group_remove(millpond_group *group);

/* Frees the handle. The group stays until it is removed or the pond ends. Null is allowed. */
void millpond_group_free(millpond_group *group);

/* Moves the region and its memory to the group, or to the pond itself if `group` is null. */
int millpond_region_set_group(millpond_region *region, millpond_group *group);

struct millpond_group_stats {
    size_t size;        /* the size of this structure, set by the caller */
    uint64_t usage;     /* bytes in RAM that are charged to the group and to the groups below it */
    uint64_t resident;  /* bytes that are mapped and in use */
    uint64_t lazyfree;  /* bytes in RAM that were lazily freed and not used since */
    uint64_t stored;    /* bytes in the store */
    uint64_t pgmajfault; /* faults that read from the store, or from a file */
};

int millpond_group_stats(millpond_group *group, struct millpond_group_stats *stats);

/*
 * How long threads waited for memory, as in the kernel's memory.pressure: in percent of the last 10, 60 and 300
 * seconds.
 */
struct millpond_pressure {
    size_t size;            /* the size of this structure, set by the caller */
    double some[3];         /* the time in which at least one of the threads that use the memory waited */
    double full[3];         /* the time in which all threads that use the memory waited */
    uint64_t some_total_us; /* the total time of `some`, in microseconds */
    uint64_t full_total_us; /* the total time of `full`, in microseconds */
};

/* Reads the pressure of a group, or of the pond if `group` is null. */
int millpond_pressure(millpond *pond, millpond_group *group, struct millpond_pressure *pressure);

/*
 * Registers a cache of the program that shrinks when memory is short in `group`, or in the pond if `group` is null.
 * `count` returns how many objects the cache could free. `scan` looks at `objects` of them, frees those that it can,
 * and returns how many it has freed. A thread of the pond calls both, never a faulting thread, so they may take the
 * program's locks. After `millpond_shrinker_free` has returned they are not called any more. It waits for a call in
 * progress, unless it is called from within that call.
 */
int millpond_shrinker_new(millpond *pond, millpond_group *group, size_t (*count)(void *context),
                          size_t (*scan)(void *context, size_t objects), void *context, millpond_shrinker **shrinker);
void millpond_shrinker_free(millpond_shrinker *shrinker);

#ifdef __cplusplus
}
#endif

#endif
