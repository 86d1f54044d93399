//! `realloc` of large blocks: the pages move, the bytes are not copied.
//!
//! jemalloc grows a large block where it is when the addresses behind it are free. Otherwise it allocates, copies and
//! frees, and copying a block of which half is in the store brings all of it back, while its other half goes out. So
//! blocks of 2 MiB and more begin on a 2 MiB boundary (any two of them lie alike) and are moved by their tables
//! ([`Space::remap`]). The table has the time in `realloc`, in ms:
//!
//! | | copied | moved | C library alone |
//! | --- | --- | --- | --- |
//! | 1 MiB doubled to 512 MiB, in memory | 1372 | 2.3 | 2.3 |
//! | 1 MiB doubled to 512 MiB, in 128 MiB | 4349 | 33 | |
//! | two blocks in turns by 16 MiB to 256 MiB each, in memory | 1528 | 13 | 3.5 |
//! | two blocks in turns by 16 MiB to 256 MiB each, in 128 MiB | 13092 | 249 | |
//!
//! To jemalloc this is an allocation, a copy by other code, and a free. The old block's addresses stay its own, and
//! are mapped anew at once, so only live blocks lie in mappings that came from elsewhere. Memory that is purged later
//! is mapped anew as well ([`renew`]), so the kernel's mappings do not become ever more.
//!
//! [`Space::remap`]: crate::space::Space::remap

use crate::vma::{self, Kind, LEAF, Range, Vmas};
use crate::{exit, jemalloc, raw, space};
use core::ffi::{c_int, c_void};
use core::ptr::null_mut;
use libc::{PROT_READ, PROT_WRITE};
use rustix::io::Errno;
use tikv_jemalloc_sys as je;

/// jemalloc's flag for blocks that begin on a 2 MiB boundary.
const ALIGNED: c_int = LEAF.trailing_zeros() as c_int;
/// jemalloc's flag for blocks of zeros.
const ZERO: c_int = 0x40;

/// Whether a block of this size is one of those that are moved.
#[inline]
pub fn is_large(size: usize) -> bool {
    size >= LEAF
}

/// Allocates a block of at least 2 MiB.
pub fn allocate(size: usize, zeroed: bool) -> *mut c_void {
    jemalloc::before_block(size);
    // SAFETY: any size but 0 may be asked for.
    let block = unsafe { je::mallocx(size, if zeroed { ALIGNED | ZERO } else { ALIGNED }) };
    if block.is_null() {
        raw::set_errno(Errno::NOMEM);
    }
    block
}

/// Changes the size of a block to at least 2 MiB.
///
/// # Safety
/// jemalloc owns the live block.
pub unsafe fn reallocate(block: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: the block is live.
    let old_size = unsafe { je::malloc_usable_size(block) };
    // SAFETY: the caller guarantees what this call needs.
    if size <= old_size || unsafe { je::xallocx(block, size, 0, 0) } >= size {
        // SAFETY: the caller guarantees it. The block is shortened, or has the size already.
        return unsafe { je::realloc(block, size) };
    }
    let new = allocate(size, false);
    if new.is_null() {
        return null_mut();
    }
    let old = block as usize..block as usize + old_size;
    if !is_large(old_size) || !move_pages(old, new as usize) {
        // SAFETY: both blocks have this many bytes and are not the same.
        unsafe {
            new.cast::<u8>()
                .copy_from_nonoverlapping(block.cast(), old_size)
        };
    }
    // SAFETY: the caller guarantees it; the contents are in the new block.
    unsafe { je::free(block) };
    new
}

/// Moves the pages of a block to the beginning of another one, whose contents do not matter. The block's own pages
/// are zeros afterwards. The answer is false when that is not possible; nothing has changed then.
fn move_pages(old: Range, new: usize) -> bool {
    if space::get().is_none() || !old.start.is_multiple_of(LEAF) || !new.is_multiple_of(LEAF) {
        return false;
    }
    vma::locked(move |vmas| {
        let target = new..new + old.len();
        vmas.is_plain(&old)
            && vmas.is_plain(&target)
            && vmas.space.remap(old.start, old.len(), new, false).is_ok()
            && {
                vmas.moved.add(target);
                vmas.moved.remove(&old);
                reopen(vmas, &old);
                true
            }
    })
    .unwrap_or(false)
}

/// Maps those parts of free memory anew that were moved there. Their contents are forgotten.
pub fn renew(range: Range) {
    vma::locked(move |vmas| {
        let parts = vmas.moved.parts(range);
        for (part, _) in parts.into_iter().filter(|(_, moved)| *moved) {
            if vmas.is_plain(&part) && vmas.close(part.clone()).is_ok() {
                reopen(vmas, &part);
            }
        }
    });
}

/// Opens the memory again, because jemalloc believes that it can use it.
fn reopen(vmas: &Vmas, range: &Range) {
    if vmas.space.open(range.start, range.len()).is_err() {
        exit::fail("millpond: the kernel has no more mappings for this process (vm.max_map_count)");
    }
}

impl Vmas {
    /// Whether all of the range is readable and writable as far as we know. A program that changes the protection of
    /// a part of a block may free it so, and memory that cannot be written cannot be cleared.
    pub fn is_plain(&self, range: &Range) -> bool {
        let piece = self.map.first_piece(range.clone());
        piece.range.end == range.end
            && matches!(piece.kind, Some(Kind::Managed { prot, opened: true, .. }) if prot == PROT_READ | PROT_WRITE)
    }
}
