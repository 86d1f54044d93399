//! Scattered objects are gathered, so that the spans they leave can serve any class.
//!
//! Objects come and go one by one, and each span serves one class of lengths. After some minutes of that, a fifth of
//! the arena was free places: a program whose data just fit had 39 MB of it in 50 MB of RAM, and 2 MiB left for its
//! frames. The next saves found no place of their own class, were refused, and stayed in memory above the budget.
//!
//! A *hand* cycles through all slots by their numbers. An object whose span has many free places is copied unchanged to
//! a span that has no more of them; so each copy concentrates free places, and copying ends. The record is changed as
//! for forgotten pages, if it is still the same; otherwise the copy is dropped. The kernel's counterpart is
//! `zs_compact`, which iterates over spans rather than their users, since a handle stands between them.
//!
//! A refused saver gathers: some objects, for some tens of microseconds, until a span is empty. After a round that
//! gains little, gathering rests until more has been freed. (A store that makes blocks denser also gathers in the
//! background: `recompress.rs`.)

use crate::compressed_ram::{CompressedRam, Place};
use crate::mem::PAGE;
use crate::paged::kept_sums;
use crate::slot_table::{Block, Kind};
use millpond_core::SlotId;
use millpond_sync::{Rank, Ranked};

/// Gathering is worth it when at least this part of the arena, as a divisor, is free places.
const SCATTERED: u64 = 16;
/// The most blocks that one call examines, and that it copies.
const LOOKED_AT: usize = 1024;
const COPIED: usize = 64;
/// Part of the arena, as a divisor, that a round has to gain for another one to follow immediately.
const WORTH_IT: u64 = 128;

/// The hand. One thread at a time holds it; others do not wait for it.
pub(super) struct Gathering {
    hand: Ranked<Hand>,
}

#[derive(Default)]
struct Hand {
    /// The slot and the block to examine next.
    slot: u32,
    block: usize,
    /// Bytes that were taken when the round began.
    taken: u64,
    /// Nothing is done until the count of bytes ever freed reaches this.
    rests_until: u64,
}

/// A block whose bytes were copied, to be moved to another object.
pub(super) struct Copied {
    pub(super) block: Block,
    pub(super) at: usize,
    pub(super) len: usize,
    pub(super) bytes: usize,
}

impl Gathering {
    pub(super) fn new() -> Self {
        Self {
            hand: Ranked::new(Rank::Recompression, Hand::default()),
        }
    }
}

impl CompressedRam {
    /// Gathers objects until a span becomes free, or a bounded number was examined. Returns whether one became free.
    pub(super) fn gather_some(&self) -> bool {
        let taken = self.arena.taken_bytes();
        if self.arena.is_draining() || !self.is_scattered() {
            return false;
        }
        let Some(mut hand) = self.gathering.hand.try_lock() else {
            return false;
        };
        if self.arena.freed_bytes() < hand.rests_until {
            return false;
        }
        let mut copied = 0;
        for _ in 0..LOOKED_AT {
            if hand.slot >= self.top() && !self.begin_round(&mut hand, taken) {
                return false;
            }
            match self.gather_block(SlotId(hand.slot), hand.block) {
                None => (hand.slot, hand.block) = (hand.slot + 1, 0),
                Some(false) => hand.block += 1,
                Some(true) => {
                    hand.block += 1;
                    copied += 1;
                    if self.arena.taken_bytes() < taken {
                        return true;
                    }
                }
            }
            if copied == COPIED {
                break;
            }
        }
        false
    }

    /// Whether enough of the arena is free places for gathering to be worth it.
    pub(super) fn is_scattered(&self) -> bool {
        let taken = self.arena.taken_bytes();
        taken.saturating_sub(self.arena.live_bytes()) * SCATTERED > taken
    }

    /// Starts a new round. Returns whether the last one was worth it.
    fn begin_round(&self, hand: &mut Hand, taken: u64) -> bool {
        let gained = hand.taken.saturating_sub(taken);
        let goes_on = hand.taken == 0 || gained * WORTH_IT >= taken;
        *hand = Hand {
            taken,
            ..Hand::default()
        };
        if !goes_on {
            hand.rests_until = self.arena.freed_bytes() + taken / SCATTERED;
        }
        goes_on
    }

    /// Copies the object of block `number` of a slot to a fuller span, if there is one. Returns whether it was copied,
    /// or `None` if there is no such block.
    pub(super) fn gather_block(&self, slot: SlotId, number: usize) -> Option<bool> {
        let pinned = self.table.pin(slot)?;
        let (block, at, len) = pinned.block(number)?;
        let Some(old) = (block.kind != Kind::Fill)
            .then(|| Place::of(&block).object())
            .flatten()
        else {
            return Some(false);
        };
        let bytes = match block.kind {
            Kind::Packed => kept_sums(len) + usize::from(block.size),
            _ => len,
        };
        let Some(new) = self.arena.alloc_to_gather(old, bytes) else {
            return Some(false);
        };
        // SAFETY: the slot is pinned, so its object stays, and it has this many bytes. The other object is new, so no
        // other thread knows it, and of the same class.
        unsafe {
            let (from, to) = (self.arena.address(old), self.arena.address(new));
            to.copy_from_nonoverlapping(from, bytes);
        }
        drop(pinned);
        let copied = Copied {
            block,
            at,
            len,
            bytes,
        };
        let replaced = self.replace(slot, &copied, |block| Block {
            place: Place::of(&block).with(Some(new)).bits(),
            ..block
        });
        self.arena.free(if replaced { old } else { new });
        Some(replaced)
    }

    /// Changes the record of a block, if it is unchanged since it was copied. Returns whether it was unchanged.
    pub(super) fn replace(
        &self,
        slot: SlotId,
        copied: &Copied,
        change: impl Fn(Block) -> Block,
    ) -> bool {
        let Some(rewriting) = self.table.rewrite(slot) else {
            return false;
        };
        let mut replaced = false;
        let first = (copied.at / PAGE) as u16;
        rewriting.change(first, copied.len, |block, _, _| {
            if block != copied.block {
                return block;
            }
            replaced = true;
            change(block)
        });
        replaced
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compressed_ram::CompressedRamConfig;
    use millpond_core::port::{Saved, Slots};

    /// A page with `noise` incompressible bytes.
    fn page(noise: usize, seed: u32) -> Vec<u8> {
        let mut draw = u64::from(seed) + 1;
        let mut page: Vec<u8> = (0..PAGE).map(|at| (at / 100) as u8).collect();
        for byte in &mut page[..noise] {
            draw = draw.wrapping_mul(6364136223846793005).wrapping_add(99);
            *byte = (draw >> 40) as u8;
        }
        page
    }

    /// All pages of one length go except every eighth, and pages of another length come: the places of the first serve
    /// only their own length, until the remaining ones are gathered.
    #[test]
    fn places_of_one_length_serve_another() {
        let most = Some(4 << 20);
        let store = CompressedRam::new(CompressedRamConfig { max_bytes: most }).unwrap();
        let save = |slot: u32, noise| store.save(SlotId(slot), None, &page(noise, slot));
        let full = (0..).find(|&slot| save(slot, 1000).is_err()).unwrap();
        (0..full)
            .filter(|slot| slot % 8 != 0)
            .for_each(|slot| store.release(SlotId(slot)));
        assert!(store.is_scattered());
        // Each refusal gathers some objects.
        let stored = |&slot: &u32| (0..50).any(|_| save(slot, 2500) == Ok(Saved::Stored));
        let came = (full..).take_while(stored).count();
        let bytes = came * 2500;
        assert!(bytes > 2 << 20, "{bytes} of the 3.5 MiB that went");
        let mut out = vec![0; PAGE];
        for slot in (0..full).step_by(8) {
            store.load(SlotId(slot), 0, &mut out).unwrap();
            assert_eq!(out, page(1000, slot), "{slot}");
        }
        for slot in full..full + came as u32 {
            store.load(SlotId(slot), 0, &mut out).unwrap();
            assert_eq!(out, page(2500, slot), "{slot}");
        }
    }

    #[test]
    fn a_round_that_gains_nothing_is_the_last_for_a_while() {
        let store = CompressedRam::new(CompressedRamConfig::default()).unwrap();
        for slot in 0..2000 {
            store.save(SlotId(slot), None, &page(1000, slot)).unwrap();
        }
        assert!(!store.is_scattered() && !store.gather_some());
        (0..2000)
            .filter(|slot| slot % 4 != 0)
            .for_each(|slot| store.release(SlotId(slot)));
        let rounds = (0..1000).filter(|_| store.gather_some()).count();
        assert!(rounds > 10, "{rounds}");
        let rests_until = store.gathering.hand.lock().rests_until;
        assert!(!store.is_scattered() || rests_until > store.arena.freed_bytes());
    }
}
