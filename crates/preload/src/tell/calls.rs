//! Functions that report how much memory there is.

use super::{budget, count, left};
use crate::guard::call::point;
use crate::vma::PAGE;
use core::ffi::{c_int, c_long};

unsafe extern "C" {
    /// The C library's `sysconf` under its other name.
    safe fn __sysconf(name: c_int) -> c_long;
}

/// Returns the smaller number of pages, which the program is told; a system error stays an error.
fn at_most(machine: c_long, bytes: u64) -> c_long {
    count();
    machine.min((bytes / PAGE as u64) as c_long)
}

exports! {
    [none: Numbers]
    extern "C" fn sysconf(name: c_int) -> c_long {
        let machine = || __sysconf(name);
        match (name, budget()) {
            (libc::_SC_PHYS_PAGES, Some(budget)) => at_most(machine(), budget),
            (libc::_SC_AVPHYS_PAGES, Some(budget)) => at_most(machine(), left(budget)),
            _ => machine(),
        }
    }

    [none: Numbers]
    extern "C" fn get_phys_pages() -> c_long {
        sysconf(libc::_SC_PHYS_PAGES)
    }

    [none: Numbers]
    extern "C" fn get_avphys_pages() -> c_long {
        sysconf(libc::_SC_AVPHYS_PAGES)
    }

    [sysinfo: Held]
    unsafe extern "C-unwind" fn sysinfo(into: *mut libc::sysinfo) -> c_int = unsafe {
        by_number(into as usize)
    }
}

/// Makes the system call `sysinfo` and puts the budget into its result. Returns what the C library's function would.
///
/// # Safety
/// The conditions are those of the system call.
pub unsafe fn by_number(into: usize) -> c_int {
    // SAFETY: the caller guarantees what this call needs.
    let done = unsafe { point(libc::SYS_sysinfo, [into, 0, 0, 0, 0, 0]) } as c_int;
    if done == 0
        && let Some(budget) = budget()
    {
        let left = left(budget);
        // SAFETY: the kernel has written the structure there.
        tell(unsafe { &mut *(into as *mut libc::sysinfo) }, budget, left);
    }
    done
}

/// Replaces the machine's memory by the budget and what is left of it, in bytes.
fn tell(info: &mut libc::sysinfo, budget: u64, left: u64) {
    count();
    let units = |bytes: u64| bytes / u64::from(info.mem_unit.max(1));
    info.totalram = info.totalram.min(units(budget));
    info.freeram = info.freeram.min(units(left));
    info.bufferram = 0;
    (info.totalswap, info.freeswap) = (0, 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_use_the_structures_unit_and_never_exceed_the_machine() {
        // SAFETY: the structure consists of numbers.
        let mut info: libc::sysinfo = unsafe { core::mem::zeroed() };
        (info.totalram, info.freeram, info.totalswap, info.mem_unit) = (10_000, 500, 7, 4096);
        tell(&mut info, 64 << 20, 32 << 20);
        assert_eq!(
            (info.totalram, info.freeram, info.totalswap),
            (10_000, 500, 0)
        );
        tell(&mut info, 4 << 20, 1 << 20);
        assert_eq!((info.totalram, info.freeram), (1024, 256));
    }

    #[test]
    fn an_error_of_the_system_stays_an_error() {
        assert_eq!(at_most(-1, 1 << 20), -1);
        assert_eq!(at_most(1000, 1 << 20), 256);
    }
}
