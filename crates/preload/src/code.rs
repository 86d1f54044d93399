//! Code that nobody runs leaves the resident set.
//!
//! The budget covers the whole process, and the pages of its program and libraries count: 45 MiB of node's code leave a
//! budget of 80 MiB with 35 for everything else. Most of that code ran once, when the program started. The kernel would
//! take such pages out where it is short of memory itself. Under a budget of ours it is not, so this is done here: when
//! memory begins to go to the store, and once a second while it does, the pages of code and of constants are unmapped.
//! node with 160 MiB in 82 takes 8 to 17 seconds instead of 95, on a machine with other work. They stay in the kernel's
//! page cache, which may drop them when it likes, as a clean copy of a file. What is used again is mapped again by a
//! fault of a microsecond for 16 pages at a time, so for a program that runs 10 MiB of code this costs 0.1 ms a second.
//!
//! # What may be unmapped
//! A page of a private mapping that was written is the process's own: a table of addresses that the dynamic linker has
//! filled in, a breakpoint, an instruction that the program has changed. Unmapped, it would be the file's again. So
//!
//! - only segments that the linker maps without the right to write are looked at, of objects whose code it does not
//!   relocate (`DT_TEXTREL`). The list of objects is held meanwhile, by which no segment can be unmapped;
//! - of these only pages that are the file's, which the kernel says of each (`/proc/self/pagemap`), so that what was
//!   changed at any time before stays;
//! - nothing that the program has ever made writable, from before it may write there ([`becomes_writable`]). Otherwise
//!   a page could be changed between the look and the unmapping.
//!
//! A debugger that stops this thread in just those microseconds and changes a page would lose the change. A program
//! that changes its own code after an `mprotect` by an instruction of its own is in the same case, for a page that it
//! changes for the first time.
//!
//! The list of objects is the C library's, under a lock that a forking process must not hold in this thread. A fork
//! waits until this thread is at rest (`driver/src/fork.rs`), as the tick, which all this is a part of, is work of its.

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
/// Pages that are looked at together. What becomes writable waits for as many.
const TOGETHER: usize = 512;
/// Bytes from which on a segment is worth a look.
const LEAST: usize = 256 << 10;
/// Most ranges that are known to have been writable. With more of them all code is left alone.
const RANGES: usize = 64;
/// Bits of an entry of `/proc/self/pagemap`: the page is there, and is a file's or shared.
const PRESENT: u64 = 1 << 63;
const OF_FILE: u64 = 1 << 61;
/// What a dynamic section says of an object whose segments are relocated without the right to write.
const DT_TEXTREL: i64 = 22;
const DT_FLAGS: i64 = 30;
const DF_TEXTREL: u64 = 4;

type Visit = unsafe extern "C" fn(*mut libc::dl_phdr_info, usize, *mut c_void) -> c_int;
type Iterate = unsafe extern "C" fn(Visit, *mut c_void) -> c_int;

/// The C library's `dl_iterate_phdr`, as a program may have one of its own.
static ITERATE: AtomicUsize = AtomicUsize::new(0);
/// Pages are being looked at and unmapped.
static AT_WORK: AtomicBool = AtomicBool::new(false);
/// First and last addresses of what was writable at some time, `COUNT` of them.
static WRITABLE: [[AtomicUsize; 2]; RANGES] =
    [const { [AtomicUsize::new(0), AtomicUsize::new(0)] }; RANGES];
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// An entry of a dynamic section.
#[repr(C)]
struct Dynamic {
    tag: i64,
    value: u64,
}

/// Looks up what is needed later.
pub fn find() {
    ITERATE.store(find_next(c"dl_iterate_phdr").unwrap_or(0), Relaxed);
}

/// The program is about to make memory outside the space writable. When this returns, nothing of it is being unmapped,
/// and nothing will be.
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

/// Whether it is known of all of these bytes that they were writable.
fn is_known(range: &Range<usize>) -> bool {
    let count = COUNT.load(SeqCst);
    count > RANGES
        || WRITABLE[..count].iter().any(|[first, last]| {
            let first = first.load(SeqCst);
            first != 0 && first <= range.start && range.end <= last.load(SeqCst)
        })
}

/// Whether any of these bytes was writable at some time.
fn was_writable(range: &Range<usize>) -> bool {
    let count = COUNT.load(SeqCst);
    count > RANGES
        || WRITABLE[..count].iter().any(|[first, last]| {
            // A range that is just being written down counts as all of memory.
            let first = first.load(SeqCst);
            first < range.end && range.start < last.load(SeqCst) || first == 0
        })
}

/// Is called by the manager's tick: `evicted` pages have left memory so far.
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

/// Unmaps what can be unmapped of an object.
unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _: usize, pagemap: *mut c_void) -> c_int {
    // SAFETY: the C library passes an object that stays loaded until this returns, and our own argument.
    let (info, pagemap) = unsafe { (&*info, *pagemap.cast::<BorrowedFd<'_>>()) };
    if info.dlpi_phdr.is_null() {
        return 0;
    }
    // SAFETY: the object has so many headers.
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

/// Whether the object of this dynamic section has relocations in segments without the right to write.
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

/// Unmaps those of at most [`TOGETHER`] pages that are a file's.
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
            // before when they are touched again. The segment stays mapped until the caller of `visit` returns. Locked
            // pages are refused, and stay.
            let _ = unsafe { raw::syscall(libc::SYS_madvise, [at, len, advice, 0, 0, 0]) };
        }
        at += len;
    }
}
