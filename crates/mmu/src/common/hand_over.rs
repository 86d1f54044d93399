//! Moves the tables of a range of several mappings, for [`Memory::hand_over`](crate::Memory::hand_over).

use millpond_core::PAGE_SIZE;
use rustix::io::Errno;

use super::Common;
use crate::error::MmuError;
use crate::report;
use crate::sys::remap;

/// The maximum number of mappings that are moved one by one. An area gets one more each time it is moved and then
/// grows in place; a copy makes it one mapping again.
const MAX_MAPPINGS: usize = 64;

impl Common {
    /// Moves the tables of mappings of these lengths, up to the first 0.
    ///
    /// # Safety
    /// Both ranges are inside the arena, and the conditions of
    /// [`Memory::hand_over_watched`](crate::Memory::hand_over_watched) hold.
    ///
    /// # Errors
    /// The kernel's error. Then all pages are where they were.
    pub(crate) unsafe fn move_mappings(
        &self,
        src: usize,
        dst: usize,
        mappings: &[usize],
    ) -> Result<(), Errno> {
        let mut done = 0;
        for &piece in mappings.iter().take_while(|&&piece| piece > 0) {
            // SAFETY: the caller guarantees it.
            if let Err(errno) = unsafe { remap::move_tables(src + done, dst + done, piece) } {
                self.hand_back(src, dst, mappings, done);
                return Err(errno);
            }
            done += piece;
        }
        Ok(())
    }

    /// Returns the lengths of the mappings that make up a part of the arena, up to the first 0. Returns `None` if
    /// there are too many.
    pub(crate) fn mappings(&self, start: usize, len: usize) -> Option<[usize; MAX_MAPPINGS]> {
        let mut lengths = [0; MAX_MAPPINGS];
        let mut seats = lengths.iter_mut();
        let arena_end = self.arena.base() + self.arena.len();
        let mut at = start;
        while at < start + len {
            // None of our memory follows the arena's last page, so that page is examined by itself.
            let left =
                (start + len - at).min(arena_end - PAGE_SIZE - at.min(arena_end - PAGE_SIZE));
            let piece = if left == 0 {
                PAGE_SIZE
            } else {
                remap::one_mapping(at, left)
            };
            *seats.next()? = piece;
            at += piece;
        }
        Some(lengths)
    }

    /// Moves the first `done` bytes back.
    pub(crate) fn hand_back(&self, src: usize, dst: usize, mappings: &[usize], done: usize) {
        let mut at = 0;
        for piece in mappings.iter().take_while(|&&piece| piece > 0) {
            if at == done {
                return;
            }
            // SAFETY: these pages were moved the other way a moment ago.
            if let Err(errno) = unsafe { remap::move_tables(dst + at, src + at, *piece) } {
                report::stop(format_args!(
                    "memory was moved by half and cannot be moved back ({errno}): stopped, to lose nothing silently"
                ));
            }
            at += piece;
        }
    }
}

/// Stops the process if a range could not be registered: unwatched addresses read as zeros, and that must not be
/// found out later.
pub(crate) fn watched(result: Result<(), MmuError>) {
    result.unwrap_or_else(|error| {
        report::stop(format_args!(
            "memory cannot be watched any more ({error}): stopped, to lose nothing silently"
        ))
    });
}
