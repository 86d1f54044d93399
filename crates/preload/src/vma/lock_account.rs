//! The account of locked managed memory, as the kernel counts it.
//!
//! The manager keeps memory that the program locks here, and the kernel learns of no lock. But the limit on locked
//! memory (`ulimit -l`) is the kernel's, and so are the privilege to exceed it and the figure `VmLck`. So we ask the
//! kernel with addresses that hold nothing: we lock as many bytes there as are locked in the space, to be brought in
//! when they are touched, which never happens. The program gets the kernel's answer, for both kinds of memory
//! together.
//!
//! Locks are not inherited: a child's account is emptied.

use crate::raw;
use rustix::io::Errno;

/// The addresses, and how many of their bytes are locked. All fields are zero until first used.
#[derive(Default)]
pub(super) struct LockAccount {
    start: usize,
    len: usize,
    locked: usize,
}

impl LockAccount {
    /// Locks another `bytes`, out of a maximum of `most` ever.
    ///
    /// # Errors
    /// The kernel's error for locking this many bytes.
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
        // The budget may have been raised since. Only the manager accounts for bytes beyond the range.
        let end = (self.locked + bytes).min(self.len);
        if end > self.locked {
            let flags = libc::MLOCK_ONFAULT as usize;
            self.call(libc::SYS_mlock2, self.locked, end, flags)?;
        }
        self.locked += bytes;
        Ok(())
    }

    /// Unlocks `bytes`.
    pub(super) fn remove(&mut self, bytes: usize) {
        self.set(self.locked.saturating_sub(bytes));
    }

    /// Unlocks all but `bytes`.
    pub(super) fn set(&mut self, bytes: usize) {
        let before = self.locked.min(self.len);
        if bytes < before {
            // The call cannot fail: the range is known to exist, and only the count changes.
            let _ = self.call(libc::SYS_munlock, bytes, before, 0);
        }
        self.locked = self.locked.min(bytes);
    }

    fn call(&self, number: i64, from: usize, to: usize, flags: usize) -> Result<(), Errno> {
        // SAFETY: this is part of our own mapping, no byte of which is used.
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
    fn the_kernel_accounts_for_locking_and_unlocking() {
        let before = counted();
        let mut account = LockAccount::default();
        // An ordinary user may lock this much.
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
