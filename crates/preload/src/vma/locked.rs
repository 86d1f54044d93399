//! Memory that the program locked (`mlock`).
//!
//! Memory locked by the C library's functions ([`crate::mlock`]) is pinned in the space, once however often it is
//! locked, and recorded here. Memory locked by the program's own system call instruction is locked by the kernel: it
//! brings the pages in, and the space finds that it cannot evict them. Locked memory of either kind must not be
//! discarded, so we also ask the kernel: `msync(MS_INVALIDATE)` only checks mappings, does nothing to anonymous ones,
//! and answers `EBUSY` if one of them is locked.

use super::{PAGE, Range, Vmas};
use crate::raw;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use rustix::io::Errno;

fn is_locked(range: &Range) -> bool {
    range.start < range.end
        && raw::msync(
            range.start,
            range.len(),
            libc::MS_ASYNC | libc::MS_INVALIDATE,
        ) == Err(Errno::BUSY)
}

/// Returns the first locked page of `range`, all of which is managed memory.
pub fn first(range: &Range) -> Option<usize> {
    if !is_locked(range) {
        return None;
    }
    // No page before `low` is locked, and some page before `high` is.
    let (mut low, mut high) = (range.start, range.end);
    while high - low > PAGE {
        let middle = low + (high - low) / PAGE / 2 * PAGE;
        if is_locked(&(low..middle)) {
            high = middle;
        } else {
            low = middle;
        }
    }
    Some(low)
}

/// Locks a range that continues a locked area: its pages stay once they are touched.
pub fn lock(range: &Range) -> Result<(), Errno> {
    let flags = libc::MLOCK_ONFAULT as usize;
    // SAFETY: the call changes no contents.
    unsafe { raw::syscall(libc::SYS_mlock2, [range.start, range.len(), flags, 0, 0, 0]) }.map(drop)
}

/// Ends the lock on memory that is being unmapped: the kernel's mapping remains and would keep the lock. Returns
/// whether there was a lock.
pub fn unlock(range: &Range) -> bool {
    let was_locked = is_locked(range);
    if was_locked {
        // SAFETY: the call changes no contents.
        let _ = unsafe { raw::syscall(libc::SYS_munlock, [range.start, range.len(), 0, 0, 0, 0]) };
    }
    was_locked
}

/// Whether the program has ever locked managed memory.
static EVER: AtomicBool = AtomicBool::new(false);

/// Unlocks `range`, which the allocator does not need for now. Memory that the program locked and freed there is no
/// longer locked: in the C library's allocator a large block is unmapped when it is freed, and few programs unlock it
/// first.
pub fn forget(range: Range) {
    if EVER.load(Relaxed) {
        let _ = super::locked(move |vmas| drop(vmas.unlock_managed(&range)));
    }
}

impl Vmas {
    /// Returns the first page of `range`, all of which is managed memory, that is locked in either way.
    pub fn first_locked(&self, range: &Range) -> Option<usize> {
        let ours = self.mlocked.parts(range.clone()).into_iter();
        let ours = ours
            .filter(|part| part.1)
            .map(|(part, _)| part.start)
            .next();
        first(&(range.start..ours.unwrap_or(range.end))).or(ours)
    }

    /// Brings in opened pages and keeps them until they are unlocked. Fails with `ENOMEM` if the budget has no room
    /// for them; in that case nothing is locked that was not locked before. It proceeds piece by piece: a long range
    /// brought in all at once would evict its own start before its end is in.
    pub fn lock_managed(&mut self, range: Range) -> Result<(), Errno> {
        const PIECE: usize = 16 * PAGE;
        let parts = self.mlocked.parts(range).into_iter();
        let new: Vec<Range> = parts.filter(|part| !part.1).map(|part| part.0).collect();
        let bounds = self.mlocked.parts(self.map.bounds()).into_iter();
        let before: usize = bounds.filter(|part| part.1).map(|part| part.0.len()).sum();
        let more: usize = new.iter().map(Range::len).sum();
        // The other half is for the program's other memory, for tables and for pages in transit.
        let most = usize::try_from(self.space.stats().ram / 2).unwrap_or(usize::MAX);
        if before + more > most {
            return Err(Errno::NOMEM);
        }
        self.locked_bytes.add(more, most)?;
        EVER.store(true, Relaxed);
        for part in &new {
            for start in part.clone().step_by(PIECE) {
                let piece = start..part.end.min(start + PIECE);
                if let Err(error) = self.space.pin(piece.start, piece.len()) {
                    new.iter().for_each(|part| drop(self.unlock_managed(part)));
                    self.locked_bytes.set(before);
                    return Err(error);
                }
                self.mlocked.add(piece);
            }
        }
        Ok(())
    }

    /// Returns whether the kernel would see several areas in `range`, all of which is managed memory, because part of
    /// it is locked.
    pub fn is_partly_locked(&self, range: &Range) -> bool {
        self.mlocked.parts(range.clone()).len() > 1
            || first(range).is_some_and(|page| page > range.start)
    }

    /// Locks `range`, just appended to an area, if the `last` page before it is locked.
    pub fn lock_like(&mut self, range: Range, last: Range) -> Result<(), Errno> {
        if first(&last).is_some() {
            return lock(&range);
        }
        match self.mlocked.parts(last).first() {
            Some((_, true)) => self.lock_managed(range),
            _ => Ok(()),
        }
    }

    /// Locks at `to`, the new place of an area, the parts that were locked while it was at `from`, and the part that
    /// was appended if its end was locked. Parts that cannot be locked still exist.
    pub fn lock_again(&mut self, parts: &[Range], from: &Range, to: &Range) {
        for part in parts {
            let start = to.start + (part.start - from.start);
            let end = match part.end == from.end {
                true => to.end,
                false => to.start + (part.end - from.start),
            };
            let (before, inside, after) = self.split(&(start..end));
            let _ = self.lock_managed(inside);
            for outside in [before, after] {
                if !outside.is_empty() {
                    let _ = lock(&outside);
                }
            }
        }
    }

    /// Unlocks all locked parts of `range` and returns them.
    pub fn unlock_managed(&mut self, range: &Range) -> Vec<Range> {
        let parts = self.mlocked.parts(range.clone()).into_iter();
        let locked: Vec<Range> = parts.filter(|part| part.1).map(|part| part.0).collect();
        for part in &locked {
            self.space.unpin(part.start, part.len());
        }
        self.mlocked.remove(range);
        let bytes = locked.iter().map(Range::len).sum();
        self.locked_bytes.remove(bytes);
        locked
    }
}
