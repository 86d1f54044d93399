//! `msync` and `mincore`: queries about mappings, including addresses that the program has unmapped.
//!
//! Programs use these calls to ask whether an address is mapped at all; unwinders and collectors do so before they
//! read. To the kernel, addresses of the space that the program has unmapped still belong to a mapping. It would
//! report them as mapped, and the program would read where it must not. So we check the account of mappings first and
//! answer `ENOMEM` for a hole, as the kernel does. Everything else is the kernel's answer; to `mincore`, evicted
//! pages are not in memory.

use crate::vma::{self, PAGE};
use crate::{guard, raw, space};
use core::ffi::{c_int, c_uchar, c_void};
use rustix::io::Errno;

/// Returns whether part of the range lies in the space but is not mapped by the program.
fn has_hole(addr: usize, len: usize) -> bool {
    let end = len
        .checked_next_multiple_of(PAGE)
        .and_then(|len| addr.checked_add(len));
    let Some(end) = end.filter(|_| len > 0 && addr.is_multiple_of(PAGE)) else {
        return false;
    };
    if !space::overlaps(addr, end - addr) {
        return false;
    }
    let hole = vma::locked(move |vmas| {
        let (_, inside, _) = vmas.split(&(addr..end));
        let mut at = inside.start;
        while at < inside.end {
            let piece = vmas.map.first_piece(at..inside.end);
            if piece.kind.is_none() {
                return true;
            }
            at = piece.range.end;
        }
        false
    });
    hole == Some(true)
}

exports! {
    /// Synchronises the part before a hole, as the kernel does.
    [msync: Mappings]
    unsafe extern "C" fn msync(addr: *mut c_void, len: usize, flags: c_int) -> c_int {
        let result = raw::msync(addr as usize, len, flags);
        let hole = result.is_ok() && has_hole(addr as usize, len);
        crate::c_result(if hole { Err(Errno::NOMEM) } else { result })
    }

    [mincore: Mappings]
    unsafe extern "C" fn mincore(addr: *mut c_void, len: usize, vector: *mut c_uchar) -> c_int {
        if has_hole(addr as usize, len) {
            return crate::c_result(Err(Errno::NOMEM));
        }
        let args = [addr as usize, len, vector as usize, 0, 0, 0];
        // SAFETY: the kernel writes to the vector, which the caller guarantees.
        crate::c_result(unsafe { guard::call::held(libc::SYS_mincore, args) }.map(drop))
    }
}
