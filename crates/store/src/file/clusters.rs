//! Clusters: a small slot's neighbours in the file are read with it, as long as that pays off.
//!
//! Reading 32 KiB takes less than twice as long as reading 4, not eight times as long (82 µs and 47 on a virtual disk).
//! Folios that were evicted together were written together ([`pending`](super::pending)), and many of them are wanted
//! together, if not in the order of their addresses: Linux's swap readahead relies on the same. So a small slot is read
//! with its *cluster*, an aligned group of eight blocks, and the last few clusters are kept as they were read.
//! Compiling a large file in a quarter of its memory took 43,000 reads without clusters, and takes 25,000 with them.
//!
//! A program that reads at random gains nothing and would pay for each read. So the store counts how many blocks came
//! unrequested, 5 µs each, and how many reads they saved, 50 each. While they save less than one read for [`WORTH`]
//! blocks, only one read in [`TRY_EVERY`] is of a cluster, to notice when that changes.
//!
//! # Parts
//! If a block can only be checked as a whole, a page of it is read with the whole block, up to 64 KiB. The block is
//! kept, too, by the same rule: that costs a copy, and saves the read when the next page is wanted. In a block in
//! [`segments`](super::segments), one segment can be read alone. While reading more pays off, the whole block is read,
//! for its other pages are more likely to be wanted than its neighbours. (With aligned clusters instead, gcc made a
//! tenth more reads in a quarter of its memory.)
//!
//! # Nothing old is ever handed out
//! A block in a kept cluster may be released, reused, and written. The thread that has written a block *forgets* it
//! here, and increments the *version*. Blocks that were read are only kept if the version is unchanged since before the
//! read began. So a read that overlaps the end of a write is not kept, and a read that was kept before that end is then
//! forgotten. Until then no thread reads the new block here: its slot waits in a batch, which is asked first, or has
//! not been published.

use super::alloc::FILE_BLOCK;
use crate::mem::Mapping;
use millpond_sync::{Held, Rank, Ranked};
use rustix::io::Errno;
use std::ops::Range;

/// Number of blocks in a cluster.
const CLUSTER: u64 = 8;
const CLUSTER_BYTES: usize = CLUSTER as usize * FILE_BLOCK;
/// Number of clusters that are kept: half a megabyte. Twice as many would save a twelfth more reads.
const KEPT: usize = 16;
/// The longest read, in blocks, that is kept whole when only a part of it was wanted.
const PARTED: u64 = 16;
/// The most bytes of a widened read: [`SMALL`] blocks lie in two clusters at most.
const MOST_BYTES: usize = 2 * CLUSTER_BYTES;
/// This many unrequested blocks, at 5 µs each, have to save one read.
const WORTH: u32 = 10;
/// This many blocks copied here because only a part of them was wanted, at half a microsecond each, have to save one
/// read.
const WORTH_PARTED: u32 = 100;
/// If the blocks do not save enough reads, one read in this many is kept anyway. The number is not a multiple of a
/// cluster, or sequential reads would be tried at a cluster's last block each time.
const TRY_EVERY: u32 = 13;
/// After blocks worth this many reads, the counts so far are halved.
const PAST: u32 = 100;

/// A cluster that was read, in whole or in part.
#[derive(Clone, Copy)]
struct Line {
    /// The number of the file.
    file: usize,
    /// The number of the cluster in that file.
    number: u64,
    /// One bit for each block that is here, as it is in the file.
    valid: u8,
    /// The count of uses at its last use.
    used_at: u64,
}

/// The account of one kind of keeping, which tells whether it pays off.
struct Score {
    /// Number of blocks that have to save one read.
    worth: u32,
    /// Number of blocks that were kept.
    blocks: u32,
    /// Number of reads saved.
    spared: u32,
    /// Number of reads since it was last tried despite not paying off.
    since_try: u32,
}

impl Score {
    const fn new(worth: u32) -> Self {
        Self {
            worth,
            blocks: 0,
            spared: 0,
            since_try: 0,
        }
    }

    /// Whether the next read is to be kept.
    fn go_on(&mut self) -> bool {
        if self.spared.saturating_mul(self.worth) >= self.blocks {
            return true;
        }
        self.since_try = (self.since_try + 1) % TRY_EVERY;
        self.since_try == 0
    }

    fn kept(&mut self, blocks: u32) {
        self.blocks += blocks;
        if self.blocks >= PAST * self.worth {
            self.blocks /= 2;
            self.spared /= 2;
        }
    }
}

struct State {
    lines: [Line; KEPT],
    /// The count of uses.
    now: u64,
    /// The count of finished writes.
    version: u64,
    /// The account of blocks that come unrequested.
    beside: Score,
    /// The account of blocks of which only a part was wanted.
    parted: Score,
}

/// The clusters that are kept. The module's documentation describes them.
pub(crate) struct Clusters {
    state: Ranked<State>,
    /// The bytes of all lines, used under the lock only.
    map: Mapping,
}

/// The read to make, and to keep, in place of a read of just the wanted blocks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Plan {
    /// The blocks to read: the wanted ones, or their clusters.
    pub(crate) blocks: Range<u64>,
    version: u64,
}

fn is_small(blocks: &Range<u64>) -> bool {
    blocks.end - blocks.start <= SMALL
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

    /// Whether all of `blocks` are kept.
    fn has(&self, file: usize, blocks: &Range<u64>) -> bool {
        numbers(blocks).all(|number| {
            let found = self.find(file, number);
            let wanted = bits(number, blocks);
            found.is_some_and(|i| self.lines[i].valid & wanted == wanted)
        })
    }

    fn score(&mut self, blocks: &Range<u64>) -> &mut Score {
        if is_small(blocks) {
            &mut self.beside
        } else {
            &mut self.parted
        }
    }

    fn plan(&mut self, blocks: &Range<u64>, around: &Range<u64>) -> Option<Plan> {
        if !self.score(blocks).go_on() {
            return None;
        }
        let numbers = numbers(around);
        let clusters = numbers.start * CLUSTER..numbers.end * CLUSTER;
        Some(Plan {
            blocks: if is_small(around) {
                clusters
            } else {
                around.clone()
            },
            version: self.version,
        })
    }
}

/// The longest read, in blocks, that is widened to its clusters.
const SMALL: u64 = Clusters::SMALL;

impl Clusters {
    /// The longest read, in blocks, that is small.
    pub(crate) const SMALL: u64 = 8;

    /// Makes an empty set of clusters.
    pub(crate) fn new() -> Result<Self, Errno> {
        let line = Line {
            file: 0,
            number: 0,
            valid: 0,
            used_at: 0,
        };
        Ok(Self {
            state: Ranked::new(
                Rank::FileClusters,
                State {
                    lines: [line; KEPT],
                    now: 0,
                    version: 0,
                    beside: Score::new(WORTH),
                    parted: Score::new(WORTH_PARTED),
                },
            ),
            map: Mapping::new(KEPT * CLUSTER_BYTES)?,
        })
    }

    fn lock(&self) -> Held<'_, State> {
        self.state.lock()
    }

    /// The address at which line `i` has block `at` of its cluster.
    fn place(&self, i: usize, at: u64) -> *mut u8 {
        // SAFETY: each line and each block of it are within the mapping.
        unsafe {
            self.map
                .as_ptr()
                .add(i * CLUSTER_BYTES + at as usize * FILE_BLOCK)
        }
    }

    /// Whether clusters are used for such a read. `parted` is set when only a part of the blocks is wanted.
    pub(crate) fn takes(blocks: &Range<u64>, parted: bool) -> bool {
        is_small(blocks) || parted && blocks.end - blocks.start <= PARTED
    }

    /// Number of bytes that the buffer for such a read needs.
    pub(crate) fn wire_for(blocks: &Range<u64>) -> usize {
        if is_small(blocks) {
            MOST_BYTES
        } else {
            (blocks.end - blocks.start) as usize * FILE_BLOCK
        }
    }

    /// The read to make for blocks that are not all here, as from [`get`](Self::get). `None` if they are here.
    pub(crate) fn missing(
        &self,
        file: usize,
        blocks: &Range<u64>,
        around: &Range<u64>,
    ) -> Option<Option<Plan>> {
        let mut state = self.lock();
        (!state.has(file, blocks)).then(|| state.plan(blocks, around))
    }

    /// Fills `out` from kept clusters. If not all of it is here, the error is the read to make, if one should be kept.
    /// `around` is the extent of which `blocks` are a separately restored part.
    pub(crate) fn get(
        &self,
        file: usize,
        blocks: &Range<u64>,
        around: &Range<u64>,
        out: &mut [u8],
    ) -> Result<(), Option<Plan>> {
        let mut state = self.lock();
        if !state.has(file, blocks) {
            return Err(state.plan(blocks, around));
        }
        state.now += 1;
        state.score(blocks).spared += 1;
        for number in numbers(blocks) {
            let (Some(i), wanted) = (state.find(file, number), bits(number, blocks)) else {
                continue;
            };
            state.lines[i].used_at = state.now;
            let first = u64::from(wanted.trailing_zeros());
            let to = (number * CLUSTER + first - blocks.start) as usize * FILE_BLOCK;
            let len = wanted.count_ones() as usize * FILE_BLOCK;
            let out = &mut out[to..][..len];
            // SAFETY: the line has these blocks, was written under the lock, and is not written while the caller
            // holds it. The bits of a range are adjacent.
            unsafe {
                out.as_mut_ptr()
                    .copy_from_nonoverlapping(self.place(i, first), len)
            };
        }
        Ok(())
    }

    /// Keeps the `bytes` that were read by `plan` for `wanted`. They begin with the plan's first block, and are fewer
    /// at the end of the file.
    pub(crate) fn keep(&self, file: usize, plan: &Plan, wanted: &Range<u64>, bytes: &[u8]) {
        let mut state = self.lock();
        if state.version != plan.version {
            return;
        }
        let start = plan.blocks.start;
        let read = start..start + (bytes.len() / FILE_BLOCK) as u64;
        state.now += 1;
        for number in numbers(&read) {
            let there = bits(number, &read);
            let i = state.find(file, number).unwrap_or_else(|| {
                let age = |&i: &usize| (state.lines[i].valid != 0, state.lines[i].used_at);
                let oldest = (0..KEPT).min_by_key(age).unwrap_or(0);
                state.lines[oldest].valid = 0;
                oldest
            });
            state.lines[i] = Line {
                file,
                number,
                valid: state.lines[i].valid | there,
                used_at: state.now,
            };
            let first = u64::from(there.trailing_zeros());
            let from = (number * CLUSTER + first - start) as usize * FILE_BLOCK;
            let bytes = &bytes[from..][..there.count_ones() as usize * FILE_BLOCK];
            // SAFETY: a line has room for a cluster, these blocks are adjacent in it, and the lock keeps all other
            // threads from it.
            unsafe {
                let to = self.place(i, first);
                to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
            }
        }
        let cost = match is_small(wanted) {
            true => (read.end - read.start).saturating_sub(wanted.end - wanted.start),
            false => read.end - read.start,
        };
        state.score(wanted).kept(cost as u32);
    }

    /// Records that `blocks` were written, and forgets them.
    pub(crate) fn forget(&self, file: usize, blocks: &Range<u64>) {
        let mut state = self.lock();
        state.version += 1;
        for line in state.lines.iter_mut().filter(|line| line.file == file) {
            line.valid &= !bits(line.number, blocks);
        }
    }

    /// The RAM that the clusters take.
    pub(crate) fn ram_bytes(&self) -> u64 {
        let state = self.lock();
        let used = state.lines.iter().filter(|line| line.used_at > 0).count();
        (used * CLUSTER_BYTES) as u64
    }
}

const _: () = assert!(CLUSTER == u8::BITS as u64 && SMALL <= CLUSTER + 1);

#[cfg(test)]
mod tests {
    use super::*;

    /// The contents of a block: its number, and the version of its contents.
    fn block(number: u64, version: u8) -> Vec<u8> {
        let mut bytes = vec![version; FILE_BLOCK];
        bytes[..8].copy_from_slice(&number.to_le_bytes());
        bytes
    }

    fn blocks(range: Range<u64>, version: u8) -> Vec<u8> {
        range.flat_map(|number| block(number, version)).collect()
    }

    /// Gets blocks that are not a part of a longer extent.
    fn get(
        clusters: &Clusters,
        file: usize,
        wanted: &Range<u64>,
        out: &mut [u8],
    ) -> Result<(), Option<Plan>> {
        clusters.get(file, wanted, wanted, out)
    }

    fn read(clusters: &Clusters, wanted: Range<u64>, version: u8) -> bool {
        let mut out = vec![0; (wanted.end - wanted.start) as usize * FILE_BLOCK];
        match get(clusters, 0, &wanted, &mut out) {
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
    fn neighbouring_blocks_stay_cached_until_they_are_written() {
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
        // Nothing is known of another file.
        let mut out = vec![0; FILE_BLOCK];
        assert!(get(&clusters, 1, &(8..9), &mut out).is_err());
        clusters.forget(1, &(8..16));
        assert!(read(&clusters, 8..16, 2));
    }

    /// Checks that a read overlapped by a write is not kept, whether it ended before the write or after.
    #[test]
    fn a_block_read_during_a_write_is_not_cached() {
        let clusters = Clusters::new().unwrap();
        let mut out = vec![0; FILE_BLOCK];
        let plan_for = |out: &mut [u8]| get(&clusters, 0, &(3..4), out).unwrap_err().unwrap();
        // The read is planned, then the block is written, then the read is kept.
        let plan = plan_for(&mut out);
        clusters.forget(0, &(5..6));
        clusters.keep(0, &plan, &(3..4), &blocks(0..8, 1));
        assert!(get(&clusters, 0, &(5..6), &mut out).is_err());
        // The read is planned and kept while the block is written.
        let plan = plan_for(&mut out);
        clusters.keep(0, &plan, &(3..4), &blocks(0..8, 1));
        clusters.forget(0, &(5..6));
        assert!(get(&clusters, 0, &(5..6), &mut out).is_err());
        assert!(get(&clusters, 0, &(4..5), &mut out).is_ok());
    }

    #[test]
    fn the_end_of_the_file_may_lie_in_a_cluster() {
        let clusters = Clusters::new().unwrap();
        let mut out = vec![0; 4 * FILE_BLOCK];
        let plan = get(&clusters, 0, &(6..10), &mut out).unwrap_err().unwrap();
        assert_eq!(plan.blocks, 0..16);
        clusters.keep(0, &plan, &(6..10), &blocks(0..11, 1));
        assert!(read(&clusters, 0..8, 1) && read(&clusters, 8..11, 1));
        assert!(!read(&clusters, 10..12, 1));
    }

    /// Checks that a block of sixteen is kept wherever it lies, along with the parts that the clusters at its ends
    /// already have.
    #[test]
    fn blocks_read_for_one_part_are_cached_for_the_next() {
        let clusters = Clusters::new().unwrap();
        assert!(!Clusters::takes(&(5..21), false) && Clusters::takes(&(5..21), true));
        assert!(!Clusters::takes(&(5..22), true));
        assert!(!read(&clusters, 2..3, 1));
        assert!(!read(&clusters, 5..21, 1));
        assert!(read(&clusters, 5..21, 1) && read(&clusters, 0..8, 1));
        assert!(!read(&clusters, 20..22, 1));
        clusters.forget(0, &(12..13));
        assert!(!read(&clusters, 5..21, 2));
    }

    /// Checks that nearly every random read is of the wanted blocks alone, and that clusters are read again without any
    /// help once reads are sequential.
    #[test]
    fn clusters_are_read_while_they_are_used() {
        let clusters = Clusters::new().unwrap();
        let mut out = vec![0; FILE_BLOCK];
        let mut planned = |numbers: &mut dyn Iterator<Item = u64>| {
            let mut plans = 0;
            for number in numbers {
                if let Err(Some(plan)) = get(&clusters, 0, &(number..number + 1), &mut out) {
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
