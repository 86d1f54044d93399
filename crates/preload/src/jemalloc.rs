//! The program's allocator: jemalloc, with its extents from the space.
//!
//! jemalloc asks for memory in extents through hooks. It keeps the addresses of extents that it no longer needs, so
//! the space's areas stay few and large. Its own bookkeeping comes by `mmap`, which is ours too and gives managed
//! memory: it counts against the budget like the rest. There are as many arenas as processors, because each keeps
//! free pages of its own.
//!
//! # What a start does, and what waits
//! An arena is 24 pages that jemalloc writes to, and a process that ends at once has no use for more than one. So the
//! first arena is there from the start, one more is made for each thread that the program makes
//! ([`before_thread`]), and the one for large allocations is made before the first of these ([`before_block`]). All
//! get our hooks before they have an extent. (A thread that comes by another way than `pthread_create` may make
//! jemalloc create an arena without them: it takes its extents by `mmap` and purges them by `madvise`, which are ours
//! as well.) The first pages of jemalloc's first block come in together ([`mapped`]).
//!
//! # What the hooks promise, and when they are called
//! This was read in jemalloc 5.3.1 (`extent.c`, `pac.c`, `ehooks.h`). A hook answers `false` when it has done its
//! work. An extent that the program gave back is *dirty*: no hook was called. Dirty extents are used again first. An
//! extent that was not used again for `dirty_decay_ms` (which passes as the program allocates and frees, there is no
//! thread) is purged:
//!
//! - with `muzzy_decay_ms` above 0 by `purge_lazy`, after which any contents are right, and the extent is *muzzy*: it
//!   is used again before fresh memory, and purged once more when the muzzy time is over;
//! - otherwise, and once the muzzy time is over: `dalloc` is asked to take the addresses as well; if it will not,
//!   `decommit`; if that will not, `purge_forced`; if that fails, `purge_lazy` at last. The extent is *retained*.
//!
//! A successful `decommit` or `purge_forced` makes the extent *zeroed*: `calloc` gives it out as it is, however much
//! later, so it must read as zeros until it is written to. After `decommit` the extent is not touched before `commit`
//! succeeded. Extents from the oversize arena (8 MiB and more) are purged as soon as they are freed. `split` and
//! `merge` are asked before extents are divided or joined. Both halves are pages of one area to us, so the answer is
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
//! Lazily freed memory keeps its frames until there is pressure; then they go without a write. A folio up to 64 KiB
//! is zeroed where it is, so that using it again is no fault. It is zeros from then on and satisfies both purges.
//! jemalloc owns the extent while it purges it, which zeroing in place requires. `decommit` is refused: it would do
//! the same work as `purge_forced`, and extents of which one is committed (as fresh ones are) and the other is not
//! are never joined. `commit` is called only for extents that jemalloc mapped before it had our hooks. It maps them
//! without access where memory may not be promised twice (`vm.overcommit_memory` of 2, or unknown because `/proc` or
//! descriptors are missing).
//!
//! *Long extents* are given up: their addresses go back to the space, and their frames in the background, as after a
//! `munmap`. Zeroing takes 23 ms a GiB, in the thread that frees something next; giving up takes 0.2 ms. But memory
//! that is zeroed in place is used again at no cost, where new memory is a fault for each folio. So with lazy purges
//! only an extent that is a quarter of the budget is given up, as it would hardly be left alone until it is used
//! again; the limit is at least 64 MiB (1.5 ms of zeroing) and at most 256 (6 ms). Where purging discards, nothing
//! is lost by giving up, and all extents that the space frees in the background are given up.
//!
//! [`crate::decay`] decides how long pages stay dirty.

use crate::decay::{self, CALM_MS};
use crate::stack_switch::on_safe_stack;
use crate::vma::{self, PAGE};
use crate::{mprotect, realloc, space};
use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char, c_uint, c_void};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::*};
use millpond::space::Space;
use std::io::Write;
use tikv_jemalloc_sys as je;

/// jemalloc's own default for allocations that get an arena of their own.
const OVERSIZE: usize = 8 << 20;

/// Bytes at the beginning of jemalloc's first block that its start writes to.
const WRITTEN_AT_START: usize = 256 << 10;

/// The time for which pages stay muzzy: where zeroing in place serves both purges, the second is work for nothing.
const MUZZY_MS: u32 = 0;

/// The configuration that jemalloc reads when it starts. It reads an environment variable of this name as well,
/// `_RJEM_MALLOC_CONF`, which no program has.
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

/// The shortest extent that is given up when jemalloc does without it, in bytes.
static LONG: AtomicUsize = AtomicUsize::new(usize::MAX);

/// The length from which on extents are given up, under this budget.
fn long_extent(ram: u64, is_lazy: bool) -> usize {
    if !is_lazy {
        return Space::ASIDE;
    }
    usize::try_from(ram / 4)
        .unwrap_or(usize::MAX)
        .clamp(64 << 20, 256 << 20)
}

/// Number of arenas for threads; none before the first has its hooks, and none without a budget.
static ARENAS: AtomicU32 = AtomicU32::new(0);

/// The number of the next arena that gets hooks.
static NEXT: AtomicU32 = AtomicU32::new(1);

/// Whether the arena for large allocations is still to be made.
static LARGE_TO_COME: AtomicBool = AtomicBool::new(false);

/// Keeps jemalloc's map of addresses to extents, of which few entries are ever used, from being made of huge pages.
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
    // SAFETY: one thread, and jemalloc has not been called yet.
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

/// Is told of each mapping that is made before the program runs, if it is managed. The first long one is jemalloc's
/// first block, which its start goes through page by page; one by one these would be 30 faults.
pub fn mapped(addr: usize, len: usize) {
    static SEEN: AtomicBool = AtomicBool::new(false);
    let Some(space) = space::get() else { return };
    if len > WRITTEN_AT_START && space.contains(addr) && !SEEN.swap(true, Relaxed) {
        on_safe_stack(move || space.populate(addr, WRITTEN_AT_START));
    }
}

/// Makes one more arena, if not all are there: the program is about to make a thread, and jemalloc gives that an
/// arena that no thread has yet.
pub fn before_thread() {
    let count = ARENAS.load(Relaxed);
    let next = |next: u32| (next < count).then_some(next + 1);
    if let Ok(arena) = NEXT.fetch_update(Relaxed, Relaxed, next) {
        // Where this fails, jemalloc makes the arena by itself, without hooks.
        let _ = set_hooks(arena);
        decay::arena_made();
    }
}

/// Makes the arena for large allocations, if it is not there and a block of this size would go to it.
#[inline]
pub fn before_block(size: usize) {
    if size >= OVERSIZE && LARGE_TO_COME.load(Relaxed) {
        make_large_arena();
    }
}

/// jemalloc makes this arena with its first block, and takes hooks for it only then.
#[cold]
fn make_large_arena() {
    if LARGE_TO_COME.swap(false, Relaxed) {
        // SAFETY: this is a block of the size, given back at once.
        unsafe { je::free(je::malloc(OVERSIZE)) };
        // Where there was no memory for it, the next large block makes it.
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

/// Gives up a long extent. Other extents stay with jemalloc: it has them purged instead, and uses them again.
unsafe extern "C" fn dalloc(
    _: *mut je::extent_hooks_t,
    at: *mut c_void,
    size: usize,
    _: bool,
    _: c_uint,
) -> bool {
    let start = at as usize;
    // An extent that the program has protected in part is purged like a short one.
    if size < LONG.load(Relaxed) || !is_plain(start, size) {
        return true;
    }
    // If only a part could be closed, no part may be used again. The rest then only costs addresses.
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
    // A refusal costs addresses only: jemalloc does not use the extent again.
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
    // Either purging is eager, or a part was a stack and stays in memory: then it is zeroed by hand.
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
