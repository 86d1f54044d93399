//! `mprotect`: changes protection, and turns a reservation into memory.
//!
//! Memory that was mapped without access costs nothing until the first `mprotect` that allows access opens it. After
//! that, changing protection is the kernel's work. The space is told, because pages that cannot be written to cannot
//! be evicted either.

use crate::vma::{self, Kind, PAGE, Range, Vmas};
use crate::{code, engage, raw, space};
use core::ffi::{c_int, c_void};
use rustix::io::Errno;

const PROTECTIONS: i32 = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;

pub fn protect(addr: usize, len: usize, prot: i32, key: Option<i32>) -> Result<(), Errno> {
    let end = len
        .checked_next_multiple_of(PAGE)
        .and_then(|len| addr.checked_add(len));
    let bad = len == 0 || !addr.is_multiple_of(PAGE) || prot & !PROTECTIONS != 0;
    let Some(end) = end.filter(|&end| !bad && space::overlaps(addr, end - addr)) else {
        if prot & !PROTECTIONS != 0 && space::contains(addr) {
            return Err(Errno::INVAL);
        }
        if prot & libc::PROT_WRITE != 0 {
            code::becomes_writable(addr, len);
        }
        // SAFETY: the range is not the space's, or the kernel refuses the call.
        return unsafe { raw::mprotect(addr, len, prot, key) };
    };
    let range = addr..end;
    let is_writable = prot & libc::PROT_WRITE != 0;
    let _growing = engage::before_growth(if is_writable { range.len() } else { 0 });
    if !is_writable {
        engage::became_read_only(range.len());
    }
    vma::locked(move |vmas| vmas.protect(range, prot, key)).unwrap_or(Ok(()))
}

impl Vmas {
    fn protect(&mut self, range: Range, prot: i32, key: Option<i32>) -> Result<(), Errno> {
        let (before, inside, after) = self.split(&range);
        for outside in [before, after] {
            if !outside.is_empty() {
                // SAFETY: this is the program's own mapping outside the space.
                unsafe { raw::mprotect(outside.start, outside.len(), prot, key) }?;
            }
        }
        let opened = |at_fork| Kind::Managed {
            prot,
            opened: true,
            at_fork,
        };
        let sealed = self.first_sealed(&inside);
        for piece in self.map.pieces(inside.start..sealed.unwrap_or(inside.end)) {
            let (start, len) = (piece.range.start, piece.range.len());
            match piece.kind {
                // As in the kernel, the part before the hole has already changed.
                None => return Err(Errno::NOMEM),
                // SAFETY: this is the program's own file or shared mapping.
                Some(Kind::Foreign) => unsafe { raw::mprotect(start, len, prot, key) }?,
                Some(Kind::Managed { opened: false, .. }) if prot == libc::PROT_NONE => {}
                Some(Kind::Managed {
                    opened: false,
                    at_fork,
                    ..
                }) => {
                    self.space.open(start, len)?;
                    self.set_protection(&piece.range, prot, key)
                        .inspect_err(|_| {
                            let _ = self.close(start..start + len);
                        })?;
                    self.map.insert(piece.range, opened(at_fork));
                }
                Some(Kind::Managed {
                    opened: true,
                    at_fork,
                    ..
                }) => {
                    self.reprotect(&piece.range, prot, key)?;
                    self.map.insert(piece.range, opened(at_fork));
                }
            }
        }
        sealed.map_or(Ok(()), |_| Err(Errno::PERM))
    }
}

exports! {
    [mprotect: Mappings]
    unsafe extern "C" fn mprotect(addr: *mut c_void, len: usize, prot: c_int) -> c_int {
        crate::c_result(protect(addr as usize, len, prot, None))
    }

    [pkey_mprotect: Mappings]
    unsafe extern "C" fn pkey_mprotect(
        addr: *mut c_void,
        len: usize,
        prot: c_int,
        key: c_int,
    ) -> c_int {
        // A key of -1 means plain `mprotect`, as in the kernel.
        let key = (key != -1).then_some(key);
        crate::c_result(protect(addr as usize, len, prot, key))
    }
}
