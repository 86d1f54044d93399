//! Checksums of the pages in memory as they were when they were read, in a table as long as the number of pages that
//! fit in memory.
//!
//! User space does not see which pages a program has written to. So a page that leaves is compared with the data that
//! was read, by its checksum, just as the stores compare pages with their contents ([`checksum`](crate::checksum)).
//! Checksums for each page of a file, or of a remote store, would take 0.4 % of its size, while the budget may be a
//! hundredth of that size. Checksums for the pages in memory take 0.9 % of these.
//!
//! ```text
//!   keys   | 17 |    | 4096 | 4097 |    |        a page begins to look at its own place, and takes the next free one
//!   sums   | .. |    |  ..  |  ..  |    |
//! ```
//!
//! Neighbouring pages begin at neighbouring places, so those of a folio are checked in one pass. Pages that leave are
//! removed, and pages behind them move up, so that no search is long. A page for which there is no room, because more
//! came in than the table is made for, counts as changed: it is written once more than necessary, and nothing is lost.

use crate::checksum::Checksums;
use crate::mem::{Mapping, PAGE};
use millpond_sync::{Rank, Ranked};
use rustix::io::Errno;
use std::ops::Range;

/// The key of a free place: a page's is its number, plus one.
const FREE: u64 = 0;
/// Additional places, so that searches stay short: half as many as there are pages.
const SPARE: usize = 2;

/// Checksums of the pages in memory as they were when they were read. The table is as long as the number of pages that
/// fit in memory; a page for which it has no room counts as changed. The caller chooses a page's number, below
/// `u64::MAX`.
///
/// ```
/// let sums = millpond_store::Sums::new(100)?;
/// sums.set(7, &[1; 4096]);
/// assert!(sums.are(7, &[1; 4096]) && !sums.are(7, &[2; 4096]) && !sums.are(8, &[1; 4096]));
/// # Ok::<(), rustix::io::Errno>(())
/// ```
pub struct Sums {
    checksums: Checksums,
    table: Ranked<Table>,
}

struct Table {
    keys: Mapping,
    sums: Mapping,
    places: usize,
    used: usize,
}

impl Sums {
    /// A table for as many pages as `most`.
    ///
    /// # Errors
    /// The system has no memory for it, or no random bytes for its key.
    pub fn new(most: usize) -> Result<Self, Errno> {
        let places = most + most / SPARE + 1;
        Ok(Self {
            checksums: Checksums::new()?,
            table: Ranked::new(
                Rank::Files,
                Table {
                    keys: Mapping::new(places * size_of::<u64>())?,
                    sums: Mapping::new(places * size_of::<u128>())?,
                    places,
                    used: 0,
                },
            ),
        })
    }

    /// The most RAM that the table takes.
    #[must_use]
    pub fn ram_bytes(&self) -> u64 {
        let place = size_of::<u64>() + size_of::<u128>();
        (self.table.lock().places * place) as u64
    }

    /// Notes that the pages from `first` on are `bytes`.
    pub fn set(&self, first: u64, bytes: &[u8]) {
        for (page, bytes) in (first..).zip(bytes.chunks_exact(PAGE)) {
            let sum = self.checksums.of(bytes);
            self.table.lock().set(page, sum);
        }
    }

    /// Whether the pages from `first` on are known to be `bytes`.
    #[must_use]
    pub fn are(&self, first: u64, bytes: &[u8]) -> bool {
        let mut pages = (first..).zip(bytes.chunks_exact(PAGE));
        pages.all(|(page, bytes)| {
            let sum = self.checksums.of(bytes);
            self.table.lock().get(page) == Some(sum)
        })
    }

    /// Forgets all pages: they count as changed.
    pub fn clear(&self) {
        let mut table = self.table.lock();
        table.keys().fill(FREE);
        table.used = 0;
    }

    /// Forgets pages that have left memory.
    pub fn forget(&self, pages: Range<u64>) {
        let mut table = self.table.lock();
        if table.used == 0 {
            return;
        }
        pages.for_each(|page| table.forget(page));
    }
}

impl Table {
    fn keys(&mut self) -> &mut [u64] {
        // SAFETY: the mapping has this many numbers, initially zero, and is borrowed as a whole.
        unsafe { std::slice::from_raw_parts_mut(self.keys.as_ptr().cast(), self.places) }
    }

    fn sums(&mut self) -> &mut [u128] {
        // SAFETY: as in `keys`. A mapping begins at a page, which is aligned for any number.
        unsafe { std::slice::from_raw_parts_mut(self.sums.as_ptr().cast(), self.places) }
    }

    /// The place of a page, or the free place where it would be. There is always a free one.
    fn find(&mut self, page: u64) -> usize {
        let (key, places) = (page + 1, self.places);
        let keys = self.keys();
        let mut at = (page % places as u64) as usize;
        while keys[at] != key && keys[at] != FREE {
            at = (at + 1) % places;
        }
        at
    }

    fn set(&mut self, page: u64, sum: u128) {
        let at = self.find(page);
        if self.keys()[at] == FREE {
            if self.used + 1 == self.places {
                return;
            }
            self.used += 1;
            self.keys()[at] = page + 1;
        }
        self.sums()[at] = sum;
    }

    fn get(&mut self, page: u64) -> Option<u128> {
        let at = self.find(page);
        (self.keys()[at] != FREE).then(|| self.sums()[at])
    }

    fn forget(&mut self, page: u64) {
        let places = self.places;
        let mut hole = self.find(page);
        if self.keys()[hole] == FREE {
            return;
        }
        self.used -= 1;
        // Pages behind that have come past the hole move up into it, so that a search finds them without it.
        let mut at = hole;
        loop {
            at = (at + 1) % places;
            let key = self.keys()[at];
            if key == FREE {
                break;
            }
            let own = ((key - 1) % places as u64) as usize;
            let way = |from: usize| (at + places - from) % places;
            if way(own) >= way(hole) {
                self.keys()[hole] = key;
                self.sums()[hole] = self.sums()[at];
                hole = at;
            }
        }
        self.keys()[hole] = FREE;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn page(byte: u8) -> Vec<u8> {
        vec![byte; PAGE]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        /// Few places and pages from a few of them, so that searches collide and go round.
        #[test]
        fn agrees_with_a_map(ops in prop::collection::vec((0..40_u64, 0..4_u8, any::<bool>()), 1..300)) {
            let sums = Sums::new(8).unwrap();
            let places = 8 + 8 / SPARE + 1;
            let mut map = BTreeMap::new();
            for (number, byte, comes) in ops {
                if comes {
                    sums.set(number, &page(byte));
                    if map.contains_key(&number) || map.len() + 1 < places {
                        map.insert(number, byte);
                    }
                } else {
                    sums.forget(number..number + 1);
                    map.remove(&number);
                }
                for number in 0..40 {
                    for byte in 0..4 {
                        let known = map.get(&number) == Some(&byte);
                        prop_assert_eq!(sums.are(number, &page(byte)), known, "page {}", number);
                    }
                }
            }
        }
    }

    #[test]
    fn a_run_is_unchanged_only_if_every_page_is() {
        let sums = Sums::new(100).unwrap();
        let bytes: Vec<u8> = (0..4).flat_map(page).collect();
        sums.set(7, &bytes);
        assert!(sums.are(7, &bytes) && sums.are(9, &bytes[2 * PAGE..]));
        let mut changed = bytes.clone();
        changed[3 * PAGE + 1] ^= 1;
        assert!(!sums.are(7, &changed) && sums.are(7, &changed[..3 * PAGE]));
        assert!(!sums.are(6, &bytes));
        sums.forget(8..9);
        assert!(!sums.are(7, &bytes) && sums.are(9, &bytes[2 * PAGE..]));
    }
}
