//! How much managed memory is locked, as the kernel counts it.
//!
//! What the program locks here is kept in memory by the manager, and the kernel hears of no lock. But the limit on
//! locked memory (`ulimit -l`) is the kernel's, and so are the right to lock beyond it and the figure `VmLck`. So the
//! kernel is asked with addresses that hold nothing: as many bytes are locked there as are locked in the space, to be
//! brought in when they are touched, which nobody does. Its answer is the program's, for memory of either kind
//! together.
//!
//! Locks are not inherited, by a child's account either.

use crate::raw;
use rustix::io::Errno;

/// The addresses, and how many of their bytes are locked. All zero until first used.
#[derive(Default)]
pub(super) struct LockAccount {
    start: usize,
    len: usize,
    locked: usize,
}

impl LockAccount {
    /// `bytes` more, of `most` that there may ever be.
    ///
    /// # Errors
    /// The kernel's, for a lock of so many bytes.
    pub(super) fn add(&mut self, bytes: usize, most: usize) -> Result<(), Errno> {
        if bytes == 0 {
            return Ok(());
        }
        if self.start == 0 {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            // SAFETY: the kernel chooses the place, so nothing is replaced.
            self.start = unsafe { raw::mmap(0, most, libc::PROT_NONE, flags, -1, 0) }?;
            self.len = most;
        }
        // A budget that was raised since: what is beyond is the manager's to answer for.
        let end = (self.locked + bytes).min(self.len);
        if end > self.locked {
            let flags = libc::MLOCK_ONFAULT as usize;
            self.call(libc::SYS_mlock2, self.locked, end, flags)?;
        }
        self.locked += bytes;
        Ok(())
    }

    /// `bytes` fewer.
    pub(super) fn remove(&mut self, bytes: usize) {
        self.set(self.locked.saturating_sub(bytes));
    }

    /// Lets go of all but `bytes`.
    pub(super) fn set(&mut self, bytes: usize) {
        let before = self.locked.min(self.len);
        if bytes < before {
            // It changes what is counted alone, and that the range is there is known.
            let _ = self.call(libc::SYS_munlock, bytes, before, 0);
        }
        self.locked = self.locked.min(bytes);
    }

    fn call(&self, number: i64, from: usize, to: usize, flags: usize) -> Result<(), Errno> {
        // SAFETY: a part of our own mapping, of which nobody uses a byte.
        let done = unsafe { raw::syscall(number, [self.start + from, to - from, flags, 0, 0, 0]) };
        done.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted() -> usize {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmLck:"))
            .unwrap();
        line.trim()
            .strip_suffix(" kB")
            .unwrap()
            .parse::<usize>()
            .unwrap()
            << 10
    }

    #[test]
    fn the_kernel_counts_what_is_locked_and_what_is_not_any_more() {
        let before = counted();
        let mut account = LockAccount::default();
        // As much as an ordinary user may lock.
        account.add(32 << 10, 1 << 20).unwrap();
        account.add(8 << 10, 1 << 20).unwrap();
        assert_eq!(counted() - before, 40 << 10);
        account.remove(24 << 10);
        assert_eq!(counted() - before, 16 << 10);
        account.set(0);
        assert_eq!(counted(), before);
        account.add(0, 1 << 20).unwrap();
        assert_eq!(counted(), before);
    }
}
