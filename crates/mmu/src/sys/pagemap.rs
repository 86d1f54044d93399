//! The page tables' own record of which pages are there, read through `/proc/self/pagemap`.
//!
//! After a failed `UFFDIO_MOVE` the error does not say which pages were moved: the call can move a page, then find
//! that its dirty bit changed meanwhile, and return EEXIST. The page tables decide, so they are consulted. A page
//! that the kernel itself has swapped out counts as there.

use core::ffi::CStr;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, Ordering};

use linux_raw_sys::general::{page_region, pm_scan_arg};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::{Errno, pread};
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, ioctl, opcode};
use rustix::process::DumpableBehavior;

use millpond_core::PAGE_SIZE;

use super::gate;

const PRESENT_OR_SWAPPED: u64 = 0b11 << 62;
/// `PAGE_IS_PRESENT | PAGE_IS_SWAPPED` of `PAGEMAP_SCAN`.
const SCAN_THERE: u64 = (1 << 3) | (1 << 4);
/// `PAGE_IS_PFNZERO` of `PAGEMAP_SCAN`: the kernel's page of zeros, which everybody shares.
const SCAN_ZERO: u64 = 1 << 5;
/// `PAGE_IS_HUGE` of `PAGEMAP_SCAN`: the page is mapped by one entry for 2 MiB.
const SCAN_HUGE: u64 = 1 << 6;

/// Opens this process's page map. A descriptor always refers to the process that opened it, so a child needs its own.
///
/// After a change of user, a process's files in `/proc` belong to root, because its memory may contain data that the
/// new user should not see, and a child inherits that. A process may always give the files back to its user
/// (`PR_SET_DUMPABLE`), so this function does that while it opens the file. Afterwards the setting is "nobody" (0),
/// even if it was "root only" (2), which a process cannot set.
pub(crate) fn open() -> Result<OwnedFd, Errno> {
    open_own(c"/proc/self/pagemap", OFlags::RDONLY)
}

/// Opens one of this process's files in `/proc`, in the way that [`open`] explains.
pub(crate) fn open_own(path: &CStr, flags: OFlags) -> Result<OwnedFd, Errno> {
    let again = || openat(CWD, path, flags | OFlags::CLOEXEC, Mode::empty());
    match again() {
        Err(Errno::ACCESS) => {
            set_dumpable(DumpableBehavior::Dumpable)?;
            let opened = again();
            set_dumpable(DumpableBehavior::NotDumpable)?;
            opened
        }
        opened => opened,
    }
}

fn set_dumpable(behavior: DumpableBehavior) -> Result<(), Errno> {
    rustix::process::set_dumpable_behavior(behavior)
}

/// Whether the process must do without `PAGEMAP_SCAN`.
static NO_SCAN: AtomicBool = AtomicBool::new(false);

/// Makes the process do without `PAGEMAP_SCAN`, as on a kernel before Linux 6.7.
pub(crate) fn do_without_scan() {
    NO_SCAN.store(true, Ordering::Relaxed);
}

/// Whether the page at `addr` is there. Returns `None` if the page map cannot be read.
pub(crate) fn is_there(pagemap: BorrowedFd<'_>, addr: usize) -> Option<bool> {
    let mut entry = [0u8; 8];
    let read = pread(pagemap, &mut entry, (addr / PAGE_SIZE * 8) as u64).ok()?;
    (read == 8).then(|| u64::from_ne_bytes(entry) & PRESENT_OR_SWAPPED != 0)
}

/// Calls `visit(start, end)` for each run of present pages in `start..end`, lowest first.
pub(crate) fn runs(
    pagemap: BorrowedFd<'_>,
    start: usize,
    end: usize,
    visit: &mut dyn FnMut(usize, usize),
) -> Result<(), Errno> {
    match scan(pagemap, start, end, SCAN_THERE, visit) {
        Err(Errno::NOTTY | Errno::INVAL) => read_entries(pagemap, start, end, visit),
        other => other,
    }
}

/// Returns how many bytes of these ranges of this process's memory are in memory, or swapped out by the kernel; `None`
/// if the kernel does not tell. The ends are multiples of the page size.
///
/// ```
/// let bytes = vec![7u8; 64 << 10];
/// let start = (bytes.as_ptr() as usize).next_multiple_of(4096);
/// assert_eq!(millpond_mmu::present_bytes([start..start + (32 << 10)]), Some(32 << 10));
/// ```
#[must_use]
pub fn present_bytes(ranges: impl IntoIterator<Item = Range<usize>>) -> Option<usize> {
    let pagemap = open().ok()?;
    let mut bytes = 0;
    for range in ranges {
        let mut count = |start, end| bytes += end - start;
        runs(pagemap.as_fd(), range.start, range.end, &mut count).ok()?;
    }
    Some(bytes)
}

/// [`runs`] without `PAGEMAP_SCAN`, for a long range that is mostly empty: entries are only read where `mincore` has
/// found something in memory. An entry takes eight bytes even where there are no page tables, and reading those of a
/// terabyte takes seconds; `mincore` covers 16 MiB in a microsecond. (If the kernel has swapped out all pages of 16
/// MiB, they are skipped.)
pub(crate) fn runs_of_sparse(
    pagemap: BorrowedFd<'_>,
    start: usize,
    end: usize,
    visit: &mut dyn FnMut(usize, usize),
) -> Result<(), Errno> {
    const PAGES: usize = 4096;
    let mut seen = [0u8; PAGES];
    for from in (start..end).step_by(PAGES * PAGE_SIZE) {
        let to = end.min(from + PAGES * PAGE_SIZE);
        let seen = &mut seen[..(to - from) / PAGE_SIZE];
        // `mincore` fails for a range with holes.
        let is_empty = resident(from, seen).is_ok() && seen.iter().all(|page| page & 1 == 0);
        if !is_empty {
            read_entries(pagemap, from, to, visit)?;
        }
    }
    Ok(())
}

/// Sets bit 0 of each byte whose page, counting from `start`, is in memory and not swapped out. For a leaf that takes
/// 2 µs wherever its pages lie, whereas [`runs`] takes 5 for 256 single ones.
pub(crate) fn resident(start: usize, pages: &mut [u8]) -> Result<(), Errno> {
    const NR: usize = linux_raw_sys::general::__NR_mincore as usize;
    let (len, seen) = (pages.len() * PAGE_SIZE, pages.as_mut_ptr() as usize);
    // SAFETY: the kernel writes one byte for each page, and the slice has as many.
    gate::check(unsafe { gate::syscall(NR, [start, len, seen, 0, 0, 0]) }).map(drop)
}

/// Returns the number of bytes in `start..end` that are mapped by huge pages. Only `PAGEMAP_SCAN` can tell.
pub(crate) fn huge_bytes(
    pagemap: BorrowedFd<'_>,
    start: usize,
    end: usize,
) -> Result<usize, Errno> {
    let mut bytes = 0;
    scan(pagemap, start, end, SCAN_HUGE, &mut |from, to| {
        bytes += to - from;
    })?;
    Ok(bytes)
}

/// Calls `visit(start, end)` for each run of pages in `start..end` that are the kernel's page of zeros. Only
/// `PAGEMAP_SCAN` tells.
pub(crate) fn shared_zeros(
    pagemap: BorrowedFd<'_>,
    start: usize,
    end: usize,
    visit: &mut dyn FnMut(usize, usize),
) -> Result<(), Errno> {
    scan(pagemap, start, end, SCAN_ZERO, visit)
}

/// Whether the kernel has `PAGEMAP_SCAN` (Linux 6.7).
pub(crate) fn has_scan(pagemap: BorrowedFd<'_>) -> bool {
    scan(pagemap, 0, PAGE_SIZE, SCAN_THERE, &mut |_, _| {}).is_ok()
}

fn scan(
    pagemap: BorrowedFd<'_>,
    mut start: usize,
    end: usize,
    categories: u64,
    visit: &mut dyn FnMut(usize, usize),
) -> Result<(), Errno> {
    if NO_SCAN.load(Ordering::Relaxed) {
        return Err(Errno::NOTTY);
    }
    let mut regions = [page_region {
        start: 0,
        end: 0,
        categories: 0,
    }; 64];
    while start < end {
        let arg = pm_scan_arg {
            size: size_of::<pm_scan_arg>() as u64,
            flags: 0,
            start: start as u64,
            end: end as u64,
            walk_end: 0,
            vec: regions.as_mut_ptr() as u64,
            vec_len: regions.len() as u64,
            max_pages: 0,
            category_inverted: 0,
            category_mask: 0,
            category_anyof_mask: categories,
            return_mask: categories,
        };
        // SAFETY: `vec` and `vec_len` describe the array above, which outlives the call; apart from it the kernel
        // only writes to the argument.
        let (found, walk_end) = unsafe { ioctl(pagemap, Scan(arg)) }?;
        for region in &regions[..found] {
            visit(region.start as usize, region.end as usize);
        }
        start = walk_end;
    }
    Ok(())
}

fn read_entries(
    pagemap: BorrowedFd<'_>,
    start: usize,
    end: usize,
    visit: &mut dyn FnMut(usize, usize),
) -> Result<(), Errno> {
    let mut entries = [0u8; 64 * 8];
    let mut run: Option<usize> = None;
    let mut at = start;
    while at < end {
        let want = ((end - at) / PAGE_SIZE).min(64);
        let got = pread(
            pagemap,
            &mut entries[..want * 8],
            (at / PAGE_SIZE * 8) as u64,
        )? / 8;
        if got == 0 {
            break;
        }
        for entry in entries[..got * 8].chunks_exact(8) {
            let there = u64::from_ne_bytes(entry.try_into().expect("eight bytes"))
                & PRESENT_OR_SWAPPED
                != 0;
            if there {
                run.get_or_insert(at);
            } else if let Some(from) = run.take() {
                visit(from, at);
            }
            at += PAGE_SIZE;
        }
    }
    if let Some(from) = run {
        visit(from, at);
    }
    Ok(())
}

/// `PAGEMAP_SCAN`: it returns how many regions it filled in and where it stopped.
struct Scan(pm_scan_arg);

// SAFETY: the opcode takes a pointer to a `pm_scan_arg`, which `as_ptr` returns.
unsafe impl Ioctl for Scan {
    type Output = (usize, usize);
    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        opcode::read_write::<pm_scan_arg>(b'f', 16)
    }

    fn as_ptr(&mut self) -> *mut core::ffi::c_void {
        (&raw mut self.0).cast()
    }

    unsafe fn output_from_ptr(
        out: IoctlOutput,
        arg: *mut core::ffi::c_void,
    ) -> rustix::io::Result<Self::Output> {
        // SAFETY: `arg` is the pointer that `as_ptr` returned, still alive, and written by the kernel.
        let walk_end = unsafe { (*arg.cast::<pm_scan_arg>()).walk_end };
        Ok((out as usize, walk_end as usize))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reading_entries_and_scanning_find_the_same_runs() {
        let map = open().unwrap();
        let mut memory = vec![0u8; 40 * PAGE_SIZE];
        let base = (memory.as_ptr() as usize).next_multiple_of(PAGE_SIZE);
        let first = base - memory.as_ptr() as usize;
        for page in [1, 2, 3, 7, 30] {
            memory[first + page * PAGE_SIZE] = 1;
        }
        let (start, end) = (base, base + 39 * PAGE_SIZE);
        let mut by_entries = Vec::new();
        read_entries(map_fd(&map), start, end, &mut |a, b| {
            by_entries.push((a, b))
        })
        .unwrap();
        assert!(
            by_entries
                .iter()
                .any(|&(a, b)| a <= start + PAGE_SIZE && b >= start + 4 * PAGE_SIZE)
        );
        let mut sparse = Vec::new();
        runs_of_sparse(map_fd(&map), start, end, &mut |a, b| sparse.push((a, b))).unwrap();
        assert_eq!(by_entries, sparse);
        if !has_scan(map_fd(&map)) {
            eprintln!("skipped: PAGEMAP_SCAN is missing (Linux 6.7)");
            return;
        }
        let mut by_scan: Vec<(usize, usize)> = Vec::new();
        scan(
            map_fd(&map),
            start,
            end,
            SCAN_THERE,
            &mut |a, b| match by_scan.last_mut() {
                Some(last) if last.1 == a => last.1 = b,
                _ => by_scan.push((a, b)),
            },
        )
        .unwrap();
        assert_eq!(by_entries, by_scan);
    }

    fn map_fd(map: &OwnedFd) -> BorrowedFd<'_> {
        use rustix::fd::AsFd;
        map.as_fd()
    }
}
