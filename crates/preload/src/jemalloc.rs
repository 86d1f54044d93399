//! The program's allocator: jemalloc, which takes its extents from the space.
//!
//! jemalloc asks for memory in extents through hooks. It keeps the addresses of extents that it no longer needs, so
//! the space's areas stay few and large. Its own bookkeeping comes from `mmap`, which is also ours and returns
//! managed memory, so it counts against the budget like the rest. There are as many arenas as processors, because
//! each keeps free pages of its own.
//!
//! # What happens at startup, and what waits
//! jemalloc writes to 24 pages for each arena, and a process that ends at once needs only one arena. So the first
//! arena exists from the start, another is created for each thread that the program creates ([`before_thread`]), and
//! the one for large allocations is created before the first of these ([`before_block`]). All get our hooks before
//! they have an extent. (If a thread is not created by `pthread_create`, jemalloc may create an arena without them:
//! it takes its extents by `mmap` and purges them by `madvise`, which are also ours.) The first pages of jemalloc's
//! first block are brought in together ([`mapped`]).
//!
//! # What the hooks guarantee, and when they are called
//! This comes from the source of jemalloc 5.3.1 (`extent.c`, `pac.c`, `ehooks.h`). A hook returns `false` when it has
//! done its work. An extent that the program freed is *dirty*: no hook has been called. Dirty extents are reused
//! first. An extent that is not reused for `dirty_decay_ms` is purged (time passes as the program allocates and
//! frees; there is no thread):
//!
//! - with `muzzy_decay_ms` above 0, by `purge_lazy`, after which any contents are correct and the extent is *muzzy*:
//!   it is reused before fresh memory, and purged again when the muzzy time is over;
//! - otherwise, and once the muzzy time is over: `dalloc` is asked to take the addresses as well; if it refuses,
//!   `decommit`; if that refuses, `purge_forced`; if that fails, finally `purge_lazy`. The extent is *retained*.
//!
//! A successful `decommit` or `purge_forced` makes the extent *zeroed*: `calloc` hands it out unchanged, however much
//! later, so it must read as zeros until it is written to. After `decommit` the extent is not touched until `commit`
//! has succeeded. Extents from the oversize arena (8 MiB and more) are purged as soon as they are freed. `split` and
//! `merge` are asked before extents are divided or joined. To us both halves are pages of one area, so the answer is
//! always yes.
//!
//! # What the hooks do here
//! | hook | with lazy purging | without it |
//! | --- | --- | --- |
//! | `purge_lazy` | lazily freed | refused |
//! | `purge_forced` | lazily freed as zeros ([`Space::lazy_free_zeroed`](millpond::space::Space::lazy_free_zeroed)) | discarded |
//! | `decommit` | refused | refused |
//! | `commit` | made accessible | made accessible |
//! | `dalloc` of a long extent | given up | given up |
//! | `dalloc` of another extent | refused | refused |
//!
//! Lazily freed memory keeps its frames until there is pressure, and then loses them without a write. A folio of up
//! to 64 KiB is zeroed in place, so reusing it causes no fault. From then on it is zeros and satisfies both purges.
//! jemalloc owns the extent while it purges it, which zeroing in place requires. We refuse `decommit`: it would do
//! the same work as `purge_forced`, and jemalloc never joins a committed extent (as fresh ones are) with a
//! decommitted one. `commit` is called only for extents that jemalloc mapped before it had our hooks. It maps them
//! without access where memory may not be overcommitted (`vm.overcommit_memory` of 2, or unknown because `/proc` or
//! descriptors are missing).
//!
//! *Long extents* are given up: their addresses go back to the space, and their frames are freed in the background,
//! as after a `munmap`. Zeroing takes 23 ms per GiB, in whichever thread next frees something; giving up takes 0.2
//! ms. But reusing memory that was zeroed in place costs nothing, while new memory costs a fault for each folio. So
//! with lazy purging we give up only an extent of at least a quarter of the budget, because it would hardly stay in
//! memory until it is reused; the limit is at least 64 MiB (1.5 ms of zeroing) and at most 256 MiB (6 ms). Where
//! purging discards, giving up costs nothing extra, so we give up all extents that the space frees in the background.
//!
//! [`crate::decay`] decides how long pages stay dirty. But when the last thread of an arena ends, jemalloc purges all
//! that is dirty there. A program that creates a thread for each request then touches the same buffers anew in each:
//! python's `http.server` had 27 faults a request. So once all arenas exist, each counts one thread more than it has
//! ([`keep_dirty`]).

use crate::decay::{self, CALM_MS};
use crate::stack_switch::on_safe_stack;
use crate::vma::{self, PAGE};
use crate::{engage, mprotect, realloc, space};
use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char, c_uint, c_void};
#[cfg(not(test))]
use core::sync::atomic::AtomicPtr;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::*};
use millpond::space::Space;
use std::io::Write;
use tikv_jemalloc_sys as je;

/// jemalloc's own default for the size of allocations that get an arena of their own.
const OVERSIZE: usize = 8 << 20;

/// Bytes at the start of jemalloc's first block that its startup writes to.
const WRITTEN_AT_START: usize = 256 << 10;

/// How long pages stay muzzy: zeroing in place serves both purges, so a second one would be wasted work.
const MUZZY_MS: u32 = 0;

/// The configuration that jemalloc reads at startup. It also reads an environment variable of this name,
/// `_RJEM_MALLOC_CONF`, which no program sets.
#[cfg_attr(not(test), unsafe(export_name = "_rjem_malloc_conf"))]
pub static CONF: Conf = Conf(UnsafeCell::new(core::ptr::null()));

/// A pointer to a C string that is written once, before jemalloc reads it.
#[repr(transparent)]
pub struct Conf(UnsafeCell<*const c_char>);

// SAFETY: the pointer is written in the constructor while there is one program thread, and read by jemalloc
// afterwards.
unsafe impl Sync for Conf {}

static HOOKS: je::extent_hooks_t = je::extent_hooks_s {
    alloc: Some(alloc),
    dalloc: Some(dalloc),
    destroy: Some(destroy),
    commit: Some(commit),
    decommit: Some(refuse),
    purge_lazy: Some(purge_lazy),
    purge_forced: Some(purge_forced),
    split: Some(split),
    merge: Some(merge),
};

/// The minimum length in bytes of an extent that is given up when jemalloc no longer needs it.
static LONG: AtomicUsize = AtomicUsize::new(usize::MAX);

/// Returns the minimum length of extents that are given up, under this budget.
fn long_extent(ram: u64, is_lazy: bool) -> usize {
    if !is_lazy {
        return Space::ASIDE;
    }
    usize::try_from(ram / 4)
        .unwrap_or(usize::MAX)
        .clamp(64 << 20, 256 << 20)
}

/// Number of arenas for threads; zero before the first has its hooks, and without a budget.
static ARENAS: AtomicU32 = AtomicU32::new(0);

/// The number of the next arena that gets hooks.
static NEXT: AtomicU32 = AtomicU32::new(1);

/// Whether the arena for large allocations has yet to be created.
static LARGE_TO_COME: AtomicBool = AtomicBool::new(false);

/// Whether each arena counts a thread that does not exist.
static KEEPS_DIRTY: AtomicBool = AtomicBool::new(false);

/// Has each arena count one thread more, so that none ever loses its last one. jemalloc chooses the arena with the
/// fewest threads, so their order is as before. For that all arenas must exist, and have the same surplus: otherwise it
/// would create one without our hooks.
#[cfg(not(test))]
#[cold]
fn keep_dirty(count: u32) {
    /// jemalloc's `MALLOCX_ARENA_LIMIT`.
    const MOST: usize = 4095;
    unsafe extern "C" {
        static _rjem_je_arenas: [AtomicPtr<c_void>; MOST];
        fn _rjem_je_arena_nthreads_inc(arena: *mut c_void, internal: bool);
    }
    if KEEPS_DIRTY.swap(true, Relaxed) {
        return;
    }
    // SAFETY: jemalloc defines the array so, and it writes its elements atomically.
    let arenas = unsafe { &_rjem_je_arenas };
    for arena in arenas.iter().take(count as usize) {
        let arena = arena.load(Acquire);
        if !arena.is_null() {
            // SAFETY: an arena lives as long as the process, and its count is atomic.
            unsafe { _rjem_je_arena_nthreads_inc(arena, false) };
        }
    }
}

#[cfg(test)]
fn keep_dirty(_: u32) {
    KEEPS_DIRTY.store(true, Relaxed);
}

/// Called in a new child, in which jemalloc has counted its only thread.
pub fn after_fork_in_child() {
    KEEPS_DIRTY.store(false, Relaxed);
}

/// Keeps huge pages out of jemalloc's map of addresses to extents, which is sparsely used.
#[cfg(not(test))]
fn decline_huge_pages() {
    /// Bytes of the map: 2^18 pointers.
    const BYTES: usize = 8 << 18;
    unsafe extern "C" {
        static _rjem_je_arena_emap_global: core::ffi::c_void;
    }
    let start = (&raw const _rjem_je_arena_emap_global).addr();
    millpond_mmu::decline_huge_pages(start..start + BYTES);
}

#[cfg(test)]
fn decline_huge_pages() {}

/// Starts jemalloc. With a budget, all its arenas take their extents from the space.
///
/// # Errors
/// The line names the setting that jemalloc did not accept.
pub fn start(arenas: usize, budget: Option<u64>) -> Result<(), String> {
    let conf = format!(
        "narenas:{arenas},dss:disabled,retain:true,thp:never,metadata_thp:disabled,\
         background_thread:false,dirty_decay_ms:{CALM_MS},muzzy_decay_ms:{MUZZY_MS},\
         oversize_threshold:{OVERSIZE},zero_realloc:free\0"
    );
    let conf: &'static [u8] = Vec::leak(conf.into_bytes());
    // SAFETY: there is one thread, and jemalloc has not been called yet.
    unsafe { *CONF.0.get() = conf.as_ptr().cast() };
    let Some(ram) = budget else { return Ok(()) };
    decline_huge_pages();
    LONG.store(long_extent(ram, space::is_lazy()), Relaxed);
    let count = arena_count()?;
    set_hooks(0)?;
    decay::begin(count);
    ARENAS.store(count, Relaxed);
    LARGE_TO_COME.store(true, Relaxed);
    Ok(())
}

/// Called for each managed mapping that is made before the program runs. The first long one is jemalloc's first
/// block. Its startup walks through the block page by page, which would cause 30 separate faults.
pub fn mapped(addr: usize, len: usize) {
    static SEEN: AtomicBool = AtomicBool::new(false);
    let Some(space) = space::get() else { return };
    if len > WRITTEN_AT_START && space.contains(addr) && !SEEN.swap(true, Relaxed) {
        on_safe_stack(move || space.populate(addr, WRITTEN_AT_START));
    }
}

/// Creates another arena, unless all exist: the program is about to create a thread, and jemalloc gives it an arena
/// that no thread has yet.
pub fn before_thread() {
    let count = ARENAS.load(Relaxed);
    let next = |next: u32| (next < count).then_some(next + 1);
    if let Ok(arena) = NEXT.fetch_update(Relaxed, Relaxed, next) {
        // If this fails, jemalloc creates the arena itself, without hooks.
        let _ = set_hooks(arena);
        decay::arena_made();
    } else if count > 0 && !KEEPS_DIRTY.load(Relaxed) {
        keep_dirty(count);
    }
}

/// Creates the arena for large allocations if it does not exist and a block of this size would come from it.
#[inline]
pub fn before_block(size: usize) {
    if size >= OVERSIZE && LARGE_TO_COME.load(Relaxed) {
        make_large_arena();
    }
}

/// jemalloc creates this arena with its first block, and only then accepts hooks for it.
#[cold]
fn make_large_arena() {
    if LARGE_TO_COME.swap(false, Relaxed) {
        // SAFETY: this is a block of that size, freed at once.
        unsafe { je::free(je::malloc(OVERSIZE)) };
        // If there was no memory for it, the next large block creates the arena.
        let is_made = set_hooks(ARENAS.load(Relaxed)).is_ok();
        LARGE_TO_COME.store(!is_made, Relaxed);
    }
}

fn set_hooks(arena: c_uint) -> Result<(), String> {
    let mut name = [0u8; 48];
    let mut rest = &mut name[..];
    write!(rest, "arena.{arena}.extent_hooks").map_err(|error| error.to_string())?;
    let name = CStr::from_bytes_until_nul(&name).map_err(|error| error.to_string())?;
    let mut hooks = &raw const HOOKS;
    // SAFETY: this control takes a pointer to a pointer to hooks, which are static.
    let result = unsafe {
        je::mallctl(
            name.as_ptr(),
            core::ptr::null_mut(),
            core::ptr::null_mut(),
            (&raw mut hooks).cast(),
            size_of_val(&hooks),
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(format!(
            "jemalloc refuses extent hooks for arena {arena}: error {result}"
        ))
    }
}

fn arena_count() -> Result<c_uint, String> {
    let mut count: c_uint = 0;
    let mut len = size_of_val(&count);
    // SAFETY: this control writes one unsigned int.
    let result = unsafe {
        je::mallctl(
            c"opt.narenas".as_ptr(),
            (&raw mut count).cast(),
            &mut len,
            core::ptr::null_mut(),
            0,
        )
    };
    if result == 0 {
        Ok(count)
    } else {
        Err(format!("jemalloc has no arenas: error {result}"))
    }
}

unsafe extern "C" fn alloc(
    _: *mut je::extent_hooks_t,
    wanted: *mut c_void,
    size: usize,
    align: usize,
    zero: *mut bool,
    commit: *mut bool,
    _: c_uint,
) -> *mut c_void {
    let _growing = engage::before_growth(size);
    let wanted = wanted as usize;
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let place = vma::locked(move |vmas| {
        let start = if wanted == 0 {
            vmas.map.find(size, align.max(PAGE))
        } else {
            Some(wanted).filter(|&start| vmas.map.is_free(&(start..start + size)))
        };
        start.filter(|&start| vmas.place(start..start + size, prot).is_ok())
    });
    match place.flatten() {
        Some(start) => {
            // SAFETY: jemalloc passes pointers to two flags of its own; the new memory is zeros and usable.
            unsafe {
                *zero = true;
                *commit = true;
            }
            start as *mut c_void
        }
        None => core::ptr::null_mut(),
    }
}

/// Gives up a long extent. Other extents stay with jemalloc, which purges and reuses them.
unsafe extern "C" fn dalloc(
    _: *mut je::extent_hooks_t,
    at: *mut c_void,
    size: usize,
    _: bool,
    _: c_uint,
) -> bool {
    let start = at as usize;
    // An extent that the program has partly protected is purged like a short one.
    if size < LONG.load(Relaxed) || !is_plain(start, size) {
        return true;
    }
    // If only a part could be closed, no part may be reused. The rest then costs only addresses.
    let _ = vma::locked(move |vmas| vmas.clear(start..start + size));
    false
}

unsafe extern "C" fn destroy(
    _: *mut je::extent_hooks_t,
    at: *mut c_void,
    size: usize,
    _: bool,
    _: c_uint,
) {
    let start = at as usize;
    // A refusal costs only addresses: jemalloc does not use the extent again.
    let _ = vma::locked(move |vmas| vmas.clear(start..start + size));
}

unsafe extern "C" fn commit(
    _: *mut je::extent_hooks_t,
    at: *mut c_void,
    _: usize,
    offset: usize,
    len: usize,
    _: c_uint,
) -> bool {
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    mprotect::protect(at as usize + offset, len, prot, None).is_err()
}

unsafe extern "C" fn refuse(
    _: *mut je::extent_hooks_t,
    _: *mut c_void,
    _: usize,
    _: usize,
    _: usize,
    _: c_uint,
) -> bool {
    true
}

fn is_plain(start: usize, len: usize) -> bool {
    vma::locked(move |vmas| vmas.is_plain(&(start..start + len))).unwrap_or(false)
}

unsafe extern "C" fn purge_lazy(
    _: *mut je::extent_hooks_t,
    at: *mut c_void,
    _: usize,
    offset: usize,
    len: usize,
    _: c_uint,
) -> bool {
    let start = at as usize + offset;
    vma::locked::forget(start..start + len);
    let Some(space) = space::get().filter(|_| space::is_lazy() && is_plain(start, len)) else {
        return true;
    };
    on_safe_stack(move || space.lazy_free(start, len).is_err())
}

unsafe extern "C" fn purge_forced(
    _: *mut je::extent_hooks_t,
    at: *mut c_void,
    _: usize,
    offset: usize,
    len: usize,
    _: c_uint,
) -> bool {
    let start = at as usize + offset;
    vma::locked::forget(start..start + len);
    realloc::renew(start..start + len);
    if let Some(space) = space::get().filter(|_| space::is_lazy() && is_plain(start, len))
        && on_safe_stack(move || space.lazy_free_zeroed(start, len).is_ok())
    {
        return false;
    }
    // Either purging is eager, or part of the extent was a stack and stays in memory; in that case it is zeroed by
    // hand.
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    vma::locked(move |vmas| vmas.discard(start..start + len, prot).is_err()).unwrap_or(true)
}

unsafe extern "C" fn split(
    _: *mut je::extent_hooks_t,
    _: *mut c_void,
    _: usize,
    _: usize,
    _: usize,
    _: bool,
    _: c_uint,
) -> bool {
    false
}

unsafe extern "C" fn merge(
    _: *mut je::extent_hooks_t,
    _: *mut c_void,
    _: usize,
    _: *mut c_void,
    _: usize,
    _: bool,
    _: c_uint,
) -> bool {
    false
}
