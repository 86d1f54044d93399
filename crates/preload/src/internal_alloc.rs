//! This library's own allocator, separate from the program's.
//!
//! Bookkeeping about managed memory must not live in managed memory: to bring back a page we would first have to
//! bring back the page that says where it is. So everything that the manager allocates comes from here: from
//! `dlmalloc` over one range of addresses that is reserved once, or directly from the kernel for requests of 128 KiB
//! and more. (The manager sizes its tables by the arena and touches them sparsely, so they must not be filled with
//! zeros by hand.)
//!
//! Three kinds of program allocations also come from here: those made before the manager is up (the dynamic
//! linker's), those of the manager's own threads (the C library allocates on behalf of any thread), and the few that
//! the C library writes to in a child process before a fork handler can run. They have a header with their size,
//! because C's `free` does not pass one. There is only one range, so an address tells who owns a pointer.

use crate::guard::children::apart;
use crate::lock::RawLock;
use crate::raw;
use crate::signals::Blocked;
use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicUsize, Ordering::*};
use dlmalloc::Dlmalloc;
use millpond_sync::Rank;

/// Requests of this many bytes or more get their own mapping.
const DIRECT: usize = 128 << 10;
/// Lengths of the range to try in turn, because some programs run under a tight `RLIMIT_AS`.
const RANGE_LENS: [usize; 4] = [4 << 30, 1 << 30, 256 << 20, 32 << 20];
/// The minimum that dlmalloc is given at once: it writes to both ends of what it gets, and itself asks for only 64
/// KiB.
const PIECE: usize = 512 << 10;
const PAGE: usize = 4096;
/// Number of bytes before each block for C code: they hold the block's real start and its size.
const HEADER: usize = 16;

static RANGE_BASE: AtomicUsize = AtomicUsize::new(0);
static RANGE_END: AtomicUsize = AtomicUsize::new(0);
static RANGE_USED: AtomicUsize = AtomicUsize::new(0);

/// The source of dlmalloc's memory. It hands out the reserved range from the bottom and never takes anything back.
struct Range;

// SAFETY: every part of the range is handed out once, is mapped readable and writable, and stays so.
unsafe impl dlmalloc::Allocator for Range {
    fn alloc(&self, size: usize) -> (*mut u8, usize, u32) {
        if RANGE_BASE.load(Relaxed) == 0 && !reserve() {
            return (null_mut(), 0, 0);
        }
        let start = RANGE_USED.load(Relaxed);
        let room = RANGE_END.load(Relaxed) - start;
        let size = size.next_multiple_of(PAGE);
        if room < size {
            return (null_mut(), 0, 0);
        }
        let size = size.next_multiple_of(PIECE).min(room);
        // SAFETY: nobody has been given this part of our own mapping yet. The advice changes only the contents of
        // core dumps.
        unsafe {
            if raw::mprotect(start, size, libc::PROT_READ | libc::PROT_WRITE, None).is_err() {
                return (null_mut(), 0, 0);
            }
            let _ = raw::madvise(start, size, libc::MADV_DODUMP);
        }
        RANGE_USED.store(start + size, Relaxed);
        (start as *mut u8, size, 0)
    }

    fn remap(&self, _: *mut u8, _: usize, _: usize, _: bool) -> *mut u8 {
        null_mut()
    }

    fn free_part(&self, _: *mut u8, _: usize, _: usize) -> bool {
        false
    }

    fn free(&self, _: *mut u8, _: usize) -> bool {
        false
    }

    fn can_release_part(&self, _: u32) -> bool {
        false
    }

    fn allocates_zeros(&self) -> bool {
        true
    }

    fn page_size(&self) -> usize {
        PAGE
    }
}

/// Reserves the range. The first call happens in the dynamic linker, with one thread. The range is inaccessible and
/// is opened as it is handed out: a kernel that promises no more memory than there is (`vm.overcommit_memory=2`)
/// would otherwise count all of it as promised.
fn reserve() -> bool {
    for len in RANGE_LENS {
        if let Ok(base) = raw::map_closed(len) {
            // SAFETY: this is advice about our own new mapping. A core dump contains the parts of the range that were
            // handed out.
            let _ = unsafe { raw::madvise(base, len, libc::MADV_DONTDUMP) };
            RANGE_USED.store(base, Relaxed);
            RANGE_END.store(base + len, Relaxed);
            RANGE_BASE.store(base, Release);
            return true;
        }
    }
    false
}

/// The allocator and its lock. Callers have signals blocked or run before there are handlers.
pub struct Internal {
    lock: RawLock,
    heap: UnsafeCell<Dlmalloc<Range>>,
}

// SAFETY: the heap is only used with the lock held.
unsafe impl Sync for Internal {}

#[global_allocator]
static INTERNAL: Internal = Internal {
    lock: RawLock::new(Rank::InternalAllocator),
    heap: UnsafeCell::new(Dlmalloc::new_with_allocator(Range)),
};

impl Internal {
    /// Runs `work` on the heap. Returns `None` in a panicking thread if another thread holds the heap for long.
    fn with<R>(&self, work: impl FnOnce(&mut Dlmalloc<Range>) -> R) -> Option<R> {
        if !std::thread::panicking() {
            self.lock.lock();
        } else if !self.lock.lock_soon() {
            return None;
        }
        // SAFETY: the lock is held, and `work` (dlmalloc's own code) does not come back here.
        let result = work(unsafe { &mut *self.heap.get() });
        self.lock.unlock();
        Some(result)
    }
}

/// Memory for the message of a panicking thread that cannot get the heap. The standard library allocates for the
/// message before any hook learns of the panic. The thread that holds the heap may be waiting for the very fault that
/// panicked, or may be the panicking thread itself. The process ends next, and none of this memory is given back.
struct LastWords(UnsafeCell<[u8; 32 << 10]>);

// SAFETY: each part is handed out once.
unsafe impl Sync for LastWords {}

static LAST_WORDS: LastWords = LastWords(UnsafeCell::new([0; 32 << 10]));
static LAST_WORDS_USED: AtomicUsize = AtomicUsize::new(0);

impl LastWords {
    fn block(&self, layout: Layout) -> *mut u8 {
        // The request is enlarged so that any alignment fits.
        let Some(wanted) = layout.size().checked_add(layout.align()) else {
            return null_mut();
        };
        let start = LAST_WORDS_USED.fetch_add(wanted, Relaxed);
        if start.saturating_add(wanted) > size_of::<Self>() {
            return null_mut();
        }
        let start = self.0.get() as usize + start;
        start.next_multiple_of(layout.align()) as *mut u8
    }

    fn owns(&self, block: *mut u8) -> bool {
        (block as usize).wrapping_sub(self.0.get() as usize) < size_of::<Self>()
    }
}

/// Creates a mapping for one block. Such blocks are the manager's tables, which are long and nearly empty and do not
/// belong to the program, so core dumps omit them.
fn map_direct(len: usize) -> *mut u8 {
    let Ok(block) = raw::map_anonymous(len) else {
        return null_mut();
    };
    // SAFETY: this is advice about our own new mapping and changes only the contents of core dumps.
    let _ = unsafe { raw::madvise(block, len, libc::MADV_DONTDUMP) };
    block as *mut u8
}

fn is_direct(layout: Layout) -> bool {
    layout.size() >= DIRECT && layout.align() <= PAGE
}

// SAFETY: blocks come from dlmalloc or are mappings of their own, distinguished by their layout alone.
unsafe impl GlobalAlloc for Internal {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let block = if is_direct(layout) {
            map_direct(layout.size())
        } else {
            // SAFETY: dlmalloc accepts any size and any power of two.
            self.with(|heap| unsafe { heap.malloc(layout.size(), layout.align()) })
                .unwrap_or_else(|| LAST_WORDS.block(layout))
        };
        if block.is_null() && crate::init::is_starting() {
            crate::exit::fail_without_memory(layout.size());
        }
        block
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if is_direct(layout) {
            // SAFETY: the caller guarantees what this call needs; new mappings are already zero.
            return unsafe { self.alloc(layout) };
        }
        // SAFETY: dlmalloc accepts any size and any power of two.
        self.with(|heap| unsafe { heap.calloc(layout.size(), layout.align()) })
            .unwrap_or_else(|| LAST_WORDS.block(layout))
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if LAST_WORDS.owns(block) {
            return;
        }
        if is_direct(layout) {
            // SAFETY: `alloc` made this mapping for a block of this layout alone.
            let _ = unsafe { raw::munmap(block as usize, layout.size()) };
            return;
        }
        // SAFETY: the caller guarantees that the block is from this heap, and it was not direct.
        let _ = self.with(|heap| unsafe { heap.free(block, layout.size(), layout.align()) });
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller guarantees that `size` rounds up to the alignment without overflow.
        let wanted = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        match (is_direct(layout), is_direct(wanted)) {
            (true, true) => {
                // SAFETY: the mapping belongs to this block alone; the block's owner gets the new address.
                let moved = unsafe {
                    raw::mremap(block as usize, layout.size(), size, libc::MREMAP_MAYMOVE, 0)
                };
                moved.map_or(null_mut(), |at| at as *mut u8)
            }
            (false, false) if !LAST_WORDS.owns(block) && !std::thread::panicking() => {
                let (old, align) = (layout.size(), layout.align());
                // SAFETY: the block is from this heap and has this layout.
                self.with(|heap| unsafe { heap.realloc(block, old, align, size) })
                    .unwrap_or(null_mut())
            }
            _ => {
                // SAFETY: the new block has room for the copied part, and is not the old one.
                unsafe {
                    let new = self.alloc(wanted);
                    if !new.is_null() {
                        new.copy_from_nonoverlapping(block, size.min(layout.size()));
                        self.dealloc(block, layout);
                    }
                    new
                }
            }
        }
    }
}

/// Returns whether `pointer` is a block of [`allocate`].
#[inline]
pub fn owns(pointer: usize) -> bool {
    pointer >= RANGE_BASE.load(Relaxed) && pointer < RANGE_END.load(Relaxed)
}

/// Allocates a block for C code, aligned to `align` (a power of two). Returns null if there is no memory.
pub fn allocate(size: usize, align: usize) -> *mut u8 {
    let align = align.max(HEADER);
    let Some(total) = size.checked_add(align).and_then(|n| n.checked_add(HEADER)) else {
        return null_mut();
    };
    let _blocked = (!apart::has_blocked()).then(Blocked::new);
    // SAFETY: any size may be requested.
    let start = INTERNAL
        .with(|heap| unsafe { heap.c_malloc(total) })
        .unwrap_or(null_mut());
    if start.is_null() {
        return null_mut();
    }
    let block = (start as usize + HEADER).next_multiple_of(align) as *mut u8;
    // SAFETY: the header lies between `start` and the block, both inside the `total` bytes, aligned to 16.
    unsafe {
        block
            .cast::<[usize; 2]>()
            .sub(1)
            .write([start as usize, size])
    };
    block
}

/// Allocates a block like [`allocate`], filled with zeros.
pub fn allocate_zeroed(size: usize) -> *mut u8 {
    let block = allocate(size, HEADER);
    if !block.is_null() {
        // SAFETY: the block is new and has `size` bytes.
        unsafe { block.write_bytes(0, size) };
    }
    block
}

/// Returns the size that was requested for a block of [`allocate`].
///
/// # Safety
/// The block satisfies [`owns`] and is live.
pub unsafe fn size_of_block(block: *const u8) -> usize {
    // SAFETY: `allocate` wrote a header before every block.
    unsafe { block.cast::<[usize; 2]>().sub(1).read()[1] }
}

/// Frees a block of [`allocate`].
///
/// # Safety
/// The block satisfies [`owns`] and is live; nothing uses it any more.
pub unsafe fn release(block: *mut u8) {
    // SAFETY: `allocate` wrote a header before every block.
    let start = unsafe { block.cast::<[usize; 2]>().sub(1).read()[0] } as *mut u8;
    let _blocked = (!apart::has_blocked()).then(Blocked::new);
    // SAFETY: `start` is the address that dlmalloc returned.
    let _ = INTERNAL.with(|heap| unsafe { heap.c_free(start) });
}

/// Returns whether nobody holds the allocator's lock ([`RawLock::is_free`]).
pub fn is_free() -> bool {
    INTERNAL.lock.is_free()
}

/// Keeps all other threads out until [`unlock_after_fork`], so that a child inherits a heap at rest.
pub fn lock_for_fork() {
    INTERNAL.lock.lock();
}

/// Ends what [`lock_for_fork`] began, in the parent and in the child.
pub fn unlock_after_fork() {
    INTERNAL.lock.unlock();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_for_c_know_their_size_and_alignment() {
        for (size, align) in [(0, 1), (1, 16), (100, 64), (5000, 4096), (3 << 20, 1 << 20)] {
            let block = allocate(size, align);
            assert!(owns(block as usize));
            assert_eq!(block as usize % align, 0);
            // SAFETY: this is a live block of `allocate`.
            unsafe {
                block.write_bytes(0xa5, size);
                assert_eq!(size_of_block(block), size);
                release(block);
            }
        }
    }

    #[test]
    fn a_size_that_overflows_is_refused() {
        assert!(allocate(usize::MAX - 8, 16).is_null());
    }

    #[test]
    fn big_vectors_grow_across_the_direct_limit_and_keep_their_bytes() {
        let mut v: Vec<u64> = Vec::new();
        for n in 0..200_000 {
            v.push(n);
        }
        v.truncate(10);
        v.shrink_to_fit();
        assert_eq!(v, (0..10).collect::<Vec<_>>());
    }

    #[test]
    fn big_zeroed_blocks_take_no_memory_until_touched() {
        let resident = || {
            let text = std::fs::read_to_string("/proc/self/statm").unwrap();
            text.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * PAGE
        };
        let before = resident();
        let block = vec![0u8; 1 << 30];
        assert!(resident() < before + (64 << 20));
        assert_eq!(block[12_345], 0);
    }

    /// Covers a panic in the middle of a fault, while its thread or another holds the heap. The standard library
    /// formats the message and allocates for it, and the process used to hang. The test runs itself again as the
    /// child that panics.
    #[test]
    fn a_panic_is_reported_while_the_heap_is_held() {
        use std::os::unix::process::ExitStatusExt;
        const CHILD: &str = "MILLPOND_TEST_HELD";
        if std::env::var_os(CHILD).is_some() {
            millpond_mmu::panics::hook_all();
            let pages = std::hint::black_box(3);
            INTERNAL.lock.lock();
            panic!("lost count of {pages} pages{:1000}", "");
        }
        let mut child = std::process::Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "internal_alloc::tests::a_panic_is_reported_while_the_heap_is_held",
            ])
            .arg("--nocapture")
            .env(CHILD, "1")
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while child.try_wait().unwrap().is_none() {
            if std::time::Instant::now() > end {
                child.kill().unwrap();
                panic!("the child hangs");
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{text}");
        assert!(text.contains("lost count of 3 pages"), "{text}");
    }
}
