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
//! Where the file is so full of holes that no run is long enough, the blob is written by itself, as large ones are.

use super::alloc::FILE_BLOCK;
use super::areas::Media;
use super::io;
use crate::mem::Mapping;
use millpond_core::port::SaveError;
use millpond_sync::{Condvar, Held, Rank, Ranked};
use rustix::io::Errno;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Number of batches: one that is filled, one that is written, and one more while two savers meet.
const BATCHES: usize = 3;
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
    /// One bit for each of the filled blocks that was released.
    dead: u32,
}

impl Batch {
    const EMPTY: Self = Self {
        phase: Phase::Empty,
        file: 0,
        start: 0,
        room: 0,
        filled: 0,
        dead: 0,
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
        self.dead.count_ones() as u64 == self.filled
    }
}

type Batches = [Batch; BATCHES];

/// All batches. The module's documentation describes them.
pub(crate) struct Pending {
    /// The bytes of all batches, as they are to be in the file. A saver writes the bytes of a batch under the lock,
    /// and they are never written again while the batch holds them.
    map: Mapping,
    batches: Ranked<Batches>,
    written: Condvar,
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
pub(crate) fn refusal(errno: Errno) -> SaveError {
    match errno {
        Errno::NOSPC | Errno::DQUOT | Errno::FBIG => SaveError::Full,
        errno => SaveError::Io(errno.raw_os_error()),
    }
}

impl Pending {
    /// Makes an empty set of batches.
    pub(crate) fn new() -> Result<Self, Errno> {
        Ok(Self {
            map: Mapping::new(BATCHES * BATCH_BYTES)?,
            batches: Ranked::new(Rank::FileBatches, [Batch::EMPTY; BATCHES]),
            written: Condvar::new(),
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
        let mut batches = self.lock();
        // The failed batches that this call has tried to write, and how the last of them has failed.
        let (mut tried, mut why) = ([false; BATCHES], None);
        loop {
            let phase = |phase| batches.iter().position(|batch| batch.phase == phase);
            let failed = (0..BATCHES).find(|&i| batches[i].phase == Phase::Failed && !tried[i]);
            if let Some(i) = phase(Phase::Open) {
                if batches[i].room - batches[i].filled >= count {
                    let place = (batches[i].file, batches[i].start + batches[i].filled);
                    self.fill(batches, i, media, blob);
                    return Ok(Some(place));
                }
                batches = self.write(batches, i, media).0;
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
                batches = batches.wait(&self.written);
            } else {
                return why.map_or(Ok(None), Err);
            }
        }
    }

    /// Puts a blob into the open batch `i`, which has room for it, and writes the batch if it is full then.
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
            drop(self.write(batches, i, media));
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

    /// The filled bytes of batch `i`.
    fn bytes(&self, i: usize, filled: u64) -> &[u8] {
        // SAFETY: so many bytes of the batch are in the mapping and were written before `filled` was raised, under
        // the lock. They are not written again before the batch is empty. It does not become empty meanwhile: the
        // caller holds the lock, or is the one that empties the batch.
        unsafe {
            std::slice::from_raw_parts(
                self.map.as_ptr().add(i * BATCH_BYTES),
                filled as usize * FILE_BLOCK,
            )
        }
    }

    /// Writes batch `i`, without the lock meanwhile.
    fn write<'a>(
        &'a self,
        mut batches: Held<'a, Batches>,
        i: usize,
        media: &Media<'_>,
    ) -> (Held<'a, Batches>, Result<(), Errno>) {
        let Batch {
            file,
            start,
            filled,
            ..
        } = batches[i];
        let Some(medium) = media.of(file) else {
            return (batches, Err(Errno::BADF));
        };
        let mut result = Ok(());
        if !batches[i].all_dead() {
            batches[i].phase = Phase::Writing;
            drop(batches);
            let (bytes, blocks) = (self.bytes(i, filled), start..start + filled);
            result = io::write_all(medium.fd, bytes, start * FILE_BLOCK as u64);
            medium.clusters.forget(file, &blocks);
            medium.note(result);
            batches = self.lock();
        }
        let batch = &mut batches[i];
        if result.is_ok() {
            let mut blocks = medium.blocks();
            for at in (0..batch.filled).filter(|at| batch.dead >> at & 1 == 1) {
                blocks.free(batch.start + at, 1);
            }
            if batch.filled < batch.room {
                blocks.free(batch.start + batch.filled, batch.room - batch.filled);
            }
            *batch = Batch::EMPTY;
        } else {
            batch.phase = Phase::Failed;
        }
        self.written.notify_all();
        (batches, result)
    }

    /// Fills `out` from `blocks` of a file, if they are in a batch. The answer is whether they were.
    pub(crate) fn read(&self, file: usize, blocks: &Range<u64>, out: &mut [u8]) -> bool {
        let batches = self.lock();
        let mut found = batches
            .iter()
            .enumerate()
            .filter_map(|(i, batch)| Some((i, batch.filled, batch.find(file, blocks)?)));
        let Some((i, filled, at)) = found.next() else {
            return false;
        };
        out.copy_from_slice(&self.bytes(i, filled)[at as usize * FILE_BLOCK..][..out.len()]);
        true
    }

    /// Notes that `blocks` of a file are not wanted any more, if they are in a batch. The answer is whether they
    /// were: then they are given back with the batch.
    pub(crate) fn release(&self, file: usize, blocks: &Range<u64>) -> bool {
        let mut batches = self.lock();
        for batch in batches.iter_mut() {
            let Some(at) = batch.find(file, blocks) else {
                continue;
            };
            for at in at..at + (blocks.end - blocks.start) {
                batch.dead |= 1 << at;
            }
            if batch.phase == Phase::Orphan && batch.all_dead() {
                *batch = Batch::EMPTY;
            }
            return true;
        }
        false
    }

    /// Writes all batches that wait. A batch that cannot be written waits on.
    pub(super) fn flush(&self, media: &Media<'_>) {
        for i in 0..BATCHES {
            let batches = self.lock();
            if matches!(batches[i].phase, Phase::Open | Phase::Failed) {
                drop(self.write(batches, i, media));
            }
        }
    }

    /// Leaves, in a child, all waiting batches to the parent to write.
    pub(crate) fn disown(&self) {
        for batch in self.lock().iter_mut() {
            if batch.phase != Phase::Empty {
                batch.phase = Phase::Orphan;
            }
        }
    }

    /// The RAM that the batches take.
    pub(crate) fn ram_bytes(&self) -> u64 {
        u64::from(self.used.load(Relaxed).count_ones()) * BATCH_BYTES as u64
    }
}

const _: () = assert!(BATCH <= u32::BITS as u64 && SMALL <= BATCH);
