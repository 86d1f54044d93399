//! How long freed memory stays *dirty*, kept by jemalloc without telling the manager.
//!
//! Reusing a dirty page costs nothing, and a program that allocates and frees all day lives on such pages. Under
//! pressure a dirty page is worse than none. The manager does not know that it is worthless and writes it to the
//! store; when the program reuses it, the page is read back only to be overwritten. A purge would have dropped the
//! page and its slot.
//!
//! No fixed time suits both cases. The table gives the store's traffic (out and in) of two Python jobs at a quarter
//! of their peak memory: `demo/group_sort.py` with 128 MiB and `groups` of `cli/tests/programs/work.py`. It also
//! gives the records per second of processor time of `bench lazyfree`'s allocating program, which fits in its budget.
//! The figures are medians of three runs:
//!
//! | dirty for | `group_sort.py` in 40 MiB | `groups` in 64 MiB | allocating program |
//! | --- | --- | --- | --- |
//! | 2 s | 1925 MiB | 1185 MiB | 71,000 |
//! | 0.1 s | 1845 MiB | 1203 MiB | 86,000 |
//! | purged at once | 1452 MiB | 1124 MiB | 18,000 |
//! | 2 s, and purged at once under pressure (as here) | 1514 MiB | 1156 MiB | as with 2 s |
//!
//! A time in between is no compromise: the harm comes from memory that is out when it is freed and is reused right
//! after. So pages are purged at once while anything goes to the store, and otherwise stay dirty for [`CALM_MS`].
//!
//! The manager's tick notices the pressure. Its thread must not enter jemalloc, whose bookkeeping is managed memory,
//! so the next thread of the program that frees something tells jemalloc. If the program has set an arena's time
//! itself, we leave it alone.

use crate::threads;
use core::ffi::CStr;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};
use std::io::Write;
use tikv_jemalloc_sys as je;

/// How long pages stay dirty without pressure, in milliseconds.
pub const CALM_MS: isize = 2000;
/// How long pages stay dirty under pressure, in milliseconds.
const PRESSED_MS: isize = 0;
/// Number of ticks without traffic after which the pressure is over.
const PATIENCE: u32 = 10;

/// Whether the ticks see pressure.
static PRESSED: AtomicBool = AtomicBool::new(false);
/// Whether the pressure has changed since jemalloc was last told.
static CHANGED: AtomicBool = AtomicBool::new(false);
/// Number of arenas to tell; zero until jemalloc takes its memory from the space.
static ARENAS: AtomicU32 = AtomicU32::new(0);

/// The maximum number of arenas that are told.
const MAX_ARENAS: u32 = 1024;
/// One bit for each arena that purges at once because of us. Others may do so because the program asked for it.
static HURRIED: [AtomicU64; MAX_ARENAS as usize / 64] = [const { AtomicU64::new(0) }; 16];

/// Sets the maximum number of arenas.
pub fn begin(arenas: u32) {
    ARENAS.store(arenas, Relaxed);
}

/// Called after an arena was created: under pressure it has to be told.
pub fn arena_made() {
    if PRESSED.load(Relaxed) {
        CHANGED.store(true, Release);
    }
}

/// Called by the manager's tick with the number of pages evicted so far.
pub fn tick(evicted: u64) {
    static BEFORE: AtomicU64 = AtomicU64::new(0);
    static QUIET: AtomicU32 = AtomicU32::new(PATIENCE);
    let quiet = if BEFORE.swap(evicted, Relaxed) == evicted {
        QUIET.load(Relaxed).saturating_add(1)
    } else {
        0
    };
    QUIET.store(quiet, Relaxed);
    let pressed = quiet < PATIENCE;
    if PRESSED.swap(pressed, Relaxed) != pressed {
        CHANGED.store(true, Release);
    }
}

/// Called by a thread of the program that is about to free something and holds no lock.
#[inline]
pub fn follow() {
    if CHANGED.load(Relaxed) {
        tell();
    }
}

#[cold]
fn tell() {
    if threads::is_service() || !CHANGED.swap(false, Acquire) {
        return;
    }
    let pressed = PRESSED.load(Relaxed);
    for arena in 0..ARENAS.load(Relaxed).min(MAX_ARENAS) {
        let (word, bit) = (&HURRIED[arena as usize / 64], 1u64 << (arena % 64));
        let hurried = word.load(Relaxed) & bit != 0;
        // An arena that cannot be told keeps its time, which is correct in one of the two states.
        if pressed && !hurried && set(arena, CALM_MS, PRESSED_MS).is_some() {
            word.fetch_or(bit, Relaxed);
        } else if !pressed && hurried {
            let _ = set(arena, PRESSED_MS, CALM_MS);
            word.fetch_and(!bit, Relaxed);
        }
    }
}

/// Sets an arena's time to `to` if it is `from`.
fn set(arena: u32, from: isize, to: isize) -> Option<()> {
    let mut name = [0u8; 40];
    write!(&mut name[..], "arena.{arena}.dirty_decay_ms\0").ok()?;
    let name = CStr::from_bytes_until_nul(&name).ok()?;
    let mut now = 0isize;
    let mut len = size_of_val(&now);
    // SAFETY: this control reads and writes an `ssize_t`.
    let read = unsafe {
        je::mallctl(
            name.as_ptr(),
            (&raw mut now).cast(),
            &mut len,
            null_mut(),
            0,
        )
    };
    if read != 0 || now != from {
        return None;
    }
    let mut to = to;
    // SAFETY: this control reads and writes an `ssize_t`.
    let written = unsafe {
        je::mallctl(
            name.as_ptr(),
            null_mut(),
            null_mut(),
            (&raw mut to).cast(),
            size_of_val(&to),
        )
    };
    (written == 0).then_some(())
}
