//! `ioctl`: commands whose structure names further memory.
//!
//! The structure lies on the caller's stack mostly, and the filter sees no further. The commands whose structures are
//! known (`millpond_guard::touched`) are few, and common: the list of interfaces, what `ethtool` asks for, SCSI
//! commands, questions about mappings. What other drivers' structures name is not brought in, and is EFAULT where it is
//! out. (The pages of a graphics card's or a virtual machine's memory are pinned by such commands, which no hold
//! replaces.)

use crate::guard::call::held;
use crate::guard::is_on;
use crate::guard::real::{Find, Real};
use core::ffi::{c_int, c_ulong};

type Ioctl = unsafe extern "C" fn(c_int, c_ulong, usize) -> c_int;

// SAFETY: the C library's function has this type, for a call with three arguments.
static IOCTL: Real<Ioctl> = unsafe { Real::named(c"ioctl") };

pub const FUNCTIONS: &[&dyn Find] = &[&IOCTL];

const SIOCGIFCONF: c_ulong = 0x8912;
const SIOCETHTOOL: c_ulong = 0x8946;
const SG_IO: c_ulong = 0x2285;
const PAGEMAP_SCAN: c_ulong = 0xc060_6610;
const PROCMAP_QUERY: c_ulong = 0xc068_6611;
const NAME_MORE: [c_ulong; 5] = [SIOCGIFCONF, SIOCETHTOOL, SG_IO, PAGEMAP_SCAN, PROCMAP_QUERY];

/// Replaces the C library's `ioctl`. The third argument is in its place whether or not the caller has passed one.
///
/// # Safety
/// The conditions are those of the function that this one replaces.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn ioctl(fd: c_int, command: c_ulong, argument: usize) -> c_int {
    match IOCTL.get() {
        // SAFETY: the caller guarantees it. The function takes its arguments as one that is not variadic does, since
        // none of them is a floating-point number.
        Some(real) if !is_on() || !NAME_MORE.contains(&command) => unsafe {
            real(fd, command, argument)
        },
        _ => {
            let args = [fd as usize, command as usize, argument, 0, 0, 0];
            // SAFETY: the caller guarantees what this call needs.
            crate::c_answer(unsafe { held(libc::SYS_ioctl, args) }) as c_int
        }
    }
}
