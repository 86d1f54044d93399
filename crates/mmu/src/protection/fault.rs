//! Whose a fault is: SIGSEGV at an address of the arena may be ours, or the program's.

use core::ffi::c_void;

use rustix::io::Errno;
use rustix::mm::Advice;

use millpond_core::{PAGE_SIZE, PageIndex};

use super::Protection;
use super::wishes::{LEAF, Wish};
use crate::interrupted::Access;
use crate::sys::mm::madvise;
use crate::sys::remap;

/// What is to be done about a touch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Touch {
    /// The page is not there: it is to be brought in.
    Absent,
    /// The page can be touched now.
    Again,
    /// The program may not do that with the page.
    Forbidden,
}

impl Protection {
    /// Looks at a page that a thread could not touch, and opens it if it is only parked.
    ///
    /// A thread whose page was opened since it was stopped finds it open, and has to try again. A page whose protection
    /// the program has changed past us looks the same, and the thread would try for ever. So the kernel is asked about
    /// a page that is open by the table.
    pub(crate) fn touched(&self, page: PageIndex, access: Access) -> Touch {
        let page = page.0 as usize;
        let wish = self.wish(page);
        let may = match access {
            // Memory that can be written or run can be read, by the rules of this processor.
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

    /// Whether a touch that the kernel takes for one of an address without a mapping may be that of a mark. The mark
    /// may have been taken off since.
    pub(crate) fn may_be_mark(&self, page: PageIndex) -> bool {
        let page = page.0 as usize;
        let was_mark = || remap::is_mapped(self.addr(page), PAGE_SIZE);
        self.has_marks() && (self.marked.has(page) || was_mark())
    }

    /// Asks the kernel for a page as a touch would.
    fn is_usable(&self, page: usize, access: Access) -> bool {
        let advice = match access {
            Access::Write => Advice::LinuxPopulateWrite,
            Access::Read | Access::Run => Advice::LinuxPopulateRead,
        };
        let at = self.addr(page) as *mut c_void;
        // SAFETY: the advice does what a touch of the page would do; contents stay.
        match unsafe { madvise(at, PAGE_SIZE, advice) } {
            Ok(()) => true,
            // The page came with a hardware error, or the kernel has no memory: a touch says that better.
            Err(errno) => !matches!(errno, Errno::INVAL | Errno::FAULT) || !self.knows_populate(),
        }
    }

    /// Whether the kernel knows the advice by which it is asked (Linux 5.14).
    fn knows_populate(&self) -> bool {
        let here = 0u8;
        let at = (&raw const here) as usize & !(PAGE_SIZE - 1);
        // SAFETY: the advice asks for a page of this very stack, which is there.
        unsafe { madvise(at as *mut c_void, PAGE_SIZE, Advice::LinuxPopulateRead) }.is_ok()
    }

    /// Decides, under the lock, about a page that was open by the table and that the kernel refused: it was taken out
    /// or parked in between, or the program has closed it past us.
    fn look_again(&self, page: usize, wish: Wish, access: Access) -> Touch {
        let _locked = self.lock.lock();
        match self.open.has(page) && self.wish(page) == wish && !self.is_usable(page, access) {
            true => Touch::Forbidden,
            false => Touch::Again,
        }
    }

    /// Opens the pages around a parked one, up to the ends of its run in its leaf.
    fn open_run(&self, page: usize) {
        let leaf = page / LEAF * LEAF;
        let end = (leaf + LEAF).min(self.pages);
        let locked = self.lock.lock();
        let mut first = page;
        while first > leaf && self.there.has(first - 1) {
            first -= 1;
        }
        let run = first..self.there.next(page..end, false);
        // A page that cannot be opened faults again, and then the kernel's answer may be another.
        let _ = self.show(&locked, run);
    }
}
