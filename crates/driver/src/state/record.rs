//! The state of a recording (`record.rs`).

use millpond_core::PageIndex;
use millpond_sync::{Rank, Ranked};

/// Pages that leave the window together.
pub(crate) const BATCH: usize = 16;

/// Settings of a recording.
#[derive(Clone, Copy, Debug)]
pub struct Recording {
    /// Number of pages that stay mapped, at least [`Recording::MIN_WINDOW`]: with fewer, an instruction and its data
    /// might evict each other.
    pub window: u32,
    /// Function called with the number of each page that enters the window, which is its address divided by 4,096. The
    /// thread that resolves the fault calls it, one thread at a time: it must not allocate, touch managed memory or
    /// take long.
    pub enters: fn(u64),
}

impl Recording {
    /// The smallest window.
    pub const MIN_WINDOW: u32 = 64;
}

/// A recording in progress. See the [module](self).
pub struct Recorder {
    pub(crate) recording: Recording,
    pub(crate) window: Ranked<Window>,
}

/// The pages that came in last, in a ring.
pub(crate) struct Window {
    pub(crate) ring: Box<[PageIndex]>,
    pub(crate) next: usize,
    pub(crate) len: usize,
}

impl Window {
    /// Adds a page; if there are [`BATCH`] too many, removes the oldest.
    pub(crate) fn enter(&mut self, page: PageIndex) -> Option<[PageIndex; BATCH]> {
        let room = self.ring.len();
        self.ring[self.next] = page;
        self.next = (self.next + 1) % room;
        self.len += 1;
        if self.len < room {
            return None;
        }
        // The ring is full: the next place is the oldest page's.
        let oldest = std::array::from_fn(|n| self.ring[(self.next + n) % room]);
        self.len -= BATCH;
        Some(oldest)
    }
}

impl Recorder {
    /// Makes a recorder in which no page was touched yet.
    pub fn new(recording: Recording) -> Self {
        let window = recording.window.max(Recording::MIN_WINDOW) as usize;
        let ring = vec![PageIndex(0); window + BATCH].into_boxed_slice();
        Self {
            recording,
            window: Ranked::new(
                Rank::Figures,
                Window {
                    ring,
                    next: 0,
                    len: 0,
                },
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_leave_in_the_order_in_which_they_came() {
        let recorder = Recorder::new(Recording {
            window: 0,
            enters: |_| {},
        });
        let mut window = recorder.window.lock();
        let mut left = Vec::new();
        for n in 0..1000 {
            left.extend(window.enter(PageIndex(n)).into_iter().flatten());
            let here = n as usize + 1 - left.len();
            let most = Recording::MIN_WINDOW as usize + BATCH;
            assert!(here < most, "{here} pages");
        }
        assert!((0..left.len()).all(|n| left[n] == PageIndex(n as u32)));
        assert!(left.len() >= 1000 - Recording::MIN_WINDOW as usize - BATCH);
    }
}
