//! How batches get to the device: by a write for which the saver waits, or asynchronously.

use super::{ALL, BATCHES, Batch, Batches, FILE_BLOCK, Media, Pending, Phase};
use crate::file::areas::Medium;
use crate::file::io;
use crate::scratch::{Scratch, ScratchPool};
use millpond_sync::Held;
use rustix::io::Errno;
use std::time::Duration;

/// How long a thread waits for another thread's write before it checks whether that write has become asynchronous.
const LOOK: Duration = Duration::from_millis(1);

impl Pending {
    /// Makes the writes of the calling thread asynchronous from now on, if possible.
    pub(in crate::file) fn adopt_thread(&self) {
        self.behind.adopt_thread();
    }

    /// Takes the first `len` bytes of the scratch's wire, whole blocks, and starts an asynchronous write of them.
    /// Returns the number of the file, and the first block there. The caller gets the scratch back if it has to write
    /// the bytes itself.
    pub(in crate::file) fn put_large<'s>(
        &self,
        media: &Media<'_>,
        mut scratch: Scratch<'s>,
        len: usize,
    ) -> Result<(usize, u64), Scratch<'s>> {
        let count = (len / FILE_BLOCK) as u64;
        let Some((mut batches, i)) = self.empty_large(media) else {
            return Err(scratch);
        };
        let mut each = media.iter();
        let Some((medium, start)) = each.find_map(|medium| Some((medium, medium.alloc(count)?)))
        else {
            return Err(scratch);
        };
        let batch = &mut batches[i];
        // No thread looks for these blocks before this call has told the caller where they are.
        *batch = Batch {
            phase: Phase::Writing,
            file: medium.file,
            start,
            room: count,
            filled: count,
            scratch: Some(scratch.number()),
            ..Batch::EMPTY
        };
        let batch = *batch;
        drop(batches);
        let wire = &mut scratch.parts().wire[..len];
        medium.cipher.seal(medium.file, start, wire);
        ScratchPool::lend(scratch);
        // A device error is reported to the next saver, and the bytes are written again.
        drop(self.start(i, batch, medium));
        Ok((batch.file, start))
    }

    /// The number of an empty large batch, for a thread whose writes are asynchronous. Failed batches are written again
    /// first.
    fn empty_large(&self, media: &Media<'_>) -> Option<(Held<'_, Batches>, usize)> {
        if !self.behind.is_for_this_thread() {
            return None;
        }
        let mut batches = self.collect(self.lock(), media);
        let mut tried = [false; ALL];
        loop {
            let large = |phase| (BATCHES..ALL).find(|&i| batches[i].phase == phase && !tried[i]);
            if let Some(i) = large(Phase::Failed) {
                tried[i] = true;
                batches = self.write(batches, i, media).0;
            } else if let Some(i) = (BATCHES..ALL).find(|&i| batches[i].phase == Phase::Empty) {
                return Some((batches, i));
            } else if large(Phase::Writing).is_some() {
                batches = self.wait(batches, media);
            } else {
                return None;
            }
        }
    }

    /// Writes batch `i`: asynchronously if possible, otherwise by this call.
    pub(super) fn send<'a>(
        &'a self,
        mut batches: Held<'a, Batches>,
        i: usize,
        media: &Media<'_>,
    ) -> Held<'a, Batches> {
        let batch = batches[i];
        let is_behind = !batch.all_dead() && self.behind.is_for_this_thread();
        let Some(medium) = media.of(batch.file).filter(|_| is_behind) else {
            return self.write(batches, i, media).0;
        };
        batches[i].phase = Phase::Writing;
        drop(batches);
        self.start(i, batch, medium)
    }

    /// Submits the write of batch `i` to the kernel, or writes it if the kernel does not accept it. The batch is in
    /// phase *Writing*, and no other thread may write it.
    fn start(&self, i: usize, batch: Batch, medium: &Medium<'_>) -> Held<'_, Batches> {
        let bytes = self.bytes(i, &batch, medium.scratches);
        let offset = batch.start * FILE_BLOCK as u64;
        let place = (bytes.as_ptr(), bytes.len());
        // SAFETY: the bytes of a batch in this phase do not change until it ends, and only `collect` ends it, once it
        // has taken the answer. The mapping and the scratches that hold them live until the store has waited for all
        // answers (`settle`).
        match unsafe { self.behind.write(medium.fd, place, offset, i as u64) } {
            true => self.lock(),
            false => self.write_out(i, batch, medium).0,
        }
    }

    /// Ends the batches whose writes have been answered.
    pub(super) fn collect<'a>(
        &'a self,
        mut batches: Held<'a, Batches>,
        media: &Media<'_>,
    ) -> Held<'a, Batches> {
        while let Some(answer) = self.behind.take() {
            let i = answer.number as usize;
            let batch = batches[i];
            let Some(medium) = media.of(batch.file) else {
                batches[i].phase = Phase::Failed;
                continue;
            };
            if usize::try_from(answer.result) == Ok(batch.len()) {
                medium.clusters.forget(batch.file, &batch.blocks());
                medium.note(Ok(()));
                batches = self.end(batches, i, medium, Ok(()));
            } else {
                drop(batches);
                batches = self.write_out(i, batch, medium).0;
            }
        }
        batches
    }

    /// Ends all batches with asynchronous writes, as soon as they are answered.
    pub(super) fn collect_all(&self, media: &Media<'_>) -> Held<'_, Batches> {
        loop {
            let batches = self.collect(self.lock(), media);
            if self.behind.under_way() == 0 {
                return batches;
            }
            drop(batches);
            self.behind.wait();
        }
    }

    /// Ends the batches whose writes have been answered, without waiting for others.
    pub(in crate::file) fn look(&self, media: &Media<'_>) {
        drop(self.collect(self.lock(), media));
    }

    /// Waits until the kernel no longer reads from the batches, for the end of the store.
    pub(in crate::file) fn settle(&self) {
        self.behind.settle();
    }

    /// Waits for a moment, or until a write has ended.
    pub(super) fn wait<'a>(
        &'a self,
        batches: Held<'a, Batches>,
        media: &Media<'_>,
    ) -> Held<'a, Batches> {
        if self.behind.under_way() == 0 {
            return batches.wait_timeout(&self.written, LOOK);
        }
        drop(batches);
        self.behind.wait();
        self.collect(self.lock(), media)
    }

    /// Writes batch `i`, releasing the lock during the write.
    pub(super) fn write<'a>(
        &'a self,
        mut batches: Held<'a, Batches>,
        i: usize,
        media: &Media<'_>,
    ) -> (Held<'a, Batches>, Result<(), Errno>) {
        let batch = batches[i];
        let Some(medium) = media.of(batch.file) else {
            return (batches, Err(Errno::BADF));
        };
        if batch.all_dead() {
            return (self.end(batches, i, medium, Ok(())), Ok(()));
        }
        batches[i].phase = Phase::Writing;
        drop(batches);
        self.write_out(i, batch, medium)
    }

    /// Writes batch `i`, which is in phase *Writing* and which no other thread may write.
    fn write_out(
        &self,
        i: usize,
        batch: Batch,
        medium: &Medium<'_>,
    ) -> (Held<'_, Batches>, Result<(), Errno>) {
        let bytes = self.bytes(i, &batch, medium.scratches);
        let result = io::write_all(medium.fd, bytes, batch.start * FILE_BLOCK as u64);
        medium.clusters.forget(batch.file, &batch.blocks());
        medium.note(result);
        (self.end(self.lock(), i, medium, result), result)
    }

    /// Ends the phase *Writing* of batch `i`.
    fn end<'a>(
        &'a self,
        mut batches: Held<'a, Batches>,
        i: usize,
        medium: &Medium<'_>,
        result: Result<(), Errno>,
    ) -> Held<'a, Batches> {
        let batch = &mut batches[i];
        let mut lent = None;
        if result.is_ok() {
            free_dead(batch, medium);
            lent = batch.scratch;
            *batch = Batch::EMPTY;
        } else {
            batch.phase = Phase::Failed;
        }
        self.written.notify_all();
        let Some(scratch) = lent else {
            return batches;
        };
        // The lock of the scratches' seats ranks before this one.
        drop(batches);
        medium.scratches.take_back(scratch);
        self.lock()
    }
}

/// Frees the dead blocks of a written batch.
fn free_dead(batch: &Batch, medium: &Medium<'_>) {
    let mut blocks = medium.blocks();
    if batch.scratch.is_some() {
        if batch.all_dead() {
            blocks.free(batch.start, batch.filled);
        }
        return;
    }
    for at in (0..batch.filled).filter(|at| batch.dead >> at & 1 == 1) {
        blocks.free(batch.start + at, 1);
    }
    if batch.filled < batch.room {
        blocks.free(batch.start + batch.filled, batch.room - batch.filled);
    }
}
