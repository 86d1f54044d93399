//! Operations on ranges of any length: the program's protections, pins, moves, and forks.

use core::sync::atomic::Ordering;

use rustix::io::Errno;

use millpond_core::PageRange;

use super::wishes::{LEAF, Wish};
use super::{Protection, numbers};
use crate::sys::own_memory;

impl Protection {
    /// Records what the program may do with a range from now on, and gives its present pages that protection.
    ///
    /// # Errors
    /// The kernel refuses. Then some pages may have the new protection, and others are closed until they are touched.
    pub(crate) fn wish_for(&self, range: PageRange, wish: Wish) -> Result<(), Errno> {
        let pages = numbers(range);
        let locked = self.lock.lock();
        if wish.prot() == 0 {
            self.wishes.set(pages.clone(), wish);
            self.shut(&locked, pages.clone())?;
            return self.unmark_closed(&locked, pages);
        }
        self.unmark(&locked, pages.clone())?;
        self.wishes.set(pages.clone(), wish);
        // A page whose protection differs from the requested one does not count as open in the table. Pages get the
        // new protection without being closed first, because otherwise each would come back by a fault.
        self.set_open(pages.clone(), false);
        let shown = self.show(&locked, pages.clone());
        if shown.is_err() {
            for run in self.there.runs(pages.clone()) {
                self.set_open(run, true);
            }
            self.shut_surely(&locked, pages);
        }
        shown
    }

    /// Gives the range up: somebody else's mapping lies there, or soon will. Present pages can still be dropped.
    pub(crate) fn cede(&self, range: PageRange) {
        let pages = numbers(range);
        let locked = self.lock.lock();
        self.shut_surely(&locked, pages.clone());
        // The kernel refuses where the other mapping already lies, and no marks are left there.
        let _ = self.unmark_closed(&locked, pages.clone());
        self.marked.fill(pages.clone(), false);
        self.wishes.set(pages, Wish::FOREIGN);
    }

    /// Maps a range anew with `map`, which leaves it closed and empty.
    ///
    /// # Errors
    /// The error of `map`.
    pub(crate) fn renew(
        &self,
        range: PageRange,
        map: impl FnOnce() -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let pages = numbers(range);
        let _locked = self.lock.lock();
        map()?;
        self.there.fill(pages.clone(), false);
        self.marked.fill(pages.clone(), false);
        self.set_open(pages.clone(), false);
        self.wishes.set(pages, Wish::NONE);
        Ok(())
    }

    /// Keeps present pages open until [`unpin`](Self::unpin).
    pub(crate) fn pin(&self, range: PageRange) {
        let pages = numbers(range);
        let locked = self.lock.lock();
        for page in pages.clone() {
            if self.pins[page].fetch_add(1, Ordering::Relaxed) == 0 {
                self.pinned[page / LEAF].fetch_add(1, Ordering::Relaxed);
            }
        }
        // Pages that cannot be opened now are opened when they are touched.
        let _ = self.show(&locked, pages);
    }

    pub(crate) fn unpin(&self, range: PageRange) {
        let _locked = self.lock.lock();
        for page in numbers(range) {
            let less = |pins: u8| pins.checked_sub(1);
            let before = self.pins[page].fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
            if before == Ok(1) {
                self.pinned[page / LEAF].fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    /// Moves pages with `tables`, which moves the kernel's page tables from one closed range to another. The pages
    /// are parked at their new place, and the program's protections move along. `from` also keeps its protection, and
    /// is empty.
    ///
    /// # Errors
    /// The error of `tables`, in which case nothing has changed, or EFAULT where a foreign mapping lies.
    pub(crate) fn hand_over(
        &self,
        from: PageRange,
        to: PageRange,
        tables: impl FnOnce() -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let (from, to) = (numbers(from), numbers(to));
        let locked = self.lock.lock();
        for pages in [from.clone(), to.clone()] {
            if self.wishes.has_foreign(pages.clone()) {
                return Err(Errno::FAULT);
            }
            self.shut(&locked, pages.clone())?;
            self.unmark_closed(&locked, pages)?;
        }
        tables()?;
        self.there.fill(to.clone(), false);
        for run in self.there.runs(from.clone()) {
            let start = to.start + (run.start - from.start);
            self.there.fill(start..start + run.len(), true);
        }
        self.there.fill(from.clone(), false);
        for (run, wish) in self.wishes.runs(from.clone()) {
            let start = to.start + (run.start - from.start);
            self.wishes.set(start..start + run.len(), wish);
        }
        Ok(())
    }

    /// Prevents all changes until the fork is over. The present pages of `usable` are open until then, because a
    /// touch of a parked page would wait for the lock.
    pub(crate) fn before_fork(&self, usable: &[PageRange]) {
        let locked = self.lock.lock();
        for &range in usable {
            let _ = self.show(&locked, numbers(range));
        }
        locked.keep();
    }

    pub(crate) fn after_fork_in_parent(&self) {
        self.lock.release();
    }

    /// Makes a new child work on its own memory. The protections are already correct.
    ///
    /// # Errors
    /// The child cannot open its memory.
    pub(crate) fn after_fork_in_child(&self) -> Result<(), Errno> {
        let mem = own_memory::open();
        // Without its own descriptor the child would write to its parent.
        self.mem
            .replace(mem.as_ref().ok().and_then(|mem| mem.try_clone().ok()));
        self.alone.after_fork_in_child();
        self.lock.release();
        mem.map(drop)
    }
}
