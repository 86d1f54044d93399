//! The lock over the table of protections and the calls that change them.
//!
//! It is a word that a thread sleeps on instead of one of the standard library's locks, for two reasons. A fork must
//! be able to hold it across the call and find it free in the child, where other threads do not exist. And a signal
//! handler of the program must not run while it is held: the handler could touch a closed page, whose fault needs the
//! lock. So signals are blocked first, with the bare system call, because a library that the program preloads may
//! have replaced the C library's function.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::thread::futex;

use crate::sys::gate;

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, and some thread may be sleeping.
const AWAITED: u32 = 2;
/// The number of looks at a held lock before a thread sleeps. A change of protection takes 1 to 3 µs.
const SPINS: u32 = 100;

pub(super) struct Lock {
    word: AtomicU32,
    /// The signals that were blocked before the fork that holds the lock.
    mask: AtomicU64,
}

/// The lock is held, and signals are blocked, while this value lives.
pub(super) struct Locked<'a> {
    lock: &'a Lock,
    mask: u64,
}

impl Lock {
    pub(super) fn new() -> Self {
        Self {
            word: AtomicU32::new(FREE),
            mask: AtomicU64::new(0),
        }
    }

    pub(super) fn lock(&self) -> Locked<'_> {
        let mask = set_mask(u64::MAX);
        self.take();
        Locked { lock: self, mask }
    }

    /// Ends [`Locked::keep`], in the parent or in the child.
    pub(super) fn release(&self) {
        let mask = self.mask.load(Ordering::Relaxed);
        self.give();
        set_mask(mask);
    }

    fn take(&self) {
        let free = |to| {
            self.word
                .compare_exchange(FREE, to, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
        };
        for _ in 0..SPINS {
            if free(HELD) {
                return;
            }
            core::hint::spin_loop();
        }
        while self.word.swap(AWAITED, Ordering::Acquire) != FREE {
            let _ = futex::wait(&self.word, futex::Flags::PRIVATE, AWAITED, None);
        }
    }

    fn give(&self) {
        if self.word.swap(FREE, Ordering::Release) == AWAITED {
            let _ = futex::wake(&self.word, futex::Flags::PRIVATE, 1);
        }
    }
}

impl Locked<'_> {
    /// Keeps the lock held, and signals blocked, across a fork, until [`Lock::release`].
    pub(super) fn keep(self) {
        self.lock.mask.store(self.mask, Ordering::Relaxed);
        core::mem::forget(self);
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.lock.give();
        set_mask(self.mask);
    }
}

/// Sets the blocked signals, and returns the previous ones.
fn set_mask(mask: u64) -> u64 {
    const NR: usize = linux_raw_sys::general::__NR_rt_sigprocmask as usize;
    const SETMASK: usize = linux_raw_sys::general::SIG_SETMASK as usize;
    let mut before = 0u64;
    let (new, old) = ((&raw const mask) as usize, (&raw mut before) as usize);
    // SAFETY: the kernel reads one set of 64 signals and writes one; both live here.
    unsafe { gate::syscall(NR, [SETMASK, new, old, size_of::<u64>(), 0, 0]) };
    before
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_at_a_time_has_the_lock() {
        let (lock, count) = (Lock::new(), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        let _locked = lock.lock();
                        let seen = count.load(Ordering::Relaxed);
                        count.store(seen + 1, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(count.into_inner(), 80_000);
    }

    #[test]
    fn signals_are_blocked_while_it_is_held() {
        let lock = Lock::new();
        let before = set_mask(0);
        let seen = {
            let _locked = lock.lock();
            set_mask(u64::MAX)
        };
        // SIGKILL and SIGSTOP cannot be blocked.
        assert_eq!(seen.count_ones(), 62);
        lock.lock().keep();
        lock.release();
        assert_eq!(set_mask(before), 0);
    }
}
