//! The lease: how many bytes a dormant process may map before the kernel is asked again what it has.
//!
//! Threads take from it at once, and it is replaced while they do. Its upper bits are the number of the replacement, so
//! that a lease which was computed does not undo what happened in the meantime.

use core::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// The number of bits of a length: more bytes than a processor can address.
const LENGTH: u32 = 48;

pub struct Lease(pub AtomicU64);

fn word(number: u64, left: usize) -> u64 {
    number << LENGTH | (left as u64).min((1 << LENGTH) - 1)
}

fn left(word: u64) -> u64 {
    word & ((1 << LENGTH) - 1)
}

impl Lease {
    /// Takes `len` bytes from the lease. Returns false, and takes none, if there are not as many.
    pub fn take(&self, len: usize) -> bool {
        let rest = |word| (left(word) >= len as u64).then(|| word - len as u64);
        self.0.fetch_update(SeqCst, SeqCst, rest).is_ok()
    }

    /// Begins a new lease of so many bytes, whatever the old one was. Returns its word.
    pub fn next(&self, len: usize) -> u64 {
        let mut new = 0;
        let _ = self.0.fetch_update(SeqCst, SeqCst, |old| {
            new = word((old >> LENGTH).wrapping_add(1), len);
            Some(new)
        });
        new
    }

    /// Makes the lease that is `known` one of `len` bytes, unless it is another one by now.
    pub fn replace(&self, known: u64, len: usize) {
        let new = word(known >> LENGTH, len);
        let _ = self.0.compare_exchange(known, new, SeqCst, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_taken_from_until_it_is_used_up() {
        let lease = Lease(AtomicU64::new(0));
        assert!(!lease.take(1) && lease.take(0));
        lease.next(10);
        assert!(lease.take(4) && !lease.take(7) && lease.take(6) && !lease.take(1));
        lease.next(usize::MAX);
        assert!(lease.take(1 << 40));
    }

    #[test]
    fn a_lease_that_was_computed_late_is_not_given() {
        let lease = Lease(AtomicU64::new(0));
        let emptied = lease.next(0);
        lease.next(5);
        assert!(lease.take(5));
        // The words are equal but for the number.
        lease.replace(emptied, 100);
        assert!(!lease.take(1));
        let emptied = lease.next(0);
        lease.replace(emptied, 100);
        assert!(lease.take(100));
    }

    #[test]
    fn threads_never_take_more_than_there_is() {
        let lease = Lease(AtomicU64::new(0));
        lease.next(30_000);
        let taken: usize = std::thread::scope(|scope| {
            let take = || (0..20_000).filter(|_| lease.take(1)).count();
            let threads: Vec<_> = (0..3).map(|_| scope.spawn(take)).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .sum()
        });
        assert_eq!(taken, 30_000);
    }
}
