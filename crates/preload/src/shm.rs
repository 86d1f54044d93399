//! `shmat` and `shmdt`: shared memory of System V at an address in the space.
//!
//! Databases attach a segment at an address that all of their processes know. There the kernel would find the
//! reservation and refuse. So we attach the segment elsewhere and move it into place, like a file that is mapped at a
//! fixed address ([`mmap`](crate::mmap)). When it is detached, the reservation is restored.

use crate::vma::{self, PAGE, Range, Vmas};
use crate::{raw, space};
use core::ffi::{c_int, c_void};
use rustix::io::Errno;

/// The multiple to which the kernel rounds an address.
const SHMLBA: usize = PAGE;

fn attach(id: c_int, addr: usize, flags: c_int) -> Result<usize, Errno> {
    // SAFETY: the program asked for it, and the space is not affected, or not yet.
    let kernel = move |addr, flags| unsafe {
        raw::syscall(
            libc::SYS_shmat,
            [id as usize, addr, flags as usize, 0, 0, 0],
        )
    };
    let start = match flags & libc::SHM_RND {
        0 => addr,
        _ => addr & !(SHMLBA - 1),
    };
    let len = len_of(id).unwrap_or(0);
    if start == 0 || !start.is_multiple_of(SHMLBA) || !space::overlaps(start, len) {
        return kernel(addr, flags);
    }
    let range = start..start.checked_add(len).ok_or(Errno::INVAL)?;
    vma::locked(move |vmas| {
        let (before, inside, after) = vmas.split(&range);
        let replaces = flags & libc::SHM_REMAP != 0;
        // Only the kernel can judge a part outside the space, and only for a segment as a whole.
        if !before.is_empty() || !after.is_empty() || !replaces && !vmas.map.is_free(&inside) {
            return Err(Errno::INVAL);
        }
        let made = kernel(0, flags & !(libc::SHM_RND | libc::SHM_REMAP))?;
        vmas.move_over(made, range.len(), range.clone(), inside)
            .inspect_err(|_| {
                // SAFETY: the segment was attached in this call, and no one knows of it.
                let _ = unsafe { raw::syscall(libc::SYS_shmdt, [made, 0, 0, 0, 0, 0]) };
            })?;
        vmas.attached.retain(|one| one.start != range.start);
        vmas.attached.push(range.clone());
        Ok(range.start)
    })
    .unwrap_or(Err(Errno::INVAL))
}

/// Returns the length of a segment, rounded up to whole pages.
fn len_of(id: c_int) -> Option<usize> {
    // SAFETY: all zeros is a valid value of this structure.
    let mut about: libc::shmid_ds = unsafe { core::mem::zeroed() };
    // SAFETY: the kernel writes the structure.
    let asked = unsafe { libc::shmctl(id, libc::IPC_STAT, &raw mut about) };
    (asked == 0).then(|| about.shm_segsz.next_multiple_of(PAGE))
}

impl Vmas {
    /// Detaches the segment at `addr`. Returns `None` if nothing is attached there.
    fn detach(&mut self, addr: usize) -> Option<Result<(), Errno>> {
        let at = self.attached.iter().position(|one| one.start == addr)?;
        let range: Range = self.attached.swap_remove(at);
        Some(self.clear(range))
    }
}

exports! {
    [shmat: Mappings]
    unsafe extern "C" fn shmat(id: c_int, addr: *const c_void, flags: c_int) -> *mut c_void {
        crate::c_answer(attach(id, addr as usize, flags)) as *mut c_void
    }

    [shmdt: Mappings]
    unsafe extern "C" fn shmdt(addr: *const c_void) -> c_int {
        let at = addr as usize;
        let in_space = space::contains(at)
            .then(|| vma::locked(move |vmas| vmas.detach(at)))
            .flatten();
        let result = match in_space {
            Some(detached) => detached.unwrap_or(Err(Errno::INVAL)),
            // SAFETY: the address is not in the space; the program says that it no longer needs the segment.
            None => unsafe { raw::syscall(libc::SYS_shmdt, [at, 0, 0, 0, 0, 0]) }.map(drop),
        };
        crate::c_result(result)
    }
}
