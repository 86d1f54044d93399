//! Room for pages of files that come and go without Millpond.
//!
//! A preloaded program's code leaves the resident set once a second (`preload/src/code.rs`), and the code that still
//! runs is back within milliseconds, without a fault that Millpond sees. If the frames got that room in between, the
//! process would exceed its budget each time. So the recent maximum of files' pages stays reserved for them: for one to
//! two [`WINDOW`]s.
//!
//! Code that a program has not run before, or not for long, arrives as fast: the kernel maps 64 KiB in 10 µs, and no
//! look comes in time. A compiler that entered its next phase had 3.8 MiB more within a millisecond, and exceeded its
//! 70 MiB by 1.5; redis-server began to save, had 2.3 MiB more within six, and exceeded its 28 by 1.3. So a program
//! that has grown by such a [`burst`](FileRoom::burst) recently has room for another one kept free, up to a part of
//! its budget ([`BURST_MOST`]).

use millpond_sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The time after which a new maximum begins, in microseconds. It is longer than code stays away.
const WINDOW: u64 = 1_500_000;

/// The time within which growth is a burst, in microseconds, if the looks are that frequent.
const BURST: u64 = 8_000;

/// Longest time between two looks for which the growth in between counts as a burst, in microseconds.
const LONG_AGO: u64 = 40_000;

/// The time after which a new largest burst begins, in microseconds.
const BURST_WINDOW: u64 = 10_000_000;

/// Maximum part of the budget that is kept free for a burst, as a divisor.
const BURST_MOST: u64 = 64;

/// Pages that may be kept free for a burst if that part is smaller: code is as large under a small budget.
const BURST_LEAST: u64 = 256;

/// The largest value of this window and of the one before. Threads that look at the same time may each begin a window:
/// then a maximum is forgotten one window early.
#[derive(Debug, Default)]
struct RecentMost {
    began: AtomicU64,
    now: AtomicU64,
    before: AtomicU64,
}

impl RecentMost {
    /// Notes `value` at the time `at`, in microseconds, and returns the largest of the last one to two windows.
    fn with(&self, value: u64, at: u64, window: u64) -> u64 {
        let age = at.saturating_sub(self.began.load(Relaxed));
        if age >= window {
            let before = match age < 2 * window {
                true => self.now.load(Relaxed),
                false => 0,
            };
            self.before.store(before, Relaxed);
            self.now.store(value, Relaxed);
            self.began.store(at, Relaxed);
        } else {
            self.now.fetch_max(value, Relaxed);
        }
        self.get()
    }

    fn get(&self) -> u64 {
        self.now.load(Relaxed).max(self.before.load(Relaxed))
    }

    fn forget(&self) {
        self.now.store(0, Relaxed);
        self.before.store(0, Relaxed);
    }
}

/// The most pages of files that were resident lately, and by how many they grew at once.
#[derive(Debug, Default)]
pub(crate) struct FileRoom {
    most: RecentMost,
    bursts: RecentMost,
    /// The pages of files at the look with which the present burst begins, and its time.
    from: AtomicU64,
    from_at: AtomicU64,
}

impl FileRoom {
    /// Pages to keep free for files, of which `resident` are resident at the time `at`, in microseconds.
    pub(crate) fn kept(&self, resident: u64, at: u64) -> u64 {
        self.note_burst(resident, at);
        let most = self.most.with(resident, at, WINDOW);
        most.saturating_sub(resident)
    }

    fn note_burst(&self, resident: u64, at: u64) {
        let age = at.saturating_sub(self.from_at.load(Relaxed));
        let grown = match age < LONG_AGO {
            true => resident.saturating_sub(self.from.load(Relaxed)),
            false => 0,
        };
        self.bursts.with(grown, at, BURST_WINDOW);
        if age >= BURST || resident < self.from.load(Relaxed) {
            self.from.store(resident, Relaxed);
            self.from_at.store(at, Relaxed);
        }
    }

    /// Pages of a budget of `ram` pages to keep free for growth at once, beyond the `headroom` pages that are free.
    pub(crate) fn burst(&self, ram: u64, headroom: u64) -> u64 {
        // The other half of the headroom is for what else is in flight.
        let beyond = self.bursts.get().saturating_sub(headroom / 2);
        beyond.min((ram / BURST_MOST).max(BURST_LEAST.min(ram / 16)))
    }

    /// Forgets the parent's figures.
    pub(crate) fn forget(&self) {
        self.most.forget();
        self.bursts.forget();
        self.from_at.store(0, Relaxed);
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
    fn a_program_that_grew_in_a_burst_has_room_for_another() {
        const RAM: u64 = 16_384;
        let room = FileRoom::default();
        assert_eq!(room.burst(RAM, 512), 0);
        // 900 pages within 3 ms, by looks a millisecond apart.
        for (ms, pages) in [(100, 4_000), (101, 4_300), (102, 4_600), (103, 4_900)] {
            room.kept(pages, ms * 1_000);
        }
        assert_eq!(room.burst(RAM, 1500), 900 - 750);
        assert_eq!(room.burst(RAM, 256), BURST_LEAST);
        assert_eq!(room.burst(4 * RAM, 256), 900 - 128);
        assert_eq!(room.burst(2 * RAM, 256), 2 * RAM / BURST_MOST);
        assert_eq!(room.burst(2_048, 256), 128);
        // Slow growth is no burst, and in time the old one is forgotten.
        for ms in (200..30_000).step_by(20) {
            room.kept(4_900 + ms / 10, ms * 1_000);
        }
        assert_eq!(room.burst(RAM, 256), 0);
    }

    #[test]
    fn growth_over_a_long_time_without_a_look_is_no_burst() {
        let room = FileRoom::default();
        room.kept(1_000, 5_000_000);
        room.kept(9_000, 5_100_000);
        assert_eq!(room.burst(1 << 20, 256), 0);
        room.kept(9_500, 5_120_000);
        assert_eq!(room.burst(1 << 20, 256), 500 - 128);
        room.forget();
        room.kept(9_500, 5_121_000);
        assert_eq!(room.burst(1 << 20, 256), 0);
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
