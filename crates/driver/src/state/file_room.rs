//! Room for pages of files that come and go without Millpond.
//!
//! A preloaded program's code leaves the resident set once a second (`preload/src/code.rs`), and the code that still
//! runs is back within milliseconds, without a fault that Millpond sees. If the frames got that room in between, the
//! process would exceed its budget each time. So the recent maximum of files' pages stays reserved for them: for one to
//! two [`WINDOW`]s.

use millpond_sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The time after which a new maximum begins, in microseconds. It is longer than code stays away.
const WINDOW: u64 = 1_500_000;

/// The most pages of files that were resident in this window and in the one before. Threads that look at the same time
/// may each begin a window: then a maximum is forgotten one window early.
#[derive(Debug, Default)]
pub(crate) struct FileRoom {
    began: AtomicU64,
    now: AtomicU64,
    before: AtomicU64,
}

impl FileRoom {
    /// Pages to keep free for files, of which `resident` are resident at the time `at`, in microseconds.
    pub(crate) fn kept(&self, resident: u64, at: u64) -> u64 {
        let age = at.saturating_sub(self.began.load(Relaxed));
        if age >= WINDOW {
            let before = match age < 2 * WINDOW {
                true => self.now.load(Relaxed),
                false => 0,
            };
            self.before.store(before, Relaxed);
            self.now.store(resident, Relaxed);
            self.began.store(at, Relaxed);
        } else {
            self.now.fetch_max(resident, Relaxed);
        }
        let most = self.now.load(Relaxed).max(self.before.load(Relaxed));
        most.saturating_sub(resident)
    }

    /// Forgets the parent's maxima.
    pub(crate) fn forget(&self) {
        self.now.store(0, Relaxed);
        self.before.store(0, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_back_within_a_second_keep_their_room() {
        let room = FileRoom::default();
        let second = 1_000_000;
        assert_eq!(room.kept(10_000, 0), 0);
        // Everything leaves once a second, and 3,000 pages come back.
        let mut kept = Vec::new();
        for at in 1..8 {
            kept.push(room.kept(100, at * second));
            assert!(room.kept(3_000, at * second + 1) <= 7_000);
        }
        assert_eq!(kept[0], 9_900);
        assert_eq!(kept[5..], [2_900; 2], "{kept:?}");
    }

    #[test]
    fn after_a_long_time_nothing_is_kept() {
        let room = FileRoom::default();
        assert_eq!(room.kept(10_000, 0), 0);
        assert_eq!(room.kept(100, 10 * WINDOW), 0);
        assert_eq!(room.kept(500, 10 * WINDOW), 0);
        room.forget();
        assert_eq!(room.kept(200, 10 * WINDOW + 1), 0);
    }
}
