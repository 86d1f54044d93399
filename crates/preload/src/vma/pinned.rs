//! Memory that stays resident for good, and how the program can free it nonetheless.
//!
//! The tops of stacks that a program supplies for its threads are pinned ([`crate::threads`]). The space refuses to
//! forget pinned pages, but the program may unmap its stack after the thread has ended, or discard it, and must find
//! zeros when it next uses the addresses. As the pages are in memory, zeroing them here by hand cannot fault.

use super::{Range, Vmas};
use crate::space;
use libc::{PROT_NONE, PROT_READ, PROT_WRITE};
use rustix::io::Errno;

impl Vmas {
    /// Brings `range` in and keeps it there for good.
    pub fn pin(&mut self, range: Range) -> Result<(), Errno> {
        for (part, pinned) in self.pinned.parts(range) {
            if !pinned {
                self.space.pin_forever(part.start, part.len())?;
                self.pinned.add(part);
            }
        }
        Ok(())
    }

    /// Address and length of the ranges that stay in memory, some of them twice: for good, and while they are locked.
    pub fn in_memory(&self) -> Vec<(usize, usize)> {
        let all = self.pinned.all().chain(self.mlocked.all());
        all.map(|range| (range.start, range.len())).collect()
    }

    /// Returns the parts of `range` that are not pinned.
    pub fn unpinned(&self, range: Range) -> impl Iterator<Item = Range> + use<> {
        let parts = self.pinned.parts(range).into_iter();
        parts.filter_map(|(part, pinned)| (!pinned).then_some(part))
    }

    /// Makes opened pages with protection `prot` read as zeros.
    pub fn discard(&mut self, range: Range, prot: i32) -> Result<(), Errno> {
        let locked = self.unlock_managed(&range);
        for (part, pinned) in self.pinned.parts(range) {
            if pinned {
                self.zero(&part)?;
                self.set_protection(&part, prot, None)?;
            } else {
                self.space.discard(part.start, part.len())?;
            }
        }
        // Parts that were locked remain locked, as after `MADV_DONTNEED_LOCKED`.
        locked
            .into_iter()
            .try_for_each(|part| self.lock_managed(part))
    }

    /// Makes opened pages read as zeros or as before, as the kernel promises for `MADV_FREE`.
    pub fn free_lazily(&self, range: Range) -> Result<(), Errno> {
        for (part, pinned) in self.pinned.parts(range) {
            // Memory that stays resident for good gains nothing from being free.
            if pinned {
                continue;
            }
            if space::is_lazy() {
                self.space.lazy_free_shared(part.start, part.len())?;
            } else {
                self.space.discard(part.start, part.len())?;
            }
        }
        Ok(())
    }

    /// Discards opened pages and removes access.
    pub fn close(&mut self, range: Range) -> Result<(), Errno> {
        super::locked::unlock(&range);
        self.unlock_managed(&range);
        for (part, pinned) in self.pinned.parts(range) {
            if pinned {
                self.zero(&part)?;
                self.reprotect(&part, PROT_NONE, None)?;
            } else {
                self.space.close_aside(part.start, part.len())?;
                self.join_neighbours(part)?;
            }
        }
        Ok(())
    }

    /// Remaps the parts that came here by a move of page tables, now that they are closed.
    fn join_neighbours(&mut self, closed: Range) -> Result<(), Errno> {
        for (part, moved) in self.moved.parts(closed) {
            if moved {
                self.space.restore(part.start, part.len())?;
                // A stray touch may have brought in a page since the range was closed; it is no longer mapped.
                self.space.discard(part.start, part.len())?;
                self.moved.remove(&part);
            }
        }
        Ok(())
    }

    fn zero(&self, pinned: &Range) -> Result<(), Errno> {
        self.reprotect(pinned, PROT_READ | PROT_WRITE, None)?;
        // SAFETY: the pages belong to the program, which has asked for zeros in them. They are writable and in
        // memory, so nothing here waits for the space.
        unsafe { (pinned.start as *mut u8).write_bytes(0, pinned.len()) };
        Ok(())
    }
}
