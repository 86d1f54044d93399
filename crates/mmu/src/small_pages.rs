//! Memory of our own that is backed page by page, whatever the machine's setting for huge pages.
//!
//! `transparent_hugepage/enabled` is *always* on most distributions: then the first touch of any 2 MiB that a mapping
//! covers may take all of them, and khugepaged merges what was touched page by page. For tables that are sized by the
//! arena and used sparsely, that is ruinous: 4 bytes take 2 MiB, in a budget that counted 4 KiB. So each of our
//! mappings says for itself what it wants. Those that serve as huge pages request them (`staging/`, the pool's
//! leaves, the chunks of compressed RAM in the `store` crate); all others decline them. A switch for the whole
//! process (`PR_SET_THP_DISABLE`) would be shorter, but programs that the process starts would inherit it, and the
//! program's own memory would lose its huge pages.

use core::ffi::c_void;
use core::ops::Range;

use millpond_core::PAGE_SIZE;
use rustix::mm::Advice;

use crate::sys::mm::madvise;

/// The length from which an allocator probably maps a table separately (the C library's `M_MMAP_THRESHOLD`). Advice
/// about shorter tables would split the program's heap into mappings, for little benefit.
const LEAST: usize = 128 << 10;

/// Makes the kernel back the whole pages of a table page by page from now on. Pages that are already there stay as
/// they are, so call this before the first touch. It does nothing for a table shorter than 128 KiB, or if the kernel
/// is built without huge pages.
pub fn decline_huge_pages(table: Range<usize>) {
    let start = table.start.next_multiple_of(PAGE_SIZE);
    let end = table.end - table.end % PAGE_SIZE;
    if table.len() < LEAST || start >= end {
        return;
    }
    // SAFETY: the advice changes which page sizes the kernel picks, not contents.
    let _ = unsafe { madvise(start as *mut c_void, end - start, Advice::LinuxNoHugepage) };
}
