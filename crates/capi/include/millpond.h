/*
 * Millpond: Linux memory management for one process.
 *
 * A pond has a RAM budget and a store. Its regions are ordinary memory to the program; what does not fit in the
 * budget flows to the store and comes back when it is touched.
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
 * Link with -lmillpond; `pkg-config --cflags --libs millpond` says where.
 *
 * Conventions
 * - A call that can fail returns 0, or a status below, and then `millpond_error` has a message that names the value
 *   and the way out. What such a call hands out it writes only when it returns 0.
 * - Sizes, offsets and lengths are in bytes. A range is given as offset and length. Where it must lie at pages, both
 *   are multiples of 4096, but that the end may be the region's own.
 * - Structures that a caller passes begin with their own size, so that a program built with an older header goes on
 *   working: set it, and leave zero what you do not care about.
 * - Handles belong to the caller until it frees them. All calls may be made from any thread, none from a signal
 *   handler. Calls on one region wait for each other where they have to; what other threads do with its *bytes*
 *   meanwhile is the caller's business, and each call says what it asks.
 * - Faults are resolved by the thread that has them, in a handler of SIGBUS. So threads that touch a region must
 *   leave SIGBUS unblocked, and memory that is passed to a system call must be pinned, or the call fails with EFAULT.
 *   Nobody may take that handler away later; one that was there before is called for what is not ours. With
 *   `.delivery = "handler"` a thread of the pond's resolves faults instead: each takes longer, and none of this is
 *   asked.
 * - A child of fork() has none of the pond: its calls return MILLPOND_FORKED, what it frees stays its parent's, and a
 *   touch of a region ends it by SIGABRT, with a line on standard error. It may open a pond of its own.
 * - If the store cannot give a page back, it is lost, and a touch of it raises SIGBUS; `millpond_region_populate`
 *   finds out without. It never reads as zeros.
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

/* What a call can return. */
enum millpond_status {
    MILLPOND_OK = 0,
    /* An argument is not what the call takes: a null pointer, a range outside of its region, an unknown word. */
    MILLPOND_INVALID = 1,
    /* A range does not lie at pages. */
    MILLPOND_UNALIGNED = 2,
    /* A page of the range is pinned. */
    MILLPOND_PINNED = 3,
    /* A page of the range is lost: the store could not give it back. Discard it to use it again. */
    MILLPOND_LOST = 4,
    /* No addresses are left: open the pond with a larger .address_space. */
    MILLPOND_NO_ADDRESSES = 5,
    /* More than the budget allows. */
    MILLPOND_OVER_BUDGET = 6,
    /* The system refused memory, a thread, or its permission. */
    MILLPOND_SYSTEM = 7,
    /* The store cannot be opened. */
    MILLPOND_STORE = 8,
    /* A volatile range is in the way, or is none. */
    MILLPOND_VOLATILE = 9,
    /* A name is taken, or something is in use by others. */
    MILLPOND_BUSY = 10,
    /* The group was removed. */
    MILLPOND_REMOVED = 11,
    /* Handles of two ponds. */
    MILLPOND_OTHER_POND = 12,
    /* The pond was opened by a parent of this process. */
    MILLPOND_FORKED = 13
};

/* The message of the last call that failed in this thread; empty before any did. Valid until the thread's next call. */
const char *millpond_error(void);

/* The version of the library that runs, "major.minor.patch". */
const char *millpond_version(void);

typedef struct millpond millpond;
typedef struct millpond_region millpond_region;
typedef struct millpond_group millpond_group;
typedef struct millpond_pin millpond_pin;
typedef struct millpond_shrinker millpond_shrinker;

/* ------------------------------------------------------------------------------------------------------- ponds */

enum millpond_flag {
    /* The store's RAM is not counted in the budget, as zram's is not in the memory cgroup of those who swap to it. */
    MILLPOND_STORE_OUTSIDE_BUDGET = 1 << 0,
    /* The budget covers all resident memory of the process, managed or not. */
    MILLPOND_COVER_PROCESS = 1 << 1,
    /* A full or failing store aborts the process. Otherwise the budget is exceeded, and nothing is lost. */
    MILLPOND_ABORT_WHEN_FULL = 1 << 2,
    /* A thread reclaims ahead of need: always, or never. Otherwise where it helps. Not both. */
    MILLPOND_BACKGROUND_ALWAYS = 1 << 3,
    MILLPOND_BACKGROUND_NEVER = 1 << 4,
    /* What goes to a file is encrypted (AES-256-XTS), by a key that is nowhere but in this process's memory. */
    MILLPOND_ENCRYPT = 1 << 5
};

struct millpond_options {
    size_t size;            /* of this structure */
    uint64_t ram;           /* the budget: at least 16 MiB */
    const char *store;      /* "zram" (compressed RAM), "auto" (then a file), "file", "file:PATH", "none"; null: "auto".
                               "auto" is "zram", and a line on standard error, where no file can be made in TMPDIR */
    uint64_t store_max;     /* most bytes that "zram" (also if store is null) or "file" may take; 0: by itself */
    const char *order;      /* folios of 2^order pages: "0" to "9", "adaptive" (if null), "adaptive:9" */
    const char *delivery;   /* "in-thread" (if null) or "handler": who resolves faults */
    uint64_t address_space; /* addresses to reserve; 0: 16 times the budget, at least 64 GiB */
    uint64_t lazyfree_max;  /* most bytes that stay in RAM after they were lazily freed; 0: no limit of their own */
    const char *publish;    /* a name under which `millpond stat` shows the pond; null: it does not */
    uint32_t flags;         /* MILLPOND_STORE_OUTSIDE_BUDGET and so on */
};

/* Reserves addresses, opens the store and starts the pond's threads. */
int millpond_open(const struct millpond_options *options, millpond **pond);

/* Lets go of the pond. It ends when its last region, pin, group and shrinker has been freed, too. Null is allowed. */
void millpond_close(millpond *pond);

/* Changes the budget, up to what the pond was opened with. A lower one is kept when this returns. */
int millpond_set_ram(millpond *pond, uint64_t bytes);

/* Waits until all that is being freed in the background has been given back. */
int millpond_quiesce(millpond *pond);

/* The most wanted figures. Bytes, unless said otherwise. `millpond_counter` has all others. */
struct millpond_stats {
    size_t size;              /* of this structure: set by the caller */
    uint64_t ram;             /* the budget */
    uint64_t resident;        /* mapped and in use */
    uint64_t limbo;           /* in RAM, taken out of the program, waiting for a second touch */
    uint64_t lazyfree;        /* in RAM, lazily freed and not used since: there for the taking */
    uint64_t stored;          /* in the store, before compression */
    uint64_t store_bytes;     /* what that takes, in RAM and on a device */
    uint64_t store_ram;       /* RAM that the store has */
    uint64_t metadata;        /* the pond's own tables */
    uint64_t peak;            /* most that counted against the budget at once */
    uint64_t pgfault;         /* faults */
    uint64_t pgmajfault;      /* of these, with a read from the store */
    uint64_t pswpin;          /* pages read from the store */
    uint64_t pswpout;         /* pages written to it */
    uint64_t store_failures;  /* times the store was found full or failing */
    uint64_t fault_p50_ns;    /* how long a fault takes: half of them less than this … */
    uint64_t fault_p99_ns;    /* … 99 of 100 less than this … */
    uint64_t fault_max_ns;    /* … and all no more than this */
};

int millpond_stats(millpond *pond, struct millpond_stats *stats);

/* A counter by its name, as `millpond stat` prints it: "workingset_refault_anon", "pgscan_kswapd". */
int millpond_counter(millpond *pond, const char *name, uint64_t *value);

/* The name of counter `index`, counted from 0; null behind the last. */
const char *millpond_counter_name(size_t index);

/* The first `count` counters at one moment, in the order of their names. */
int millpond_counters(millpond *pond, uint64_t *values, size_t count);

/*
 * The share of major faults so far, 0 to 1, that would not have happened with `more` bytes of budget; below 0 while too
 * few have happened to say.
 */
int millpond_avoided(millpond *pond, uint64_t more, double *share);

/* ----------------------------------------------------------------------------------------------------- regions */

/*
 * A region of `len` bytes of zeros, aligned to 2 MiB. `order` is as in the options; null: the pond's. Its address stays
 * the same while it lives, unless it grows.
 */
int millpond_region_new(millpond *pond, size_t len, const char *order, millpond_region **region);

/* The first byte; the length. Null and 0 for null, and in a forked child. */
void *millpond_region_data(const millpond_region *region);
size_t millpond_region_size(const millpond_region *region);

/*
 * Ends the region, or the last of its pins does. With `_async` the addresses are free at once and memory goes back in
 * the background, however much there is of it. No thread may use the bytes any more. Null is allowed.
 */
void millpond_region_free(millpond_region *region);
void millpond_region_free_async(millpond_region *region);

/* How much of a region is where, in bytes. Takes time in proportion to its length. */
struct millpond_region_stats {
    size_t size;        /* of this structure: set by the caller */
    uint64_t resident;  /* mapped */
    uint64_t limbo;     /* in RAM, waiting for a second touch */
    uint64_t lazyfree;  /* in RAM, lazily freed */
    uint64_t swapped;   /* in the store */
    uint64_t inherited; /* shared with a snapshot or its source */
    uint64_t lost;      /* lost to a failed read of the store */
};

int millpond_region_stats(millpond_region *region, struct millpond_region_stats *stats);

enum millpond_advice {
    MILLPOND_NORMAL = 0,     /* nothing is known about the order any more (whole 2 MiB) */
    MILLPOND_SEQUENTIAL = 1, /* to be touched in order: large folios from the first fault on (whole 2 MiB) */
    MILLPOND_RANDOM = 2,     /* to be touched in no order: single pages (whole 2 MiB) */
    MILLPOND_WILLNEED = 3,   /* needed soon: bring it in now */
    MILLPOND_COLD = 4,       /* not needed soon: first in line when memory is short */
    MILLPOND_PAGEOUT = 5     /* not needed for long: out of the program's memory now */
};

/* A hint about the pages that the range touches. */
int millpond_region_advise(millpond_region *region, size_t offset, size_t len, enum millpond_advice advice);

/* Brings in what the range touches, as far as the budget holds it at once. MILLPOND_LOST: the store lost a page. */
int millpond_region_populate(millpond_region *region, size_t offset, size_t len);

/* Brings in what the range touches and keeps it there until the pin is freed. */
int millpond_region_pin(millpond_region *region, size_t offset, size_t len, millpond_pin **pin);
void millpond_pin_free(millpond_pin *pin);

/*
 * For threads that must not wait. `try_read` and `try_write` copy between the region, from `offset` on, and `buffer` if
 * all of the range is mapped (and can be written) now; `try_pin` pins it then. `there` is set to 1 if so, otherwise to
 * 0, and a part may have been copied. It is 0, too, while another thread has the region for itself (discards in it, grows,
 * shrinks or moves it): nothing here waits for that. A copy takes neither a system call nor one of the pond's locks; with
 * handler delivery it cannot be had. `prefetch` asks a thread of the pond's to bring the range in, and returns.
 */
int millpond_region_try_read(millpond_region *region, size_t offset, void *buffer, size_t len, int *there);
int millpond_region_try_write(millpond_region *region, size_t offset, const void *buffer, size_t len, int *there);
int millpond_region_try_pin(millpond_region *region, size_t offset, size_t len, millpond_pin **pin, int *there);
int millpond_region_prefetch(millpond_region *region, size_t offset, size_t len);

/* The pages of the range are forgotten and read as zeros. Nobody may use them meanwhile. At pages. */
int millpond_region_discard(millpond_region *region, size_t offset, size_t len);

/*
 * All of the range is about to be written: what the store has of it is forgotten instead of read back. Until it is
 * written it reads as it did, or as zeros. Nobody may use it meanwhile. At pages.
 */
int millpond_region_will_overwrite(millpond_region *region, size_t offset, size_t len);

struct millpond_range {
    size_t offset;
    size_t len;
};

/*
 * The contents of the ranges are not needed any more: they stay until memory is short. Reads see the old bytes or
 * zeros, and zeros once they were; a write keeps its page for good. Nobody may use the ranges during the call. At
 * pages. The `_shared` one may run beside threads that read and write there, which costs a round of write protection.
 */
int millpond_region_lazy_free(millpond_region *region, const struct millpond_range *ranges, size_t count);
int millpond_region_lazy_free_shared(millpond_region *region, const struct millpond_range *ranges, size_t count);

/*
 * The range may be purged, all or nothing, until it is asked for again; nobody may use it until then. `purged` is set
 * to 1 when it was, and reads as zeros, otherwise to 0. No system call, whatever the length. At pages; the same
 * range.
 */
int millpond_region_mark_volatile(millpond_region *region, size_t offset, size_t len);
int millpond_region_mark_nonvolatile(millpond_region *region, size_t offset, size_t len, int *purged);

/*
 * Another length; nothing is copied. `grow` may move the region, so ask for its address again; what is new reads as
 * zeros. Nobody may use the bytes meanwhile, and nothing of it may be pinned where it has to move.
 */
int millpond_region_grow(millpond_region *region, size_t len);
int millpond_region_shrink(millpond_region *region, size_t len);

/*
 * Moves the bytes of a range to another region, from `to_offset` on, or to a new one of `new_len` bytes. The range
 * reads as zeros afterwards. Whole 2 MiB go by a pointer each where both places lie alike in their 2 MiB, as they do
 * in a new region; otherwise pages are copied. Nobody may use either meanwhile. At pages.
 */
int millpond_region_move(millpond_region *from, size_t offset, size_t len, millpond_region *to, size_t to_offset);
int millpond_region_split(millpond_region *from, size_t offset, size_t len, size_t new_len, millpond_region **region);

/*
 * A copy of the region as it is now: both share what neither has written since. Nobody may write to it meanwhile.
 * Nothing of it may be pinned.
 */
int millpond_region_snapshot(millpond_region *region, millpond_region **snapshot);

/* ------------------------------------------------------------------------------------------------------ groups */

/* A group's marks, as memory cgroups have them. 0: no protection, no limit. */
struct millpond_limits {
    size_t size;           /* of this structure */
    uint64_t min;          /* not taken by others as long as anything else can be */
    uint64_t low;          /* not taken by others as long as anybody has more than this */
    uint64_t high;         /* beyond it the group's own faults reclaim in the group first */
    uint64_t max;          /* never exceeded: at least 4 MiB */
    uint64_t lazyfree_max; /* most bytes that stay in RAM after they were lazily freed */
};

/* A new group below `parent`; null: below the pond itself. `limits` may be null. */
int millpond_group_new(millpond *pond, millpond_group *parent, const char *name, const struct millpond_limits *limits,
                       millpond_group **group);
int millpond_group_set_limits(millpond_group *group, const struct millpond_limits *limits);

/* Removes the group: its regions, with all they have, are its parent's. The handle stays, to be freed. */
int millpond_group_remove(millpond_group *group);

/* Lets go of the handle; the group lives on until it is removed or the pond ends. Null is allowed. */
void millpond_group_free(millpond_group *group);

/* Makes the region a group's, with all that it has; null: the pond's. */
int millpond_region_set_group(millpond_region *region, millpond_group *group);

struct millpond_group_stats {
    size_t size;        /* of this structure: set by the caller */
    uint64_t usage;     /* bytes in RAM that are charged to it and to the groups below it */
    uint64_t resident;  /* mapped and in use */
    uint64_t lazyfree;  /* in RAM, lazily freed and not used since */
    uint64_t stored;    /* in the store */
    uint64_t pgmajfault; /* faults that read from the store */
};

int millpond_group_stats(millpond_group *group, struct millpond_group_stats *stats);

/* Waiting for memory, as the kernel's memory.pressure has it: percent of the last 10, 60 and 300 seconds. */
struct millpond_pressure {
    size_t size;            /* of this structure: set by the caller */
    double some[3];         /* at least one of the threads that use the memory waited */
    double full[3];         /* all of them did */
    uint64_t some_total_us; /* all of it, in microseconds */
    uint64_t full_total_us;
};

/* Of a group; of the pond, where `group` is null. */
int millpond_pressure(millpond *pond, millpond_group *group, struct millpond_pressure *pressure);

/*
 * A cache of the program's that gives way when memory of `group` (null: of the pond) is short. `count` says how many
 * objects could be given up; `scan` looks at `objects` of them, gives up those that it can, and says how many that
 * were. Both are called by a thread of the pond's, never by one that faults, so they may take the program's locks.
 * When `millpond_shrinker_free` has returned they are not called any more; it waits for a call under way, unless that
 * makes it.
 */
int millpond_shrinker_new(millpond *pond, millpond_group *group, size_t (*count)(void *context),
                          size_t (*scan)(void *context, size_t objects), void *context, millpond_shrinker **shrinker);
void millpond_shrinker_free(millpond_shrinker *shrinker);

#ifdef __cplusplus
}
#endif

#endif
