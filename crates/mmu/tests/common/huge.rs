//! Helpers for leaves as huge pages, for their parts, and for what the kernel itself says about them.

use std::io::Read;

use millpond_core::{
    Frame, LEAF_PAGES, Mmu, Order, PAGE_SIZE, PageCount, PageIndex, PageRange, Placed,
};
use millpond_mmu::{Delivery, Memory, RealMemory, TakeOutMethod, capabilities};

use super::config;

const HUGE: usize = 2 << 20;

/// Makes memory of `leaves` open leaves, without delivery. If there are no huge pages, prints why and returns `None`.
pub fn memory(leaves: u32) -> Option<RealMemory> {
    for needed in [
        "userfaultfd for faults in user mode",
        "UFFDIO_MOVE",
        "huge pages",
    ] {
        let one = capabilities()
            .list
            .iter()
            .find(|one| one.name == needed)
            .unwrap();
        if !one.present {
            eprintln!("skipped: no {needed}: {}", one.detail);
            return None;
        }
    }
    let mmu = RealMemory::new(config(Delivery::InThread, TakeOutMethod::Move, leaves)).unwrap();
    mmu.open(PageRange::new(PageIndex(0), PageCount(leaves * LEAF_PAGES)))
        .unwrap();
    Some(mmu)
}

pub fn leaf(n: u32) -> PageRange {
    PageRange::new(PageIndex(n * LEAF_PAGES), PageCount(LEAF_PAGES))
}

pub fn huge_frame(n: u32) -> Frame {
    Frame::new(Order::MAX, n)
}

/// Returns the `n`th folio of an order in a leaf.
pub fn part(of: PageRange, order: u8, n: u32) -> PageRange {
    let pages = PageCount(1 << order);
    PageRange::new(PageIndex(of.start.0 + n * pages.0), pages)
}

pub fn frame(order: u8, n: u32) -> Frame {
    Frame::new(Order::new(order).unwrap(), n)
}

/// Writes a word to each page: each with its own value, at its own place.
pub fn write(mmu: &RealMemory, range: PageRange, seed: u64) {
    for page in range.pages() {
        // SAFETY: the page is mapped, and only this thread uses it.
        unsafe { word(mmu, page).write_volatile(seed + u64::from(page.0)) };
    }
}

pub fn reads(mmu: &RealMemory, range: PageRange, seed: u64) -> bool {
    range.pages().all(|page| {
        // SAFETY: the page is mapped, and only this thread uses it.
        unsafe { word(mmu, page).read_volatile() == seed + u64::from(page.0) }
    })
}

/// Installs a frame, and makes it a hole again if its bytes were copied.
pub fn install(mmu: &RealMemory, frame: Frame, at: PageRange) {
    if mmu.install(frame, at).unwrap() == Placed::Copied {
        mmu.free_frames(&[frame]);
    }
}

fn word(mmu: &RealMemory, page: PageIndex) -> *mut u64 {
    let place = page.0 as usize % (PAGE_SIZE / 8) * 8;
    mmu.addr_of(page).wrapping_add(place).cast()
}

pub fn all_zero(mmu: &RealMemory, range: PageRange) -> bool {
    mmu.is_blank(range, false)
}

pub fn present(mmu: &RealMemory, range: PageRange) -> u32 {
    let mut pages = 0;
    mmu.present_pages(range, &mut |run| pages += run.len.0);
    pages
}

/// Asserts that the leaf is one huge page. If it is not, asks the kernel in another way whether it still has any.
#[track_caller]
pub fn assert_huge(mmu: &RealMemory, at: PageRange) {
    let pages = mmu.huge_pages(at).0;
    if pages < at.len.0 && !kernel_has_huge_pages() {
        eprintln!("skipped one look: the kernel has run out of huge pages");
        return;
    }
    assert_eq!(
        pages, at.len.0,
        "pages of {at} that are part of a huge page"
    );
}

/// Whether a fresh mapping gets a huge page.
pub fn kernel_has_huge_pages() -> bool {
    // SAFETY: everything here is done to a mapping that this function owns.
    unsafe {
        let raw = libc::mmap(
            std::ptr::null_mut(),
            2 * HUGE,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        let at = (raw as usize).next_multiple_of(HUGE) as *mut libc::c_void;
        libc::madvise(at, HUGE, libc::MADV_HUGEPAGE);
        at.cast::<u8>().write_volatile(1);
        let huge = anon_huge_kib(at as usize) == 2048;
        libc::munmap(raw, 2 * HUGE);
        huge
    }
}

/// Returns the KiB of huge pages that the kernel counts in the mapping that begins at, or contains, the address.
fn anon_huge_kib(at: usize) -> usize {
    let mut text = String::new();
    std::fs::File::open("/proc/self/smaps")
        .and_then(|mut file| file.read_to_string(&mut text))
        .unwrap();
    let mut inside = false;
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let first = words.next().unwrap_or("");
        if let Some((from, to)) = first.split_once('-')
            && let (Ok(from), Ok(to)) = (
                usize::from_str_radix(from, 16),
                usize::from_str_radix(to, 16),
            )
        {
            inside = from <= at && at < to;
        } else if inside && first == "AnonHugePages:" {
            return words.next().unwrap().parse().unwrap();
        }
    }
    panic!("no mapping at {at:#x}");
}
