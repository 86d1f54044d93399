//! Holes: unneeded room of the file goes back to the file system.
//!
//! A block that is free in the map is still allocated on the device, because it was written once. A program that was
//! large for a minute would keep a file of that size until it ends, and on a shared disk, or under a quota, that room
//! is missing elsewhere. So free blocks are punched out of the file (`fallocate` with `FALLOC_FL_PUNCH_HOLE`), as the
//! kernel discards the free clusters of a swap file.
//!
//! A hole has a price: the next write there makes the file system allocate anew. So only blocks that were not needed
//! for a while are punched out. Once a second the store counts how many blocks take room on the device beyond twice
//! those that hold something. The excess found in each of the last [`LOOKS`] counts goes, in runs of at least
//! [`LEAST`], which are worth a call.
//!
//! No one may take a block while it is leaving: its new bytes would go with the old. So the map counts it as busy from
//! [`Holes::begin`] to [`Holes::end`], and the lock is free in between. A file system that does not support holes is
//! asked once.

use super::alloc::{Bits, LOOK_AT, next};
use super::areas::{Area, number};
use super::{FILE_BLOCK, FileStore};
use rustix::fd::BorrowedFd;
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use std::ops::Range;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

/// Number of counts in each of which a block must have been in excess.
const LOOKS: u32 = 10;
/// Number of blocks beyond those that hold something that stay in any case: 16 MiB.
const SPARE: u64 = 4096;
/// Number of blocks in the shortest run that goes: 256 KiB.
const LEAST: u64 = 64;
/// Number of blocks in the longest run that goes by one call: 16 MiB.
const MOST: u64 = 4096;

/// The blocks that take room on the device, and those that are leaving it. The module's documentation describes it.
pub(super) struct Holes {
    /// The blocks that were taken since they were last punched out.
    written: Bits,
    /// Number of these blocks.
    on_device: u64,
    /// The free blocks that are leaving now.
    leaving: Range<u64>,
    /// The smallest excess in the counts since `looks` was 0.
    fewest: u64,
    looks: u32,
    /// Number of blocks that are still to go.
    due: u64,
    /// The block at which the search for runs continues: the hand.
    hand: u64,
    /// Number of blocks that the hand has passed since it last found a run.
    passed: u64,
    refused: bool,
}

impl Holes {
    /// Makes an empty record for a file of up to `limit` blocks.
    pub(super) fn new(limit: u64) -> Result<Self, Errno> {
        Ok(Self {
            written: Bits::new(limit)?,
            on_device: 0,
            leaving: 0..0,
            fewest: u64::MAX,
            looks: 0,
            due: 0,
            hand: 0,
            passed: 0,
            refused: false,
        })
    }

    /// Records that these blocks will be written.
    pub(super) fn fill(&mut self, blocks: Range<u64>) {
        self.on_device += self
            .written
            .set(blocks.start, blocks.end - blocks.start, true);
    }

    /// The blocks of one word that are leaving.
    pub(super) fn leaving(&self, word: usize) -> u64 {
        let (first, last) = (word as u64 * 64, word as u64 * 64 + 64);
        let low = self.leaving.start.max(first);
        let high = self.leaving.end.min(last);
        match high.checked_sub(low) {
            None | Some(0) => 0,
            Some(count) => u64::MAX >> (64 - count) << (low - first),
        }
    }

    /// The next run of blocks to punch out of a file in which `busy` are the busy blocks up to `end`, `taken` in
    /// number. `None` if nothing more is to go for now: such a call counts the excess, and is made once a second.
    pub(super) fn begin(&mut self, busy: &[u64], end: u64, taken: u64) -> Option<Range<u64>> {
        if self.refused || !self.leaving.is_empty() {
            return None;
        }
        let run = self.find(busy, end);
        match &run {
            Some(run) => self.leaving = run.clone(),
            None => self.look(taken),
        }
        run
    }

    /// Looks for a run among the next [`LOOK_AT`] blocks.
    fn find(&mut self, busy: &[u64], end: u64) -> Option<Range<u64>> {
        if self.due < LEAST {
            return None;
        }
        let free = |word: usize| self.written.words()[word] & !busy[word];
        let (mut at, stop) = (self.hand.min(end), end.min(self.hand + LOOK_AT));
        let mut found = None;
        while let Some(start) = next(free, at, stop) {
            let most = stop.min(start + MOST.min(self.due));
            let end = next(|word| !free(word), start, most).unwrap_or(most);
            at = end;
            if end - start >= LEAST {
                found = Some(start..end);
                break;
            }
        }
        let reached = found.as_ref().map_or(stop, |run| run.end);
        self.passed = match found {
            Some(_) => 0,
            None => self.passed + (reached - self.hand.min(reached)),
        };
        self.hand = if reached >= end { 0 } else { reached };
        // The hand has been everywhere: only short runs are left.
        if self.passed >= end {
            (self.due, self.passed) = (0, 0);
        }
        found
    }

    /// Counts the blocks in excess.
    fn look(&mut self, taken: u64) {
        let spare = self.on_device.saturating_sub(taken);
        self.fewest = self.fewest.min(spare.saturating_sub(taken.max(SPARE)));
        self.looks += 1;
        if self.looks == LOOKS {
            self.due = std::mem::replace(&mut self.fewest, u64::MAX);
            self.looks = 0;
        }
    }

    /// Test hook: makes this many blocks go, whether they are in excess or not.
    #[cfg(test)]
    pub(super) fn want(&mut self, blocks: u64) {
        self.due = blocks;
    }

    /// Ends what [`Holes::begin`] began, and returns the run. `gone` says whether the file system has it.
    pub(super) fn end(&mut self, gone: bool) -> Range<u64> {
        let run = std::mem::take(&mut self.leaving);
        let count = run.end - run.start;
        match gone {
            true => {
                self.on_device -= self.written.set(run.start, count, false);
                self.due = self.due.saturating_sub(count);
            }
            false => self.refused = true,
        }
        run
    }
}

impl FileStore {
    /// Gives a run of free blocks back to the file system, from one file after the other. Returns whether there may be
    /// more.
    pub(super) fn punch(&self) -> bool {
        let at = self.hand.load(Relaxed);
        let (area, file) = (&self.areas[at], number(self.own.load(Acquire), at));
        if self.file(file).is_some_and(|file| punch(file, area)) {
            return true;
        }
        // Each file without a run is asked only once: the excess is counted once a second.
        let next = (at + 1) % self.areas.len();
        self.hand.store(next, Relaxed);
        next != 0
    }
}

/// Gives a run of an area's free blocks back to the file system. Returns whether there may be more.
fn punch(file: BorrowedFd<'_>, area: &Area) -> bool {
    let Some(run) = area.blocks().begin_hole() else {
        return false;
    };
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let (start, count) = (run.start, run.end - run.start);
    let bytes = FILE_BLOCK as u64;
    let gone = fallocate(file, flags, start * bytes, count * bytes).is_ok();
    area.blocks().gone(gone);
    gone
}

#[cfg(test)]
mod tests;
