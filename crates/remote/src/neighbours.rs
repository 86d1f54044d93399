//! How much around a load is fetched with it: what left memory together may be wanted together, in any order.
//!
//! A request takes about as long as a few hundred KiB of data. So fetching what lies around a wanted chunk pays off
//! if that is wanted soon. Whether it is depends on the program: one that walks over trees or columns comes back to
//! the same MiB again and again, and one that looks up keys does not.
//!
//! # What is observed
//! For each of a few sizes there is a *ghost* of what would be here if every load had fetched the aligned block of
//! that size around it: the numbers of the last blocks, as many as there is room for. A load whose block is in a
//! ghost would have needed no request. For each size, that yields the fraction of the loads that it would have
//! served: a miss curve over the size of a fetch, like the core's over the size of memory.
//!
//! # The inequality
//! With `m(s)` as the fraction of the loads that still go to the store, a load costs `m(s) · (request + s)`, in
//! bytes. We take the size with the lowest cost, if that is an eighth below the cost without neighbours. Random loads
//! over much more than is kept have an `m` close to one everywhere, and fetch only what they want.
//!
//! # What a wrong guess costs
//! The bytes of the neighbours, until the next hundred loads have shown that they are not wanted. The counts are
//! halved every 256 loads, so after that the estimate follows a program that changes its behaviour.

use crate::format::{PREAMBLE, UNIT};
use std::collections::VecDeque;
use std::ops::Range;

/// Units in the blocks that may be fetched.
const SIZES: [u32; 4] = [units(64), units(128), units(256), units(1024)];
/// The number of units that take about as long as a request without them: 20 ms at 12 MiB a second, or 2 ms at 120.
const REQUEST: u64 = units(256) as u64;
/// The number of loads after which the counts are halved, and the number below which they mean nothing.
const REMEMBERED: u32 = 256;
const LEAST: u32 = 64;
/// A size has to save one part in this many.
const GAIN: u64 = 8;
/// The minimum number of blocks in a ghost: with fewer, a size would only tell whether a stream continues.
const BLOCKS_LEAST: usize = 4;

const fn units(kib: usize) -> u32 {
    ((kib << 10) / UNIT) as u32
}

/// The blocks that would be here, the latest last, and the number of loads that they would not have served.
#[derive(Default)]
struct Ghost {
    blocks: VecDeque<(u64, u32)>,
    most: usize,
    missed: u32,
}

/// For each size, what its neighbours would have served.
pub(crate) struct Neighbours {
    ghosts: [Ghost; SIZES.len()],
    loads: u32,
    /// Units in these loads.
    wanted: u64,
}

impl Neighbours {
    /// For a place that keeps `most` bytes that no load has asked for.
    pub(crate) fn new(most: usize) -> Self {
        let ghost = |size: u32| {
            let most = most / (size as usize * UNIT);
            Ghost {
                most: if most < BLOCKS_LEAST { 0 } else { most },
                ..Ghost::default()
            }
        };
        Self {
            ghosts: SIZES.map(ghost),
            loads: 0,
            wanted: 0,
        }
    }

    /// Notes a load, whether or not it needed a request.
    pub(crate) fn note(&mut self, object: u64, units: &Range<u32>) {
        for (ghost, size) in self.ghosts.iter_mut().zip(SIZES) {
            let block = (object, units.start / size);
            if ghost.most == 0 || ghost.blocks.contains(&block) {
                continue;
            }
            ghost.missed += 1;
            if ghost.blocks.len() == ghost.most {
                ghost.blocks.pop_front();
            }
            ghost.blocks.push_back(block);
        }
        self.loads += 1;
        self.wanted += units.len() as u64;
        if self.loads == REMEMBERED {
            self.loads /= 2;
            self.wanted /= 2;
            for ghost in &mut self.ghosts {
                ghost.missed /= 2;
            }
        }
    }

    /// Returns the units around `units` that are worth fetching with them, in an object whose chunks end at `end`.
    pub(crate) fn around(&self, units: &Range<u32>, end: u32) -> Range<u32> {
        let Some(size) = self.size() else {
            return units.clone();
        };
        let block = units.start / size * size;
        let start = block.max((PREAMBLE / UNIT) as u32).min(units.start);
        start..(block + size).min(end).max(units.end)
    }

    /// Returns the size with the lowest cost, if that is clearly below the cost without neighbours.
    fn size(&self) -> Option<u32> {
        if self.loads < LEAST {
            return None;
        }
        let alone = u64::from(self.loads) * REQUEST + self.wanted;
        let cost = |(ghost, size): (&Ghost, u32)| {
            let cost = u64::from(ghost.missed) * (REQUEST + u64::from(size));
            (ghost.most > 0).then_some((cost, size))
        };
        let (cost, size) = self.ghosts.iter().zip(SIZES).filter_map(cost).min()?;
        (cost <= alone - alone / GAIN).then_some(size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: usize = 4 << 20;
    /// Units in a chunk that was compressed to half its page.
    const CHUNK: u32 = 2048 / UNIT as u32;
    const END: u32 = (MOST / UNIT) as u32;

    /// Returns a pseudorandom number below `most`.
    fn random(seed: &mut u64, most: u32) -> u32 {
        *seed ^= *seed << 13;
        *seed ^= *seed >> 7;
        *seed ^= *seed << 17;
        (*seed % u64::from(most)) as u32
    }

    fn load(neighbours: &mut Neighbours, object: u64, chunk: u32) -> Range<u32> {
        let start = (1 + chunk * CHUNK).min(END - CHUNK);
        let units = start..start + CHUNK;
        neighbours.note(object, &units);
        neighbours.around(&units, END)
    }

    #[test]
    fn random_loads_fetch_nothing_unwanted() {
        let mut neighbours = Neighbours::new(MOST);
        let mut seed = 5;
        for _ in 0..2000 {
            let (object, chunk) = (random(&mut seed, 64), random(&mut seed, END / CHUNK));
            assert_eq!(
                load(&mut neighbours, object.into(), chunk).len(),
                CHUNK as usize
            );
        }
    }

    /// A walk over one MiB after the other, in random order within each.
    #[test]
    fn chunks_used_together_are_fetched_together() {
        let mut neighbours = Neighbours::new(MOST);
        let mut seed = 7;
        let part = units(1024) / CHUNK;
        let mut fetched = 0..0;
        for round in 0..20_u32 {
            for _ in 0..200 {
                let chunk = round % 4 * part + random(&mut seed, part - 1);
                fetched = load(&mut neighbours, u64::from(round / 4), chunk);
            }
        }
        assert!(fetched.len() >= units(1024) as usize - 1, "{fetched:?}");
        // From here on the program looks up keys.
        for _ in 0..2000 {
            let (object, chunk) = (random(&mut seed, 64), random(&mut seed, END / CHUNK));
            fetched = load(&mut neighbours, object.into(), chunk);
        }
        assert_eq!(fetched.len(), CHUNK as usize);
    }

    #[test]
    fn a_fetch_stays_within_its_object_and_covers_the_request() {
        let mut neighbours = Neighbours::new(MOST);
        for n in 0..500 {
            load(&mut neighbours, 1, n % 16);
        }
        assert!(neighbours.size().is_some());
        for (units, end) in [(1..5, 40), (30..45, 45), (4090..4110, 9000)] {
            let fetched = neighbours.around(&units, end);
            assert!(fetched.start >= 1 && fetched.end <= end, "{fetched:?}");
            assert!(fetched.start <= units.start && fetched.end >= units.end);
        }
    }

    #[test]
    fn without_room_for_neighbours_none_are_fetched() {
        let mut neighbours = Neighbours::new(0);
        for n in 0..1000 {
            assert_eq!(load(&mut neighbours, 1, n % 4).len(), CHUNK as usize);
        }
    }
}
