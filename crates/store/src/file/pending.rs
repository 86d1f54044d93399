//! Batches: small folios wait for others and are written together.
//!
//! A write of 4 KiB takes about as long as one of 64 KiB: most of the time goes to the round trip to the device (40 µs
//! and 55 on a virtual disk, 105 in a busy program). Reclaim that wrote each page separately spent 42 of the 50 s that
//! a program took with pages of 4 KiB. So a small folio goes into a *batch* in RAM, which has its run of blocks in the
//! file from the beginning. The saver that fills the batch writes it, by one call.
//!
//! ```text
//!            room for a blob           full, or no room for the next one
//!   Empty ───────────────► Open ───────────────────────────────────────► Writing ──► Empty
//!                           ▲ │ a fork: it is written, or the child has it for good     │
//!                           │ └────────────────────────────────► Orphan                 ▼ the device failed
//!                           └──────────────────────────────────────────────────────── Failed: written again first
//! ```
//!
//! - A slot in a batch counts as stored: it is read from the batch until the batch is in the file.
//! - Blocks of a slot that is released before the batch is written are *dead*. They return to the map once the batch is
//!   written, not earlier: another saver would write to them, and the batch would then overwrite its bytes.
//! - A batch that cannot be written stays readable, and a saver that wants to open another has to get it written first.
//!   So a device error refuses later saves, and no accepted slot is lost. If there is another file, it takes the later
//!   saves, as long as another batch is available.
//! - A forked child has a copy of each batch, and must not write where its parent does. All batches are written before
//!   a fork, so this concerns only those that could not be: the child only reads them.
//!
//! The thread that saves in the background does not wait for its writes ([`behind`](super::behind)): a batch is
//! *Writing* until some thread finds the kernel's answer. The background thread has a second kind of batch, too: a
//! *large* batch is a single extent, in the scratch in which it was encoded, which is lent until the extent is written.
//!
//! If the file is so full of holes that no run is long enough, the blob is written separately, like a large one.

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

/// Number of batches: one being filled, one being written, and one more for when two savers meet.
const BATCHES: usize = 3;
/// Number of large batches: while one is written, the next is encoded. Each holds one of the scratches, of which loads
/// need some.
const LARGE: usize = 2;
const ALL: usize = BATCHES + LARGE;
const _: () = assert!(LARGE + 4 <= crate::scratch::Seats::COUNT);
/// Number of blocks in a batch.
const BATCH: u64 = 32;
const BATCH_BYTES: usize = BATCH as usize * FILE_BLOCK;
/// Number of blocks of the largest blob that waits: waiting for a batch should be worth it.
const SMALL: u64 = 8;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Empty,
    Open,
    Writing,
    Failed,
    /// Only the parent may write the batch.
    Orphan,
}

#[derive(Clone, Copy, Debug)]
struct Batch {
    phase: Phase,
    /// The number of the file, among the process's files, to which it will be written.
    file: usize,
    /// The first of its blocks in that file.
    start: u64,
    /// Number of blocks that it has in that file.
    room: u64,
    /// Number of blocks that hold something.
    filled: u64,
    /// One bit for each filled block that was released. A large batch is released as a whole.
    dead: u32,
    /// The scratch that holds a large batch.
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
    /// The bytes of all batches, as they will be in the file. A saver writes the bytes of a batch under the lock, and
    /// they are never modified while the batch holds them.
    map: Mapping,
    batches: Ranked<Batches>,
    written: Condvar,
    /// The asynchronous writes of batches.
    behind: Behind,
    /// One bit for each batch that ever took RAM.
    used: AtomicU32,
}

/// A new batch in the first file that has room for one with `count` contiguous blocks. `None` if the free blocks are
/// too scattered.
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

/// Converts a device error to the answer to a save.
pub(super) fn refusal(errno: Errno) -> SaveError {
    match errno {
        Errno::NOSPC | Errno::DQUOT | Errno::FBIG => SaveError::Full,
        errno => SaveError::Io(errno.raw_os_error()),
    }
}

impl Pending {
    /// Makes an empty set of batches. `behind` says whether they may be written asynchronously.
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

    /// Takes `blob`, whole blocks, and returns the number of its file, and its first block there. On `None` the caller
    /// has to write the blob.
    ///
    /// # Errors
    /// No file has room, or none can be written. The blob was not taken.
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
        // The failed batches that this call has tried to write, and the error of the last one.
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

    /// Puts a blob into the open batch `i`, which has room for it, and starts the batch's write if it is then full.
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
            // A device error is reported to the saver that opens the next batch.
            drop(self.send(batches, i, media));
        }
    }

    /// Copies a blob into a batch. Returns its bytes there, which are the caller's alone as long as it holds the lock.
    #[expect(
        clippy::mut_from_ref,
        reason = "the lock keeps everybody else from these bytes"
    )]
    fn append(&self, i: usize, at: u64, blob: &[u8]) -> &mut [u8] {
        // SAFETY: the place is in the mapping, since the batch has room for the blob. The caller holds the lock, which
        // a thread that looks for the blob in the batch would take, and which excludes other savers as well.
        unsafe {
            let to = self
                .map
                .as_ptr()
                .add(i * BATCH_BYTES + at as usize * FILE_BLOCK);
            to.copy_from_nonoverlapping(blob.as_ptr(), blob.len());
            std::slice::from_raw_parts_mut(to, blob.len())
        }
    }

    /// The filled bytes of `batch`, which has number `i`.
    fn bytes(&self, i: usize, batch: &Batch, scratches: &ScratchPool) -> &[u8] {
        let at = match batch.scratch {
            Some(scratch) => scratches.lent(scratch),
            // SAFETY: each batch that is not large has its bytes in the mapping.
            None => unsafe { self.map.as_ptr().add(i * BATCH_BYTES) },
        };
        // SAFETY: this many bytes of the batch exist and were written before `filled` was raised, under the lock, or
        // before the scratch was lent. They are not modified before the batch is empty. It does not become empty during
        // the borrow: the caller holds the lock, or is the one that empties the batch.
        unsafe { std::slice::from_raw_parts(at, batch.len()) }
    }

    /// Fills `out` from `blocks` of a file, if they are in a batch. Returns whether they were.
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

    /// Records that `blocks` of a file, which are all of a slot, are no longer wanted, if they are in a batch. Returns
    /// whether they were: then they are freed with the batch.
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

    /// Writes all waiting batches, and waits for those that are being written. A batch that cannot be written continues
    /// to wait.
    pub(super) fn flush(&self, media: &Media<'_>) {
        drop(self.collect_all(media));
        for i in 0..ALL {
            let batches = self.lock();
            if matches!(batches[i].phase, Phase::Open | Phase::Failed) {
                drop(self.write(batches, i, media));
            }
        }
    }

    /// In a child, leaves the writing of all waiting batches to the parent.
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
