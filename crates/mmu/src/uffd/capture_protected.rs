//! Captures pages that the program may not write, or may not even read.
//!
//! A collector makes its pages read-only to detect writes; other programs close memory that they keep. `UFFDIO_MOVE`
//! takes nothing out of a mapping that is not writable, so such pages would fill the budget for good. Opening the
//! mapping for the time of a move would let through a write that must be SIGSEGV, and would undo a concurrent change
//! of the protection by another thread. So the protection stays, and the page is copied:
//!
//! 1. The range is also registered for write protection, and its pages are marked. Until now no thread could write,
//!    and from now on the mark survives `mprotect`, even one that was made without telling us: a thread whose mapping
//!    is opened faults at the mark when it writes, and waits until the capture is complete. A write before the mark
//!    is in the copy.
//! 2. The bytes are read through `/proc/self/mem`, which can read memory that the program itself may not.
//! 3. The page is dropped, and the mark with it, and the range is registered as before: a mapping that was split off
//!    for this rejoins its neighbours.
//!
//! *Failures.* Locked memory, a folio across a border, a kernel without write protection or one that forbids reading
//! in this way (`proc_mem.force_override`) all yield [`TakeOutError::Immovable`]. A lock that comes between the steps
//! makes the drop fail; the pages that were gone by then are put back from the copy.
//!
//! *What it does not detect*: a device, or the kernel on behalf of another thread, that still writes into a page that
//! the program has since made read-only. A reference for reading does no harm: it keeps the old page and its bytes.

use core::ffi::c_void;

use rustix::io::pread;
use rustix::mm::Advice;

use millpond_core::{PAGE_SIZE, TakeOutError};

use super::UffdMemory;
use super::transfer::Existing;
use crate::common::Install;
use crate::report;
use crate::sys::mm::madvise;
use crate::sys::{ioctl, remap};

impl UffdMemory {
    /// Captures `len` immovable bytes at `src` into the leased hole `dst`. Either all are captured or none.
    pub(super) fn capture_protected(
        &self,
        src: usize,
        dst: usize,
        len: usize,
    ) -> Result<(), TakeOutError> {
        let may = self.features.protect && remap::is_mapped_unlocked(src, len);
        if !may || !self.is_one_mapping(src, len) {
            return Err(TakeOutError::Immovable);
        }
        // Phase 1: from now on a thread that writes waits, even if the protection changes.
        if ioctl::register(self.fd(), src, len, true).is_err() {
            return Err(TakeOutError::Immovable);
        }
        let captured = match ioctl::write_protect(self.fd(), src, len, true) {
            Ok(()) => self.copy_and_drop(src, dst, len),
            Err(_) => Err(TakeOutError::Immovable),
        };
        if captured.is_err() {
            let _ = ioctl::write_protect(self.fd(), src, len, false);
        }
        // The registration joins the mapping with its neighbours. If it fails nothing is lost: the range is still
        // watched.
        let _ = ioctl::register(self.fd(), src, len, false);
        captured
    }

    fn copy_and_drop(&self, src: usize, dst: usize, len: usize) -> Result<(), TakeOutError> {
        // Phase 2: copy the pages. An absent page becomes zeros, and must not be read: that would be a fault of this
        // very thread.
        self.populate(dst, len);
        for offset in (0..len).step_by(PAGE_SIZE) {
            if self.common.is_there(src + offset) && !self.read_closed(src + offset, dst + offset) {
                self.common.drop_pages(dst, len);
                return Err(TakeOutError::Immovable);
            }
        }
        // Phase 3: drop the pages.
        // SAFETY: the folio is in flight, its bytes are in the frame, and no thread has been able to write since.
        if unsafe { madvise(src as *mut c_void, len, Advice::LinuxDontNeed) }.is_ok() {
            return Ok(());
        }
        let back = self.copy(src, dst, len, Existing::Stays);
        if back.is_err() && !self.common.is_there(src) {
            report::line(format_args!(
                "the pages at {src:#x} were unmapped while they were taken out"
            ));
        }
        self.common.drop_pages(dst, len);
        Err(TakeOutError::Immovable)
    }

    /// Reads one present page into a populated page of a frame.
    fn read_closed(&self, from: usize, to: usize) -> bool {
        let Some(mem) = self.mem.get() else {
            return false;
        };
        // SAFETY: the page is a part of a leased, populated frame, which nobody else sees.
        let page = unsafe { core::slice::from_raw_parts_mut(to as *mut u8, PAGE_SIZE) };
        pread(mem, page, from as u64) == Ok(PAGE_SIZE)
    }

    /// Whether the range is a part of one mapping. The check needs a mapped page after the range, and there may be
    /// none after the arena's last page. So a range that ends there counts as one mapping only if it is a single
    /// page; longer ones are refused, and come page by page.
    fn is_one_mapping(&self, src: usize, len: usize) -> bool {
        let ends_arena = src + len == self.common.arena.base() + self.common.arena.len();
        len == PAGE_SIZE || !ends_arena && remap::one_mapping(src, len) == len
    }
}
