//! Decides whose fault it is: a SIGSEGV at an address of the arena may be ours or the program's.

use core::ffi::c_void;

use rustix::io::Errno;
use rustix::mm::Advice;

use millpond_core::{PAGE_SIZE, PageIndex};

use super::Protection;
use super::wishes::{LEAF, Wish};
use crate::interrupted::Access;
use crate::sys::mm::madvise;
use crate::sys::remap;

/// What to do about a touch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Touch {
    /// The page is not there and must be brought in.
    Absent,
    /// The page is usable now; the thread tries again.
    Again,
    /// The program must not use the page like this.
    Forbidden,
}

impl Protection {
    /// Looks at a page that a thread could not touch, and opens it if it is only parked.
    ///
    /// If the page was opened after the thread stopped, it is open now, and the thread only has to try again. A page
    /// whose protection the program changed without telling us looks the same, and the thread would try for ever. So
    /// the kernel is asked about a page that is open according to the table.
    pub(crate) fn touched(&self, page: PageIndex, access: Access) -> Touch {
        let page = page.0 as usize;
        let wish = self.wish(page);
        let may = match access {
            // On this processor, memory that can be written or executed can also be read.
            Access::Read => wish.prot() != 0,
            Access::Write => wish.has(Wish::WRITE),
            Access::Run => wish.has(Wish::EXEC),
        };
        if !may {
            return Touch::Forbidden;
        }
        if self.marked.has(page) {
            return Touch::Absent;
        }
        if self.open.has(page) {
            return match self.is_usable(page, access) {
                true => Touch::Again,
                false => self.look_again(page, wish, access),
            };
        }
        if !self.there.has(page) {
            return Touch::Absent;
        }
        self.open_run(page);
        Touch::Again
    }

    /// Whether a touch that the kernel reports as hitting no mapping may have hit a mark. The mark may since have
    /// been removed.
    pub(crate) fn may_be_mark(&self, page: PageIndex) -> bool {
        let page = page.0 as usize;
        let was_mark = || remap::is_mapped(self.addr(page), PAGE_SIZE);
        self.has_marks() && (self.marked.has(page) || was_mark())
    }

    /// Requests a page from the kernel as a touch would.
    fn is_usable(&self, page: usize, access: Access) -> bool {
        let advice = match access {
            Access::Write => Advice::LinuxPopulateWrite,
            Access::Read | Access::Run => Advice::LinuxPopulateRead,
        };
        let at = self.addr(page) as *mut c_void;
        // SAFETY: the advice has the effect of a touch of the page; contents stay.
        match unsafe { madvise(at, PAGE_SIZE, advice) } {
            Ok(()) => true,
            // The page had a hardware error, or the kernel has no memory: a touch reports that better.
            Err(errno) => !matches!(errno, Errno::INVAL | Errno::FAULT) || !self.knows_populate(),
        }
    }

    /// Whether the kernel knows the advice used for the request (Linux 5.14).
    fn knows_populate(&self) -> bool {
        let here = 0u8;
        let at = (&raw const here) as usize & !(PAGE_SIZE - 1);
        // SAFETY: the advice requests a page of this very stack, which is there.
        unsafe { madvise(at as *mut c_void, PAGE_SIZE, Advice::LinuxPopulateRead) }.is_ok()
    }

    /// Decides, under the lock, about a page that was open according to the table but that the kernel refused: it was
    /// taken out or parked in between, or the program has closed it without telling us.
    fn look_again(&self, page: usize, wish: Wish, access: Access) -> Touch {
        let _locked = self.lock.lock();
        match self.open.has(page) && self.wish(page) == wish && !self.is_usable(page, access) {
            true => Touch::Forbidden,
            false => Touch::Again,
        }
    }

    /// Opens the pages around a parked one, up to the ends of its run within its leaf.
    fn open_run(&self, page: usize) {
        let leaf = page / LEAF * LEAF;
        let end = (leaf + LEAF).min(self.pages);
        let locked = self.lock.lock();
        let mut first = page;
        while first > leaf && self.there.has(first - 1) {
            first -= 1;
        }
        let run = first..self.there.next(page..end, false);
        // A page that cannot be opened faults again, and by then the kernel may answer differently.
        let _ = self.show(&locked, run);
    }
}
