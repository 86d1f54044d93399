//! Moves the tables of a range of several mappings, for [`Memory::hand_over`](crate::Memory::hand_over).

use millpond_core::PAGE_SIZE;
use rustix::io::Errno;

use super::Common;
use crate::error::MmuError;
use crate::report;
use crate::sys::remap;

/// The maximum number of mappings in a range that moves while threads may touch it. An area gets one more each time
/// it is moved and then grows in place; a copy makes it one mapping again.
const MAX_MAPPINGS: usize = 64;

impl Common {
    /// Moves the tables of a range, one mapping at a time. Only Linux 6.17 and later move several in one call, and
    /// not if userfaultfd is registered for them.
    ///
    /// # Safety
    /// Both ranges are inside the arena, and the conditions of
    /// [`Memory::hand_over_watched`](crate::Memory::hand_over_watched) hold.
    ///
    /// # Errors
    /// The kernel's error. Then all pages are where they were.
    pub(crate) unsafe fn move_range(
        &self,
        src: usize,
        dst: usize,
        len: usize,
    ) -> Result<(), Errno> {
        // SAFETY: the caller guarantees it.
        let Err((moved, errno)) = (unsafe { self.move_each(src, dst, len) }) else {
            return Ok(());
        };
        // The kernel unmaps the destination before it notices that it cannot move the range.
        let back = self.arena.restore(dst + moved, len - moved).and_then(|()| {
            if moved == 0 {
                return Ok(());
            }
            // SAFETY: these pages were moved the other way a moment ago.
            let back = unsafe { self.move_each(dst, src, moved) };
            back.map_err(|(_, errno)| errno)?;
            self.arena.restore(dst, moved)
        });
        back.unwrap_or_else(|errno| halfway(errno));
        Err(errno)
    }

    /// Moves the mappings until one cannot be moved. The error says how many bytes were moved, and why no more.
    ///
    /// # Safety
    /// As [`move_range`](Self::move_range).
    unsafe fn move_each(&self, src: usize, dst: usize, len: usize) -> Result<(), (usize, Errno)> {
        let mut moved = 0;
        while moved < len {
            let piece = self.one_mapping(src + moved, len - moved);
            // SAFETY: the caller guarantees it.
            unsafe { remap::move_tables(src + moved, dst + moved, piece) }
                .map_err(|errno| (moved, errno))?;
            moved += piece;
        }
        Ok(())
    }

    /// Returns whether a part of the arena has too many mappings to be moved while threads may touch it.
    pub(crate) fn has_many_mappings(&self, start: usize, len: usize) -> bool {
        let mut at = start;
        for _ in 0..MAX_MAPPINGS {
            at += self.one_mapping(at, start + len - at);
            if at == start + len {
                return false;
            }
        }
        true
    }

    /// Returns how many of the `len` bytes from `at` on are in one mapping of the kernel, at least a page.
    fn one_mapping(&self, at: usize, len: usize) -> usize {
        // No memory of ours is behind the arena's last page, so that page is looked at by itself.
        let last = self.arena.base() + self.arena.len() - PAGE_SIZE;
        match len.min(last.saturating_sub(at)) {
            0 => PAGE_SIZE,
            len => remap::one_mapping(at, len),
        }
    }
}

/// Stops the process because part of a range has been moved and cannot be moved back.
pub(crate) fn halfway(errno: Errno) -> ! {
    report::stop(format_args!(
        "memory was moved by half and cannot be moved back ({errno}): stopped, to lose nothing silently"
    ))
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
