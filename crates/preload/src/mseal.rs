//! `mseal`: memory that the program has sealed stays mapped as it is ([`crate::vma::sealed`]).
//!
//! The C library has had a function for it since 2.42. Before that, programs make the system call by `syscall`, which
//! also leads here. We first ask the kernel with a length of zero: it says whether it knows the call, and refuses
//! wrong arguments. If it does not know the call, nothing is sealed here either. Otherwise we follow the kernel's
//! order: a hole anywhere gives `ENOMEM`, and then nothing is sealed.

use crate::vma::{self, Kind, PAGE, Range, Vmas};
use crate::{raw, space};
use core::ffi::{c_int, c_ulong, c_void};
use rustix::io::Errno;

fn kernel(start: usize, len: usize, flags: usize) -> Result<(), Errno> {
    // SAFETY: the call changes no contents; the caller excludes managed memory.
    unsafe { raw::syscall(libc::SYS_mseal, [start, len, flags, 0, 0, 0]) }.map(drop)
}

fn seal(addr: usize, len: usize, flags: usize) -> Result<(), Errno> {
    let end = len
        .checked_next_multiple_of(PAGE)
        .and_then(|len| addr.checked_add(len));
    let Some(end) = end.filter(|&end| end > addr && space::overlaps(addr, end - addr)) else {
        return kernel(addr, len, flags);
    };
    kernel(addr, 0, flags)?;
    vma::locked(move |vmas| vmas.seal(addr..end)).unwrap_or(Err(Errno::NOMEM))
}

impl Vmas {
    fn seal(&mut self, range: Range) -> Result<(), Errno> {
        let (before, inside, after) = self.split(&range);
        let pieces = self.map.pieces(inside.clone());
        if pieces.iter().any(|piece| piece.kind.is_none()) {
            return Err(Errno::NOMEM);
        }
        for outside in [before, after] {
            if !outside.is_empty() {
                kernel(outside.start, outside.len(), 0)?;
            }
        }
        // The kernel also seals the program's own mappings here, so that nothing can replace them.
        let foreign = pieces
            .iter()
            .filter(|piece| piece.kind == Some(Kind::Foreign));
        for piece in foreign {
            kernel(piece.range.start, piece.range.len(), 0)?;
        }
        self.seal_inside(inside);
        Ok(())
    }
}

exports! {
    [mseal: Mappings]
    unsafe extern "C" fn mseal(addr: *mut c_void, len: usize, flags: c_ulong) -> c_int {
        crate::c_result(seal(addr as usize, len, flags as usize))
    }
}
