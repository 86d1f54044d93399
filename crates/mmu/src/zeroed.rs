//! Tables that only take memory where they are written.

use std::alloc::{Layout, alloc_zeroed, handle_alloc_error};

use crate::small_pages::decline_huge_pages;

/// Makes a table whose bytes are all zero. The allocator gets a long table from the kernel, which supplies pages only
/// for the parts that are written.
///
/// # Safety
/// `T` is valid with all its bytes zero, and neither it nor the table is empty.
pub(crate) unsafe fn zeroed<T>(len: usize) -> Box<[T]> {
    let layout = Layout::array::<T>(len).expect("a table is shorter than all memory");
    // SAFETY: the caller guarantees that the layout is not empty. The memory is zeros, which are valid according to
    // the caller, and is freed as a box of this layout.
    unsafe {
        let raw = alloc_zeroed(layout).cast::<T>();
        if raw.is_null() {
            handle_alloc_error(layout);
        }
        decline_huge_pages(raw.addr()..raw.addr() + layout.size());
        Box::from_raw(core::ptr::slice_from_raw_parts_mut(raw, len))
    }
}
