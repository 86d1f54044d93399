//! `brk` and `sbrk`: a heap that grows inside the space.
//!
//! Only programs that call these functions themselves see this heap (the C library's `malloc`, which would call them,
//! is replaced). The first call reserves the addresses, so the heap stays contiguous. The part above the break is
//! only a reservation and costs nothing.

use crate::dlopen::find_next;
use crate::vma::{self, Kind, PAGE, Vmas};
use crate::{engage, raw, space};
use core::ffi::{c_int, c_void};
use rustix::io::Errno;

/// The maximum number of addresses reserved for the heap; a small space contributes one eighth of itself.
const ROOM: usize = 16 << 30;

/// The emulated data segment. All fields are zero until it is first used.
#[derive(Clone, Copy, Default)]
pub struct Heap {
    start: usize,
    brk: usize,
    end: usize,
}

impl Vmas {
    fn heap(&mut self) -> Result<Heap, Errno> {
        if self.heap.start == 0 {
            let room = ROOM.min(self.space.len() / 8) & !(PAGE - 1);
            let start = self.map_anywhere(room, libc::PROT_NONE)?;
            self.heap = Heap {
                start,
                brk: start,
                end: start + room,
            };
        }
        Ok(self.heap)
    }

    fn set_break(&mut self, wanted: usize) -> Result<(), Errno> {
        let heap = self.heap()?;
        if wanted < heap.start || wanted > heap.end {
            return Err(Errno::NOMEM);
        }
        let (old, new) = (
            heap.brk.next_multiple_of(PAGE),
            wanted.next_multiple_of(PAGE),
        );
        if new > old {
            self.clear(old..new)?;
            self.place(old..new, libc::PROT_READ | libc::PROT_WRITE)?;
        } else if new < old {
            self.clear(new..old)?;
            self.map
                .insert(new..old, Kind::managed(libc::PROT_NONE, false));
        }
        self.heap.brk = wanted;
        Ok(())
    }

    fn shift_break(&mut self, by: isize) -> Result<usize, Errno> {
        let old = self.heap()?.brk;
        let wanted = old.checked_add_signed(by).ok_or(Errno::NOMEM)?;
        if by != 0 {
            self.set_break(wanted)?;
        }
        Ok(old)
    }
}

/// Called before the break moves to `wanted`.
fn before(wanted: usize) -> engage::Growing {
    let brk = match engage::is_dormant() {
        true => vma::locked(|vmas| vmas.heap.brk).unwrap_or(0),
        false => 0,
    };
    engage::before_growth(if brk > 0 {
        wanted.saturating_sub(brk)
    } else {
        0
    })
}

/// Performs the system call `brk`. Returns the resulting break, whether it moved or not; programs also use this call
/// to query the current break.
pub fn system_call(wanted: usize) -> usize {
    let _growing = before(wanted);
    let moved = vma::locked(move |vmas| {
        let _ = vmas.set_break(wanted);
        vmas.heap().map(|heap| heap.brk)
    });
    match moved {
        Some(result) => result.unwrap_or(0),
        // SAFETY: this moves the program's own break, as it asked; there is no space to move it in.
        None => unsafe { raw::syscall(libc::SYS_brk, [wanted, 0, 0, 0, 0, 0]) }.unwrap_or(0),
    }
}

exports! {
    [brk: Mappings]
    unsafe extern "C" fn brk(addr: *mut c_void) -> c_int {
        let wanted = addr as usize;
        if space::get().is_none() {
            let Some(real) = find_next(c"brk") else {
                return crate::c_result(Err(Errno::NOSYS));
            };
            // SAFETY: the C library's function of this name has this type.
            let real: unsafe extern "C" fn(usize) -> c_int = unsafe { core::mem::transmute(real) };
            // SAFETY: the caller guarantees what this call needs.
            return unsafe { real(wanted) };
        }
        let _growing = before(wanted);
        let moved = vma::locked(move |vmas| vmas.set_break(wanted));
        crate::c_result(moved.unwrap_or(Err(Errno::NOMEM)))
    }

    [brk: Mappings]
    unsafe extern "C" fn sbrk(by: isize) -> *mut c_void {
        if space::get().is_none()
            && let Some(real) = find_next(c"sbrk")
        {
            // SAFETY: the C library's function of this name has this type.
            let real: unsafe extern "C" fn(isize) -> *mut c_void =
                unsafe { core::mem::transmute(real) };
            // SAFETY: the caller guarantees what this call needs.
            return unsafe { real(by) };
        }
        let _growing = engage::before_growth(usize::try_from(by).unwrap_or(0));
        let old = vma::locked(move |vmas| vmas.shift_break(by)).unwrap_or(Err(Errno::NOMEM));
        crate::c_answer(old) as *mut c_void
    }
}
