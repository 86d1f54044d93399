//! `munmap`: addresses in the space return to the space, others to the kernel.
//!
//! The kernel must never see a `munmap` of the space: it would tear a hole in the reservation, and any thread's next
//! mapping could land there.

use crate::vma::{self, PAGE, Range};
use crate::{engage, raw, space};
use core::ffi::{c_int, c_void};
use rustix::io::Errno;

fn unmap(addr: usize, len: usize) -> Result<(), Errno> {
    let end = len
        .checked_next_multiple_of(PAGE)
        .and_then(|len| addr.checked_add(len));
    let bad = len == 0 || !addr.is_multiple_of(PAGE);
    let Some(end) = end.filter(|&end| !bad && space::overlaps(addr, end - addr)) else {
        // SAFETY: the range is not the space's; the program says that it no longer needs it.
        let unmapped = unsafe { raw::munmap(addr, len) };
        return unmapped.inspect(|()| engage::unmapped_file(len));
    };
    let range = addr..end;
    vma::locked(move |vmas| {
        let (before, inside, after) = vmas.split(&range);
        vmas.unless_sealed(&inside)?;
        for outside in [before, after] {
            unmap_outside(outside)?;
        }
        vmas.hints.unmapped(&inside);
        vmas.clear(inside)
    })
    .unwrap_or(Ok(()))
}

fn unmap_outside(range: Range) -> Result<(), Errno> {
    if range.is_empty() {
        return Ok(());
    }
    // SAFETY: the range is not the space's; the program says that it no longer needs it.
    unsafe { raw::munmap(range.start, range.len()) }
}

exports! {
    [munmap: Mappings]
    unsafe extern "C" fn munmap(addr: *mut c_void, len: usize) -> c_int {
        crate::c_result(unmap(addr as usize, len))
    }
}
