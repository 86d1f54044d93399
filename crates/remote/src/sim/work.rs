//! What the simulated program does with its slots, and what each of them must contain.
//!
//! The model of the store is a table: for each slot, the seed and the length of what was last saved. A load must
//! return exactly that, byte for byte. A load may fail as long as the service misbehaves, and then it is retried.

use super::faults::Dice;
use crate::tier::RemoteStore;
use millpond_core::port::{LoadError, SaveError, Saved, Slots};
use millpond_core::{Order, PAGE_SIZE, SlotId, SlotPart};
use rustix::io::Errno;

/// The number of tries within which a load must succeed.
const TRIES: usize = 30;

/// Returns the error of a load whose deadline has passed.
pub(super) fn timed_out() -> LoadError {
    LoadError::Io(Errno::TIMEDOUT.raw_os_error())
}

/// Returns the error of a load from an object that the service has lost.
pub(super) fn lost() -> LoadError {
    LoadError::Io(Errno::NODATA.raw_os_error())
}

/// Returns pages that depend only on `seed`. A third of the seeds yield compressible ones.
pub(super) fn contents(seed: u64, pages: usize) -> Vec<u8> {
    let mut dice = Dice(seed);
    let is_text = seed.is_multiple_of(3);
    let mut word = || match (dice.next(), is_text) {
        (word, true) => word % 50 + 1,
        (word, false) => word,
    };
    (0..pages * PAGE_SIZE / 8)
        .flat_map(|_| word().to_le_bytes())
        .collect()
}

/// The results of the work.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Tally {
    pub(super) loads: u64,
    /// Loads that failed, and succeeded when they were retried.
    pub(super) errors: u64,
    /// Loads that returned other bytes than were saved, and saves that mistook other bytes for unchanged ones.
    pub(super) wrong: u64,
    /// Saves that found nothing changed.
    pub(super) unchanged: u64,
    /// Saves that found no room.
    pub(super) full: u64,
}

impl Tally {
    pub(super) fn add(&mut self, other: Self) {
        self.loads += other.loads;
        self.errors += other.errors;
        self.wrong += other.wrong;
        self.unchanged += other.unchanged;
        self.full += other.full;
    }
}

/// What a program does.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    /// The number of slots that each thread has.
    pub(super) slots: usize,
    /// The lengths of slots, in pages.
    pub(super) pages: &'static [usize],
    /// The number of steps of each thread.
    pub(super) steps: u32,
    pub(super) threads: u32,
    /// Bytes in the store in front.
    pub(super) room: u64,
}

/// A slot with contents: what they were made from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    slot: SlotId,
    seed: u64,
    pages: usize,
}

impl Held {
    pub(super) fn slot(self) -> SlotId {
        self.slot
    }

    /// Loads the whole slot once. Returns whether the bytes are right.
    pub(super) fn load(self, store: &RemoteStore) -> Result<bool, LoadError> {
        self.load_part(store, 0, self.pages)
    }

    fn load_part(self, store: &RemoteStore, first: usize, pages: usize) -> Result<bool, LoadError> {
        let mut out = vec![0; pages * PAGE_SIZE];
        store.load(self.slot, first as u16, &mut out)?;
        let whole = contents(self.seed, self.pages);
        Ok(out == whole[first * PAGE_SIZE..(first + pages) * PAGE_SIZE])
    }
}

/// One thread of the program.
struct Worker<'a> {
    store: &'a RemoteStore,
    work: Work,
    number: u32,
    dice: Dice,
    held: Vec<Option<Held>>,
    tally: Tally,
}

impl Work {
    /// Does the seed's work on all threads. Returns what the slots contain in the end, and the results.
    pub(super) fn run(self, seed: u64, store: &RemoteStore) -> (Vec<Held>, Tally) {
        let done = std::thread::scope(|scope| {
            let start = |number| {
                scope.spawn(move || {
                    let mut worker = Worker {
                        store,
                        work: self,
                        number,
                        dice: Dice(seed ^ (u64::from(number) << 32)),
                        held: vec![None; self.slots],
                        tally: Tally::default(),
                    };
                    (0..self.steps).for_each(|step| worker.step(step));
                    (worker.held, worker.tally)
                })
            };
            let threads: Vec<_> = (0..self.threads).map(start).collect();
            let ended = threads.into_iter().map(|thread| thread.join().unwrap());
            ended.collect::<Vec<_>>()
        });
        let mut all = Tally::default();
        let mut held = Vec::new();
        for (slots, tally) in done {
            held.extend(slots.into_iter().flatten());
            all.add(tally);
        }
        (held, all)
    }
}

impl Worker<'_> {
    fn step(&mut self, step: u32) {
        let own = self.dice.below(self.held.len());
        match self.held[own] {
            None => self.held[own] = self.save(own, step),
            Some(held) if self.dice.below(4) == 0 => {
                self.store.release(held.slot);
                self.held[own] = None;
            }
            Some(held) => {
                let (first, pages) = self.load(held);
                if self.dice.below(3) == 0 {
                    self.leave(held, first, pages, step);
                }
            }
        }
    }

    fn slot(&self, own: usize) -> SlotId {
        SlotId(self.number * self.work.slots as u32 + own as u32)
    }

    /// Makes loaded pages leave memory, unchanged or changed.
    fn leave(&mut self, held: Held, first: usize, pages: usize, step: u32) {
        let Some(free) = self.held.iter().position(Option::is_none) else {
            return;
        };
        let order = Order::new(pages.ilog2() as u8).unwrap();
        let part = SlotPart {
            slot: held.slot,
            first: first as u16,
            order,
        };
        let (slot, pages) = (self.slot(free), 1 << order.get());
        let changed = Held {
            slot,
            seed: (1 << 40) + u64::from(step * self.work.threads + self.number),
            pages,
        };
        let has_changed = self.dice.below(2) == 0;
        let bytes = match has_changed {
            true => contents(changed.seed, pages),
            false => {
                contents(held.seed, held.pages)[first * PAGE_SIZE..][..pages * PAGE_SIZE].to_vec()
            }
        };
        match self.store.save(slot, Some(part), &bytes) {
            Ok(Saved::Stored) if has_changed => self.held[free] = Some(changed),
            Ok(Saved::Stored) => self.store.release(slot),
            Ok(Saved::Unchanged) => {
                self.tally.unchanged += 1;
                self.tally.wrong += u64::from(has_changed);
            }
            Err(SaveError::Full) => self.tally.full += 1,
            other => panic!("{part:?}: {other:?}"),
        }
    }

    fn save(&mut self, own: usize, step: u32) -> Option<Held> {
        let held = Held {
            slot: self.slot(own),
            seed: u64::from(step * self.work.threads + self.number) + 1,
            pages: self.work.pages[self.dice.below(self.work.pages.len())],
        };
        let bytes = contents(held.seed, held.pages);
        match self.store.save(held.slot, None, &bytes) {
            Ok(saved) => {
                assert_eq!(saved, Saved::Stored);
                Some(held)
            }
            Err(SaveError::Full) => {
                self.tally.full += 1;
                None
            }
            Err(error) => panic!("{held:?}: {error:?}"),
        }
    }

    /// Loads a part of a slot until that succeeds. Returns the first page, and how many there are.
    fn load(&mut self, held: Held) -> (usize, usize) {
        let first = self.dice.below(held.pages);
        let pages = 1 + self.dice.below(held.pages - first);
        self.tally.loads += 1;
        for _ in 0..TRIES {
            match held.load_part(self.store, first, pages) {
                Ok(is_right) => {
                    self.tally.wrong += u64::from(!is_right);
                    return (first, pages);
                }
                Err(error) if error == LoadError::Corrupt || error == timed_out() => {
                    self.tally.errors += 1;
                }
                Err(error) => panic!("{held:?}: {error:?}"),
            }
        }
        panic!("{held:?}: pages from {first} did not come in {TRIES} loads");
    }
}
