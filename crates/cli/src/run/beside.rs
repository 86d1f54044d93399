//! The unmanaged memory of a process, and why a run exceeded its budget.
//!
//! The budget is for the whole process, but only memory that the program allocated can be taken out. Its code, its
//! static variables, its stacks and the files that it maps stay, and are deducted from the budget first. A compiler
//! with 60 MiB of code in a budget of 64 MiB works with the 2 MiB that are always left and thrashes, and nothing in the
//! counts of faults says why. So the report says how large that part was, and the budget that it needs.
//!
//! Programs allocate some of that part at run time, and sometimes it exceeds everything else: memory that several
//! processes or several views share, compiled code, reservations that are longer than the space. So if the part is more
//! than a tenth of the budget, the report says what it is: files and shared memory, as the kernel counts them
//! separately, and the rest.
//!
//! The figures are those at the process's end, or of a tenth of a second before it if it was killed. Code that was used
//! once stays counted, so the part grows and hardly shrinks. If a program unmapped a large file before its end, or
//! threads with deep stacks have ended, the kinds are those of too small a part. The reason for a peak over the budget
//! follows from the maximum of all looks ([`Field::PeakOwn`]).

use crate::size::Human;
use millpond_board::{Field, SlotReading, State};
use std::fmt;

const PAGE: u64 = 4096;
/// Managed memory always gets this much, however much other memory there is (the driver's governor).
const LEAST_LEFT: u64 = 2 << 20;
/// The kernel's marks and the published figures of one process differ by at most this much, or by one part in
/// [`NOISE_SHARE`] of the budget: a process that ends still loads code after its last update.
const NOISE: u64 = 1 << 20;
const NOISE_SHARE: u64 = 32;

/// The process with the largest unmanaged part.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Beside {
    /// The process's own code and data: resident memory that is neither managed nor Millpond's.
    pub own: u64,
    /// The share of `own` that is pages of files: code, libraries, mapped files.
    pub files: u64,
    /// The share of `own` that is shared memory.
    pub shared: u64,
    /// The rest of the budget, which was left for managed memory.
    pub left: u64,
}

impl Beside {
    /// Searches all processes that reported. A process that executed another program has given up its memory.
    #[must_use]
    pub fn of(slots: &[SlotReading]) -> Self {
        let stayed = slots.iter().filter(|slot| slot.state != State::Execed);
        stayed
            .map(of_one)
            .max_by_key(|one| one.own)
            .unwrap_or_default()
    }

    /// Whether the part is more than a tenth of the budget.
    #[must_use]
    pub fn is_much_of(&self, budget: u64) -> bool {
        self.own > budget / 10
    }

    /// Whether the part is more than half of the budget.
    #[must_use]
    pub fn is_most_of(&self, budget: u64) -> bool {
        self.own > budget / 2
    }

    /// The reason why a peak was over the budget, as far as is known. `peak` is the kernel's mark, `published` the
    /// processes'.
    #[must_use]
    pub fn held(
        &self,
        slots: &[SlotReading],
        budget: u64,
        peak: u64,
        published: u64,
    ) -> &'static str {
        let total = |field| slots.iter().map(|slot| slot.fields.get(field)).sum::<u64>();
        let pinned = slots
            .iter()
            .map(|slot| slot.fields.get(Field::NrUnevictable) * PAGE);
        let own = slots.iter().map(most_own).max().unwrap_or(0).max(self.own);
        if own + LEAST_LEFT > budget {
            "the program's own code and data (static arrays, stacks and what it maps past the C library too), which stay"
        } else if total(Field::StoreFailed) > 0 {
            "the store was full, or failed"
        } else if pinned.max().unwrap_or(0) > budget / 2 {
            "pinned or locked pages, which stay"
        } else if total(Field::OverLimit) > 0 {
            "pages that the kernel held for a while, as for direct I/O"
        } else if peak > published + NOISE.max(budget / NOISE_SHARE) {
            "a process that does not load the library, or one before it did"
        } else {
            "what was in flight, or grew, between two looks"
        }
    }
}

/// The part by kind, for people.
impl fmt::Display for Beside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rest = self.own - self.files - self.shared;
        write!(
            f,
            "{} of files (code, libraries), {} of shared memory, {} of other memory (static data, stacks, code made at \
             run time, what it maps past the C library)",
            Human(self.files),
            Human(self.shared),
            Human(rest)
        )
    }
}

/// The most unmanaged memory of a process, as far as can be told: the value that a look saw, or the kernel's mark minus
/// managed memory and Millpond's own, if a stack grew and ended between two looks.
fn most_own(slot: &SlotReading) -> u64 {
    let get = |field| slot.fields.get(field);
    let store = get(Field::StoreRam).max(get(Field::StoreStoredPeak));
    let ours = get(Field::PeakFrames) + store + get(Field::Metadata);
    let left = get(Field::PeakRss).saturating_sub(ours);
    get(Field::PeakOwn).max(left)
}

fn of_one(slot: &SlotReading) -> Beside {
    let get = |field| slot.fields.get(field);
    let frames = get(Field::NrMapped) + get(Field::NrLimbo) + get(Field::NrFreeFrames);
    let ours = frames * PAGE + get(Field::StoreRam) + get(Field::Metadata);
    let own = get(Field::Rss).saturating_sub(ours);
    // The limit comes from the last look, before which a short program may have loaded most of its code.
    let rest = get(Field::Budget).saturating_sub(own).max(LEAST_LEFT);
    let files = get(Field::RssFiles).min(own);
    Beside {
        own,
        files,
        shared: get(Field::RssShared).min(own - files),
        left: rest.min(get(Field::NrLimit) * PAGE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millpond_board::{Board, Fields};

    const BUDGET: u64 = 64 << 20;

    fn slots(all: &[(State, &[(Field, u64)])]) -> Vec<SlotReading> {
        let (board, _file) = Board::create("work").unwrap();
        for (pid, (state, values)) in (1..).zip(all) {
            let mut fields = Fields::default();
            for &(field, value) in *values {
                fields.set(field, value);
            }
            assert!(board.claim(pid, "work").unwrap().publish(*state, &fields));
        }
        board.slots().collect()
    }

    #[test]
    fn managed_memory_and_ours_do_not_count_as_the_programs_own() {
        let compiler = [
            (Field::Budget, BUDGET),
            (Field::Rss, 66 << 20),
            (Field::NrMapped, 256),
            (Field::NrLimbo, 128),
            (Field::NrFreeFrames, 128),
            (Field::StoreRam, 1 << 20),
            (Field::Metadata, 1 << 20),
            (Field::NrLimit, 4096),
        ];
        let shell = [(Field::Rss, 50 << 20)];
        let all = slots(&[(State::Execed, &shell), (State::Exited, &compiler)]);
        let beside = Beside::of(&all);
        assert_eq!((beside.own, beside.left), (62 << 20, 2 << 20));
        assert!(beside.is_most_of(BUDGET) && !beside.is_most_of(BUDGET * 2));
        assert_eq!(Beside::of(&[]), Beside::default());
    }

    #[test]
    fn report_names_what_held_a_run_over_its_budget() {
        let peak = 70 << 20;
        let held = |values: &[(Field, u64)], published| {
            let all = slots(&[(State::Exited, values)]);
            Beside::of(&all).held(&all, BUDGET, peak, published)
        };
        assert!(held(&[], 20 << 20).contains("does not load the library"));
        assert!(held(&[(Field::OverLimit, 1)], peak).contains("the kernel held"));
        let both = [(Field::OverLimit, 1), (Field::StoreFailed, 1)];
        assert!(held(&both, peak).contains("store"));
        assert!(held(&[(Field::StoreFailed, 1)], peak).contains("store"));
        assert!(held(&[(Field::Rss, 63 << 20)], peak).contains("code and data"));
        let between_looks = [(Field::PeakRss, peak), (Field::PeakFrames, 1 << 20)];
        assert!(held(&between_looks, peak).contains("stacks"));
        // Threads with deep stacks have ended, so at the end their stacks are gone.
        assert!(held(&[(Field::PeakOwn, 63 << 20)], peak).contains("stacks"));
        let locked = [(Field::NrUnevictable, (60 << 20) / PAGE)];
        assert!(held(&locked, peak).contains("locked"));
        assert!(held(&[], peak).contains("in flight"));
    }
}
