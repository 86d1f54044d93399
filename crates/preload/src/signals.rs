//! Blocked signals: no signal handler runs while one of our locks is held.
//!
//! A signal handler is the program's code and may touch managed memory. If it ran while the interrupted thread holds
//! the VMA lock, the internal allocator's lock or one of the space's, its page fault could need that very lock, or a
//! thread that waits for it: a deadlock that shows up once a month. So all signals are blocked while such a lock is
//! held.
//!
//! We do not block the two signals that the C library reserves. One cancels threads. The other makes every thread
//! change its user and group along with the caller of `setuid`, which waits until each has done so. A thread of ours
//! created with that signal blocked would never answer: su, nginx and every daemon that drops privileges hung there.
//!
//! Under direct delivery ([`crate::guard`]) we do not block the signals raised by touching absent or closed memory
//! either, because they kill a thread that has them blocked. Their handlers are ours.

use crate::guard;
use crate::raw;

/// The C library's own signals: cancellation (32), and the change of user and group in all threads (33).
const OF_C_LIBRARY: u64 = 0b11 << 31;

/// Blocks signals in the calling thread while this value lives.
pub struct Blocked {
    before: u64,
}

impl Blocked {
    pub fn new() -> Self {
        let raised = if guard::has_signals() {
            guard::signals::RAISED
        } else {
            0
        };
        let all = !(OF_C_LIBRARY | raised);
        let mut before = 0u64;
        set(libc::SIG_BLOCK, &all, Some(&mut before));
        Self { before }
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        set(libc::SIG_SETMASK, &self.before, None);
    }
}

fn set(how: i32, mask: &u64, before: Option<&mut u64>) {
    let before = before.map_or(0, |word| core::ptr::from_mut(word) as usize);
    let args = [
        how as usize,
        core::ptr::from_ref(mask) as usize,
        before,
        size_of::<u64>(),
    ];
    // SAFETY: both words are borrowed for the call and are as long as the kernel's set of 64 signals.
    let _ = unsafe {
        raw::syscall(
            libc::SYS_rt_sigprocmask,
            [args[0], args[1], args[2], args[3], 0, 0],
        )
    };
}
