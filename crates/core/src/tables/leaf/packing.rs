//! The packing of an entry into 64 bits.

use crate::addr::MAX_ORDER;
use crate::ids::{FolioId, SlotId};

/// The state of a page, as its entry records it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Entry {
    /// The page has no contents: it reads as zeros, and was never touched or was discarded since.
    Empty,
    /// The page is a part of a folio that is in memory: mapped, in limbo, or on its way.
    Folio(FolioId),
    /// The page is in the store: it is page `index` of `slot`.
    Swapped {
        /// The slot.
        slot: SlotId,
        /// The page's number in the slot.
        index: u16,
    },
    /// The page was in memory, held only zeros and was given up. It is equivalent to an empty page, but counts as
    /// touched.
    Zero,
    /// The page's contents were lost by a failed load. Only a discard changes that.
    Poisoned,
}

const KIND_BITS: u32 = 3;
pub(super) const KIND_MASK: u64 = (1 << KIND_BITS) - 1;
const INDEX_BITS: u32 = MAX_ORDER as u32;

pub(super) const EMPTY: u64 = 0;
const FOLIO: u64 = 1;
const SWAPPED: u64 = 2;
const POISONED: u64 = 3;
pub(super) const ZERO: u64 = 4;
/// An empty entry with a shadow.
pub(super) const SHADOW: u64 = 5;

/// The layout of an entry's bits. From the low end: kind, number of a folio or slot, page of the slot, shadow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packing {
    pub(super) slot_bits: u32,
}

impl Packing {
    pub(super) fn shadow_shift(self) -> u32 {
        KIND_BITS + self.slot_bits + INDEX_BITS
    }

    pub(super) fn pack(self, entry: Entry) -> u64 {
        match entry {
            Entry::Empty => EMPTY,
            Entry::Folio(folio) => u64::from(folio.0) << KIND_BITS | FOLIO,
            Entry::Swapped { slot, index } => {
                debug_assert!(u64::from(slot.0) < 1 << self.slot_bits);
                let index = u64::from(index) << (KIND_BITS + self.slot_bits);
                index | u64::from(slot.0) << KIND_BITS | SWAPPED
            }
            Entry::Poisoned => POISONED,
            Entry::Zero => ZERO,
        }
    }

    pub(super) fn unpack(self, bits: u64) -> Entry {
        let number = bits >> KIND_BITS;
        match bits & KIND_MASK {
            FOLIO => Entry::Folio(FolioId(number as u32)),
            SWAPPED => Entry::Swapped {
                slot: SlotId((number & ((1 << self.slot_bits) - 1)) as u32),
                index: (number >> self.slot_bits & ((1 << INDEX_BITS) - 1)) as u16,
            },
            POISONED => Entry::Poisoned,
            ZERO => Entry::Zero,
            _ => Entry::Empty,
        }
    }

    pub(super) fn shadow(self, bits: u64) -> u32 {
        match bits & KIND_MASK {
            SWAPPED | ZERO | SHADOW => (bits >> self.shadow_shift()) as u32,
            _ => 0,
        }
    }

    /// The difference between the entries of two consecutive pages of a slot.
    pub(super) fn next_index(self) -> u64 {
        1 << (KIND_BITS + self.slot_bits)
    }

    pub(super) fn without_shadow(self, bits: u64) -> u64 {
        bits & ((1 << self.shadow_shift()) - 1)
    }

    pub(super) fn with_shadow(self, bits: u64, shadow: u32) -> u64 {
        let rest = self.without_shadow(bits);
        let shadow = u64::from(shadow) << self.shadow_shift();
        match bits & KIND_MASK {
            FOLIO | POISONED => bits,
            EMPTY | SHADOW if shadow == 0 => EMPTY,
            EMPTY | SHADOW => shadow | SHADOW,
            _ => rest | shadow,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_survive_packing() {
        for entry in [
            Entry::Empty,
            Entry::Folio(FolioId(0)),
            Entry::Folio(FolioId(u32::MAX)),
            Entry::Swapped {
                slot: SlotId(u32::MAX),
                index: 511,
            },
            Entry::Swapped {
                slot: SlotId(0),
                index: 0,
            },
            Entry::Poisoned,
            Entry::Zero,
        ] {
            for slot_bits in [32, 25] {
                if matches!(entry, Entry::Swapped { slot, .. } if slot.0 >> 25 != 0)
                    && slot_bits == 25
                {
                    continue;
                }
                let packing = Packing { slot_bits };
                let bits = packing.pack(entry);
                assert_eq!(packing.unpack(bits), entry);
                assert_eq!(packing.shadow(bits), 0);
                let shadow = u32::MAX >> (32 - (64 - packing.shadow_shift()).min(32));
                let shaded = packing.with_shadow(bits, shadow);
                assert_eq!(
                    packing.unpack(shaded),
                    entry,
                    "a shadow changes nothing else"
                );
                let keeps = !matches!(entry, Entry::Folio(_) | Entry::Poisoned);
                assert_eq!(packing.shadow(shaded), if keeps { shadow } else { 0 });
                assert_eq!(packing.with_shadow(shaded, 0), bits);
            }
        }
    }
}
