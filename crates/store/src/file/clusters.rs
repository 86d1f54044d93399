//! What lies beside a small slot in the file comes with it, as long as that pays.
//!
//! Reading 32 KiB takes a third longer than reading 4, not eight times (82 µs and 47 on a virtual disk). What was evicted together was written
//! together ([`pending`](super::pending)), and much of it is wanted together, if not in the order of its addresses: Linux's swap readahead
//! lives by the same. So a small slot is read with its *cluster*, eight blocks by their numbers, and the last few clusters are kept as they
//! were read. Compiling a large file in a quarter of its memory then takes 24,000 reads for 42,000.
//!
//! A program that reads at random gains nothing and would pay for each read. So it is noted how many blocks came unasked, 5 µs each, and how many
//! reads they spared, 50 each. While that is less than one for [`WORTH`] blocks, only one read in [`TRY_EVERY`] is of a cluster, to
//! notice when it changes.
//!
//! # Nothing old is ever handed out
//! A block in a kept cluster may be released, taken again, and written. Who writes *forgets* it here before and after, and
//! counts the *version* up each time; what was read is only kept if the version is still what it was before the read began. So a read that
//! overlaps a write is not kept, and one that was kept before the write ends is forgotten then. Until that end nobody reads the new block here: its
//! slot waits in a batch, which is asked first, or has not been published.

use super::alloc::FILE_BLOCK;
use crate::mem::Mapping;
use rustix::io::Errno;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Blocks in a cluster.
const CLUSTER: u64 = 8;
const CLUSTER_BYTES: usize = CLUSTER as usize * FILE_BLOCK;
/// Clusters that are kept: half a megabyte. Twice as much spares a twelfth more reads.
const KEPT: usize = 16;
/// The longest read for which what is beside comes too, in blocks.
const SMALL: u64 = 8;
/// What a read may come to: [`SMALL`] blocks lie in two clusters at most.
pub(crate) const MOST_BYTES: usize = 2 * CLUSTER_BYTES;
/// So many blocks that come unasked have to spare a read.
const WORTH: u32 = 10;
/// Where fewer are, one read in so many is of a cluster all the same. No multiple of a cluster, or reads in order would be tried at its last block
/// each time.
const TRY_EVERY: u32 = 13;
/// Blocks that came unasked, after which the older half of the past counts half.
const PAST: u32 = 1024;

/// A cluster that was read.
#[derive(Clone, Copy)]
struct Line {
    /// Of which file, …
    file: usize,
    /// … and which one there.
    number: u64,
    /// One bit for each block that is here as it is in the file.
    valid: u8,
    /// When it was last of use.
    used_at: u64,
}

struct State {
    lines: [Line; KEPT],
    /// Counts uses.
    now: u64,
    /// Counts writes, at their beginning and at their end.
    version: u64,
    /// Blocks that came unasked, …
    brought: u32,
    /// … and reads that they spared.
    spared: u32,
    /// Reads since one was of a cluster although that does not pay.
    since_try: u32,
}

/// See the module.
pub(crate) struct Clusters {
    state: Mutex<State>,
    /// The bytes of all lines, used under the lock only.
    map: Mapping,
}

/// What to read instead of the blocks that are wanted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Plan {
    /// Whole clusters.
    pub(crate) blocks: Range<u64>,
    version: u64,
}

/// The bits of `blocks` in cluster `number`.
fn bits(number: u64, blocks: &Range<u64>) -> u8 {
    let first = number * CLUSTER;
    let (from, to) = (
        blocks.start.clamp(first, first + CLUSTER) - first,
        blocks.end.clamp(first, first + CLUSTER) - first,
    );
    ((1u16 << to) - (1 << from)) as u8
}

fn numbers(blocks: &Range<u64>) -> Range<u64> {
    blocks.start / CLUSTER..blocks.end.div_ceil(CLUSTER)
}

impl State {
    fn find(&self, file: usize, number: u64) -> Option<usize> {
        let found = |line: &Line| line.valid != 0 && line.file == file && line.number == number;
        self.lines.iter().position(found)
    }

    fn pays(&self) -> bool {
        self.spared.saturating_mul(WORTH) >= self.brought
    }
}

impl Clusters {
    /// Nothing kept.
    pub(crate) fn new() -> Result<Self, Errno> {
        let line = Line {
            file: 0,
            number: 0,
            valid: 0,
            used_at: 0,
        };
        Ok(Self {
            state: Mutex::new(State {
                lines: [line; KEPT],
                now: 0,
                version: 0,
                brought: 0,
                spared: 0,
                since_try: 0,
            }),
            map: Mapping::new(KEPT * CLUSTER_BYTES)?,
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where line `i` has block `at` of its cluster.
    fn place(&self, i: usize, at: u64) -> *mut u8 {
        // SAFETY: a line and a block of it are within the mapping.
        unsafe {
            self.map
                .as_ptr()
                .add(i * CLUSTER_BYTES + at as usize * FILE_BLOCK)
        }
    }

    /// Whether reads of so many blocks are made here.
    pub(crate) fn takes(blocks: &Range<u64>) -> bool {
        blocks.end - blocks.start <= SMALL
    }

    /// Fills `out` from what is kept. If not all of it is: what to read.
    pub(crate) fn get(
        &self,
        file: usize,
        blocks: &Range<u64>,
        out: &mut [u8],
    ) -> Result<(), Option<Plan>> {
        let mut state = self.lock();
        let here = numbers(blocks).all(|number| {
            let found = state.find(file, number);
            let wanted = bits(number, blocks);
            found.is_some_and(|i| state.lines[i].valid & wanted == wanted)
        });
        if !here {
            return Err(state.plan(blocks));
        }
        state.now += 1;
        state.spared += 1;
        for number in numbers(blocks) {
            let (Some(i), wanted) = (state.find(file, number), bits(number, blocks)) else {
                continue;
            };
            state.lines[i].used_at = state.now;
            let first = u64::from(wanted.trailing_zeros());
            let to = (number * CLUSTER + first - blocks.start) as usize * FILE_BLOCK;
            let len = wanted.count_ones() as usize * FILE_BLOCK;
            let out = &mut out[to..][..len];
            // SAFETY: the line has these blocks, was written under the lock, and is not written while the caller holds it; the bits of a
            // range are side by side.
            unsafe {
                out.as_mut_ptr()
                    .copy_from_nonoverlapping(self.place(i, first), len)
            };
        }
        Ok(())
    }

    /// Keeps what was read by `plan` for `wanted`: `bytes` from its first block on, fewer at the end of the file.
    pub(crate) fn keep(&self, file: usize, plan: &Plan, wanted: &Range<u64>, bytes: &[u8]) {
        let mut state = self.lock();
        if state.version != plan.version {
            return;
        }
        let end = plan.blocks.start + (bytes.len() / FILE_BLOCK) as u64;
        state.now += 1;
        for number in numbers(&plan.blocks) {
            let there = bits(number, &(plan.blocks.start..end));
            if there == 0 {
                continue;
            }
            let i = state.find(file, number).unwrap_or_else(|| {
                let age = |&i: &usize| (state.lines[i].valid != 0, state.lines[i].used_at);
                (0..KEPT).min_by_key(age).unwrap_or(0)
            });
            state.lines[i] = Line {
                file,
                number,
                valid: there,
                used_at: state.now,
            };
            state.brought += (there & !bits(number, wanted)).count_ones();
            let from = (number * CLUSTER - plan.blocks.start) as usize * FILE_BLOCK;
            let bytes = &bytes[from..];
            let len = bytes.len().min(CLUSTER_BYTES);
            // SAFETY: a line has room for a cluster, and the lock keeps everybody else from it.
            unsafe {
                self.place(i, 0)
                    .copy_from_nonoverlapping(bytes.as_ptr(), len)
            };
        }
        if state.brought >= PAST {
            state.brought /= 2;
            state.spared /= 2;
        }
    }

    /// Who writes `blocks` says so, before and after.
    pub(crate) fn forget(&self, file: usize, blocks: &Range<u64>) {
        let mut state = self.lock();
        state.version += 1;
        for line in state.lines.iter_mut().filter(|line| line.file == file) {
            line.valid &= !bits(line.number, blocks);
        }
    }

    /// RAM of the clusters.
    pub(crate) fn ram_bytes(&self) -> u64 {
        let state = self.lock();
        let used = state.lines.iter().filter(|line| line.used_at > 0).count();
        (used * CLUSTER_BYTES) as u64
    }
}

impl State {
    fn plan(&mut self, blocks: &Range<u64>) -> Option<Plan> {
        if !self.pays() {
            self.since_try += 1;
            if self.since_try < TRY_EVERY {
                return None;
            }
            self.since_try = 0;
        }
        let numbers = numbers(blocks);
        Some(Plan {
            blocks: numbers.start * CLUSTER..numbers.end * CLUSTER,
            version: self.version,
        })
    }
}

const _: () = assert!(CLUSTER == u8::BITS as u64 && SMALL <= CLUSTER + 1);

#[cfg(test)]
mod tests {
    use super::*;

    /// A block that says which it is, and of which time.
    fn block(number: u64, version: u8) -> Vec<u8> {
        let mut bytes = vec![version; FILE_BLOCK];
        bytes[..8].copy_from_slice(&number.to_le_bytes());
        bytes
    }

    fn blocks(range: Range<u64>, version: u8) -> Vec<u8> {
        range.flat_map(|number| block(number, version)).collect()
    }

    fn read(clusters: &Clusters, wanted: Range<u64>, version: u8) -> bool {
        let mut out = vec![0; (wanted.end - wanted.start) as usize * FILE_BLOCK];
        match clusters.get(0, &wanted, &mut out) {
            Ok(()) => {
                assert_eq!(out, blocks(wanted, version));
                true
            }
            Err(plan) => {
                if let Some(plan) = plan {
                    let bytes = blocks(plan.blocks.clone(), version);
                    clusters.keep(0, &plan, &wanted, &bytes);
                }
                false
            }
        }
    }

    #[test]
    fn what_lies_beside_is_there_until_it_is_written() {
        let clusters = Clusters::new().unwrap();
        assert!(!read(&clusters, 9..10, 1));
        assert!(read(&clusters, 8..16, 1));
        assert!(!read(&clusters, 14..18, 1));
        assert!(read(&clusters, 14..18, 1) && read(&clusters, 20..24, 1));
        assert_eq!(clusters.ram_bytes(), 2 * CLUSTER_BYTES as u64);
        clusters.forget(0, &(10..20));
        assert!(read(&clusters, 8..10, 1) && read(&clusters, 20..22, 1));
        assert!(!read(&clusters, 9..11, 2));
        assert!(read(&clusters, 8..16, 2));
        // Of another file nothing is known.
        let mut out = vec![0; FILE_BLOCK];
        assert!(clusters.get(1, &(8..9), &mut out).is_err());
        clusters.forget(1, &(8..16));
        assert!(read(&clusters, 8..16, 2));
    }

    /// A read that a write overlaps is not kept, whether it ended before the write did or after.
    #[test]
    fn what_was_read_during_a_write_is_not_handed_out() {
        let clusters = Clusters::new().unwrap();
        let mut out = vec![0; FILE_BLOCK];
        let plan_for = |out: &mut [u8]| clusters.get(0, &(3..4), out).unwrap_err().unwrap();
        // Planned, then written all through, then kept.
        let plan = plan_for(&mut out);
        clusters.forget(0, &(5..6));
        clusters.forget(0, &(5..6));
        clusters.keep(0, &plan, &(3..4), &blocks(0..8, 1));
        assert!(clusters.get(0, &(5..6), &mut out).is_err());
        // Planned and kept while it is written.
        clusters.forget(0, &(5..6));
        let plan = plan_for(&mut out);
        clusters.keep(0, &plan, &(3..4), &blocks(0..8, 1));
        clusters.forget(0, &(5..6));
        assert!(clusters.get(0, &(5..6), &mut out).is_err());
        assert!(clusters.get(0, &(4..5), &mut out).is_ok());
        // Planned while it is written, kept after.
        clusters.forget(0, &(3..6));
        let plan = plan_for(&mut out);
        clusters.forget(0, &(3..6));
        clusters.keep(0, &plan, &(3..4), &blocks(0..8, 1));
        assert!(clusters.get(0, &(3..4), &mut out).is_err());
    }

    #[test]
    fn the_end_of_the_file_may_lie_in_a_cluster() {
        let clusters = Clusters::new().unwrap();
        let mut out = vec![0; 4 * FILE_BLOCK];
        let plan = clusters.get(0, &(6..10), &mut out).unwrap_err().unwrap();
        assert_eq!(plan.blocks, 0..16);
        clusters.keep(0, &plan, &(6..10), &blocks(0..11, 1));
        assert!(read(&clusters, 0..8, 1) && read(&clusters, 8..11, 1));
        assert!(!read(&clusters, 10..12, 1));
    }

    /// At random nearly every read is of what is wanted alone; in order it comes back to clusters by itself.
    #[test]
    fn clusters_are_read_while_they_are_used() {
        let clusters = Clusters::new().unwrap();
        let mut out = vec![0; FILE_BLOCK];
        let mut planned = |numbers: &mut dyn Iterator<Item = u64>| {
            let mut plans = 0;
            for number in numbers {
                if let Err(Some(plan)) = clusters.get(0, &(number..number + 1), &mut out) {
                    plans += 1;
                    let bytes = blocks(plan.blocks.clone(), 1);
                    clusters.keep(0, &plan, &(number..number + 1), &bytes);
                }
            }
            plans
        };
        let mut state = 1u64;
        let mut random = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
            state >> 40
        };
        let at_random = planned(&mut (0..4000).map(|_| random()));
        assert!(at_random < 4000 / 10, "{at_random}");
        planned(&mut (0..4000));
        let in_order = planned(&mut (4000..8000));
        assert!((500..510).contains(&in_order), "{in_order}");
    }
}
