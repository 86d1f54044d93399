//! Unused code leaves the resident set.
//!
//! The budget covers the whole process, including the pages of its program and libraries: node's 45 MiB of code leave
//! only 35 of an 80 MiB budget for everything else. Most of that code ran once, at startup. The kernel would evict
//! such pages when the machine is short of memory; under our budget it is not, so we do it here. When memory begins
//! to go to the store, and once a second while it does, we unmap the pages of code and constants. With this, node
//! with 160 MiB in an 82 MiB budget takes 8 to 17 seconds instead of 95, on a machine with other work. The pages stay
//! in the kernel's page cache, which may drop them at will because they are clean copies of a file. A page that is
//! used again is mapped by a fault that takes a microsecond for 16 pages, so a program that runs 10 MiB of code pays
//! 0.1 ms a second.
//!
//! # What may be unmapped
//! A written page of a private mapping belongs to the process: an address table that the dynamic linker has filled
//! in, a breakpoint, an instruction that the program has patched. Unmapping it would bring back the file's contents.
//! So we only touch
//!
//! - segments that the linker maps read-only, of objects whose code it does not relocate (`DT_TEXTREL`). We hold the
//!   list of objects meanwhile, so no segment can be unmapped;
//! - pages of these that still belong to the file. The kernel reports this for each page (`/proc/self/pagemap`), so
//!   any earlier change survives;
//! - memory that the program has never made writable. We record such memory before the program may write to it
//!   ([`becomes_writable`]). Otherwise a page could change between the check and the unmapping.
//!
//! A debugger that stops this thread in exactly those microseconds and changes a page would lose the change. The same
//! holds for a program that issues `mprotect` with its own system call instruction and then changes its own code, for
//! a page that it changes for the first time.
//!
//! The list of objects belongs to the C library and has a lock, which this thread must not hold while the process
//! forks. A fork waits until this thread is at rest (`driver/src/fork.rs`): all this is part of the tick, which
//! counts as that thread's work.

use crate::dlopen::find_next;
use crate::{filters, raw};
use core::ffi::{c_int, c_void};
use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::*, fence};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::pread;

const PAGE: usize = 4096;
/// Number of ticks from one unmapping to the next.
const EVERY: u32 = 10;
/// Pages checked together. Code that makes memory writable waits for at most this many.
const TOGETHER: usize = 512;
/// Minimum size in bytes of a segment worth checking.
const LEAST: usize = 256 << 10;
/// Maximum number of ranges recorded as having been writable. If there are more, all code is left alone.
const RANGES: usize = 64;
/// Bits of an entry of `/proc/self/pagemap`: the page is present; the page belongs to a file or is shared.
const PRESENT: u64 = 1 << 63;
const OF_FILE: u64 = 1 << 61;
/// Entries of a dynamic section that mark an object whose read-only segments are relocated.
const DT_TEXTREL: i64 = 22;
const DT_FLAGS: i64 = 30;
const DF_TEXTREL: u64 = 4;

type Visit = unsafe extern "C" fn(*mut libc::dl_phdr_info, usize, *mut c_void) -> c_int;
type Iterate = unsafe extern "C" fn(Visit, *mut c_void) -> c_int;

/// The C library's `dl_iterate_phdr`, because a program may define its own.
static ITERATE: AtomicUsize = AtomicUsize::new(0);
/// Whether pages are being checked and unmapped.
static AT_WORK: AtomicBool = AtomicBool::new(false);
/// First and last addresses of ranges that were ever writable; there are `COUNT` of them.
static WRITABLE: [[AtomicUsize; 2]; RANGES] =
    [const { [AtomicUsize::new(0), AtomicUsize::new(0)] }; RANGES];
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// An entry of a dynamic section.
#[repr(C)]
struct Dynamic {
    tag: i64,
    value: u64,
}

/// Looks up the function that is needed later.
pub fn find() {
    ITERATE.store(find_next(c"dl_iterate_phdr").unwrap_or(0), Relaxed);
}

/// Records that the program is about to make memory outside the space writable. When this returns, no part of it is
/// being unmapped, or ever will be.
pub fn becomes_writable(start: usize, len: usize) {
    let range = start..start.saturating_add(len);
    if !is_known(&range) {
        note(&range);
    }
    fence(SeqCst);
    while AT_WORK.load(SeqCst) {
        std::thread::yield_now();
    }
}

fn note(range: &Range<usize>) {
    let at = COUNT.fetch_add(1, SeqCst);
    if let Some([first, last]) = WRITABLE.get(at) {
        last.store(range.end, SeqCst);
        first.store(range.start.max(1), SeqCst);
    } else {
        COUNT.store(RANGES + 1, SeqCst);
    }
}

/// Returns whether all of these bytes are recorded as having been writable.
fn is_known(range: &Range<usize>) -> bool {
    let count = COUNT.load(SeqCst);
    count > RANGES
        || WRITABLE[..count].iter().any(|[first, last]| {
            let first = first.load(SeqCst);
            first != 0 && first <= range.start && range.end <= last.load(SeqCst)
        })
}

/// Returns whether any of these bytes was ever writable.
fn was_writable(range: &Range<usize>) -> bool {
    let count = COUNT.load(SeqCst);
    count > RANGES
        || WRITABLE[..count].iter().any(|[first, last]| {
            // A range that is just being recorded counts as all of memory.
            let first = first.load(SeqCst);
            first < range.end && range.start < last.load(SeqCst) || first == 0
        })
}

/// Called by the manager's tick with the number of pages evicted so far.
pub fn tick(evicted: u64) {
    static SINCE: AtomicU32 = AtomicU32::new(EVERY);
    static BEFORE: AtomicU64 = AtomicU64::new(0);
    let since = SINCE.load(Relaxed);
    if since < EVERY {
        SINCE.store(since + 1, Relaxed);
    } else if BEFORE.swap(evicted, Relaxed) != evicted && !filters::are_for_all() {
        SINCE.store(0, Relaxed);
        unmap_all();
    }
}

fn unmap_all() {
    let iterate = ITERATE.load(Relaxed);
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let opened = openat(CWD, c"/proc/self/pagemap", flags, Mode::empty());
    let (Ok(pagemap), true) = (opened, iterate != 0) else {
        return;
    };
    // SAFETY: the C library's function of this name has this type.
    let iterate = unsafe { core::mem::transmute::<usize, Iterate>(iterate) };
    let mut pagemap = pagemap.as_fd();
    // SAFETY: `visit` gets back the pointer to the descriptor, which lives until the call returns.
    unsafe { iterate(visit, (&raw mut pagemap).cast()) };
}

/// Unmaps whatever may be unmapped of an object.
unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _: usize, pagemap: *mut c_void) -> c_int {
    // SAFETY: the C library passes an object that stays loaded until this returns, and our own argument.
    let (info, pagemap) = unsafe { (&*info, *pagemap.cast::<BorrowedFd<'_>>()) };
    if info.dlpi_phdr.is_null() {
        return 0;
    }
    // SAFETY: the object has this many headers.
    let headers =
        unsafe { core::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
    let base = info.dlpi_addr as usize;
    let range = |header: &libc::Elf64_Phdr| {
        let start = base + header.p_vaddr as usize;
        start..start + header.p_memsz as usize
    };
    let own = visit as Visit as usize;
    let is_own = headers.iter().any(|header| range(header).contains(&own));
    let dynamic = headers
        .iter()
        .find(|header| header.p_type == libc::PT_DYNAMIC);
    // SAFETY: the section of a loaded object is mapped, and ends with an entry of zeros.
    if is_own || dynamic.is_none_or(|header| unsafe { is_relocated(range(header).start) }) {
        return 0;
    }
    for header in headers {
        let is_clean = header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_W == 0;
        if is_clean && header.p_filesz as usize >= LEAST {
            let segment = range(header);
            unmap_segment(
                pagemap,
                segment.start.next_multiple_of(PAGE)..segment.end & !(PAGE - 1),
            );
        }
    }
    0
}

/// Returns whether the object with this dynamic section has relocations in read-only segments.
///
/// # Safety
/// A dynamic section begins at this address.
unsafe fn is_relocated(section: usize) -> bool {
    let mut at = section as *const Dynamic;
    loop {
        // SAFETY: the caller guarantees that the section is mapped up to its last entry.
        let entry = unsafe { &*at };
        match entry.tag {
            0 => return false,
            DT_TEXTREL => return true,
            DT_FLAGS if entry.value & DF_TEXTREL != 0 => return true,
            // SAFETY: this was not the last entry.
            _ => at = unsafe { at.add(1) },
        }
    }
}

fn unmap_segment(pagemap: BorrowedFd<'_>, segment: Range<usize>) {
    let mut start = segment.start;
    while start < segment.end {
        let end = segment.end.min(start + TOGETHER * PAGE);
        AT_WORK.store(true, SeqCst);
        fence(SeqCst);
        if !was_writable(&(start..end)) {
            unmap(pagemap, start..end);
        }
        AT_WORK.store(false, SeqCst);
        start = end;
    }
}

/// Unmaps the pages that belong to a file, of at most [`TOGETHER`] pages.
fn unmap(pagemap: BorrowedFd<'_>, range: Range<usize>) {
    let mut entries = [0; 8 * TOGETHER];
    let wanted = range.len() / PAGE * 8;
    let read = pread(
        pagemap,
        &mut entries[..wanted],
        (range.start / PAGE * 8) as u64,
    );
    let (entries, _) = entries[..read.unwrap_or(0)].as_chunks::<8>();
    let is_file = |entry: &[u8; 8]| {
        let entry = u64::from_ne_bytes(*entry);
        entry & (PRESENT | OF_FILE) == PRESENT | OF_FILE
    };
    let mut at = range.start;
    for run in entries.chunk_by(|one, next| is_file(one) == is_file(next)) {
        let len = run.len() * PAGE;
        if run.first().is_some_and(is_file) {
            let advice = libc::MADV_DONTNEED as usize;
            // SAFETY: these pages are a file's own, unchanged, in a segment that nobody may write to, so they read as
            // before when they are touched again. The segment stays mapped until the caller of `visit` returns. The
            // kernel refuses locked pages, which stay.
            let _ = unsafe { raw::syscall(libc::SYS_madvise, [at, len, advice, 0, 0, 0]) };
        }
        at += len;
    }
}
