//! `ioctl`: commands whose structure names further memory.
//!
//! The structure usually lies on the caller's stack, so the filter sees nothing beyond its address. The commands
//! whose structures we know (`millpond_guard::touched`) are few and common: the list of interfaces, `ethtool`'s
//! queries, SCSI commands, queries about mappings. Memory named by other drivers' structures is not brought in; if it
//! is absent, the command fails with EFAULT. (Such commands pin the pages of a graphics card's memory, and no hold
//! can replace that.)
//!
//! A KVM guest's memory is touched from the kernel, and the guest would silently stop at the first absent page. So
//! KVM is not given managed memory, and the program gets an error (`EINVAL`, with a line for the user).

use crate::engage;
use crate::guard::call::held;
use crate::guard::{is_on, is_on_for_good};
use crate::space;
use core::ffi::{c_int, c_ulong};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use rustix::io::Errno;

const SIOCGIFCONF: c_ulong = 0x8912;
const SIOCETHTOOL: c_ulong = 0x8946;
const SG_IO: c_ulong = 0x2285;
const PAGEMAP_SCAN: c_ulong = 0xc060_6610;
const PROCMAP_QUERY: c_ulong = 0xc068_6611;
/// `KVM_SET_USER_MEMORY_REGION` and its successor, whose structures both have the address of the memory as their
/// fourth word.
const KVM_MEMORY: [c_ulong; 2] = [0x4020_ae46, 0x40a0_ae49];
/// A mapping has one userfaultfd. A dormant process that gave managed memory to one of the program's own could not
/// engage any more.
const UFFDIO_REGISTER: c_ulong = 0xc020_aa00;
const NAME_MORE: [c_ulong; 5] = [SIOCGIFCONF, SIOCETHTOOL, SG_IO, PAGEMAP_SCAN, PROCMAP_QUERY];

exports! {
    /// This type is that of a call with three arguments. The variadic function takes them like a non-variadic one,
    /// since none of them is a floating-point number.
    real IOCTL: unsafe extern "C" fn(c_int, c_ulong, usize) -> c_int = c"ioctl";

    /// The third argument is in its place whether or not the caller has passed one.
    [ioctl: Held]
    unsafe extern "C" fn ioctl(fd: c_int, command: c_ulong, argument: usize) -> c_int {
        if command == UFFDIO_REGISTER {
            engage::before_lasting();
        }
        if KVM_MEMORY.contains(&command) && is_on_for_good() {
            // SAFETY: the caller passes the command's structure.
            let memory = unsafe { (argument as *const u64).add(3).read_unaligned() };
            if space::contains(memory as usize) {
                say_kvm();
                return crate::c_answer(Err(Errno::INVAL)) as c_int;
            }
        }
        match IOCTL.get() {
            // SAFETY: the caller guarantees this.
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
}

#[cold]
fn say_kvm() {
    static IS_SAID: AtomicBool = AtomicBool::new(false);
    if !IS_SAID.swap(true, Relaxed) {
        millpond_mmu::report::line(format_args!(
            "a virtual machine's memory is refused (EINVAL) where faults are served in the thread that faults; use \
             --delivery handler"
        ));
    }
}
