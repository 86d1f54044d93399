//! `mq_notify` with a thread to be started: what the helper of the C library touches lies outside of the space.
//!
//! The helper reads the kernel's notice into its own stack, and starts the thread with attributes that `mq_notify` has
//! copied into the heap. So that copy is made [apart](crate::guard::children::apart). The new thread unblocks all
//! signals before it calls the program.

use crate::guard::children::apart::Apart;
use crate::guard::is_on;
use crate::guard::real::{Find, Real};
use core::ffi::c_int;
use rustix::io::Errno;

type Notify = unsafe extern "C" fn(libc::mqd_t, *const libc::sigevent) -> c_int;

// SAFETY: the C library's function has this type.
static NOTIFY: Real<Notify> = unsafe { Real::named(c"mq_notify") };

pub const FUNCTIONS: &[&dyn Find] = &[&NOTIFY];

/// Replaces the C library's `mq_notify`.
///
/// # Safety
/// The conditions are those of the function that this one replaces.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn mq_notify(queue: libc::mqd_t, event: *const libc::sigevent) -> c_int {
    let Some(real) = NOTIFY.get() else {
        return crate::c_answer(Err(Errno::NOSYS)) as c_int;
    };
    let _apart = is_on().then(Apart::begin);
    // SAFETY: the caller guarantees it.
    unsafe { real(queue, event) }
}
