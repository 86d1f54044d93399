//! `mq_notify` with a thread to be started: the memory that the C library's helper touches lies outside the space.
//!
//! The helper reads the kernel's notification into its own stack, and starts the thread with attributes that
//! `mq_notify` has copied to the heap. So that copy is made [apart](crate::guard::children::apart). The new thread
//! unblocks all signals before it calls the program.

use crate::guard::children::apart::Apart;
use crate::guard::is_on_for_good;
use core::ffi::c_int;
use rustix::io::Errno;

exports! {
    real NOTIFY: unsafe extern "C" fn(libc::mqd_t, *const libc::sigevent) -> c_int = c"mq_notify";

    [mq_notify: Held]
    unsafe extern "C" fn mq_notify(queue: libc::mqd_t, event: *const libc::sigevent) -> c_int {
        let Some(real) = NOTIFY.get() else {
            return crate::c_answer(Err(Errno::NOSYS)) as c_int;
        };
        let _apart = is_on_for_good().then(Apart::begin);
        // SAFETY: the caller guarantees this.
        unsafe { real(queue, event) }
    }
}
