//! Batches: small folios wait for others before they are written.
//!
//! A write of 4 KiB takes about as long as one of 64 KiB: most of the time is for the way to the device and back (40
//! µs and 55 on a virtual disk, 105 in a busy program). Reclaim that wrote each page by itself spent 42 of the 50 s
//! that a program took with pages of 4 KiB. So a small folio goes into a *batch* in RAM, which has its run of blocks
//! in the file from the beginning. The saver that fills the batch writes it, by one call.
//!
//! ```text
//!            room for a blob           full, or no room for the next one
//!   Empty ───────────────► Open ───────────────────────────────────────► Writing ──► Empty
//!                           ▲ │ a fork: it is written, or the child has it for good     │
//!                           │ └────────────────────────────────► Orphan                 ▼ the device failed
//!                           └──────────────────────────────────────────────────────── Failed: written again first
//! ```
//!
//! - A slot in a batch is stored, as others are: it is read from the batch until that is in the file.
//! - Blocks of a slot that is released meanwhile are *dead*. They go back to the map once the batch is written, not
//!   before: another saver would write them, and the batch would then write over its bytes.
//! - A batch that cannot be written stays readable, and a saver that wants to open another has to get it written
//!   first. So an error of the device refuses later saves, and no slot that was taken is lost. Where there is another
//!   file, that one takes the later saves, as long as there is another batch.
//! - A forked child has a copy of each batch, and must not write where its parent does. Before a fork all batches are
//!   written, so this concerns those that could not be: the child only reads them.
//!
//! The thread that saves in the background does not wait for its writes ([`behind`](super::behind)): a batch is
//! *Writing* until somebody finds the kernel's answer. That thread has a second kind of batch, too: a *large* one is an
//! extent by itself, in the scratch in which it was encoded, which is lent until the extent is written.
//!
//! Where the file is so full of holes that no run is long enough, the blob is written by itself, as large ones are.

use super::alloc::FILE_BLOCK;
use super::areas::Media;
use super::behind::Behind;
use crate::mem::Mapping;
use crate::scratch::ScratchPool;
use millpond_core::port::SaveError;
use millpond_sync::{Condvar, Held, Rank, Ranked};
use rustix::io::Errno;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

mod write;

/// Number of batches: one that is filled, one that is written, and one more while two savers meet.
const BATCHES: usize = 3;
/// Number of large batches: while one is written, the next is encoded. Each holds one of the scratches, of which loads
/// need some.
const LARGE: usize = 2;
const ALL: usize = BATCHES + LARGE;
const _: () = assert!(LARGE + 4 <= crate::scratch::Seats::COUNT);
/// Number of blocks in a batch.
const BATCH: u64 = 32;
const BATCH_BYTES: usize = BATCH as usize * FILE_BLOCK;
/// Number of blocks of the largest blob that waits: a batch should be worth waiting for.
const SMALL: u64 = 8;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Empty,
    Open,
    Writing,
    Failed,
    /// The batch is the parent's to write.
    Orphan,
}

#[derive(Clone, Copy, Debug)]
struct Batch {
    phase: Phase,
    /// The number of the file, among the process's files, that it is for.
    file: usize,
    /// The first of its blocks in that file.
    start: u64,
    /// Number of blocks that it has in that file.
    room: u64,
    /// Number of blocks that hold something.
    filled: u64,
    /// One bit for each of the filled blocks that was released. A large batch is released as a whole.
    dead: u32,
    /// The scratch that a large batch is in.
    scratch: Option<usize>,
}

impl Batch {
    const EMPTY: Self = Self {
        phase: Phase::Empty,
        file: 0,
        start: 0,
        room: 0,
        filled: 0,
        dead: 0,
        scratch: None,
    };

    /// The place of `blocks` of a file in the batch, if they are in it.
    fn find(&self, file: usize, blocks: &Range<u64>) -> Option<u64> {
        let ours = self.start..self.start + self.filled;
        let inside = self.phase != Phase::Empty
            && self.file == file
            && ours.contains(&blocks.start)
            && blocks.end <= ours.end;
        inside.then(|| blocks.start - self.start)
    }

    fn all_dead(&self) -> bool {
        match self.scratch {
            Some(_) => self.dead != 0,
            None => u64::from(self.dead.count_ones()) == self.filled,
        }
    }

    fn blocks(&self) -> Range<u64> {
        self.start..self.start + self.filled
    }

    fn len(&self) -> usize {
        self.filled as usize * FILE_BLOCK
    }
}

type Batches = [Batch; ALL];

/// All batches. The module's documentation describes them.
pub(super) struct Pending {
    /// The bytes of all batches, as they are to be in the file. A saver writes the bytes of a batch under the lock,
    /// and they are never written again while the batch holds them.
    map: Mapping,
    batches: Ranked<Batches>,
    written: Condvar,
    /// The writes of batches that nobody waits for.
    behind: Behind,
    /// One bit for each batch that ever took RAM.
    used: AtomicU32,
}

/// A new batch in the first file that has room for `count` blocks of one in a row. `None` where they lie too scattered.
///
/// # Errors
/// No file has room.
fn open(media: &Media<'_>, count: u64) -> Result<Option<Batch>, SaveError> {
    let mut is_full = true;
    for medium in media.iter() {
        let Some((start, room)) = medium.alloc_run(BATCH) else {
            continue;
        };
        if room >= count {
            return Ok(Some(Batch {
                phase: Phase::Open,
                file: medium.file,
                start,
                room,
                ..Batch::EMPTY
            }));
        }
        is_full = false;
        medium.blocks().free(start, room);
    }
    match is_full {
        true => Err(SaveError::Full),
        false => Ok(None),
    }
}

/// The answer to a save for an error of the device.
pub(super) fn refusal(errno: Errno) -> SaveError {
    match errno {
        Errno::NOSPC | Errno::DQUOT | Errno::FBIG => SaveError::Full,
        errno => SaveError::Io(errno.raw_os_error()),
    }
}

impl Pending {
    /// Makes an empty set of batches. `behind` says whether they may be written behind the saver's back.
    pub(super) fn new(behind: bool) -> Result<Self, Errno> {
        Ok(Self {
            map: Mapping::new(BATCHES * BATCH_BYTES)?,
            batches: Ranked::new(Rank::FileBatches, [Batch::EMPTY; ALL]),
            written: Condvar::new(),
            behind: Behind::new(behind),
            used: AtomicU32::new(0),
        })
    }

    fn lock(&self) -> Held<'_, Batches> {
        self.batches.lock()
    }

    /// Takes `blob`, whole blocks, and answers the number of the file that it is for, and its first block there. With
    /// `None` the caller has to write the blob.
    ///
    /// # Errors
    /// No file has room, or none can be written. The blob is not taken.
    pub(super) fn put(
        &self,
        media: &Media<'_>,
        blob: &[u8],
    ) -> Result<Option<(usize, u64)>, SaveError> {
        let count = (blob.len() / FILE_BLOCK) as u64;
        if count > SMALL {
            return Ok(None);
        }
        let mut batches = self.collect(self.lock(), media);
        // The failed batches that this call has tried to write, and how the last of them has failed.
        let (mut tried, mut why) = ([false; BATCHES], None);
        loop {
            let phase = |phase| (0..BATCHES).find(|&i| batches[i].phase == phase);
            let failed = (0..BATCHES).find(|&i| batches[i].phase == Phase::Failed && !tried[i]);
            if let Some(i) = phase(Phase::Open) {
                if batches[i].room - batches[i].filled >= count {
                    let place = (batches[i].file, batches[i].start + batches[i].filled);
                    self.fill(batches, i, media, blob);
                    return Ok(Some(place));
                }
                batches = self.send(batches, i, media);
            } else if let Some(i) = failed {
                let file = batches[i].file;
                let (after, result) = self.write(batches, i, media);
                batches = after;
                tried[i] = true;
                if let Err(errno) = result {
                    if !media.has_other_than(file) {
                        return Err(refusal(errno));
                    }
                    why = Some(refusal(errno));
                }
            } else if let Some(i) = phase(Phase::Empty) {
                match open(media, count)? {
                    Some(batch) => batches[i] = batch,
                    None => return Ok(None),
                }
                self.used.fetch_or(1 << i, Relaxed);
            } else if phase(Phase::Writing).is_some() {
                batches = self.wait(batches, media);
            } else {
                return why.map_or(Ok(None), Err);
            }
        }
    }

    /// Puts a blob into the open batch `i`, which has room for it, and has the batch written if it is full then.
    fn fill(&self, mut batches: Held<'_, Batches>, i: usize, media: &Media<'_>, blob: &[u8]) {
        let batch = &mut batches[i];
        let (at, start) = (batch.filled, batch.start + batch.filled);
        batch.filled += (blob.len() / FILE_BLOCK) as u64;
        let (full, file) = (batch.filled == batch.room, batch.file);
        let bytes = self.append(i, at, blob);
        if let Some(medium) = media.of(file) {
            medium.cipher.seal(file, start, bytes);
        }
        if full {
            // An error of the device is for the saver that opens the next batch.
            drop(self.send(batches, i, media));
        }
    }

    /// Copies a blob into a batch. The answer is its bytes there: for the caller alone, as long as it holds the lock.
    #[expect(
        clippy::mut_from_ref,
        reason = "the lock keeps everybody else from these bytes"
    )]
    fn append(&self, i: usize, at: u64, blob: &[u8]) -> &mut [u8] {
        // SAFETY: the place is in the mapping, since the batch has room for the blob. A thread that looks for it in
        // the batch takes the lock that the caller holds, which keeps other savers out as well.
        unsafe {
            let to = self
                .map
                .as_ptr()
                .add(i * BATCH_BYTES + at as usize * FILE_BLOCK);
            to.copy_from_nonoverlapping(blob.as_ptr(), blob.len());
            std::slice::from_raw_parts_mut(to, blob.len())
        }
    }

    /// The filled bytes of `batch`, the one of number `i`.
    fn bytes(&self, i: usize, batch: &Batch, scratches: &ScratchPool) -> &[u8] {
        let at = match batch.scratch {
            Some(scratch) => scratches.lent(scratch),
            // SAFETY: each batch that is not large has its bytes in the mapping.
            None => unsafe { self.map.as_ptr().add(i * BATCH_BYTES) },
        };
        // SAFETY: so many bytes of the batch are there and were written before `filled` was raised, under the lock, or
        // before the scratch was lent. They are not written again before the batch is empty. It does not become empty
        // meanwhile: the caller holds the lock, or is the one that empties the batch.
        unsafe { std::slice::from_raw_parts(at, batch.len()) }
    }

    /// Fills `out` from `blocks` of a file, if they are in a batch. The answer is whether they were.
    pub(super) fn read(
        &self,
        file: usize,
        blocks: &Range<u64>,
        out: &mut [u8],
        scratches: &ScratchPool,
    ) -> bool {
        let batches = self.lock();
        let mut found = batches
            .iter()
            .enumerate()
            .filter_map(|(i, batch)| Some((i, batch, batch.find(file, blocks)?)));
        let Some((i, batch, at)) = found.next() else {
            return false;
        };
        let bytes = &self.bytes(i, batch, scratches)[at as usize * FILE_BLOCK..];
        out.copy_from_slice(&bytes[..out.len()]);
        true
    }

    /// Whether `blocks` of a file are in a batch.
    pub(super) fn holds(&self, file: usize, blocks: &Range<u64>) -> bool {
        let batches = self.lock();
        batches
            .iter()
            .any(|batch| batch.find(file, blocks).is_some())
    }

    /// Notes that `blocks` of a file, which are all of a slot, are not wanted any more, if they are in a batch. The
    /// answer is whether they were: then they are given back with the batch.
    pub(super) fn release(
        &self,
        file: usize,
        blocks: &Range<u64>,
        scratches: &ScratchPool,
    ) -> bool {
        let mut batches = self.lock();
        let mut found = batches
            .iter_mut()
            .filter_map(|batch| Some((batch.find(file, blocks)?, batch)));
        let Some((at, batch)) = found.next() else {
            return false;
        };
        match batch.scratch {
            Some(_) => batch.dead = 1,
            None => (at..at + (blocks.end - blocks.start)).for_each(|at| batch.dead |= 1 << at),
        }
        if batch.phase == Phase::Orphan && batch.all_dead() {
            let lent = std::mem::replace(batch, Batch::EMPTY).scratch;
            drop(batches);
            lent.into_iter()
                .for_each(|scratch| scratches.take_back(scratch));
        }
        true
    }

    /// Writes all batches that wait, and waits for those that are being written. A batch that cannot be written waits
    /// on.
    pub(super) fn flush(&self, media: &Media<'_>) {
        drop(self.collect_all(media));
        for i in 0..ALL {
            let batches = self.lock();
            if matches!(batches[i].phase, Phase::Open | Phase::Failed) {
                drop(self.write(batches, i, media));
            }
        }
    }

    /// Leaves, in a child, all waiting batches to the parent to write.
    pub(super) fn disown(&self) {
        self.behind.forget();
        for batch in self.lock().iter_mut() {
            if batch.phase != Phase::Empty {
                batch.phase = Phase::Orphan;
            }
        }
    }

    /// The RAM that the batches take.
    pub(super) fn ram_bytes(&self) -> u64 {
        u64::from(self.used.load(Relaxed).count_ones()) * BATCH_BYTES as u64
            + self.behind.ram_bytes()
    }
}

const _: () = assert!(BATCH <= u32::BITS as u64 && SMALL <= BATCH);

#[cfg(test)]
mod tests;
