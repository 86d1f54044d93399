//! `mlock` and its relatives: the manager, not the kernel, keeps managed memory resident.
//!
//! If the kernel locked managed memory, the budget would fill with pages that cannot be evicted, and a program that
//! locked more than the budget would never finish. So the manager brings the pages in and pins them, up to half of
//! the budget; a lock beyond that fails with `ENOMEM`, as when the limit is too low. Locks do not nest, and unmapping
//! unlocks (`vma/locked.rs`). The kernel locks memory that is not managed.
//!
//! `mlockall` must never reach the kernel: it would touch every page of the arena and the pool, including empty ones.
//! It fails with `ENOMEM`: memory mapped later cannot be promised a place in the budget.
//!
//! `MLOCK_ONFAULT` is treated as an immediate lock.

use crate::vma::{self, Kind, PAGE, Range, Vmas};
use crate::{raw, space};
use core::ffi::{c_int, c_uint, c_void};
use rustix::io::Errno;

/// Returns the whole pages that the call covers.
fn pages(addr: usize, len: usize) -> Result<Range, Errno> {
    let start = addr & !(PAGE - 1);
    let end = addr
        .checked_add(len)
        .and_then(|end| end.checked_next_multiple_of(PAGE));
    Ok(start..end.ok_or(Errno::INVAL)?)
}

fn kernel(number: i64, range: &Range, flags: usize) -> Result<(), Errno> {
    if range.is_empty() {
        return Ok(());
    }
    // SAFETY: the call changes which memory stays resident, not contents; the caller excludes managed memory.
    unsafe { raw::syscall(number, [range.start, range.len(), flags, 0, 0, 0]) }.map(drop)
}

fn lock(addr: usize, len: usize, flags: c_uint) -> Result<(), Errno> {
    let range = pages(addr, len)?;
    if range.is_empty() || !space::overlaps(range.start, range.len()) {
        return kernel(libc::SYS_mlock2, &range, flags as usize);
    }
    if flags & !(libc::MLOCK_ONFAULT as c_uint) != 0 {
        return Err(Errno::INVAL);
    }
    vma::locked(move |vmas| vmas.lock(range, flags as usize)).unwrap_or(Err(Errno::NOMEM))
}

fn unlock(addr: usize, len: usize) -> Result<(), Errno> {
    let range = pages(addr, len)?;
    if range.is_empty() || !space::overlaps(range.start, range.len()) {
        return kernel(libc::SYS_munlock, &range, 0);
    }
    vma::locked(move |vmas| vmas.unlock(range)).unwrap_or(Err(Errno::NOMEM))
}

impl Vmas {
    /// Locks a range. As in the kernel, a failed call leaves the part before a hole, or before memory that does not
    /// fit, locked.
    fn lock(&mut self, range: Range, flags: usize) -> Result<(), Errno> {
        let (before, inside, after) = self.split(&range);
        kernel(libc::SYS_mlock2, &before, flags)?;
        for piece in self.map.pieces(inside) {
            match piece.kind {
                Some(Kind::Foreign) => kernel(libc::SYS_mlock2, &piece.range, flags)?,
                Some(Kind::Managed {
                    prot, opened: true, ..
                }) if prot != libc::PROT_NONE => self.lock_managed(piece.range)?,
                _ => return Err(Errno::NOMEM),
            }
        }
        kernel(libc::SYS_mlock2, &after, flags)
    }

    fn unlock(&mut self, range: Range) -> Result<(), Errno> {
        let (before, inside, after) = self.split(&range);
        kernel(libc::SYS_munlock, &before, 0)?;
        for piece in self.map.pieces(inside) {
            match piece.kind {
                Some(Kind::Foreign) => kernel(libc::SYS_munlock, &piece.range, 0)?,
                Some(Kind::Managed { .. }) => {
                    self.unlock_managed(&piece.range);
                }
                None => return Err(Errno::NOMEM),
            }
        }
        kernel(libc::SYS_munlock, &after, 0)
    }
}

exports! {
    [mlock: Mappings]
    unsafe extern "C" fn mlock(addr: *const c_void, len: usize) -> c_int {
        crate::c_result(lock(addr as usize, len, 0))
    }

    [mlock2: Mappings]
    unsafe extern "C" fn mlock2(addr: *const c_void, len: usize, flags: c_uint) -> c_int {
        crate::c_result(lock(addr as usize, len, flags))
    }

    [munlock: Mappings]
    unsafe extern "C" fn munlock(addr: *const c_void, len: usize) -> c_int {
        crate::c_result(unlock(addr as usize, len))
    }

    [mlockall: Mappings]
    unsafe extern "C" fn mlockall(flags: c_int) -> c_int {
        let known = libc::MCL_CURRENT | libc::MCL_FUTURE | libc::MCL_ONFAULT;
        let bad = flags & !known != 0 || flags & (libc::MCL_CURRENT | libc::MCL_FUTURE) == 0;
        if space::get().is_some() {
            return crate::c_result(Err(if bad { Errno::INVAL } else { Errno::NOMEM }));
        }
        // SAFETY: there is no managed memory that the call could touch.
        let done = unsafe { raw::syscall(libc::SYS_mlockall, [flags as usize, 0, 0, 0, 0, 0]) };
        crate::c_result(done.map(drop))
    }

    [munlockall: Mappings]
    unsafe extern "C" fn munlockall() -> c_int {
        vma::locked(|vmas| vmas.unlock_managed(&vmas.map.bounds()));
        // SAFETY: the call changes which memory stays resident, not contents.
        let done = unsafe { raw::syscall(libc::SYS_munlockall, [0; 6]) };
        crate::c_result(done.map(drop))
    }
}
