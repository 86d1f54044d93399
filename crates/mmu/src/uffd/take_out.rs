//! Captures pages: takes them out of the program's sight, into the frame pool, losing no write.
//!
//! *By move* (Linux 6.8): the kernel removes the page-table entry and puts the page into the pool. A thread that
//! writes to the page has either written before that, or faults. That is the whole protocol; the rest of this file
//! handles refusals:
//!
//! - EBUSY: a forked child shares the page, or a device holds it. Writing to the page ends the sharing, so we ask the
//!   kernel to act as if the page were written (`MADV_POPULATE_WRITE`). A page that is still busy then is pinned, and
//!   is put back: [`TakeOutError::Busy`].
//! - EINVAL: the range is not writable, locked, or crosses mappings. Memory that is merely not writable is copied
//!   (`capture_protected.rs`); the rest is [`TakeOutError::Immovable`].
//! - ENOENT: a page of the source is missing. The core never takes out such a folio, but the program can unmap memory
//!   at any time. A missing page is captured as zeros, which is how it would read.
//!
//! *By copy* (older kernels): protect the range, copy it to the pool, drop it. A write in between faults and waits
//! until the capture is complete. The kernel does the copying (`UFFDIO_COPY` reads the arena and makes the frame's
//! pages in one step), so memory that the program made unreadable leads to an error, not to a crash.
//!
//! Several folios that are neighbours both in the arena and in the pool go in one call with one TLB shootdown, up to
//! 2 MiB and within a block of the pool (`pool.rs`). A call that fails is finished folio by folio. A folio of 2 MiB
//! is a call of its own, so that a huge page is moved whole (`huge.rs`).

use core::ffi::c_void;

use rustix::io::Errno;
use rustix::mm::Advice;

use millpond_core::{Frame, PAGE_SIZE, PageRange, TakeOutError};

use super::UffdMemory;
use super::install_run::is_leaf;
use super::transfer::Existing;
use crate::common::{Capture, Common, Install};
use crate::held::Taking;
use crate::pool::Pool;
use crate::reservation::HUGE;
use crate::sys::mm::madvise;
use crate::sys::{ioctl, pagemap};

impl Capture for UffdMemory {
    fn common(&self) -> &Common {
        &self.common
    }

    fn capture(&self, src: usize, dst: usize, len: usize) -> Result<(), TakeOutError> {
        if self.can_move {
            self.capture_by_move(src, dst, len, 0)
        } else {
            self.capture_by_copy(src, dst, len)
        }
    }

    /// Counts folios that are neighbours in the arena and in the pool, up to 2 MiB. Without moves they go one by one.
    fn run_length(&self, work: &[(PageRange, Frame)], taking: &Taking) -> usize {
        if !self.can_move {
            return 1;
        }
        let mut bytes = 0;
        let (mut src, mut dst) = (
            self.common.at(work[0].0.start),
            self.common.pool.addr(work[0].1),
        );
        for (n, &(at, frame)) in work.iter().enumerate() {
            let (start, len) = self.common.folio(at, frame);
            let neighbour = start == src && self.common.pool.addr(frame) == dst;
            let fits = bytes + len <= HUGE && Pool::same_mapping(work[0].1, frame);
            if !neighbour || !fits || (n > 0 && taking.is_held(start, len)) {
                return n.max(1);
            }
            src += len;
            dst += len;
            bytes += len;
        }
        work.len()
    }

    fn capture_run(&self, run: &[(PageRange, Frame)], results: &mut [Result<(), TakeOutError>]) {
        let (src, dst) = (
            self.common.at(run[0].0.start),
            self.common.pool.addr(run[0].1),
        );
        let mut moved = 0;
        if run.len() > 1 {
            // Leases for the whole run would need a list. Taking and returning each one still detects a mistake of
            // the caller.
            for &(_, frame) in run {
                drop(self.common.pool.lease(frame));
            }
            let len = run.iter().map(|(at, _)| at.len.bytes() as usize).sum();
            if is_leaf(src, len) && is_leaf(dst, len) {
                self.drop_tables(dst, HUGE);
            }
            moved = self.move_some(dst, src, len, ioctl::DONT_WAKE).0;
        }
        let mut before = 0;
        for (&(at, frame), result) in run.iter().zip(results) {
            let lease = self.common.pool.lease(frame);
            let (src, len) = self.common.folio(at, frame);
            let done = moved.saturating_sub(before).min(len);
            before += len;
            *result = match () {
                () if done == len => Ok(()),
                () if self.can_move => self.capture_by_move(src, lease.addr(), len, done),
                () => self.capture_by_copy(src, lease.addr(), len),
            };
        }
    }
}

impl UffdMemory {
    /// Captures the rest of the range by moving it: `done` bytes from the start have already been moved.
    fn capture_by_move(
        &self,
        src: usize,
        dst: usize,
        len: usize,
        mut done: usize,
    ) -> Result<(), TakeOutError> {
        if len == HUGE && done == 0 {
            self.drop_tables(dst, HUGE);
        }
        let mut unshared = false;
        loop {
            let (moved, error) =
                self.move_some(dst + done, src + done, len - done, ioctl::DONT_WAKE);
            done += moved;
            match error {
                None => return Ok(()),
                Some(Errno::BUSY) if !unshared => {
                    unshared = true;
                    self.unshare(src + done, src + len);
                }
                Some(Errno::NOENT) => {
                    // This page is a hole, so it becomes zeros, and the pages after it are moved as before.
                    if self.common.is_there(src + done) {
                        continue;
                    }
                    self.populate(dst + done, PAGE_SIZE);
                    done += PAGE_SIZE;
                    if done == len {
                        return Ok(());
                    }
                }
                Some(errno) => {
                    self.put_back(src, dst, done);
                    return match errno {
                        Errno::BUSY => Err(TakeOutError::Busy),
                        Errno::INVAL => self.capture_protected(src, dst, len),
                        _ => Err(TakeOutError::Immovable),
                    };
                }
            }
        }
    }

    /// Gives the process its own pages where it shares them with a forked child. Only present pages are touched:
    /// touching an absent page would be a fault that waits for this very thread.
    fn unshare(&self, start: usize, end: usize) {
        let _ = pagemap::runs(self.common.pagemap(), start, end, &mut |from, to| {
            // SAFETY: the advice has the effect of writing the same bytes; contents stay. On a range that is not
            // writable it fails and changes nothing.
            let _ = unsafe { madvise(from as *mut c_void, to - from, Advice::LinuxPopulateWrite) };
        });
    }

    /// Undoes a capture: maps the first `done` bytes again and wakes the threads that faulted on them meanwhile.
    pub(super) fn put_back(&self, src: usize, dst: usize, done: usize) {
        let mut back = self.move_some(src, dst, done, 0).0;
        while back < done {
            // The page was shared by a fork in between, or is gone with its mapping. A copy works in the first case;
            // in the second, the page is dropped.
            let copied = self.copy(src + back, dst + back, done - back, Existing::Stops);
            back = copied.map_or_else(|stopped| back + stopped.done + PAGE_SIZE, |()| done);
        }
        self.common.drop_pages(dst, done);
    }

    fn capture_by_copy(&self, src: usize, dst: usize, len: usize) -> Result<(), TakeOutError> {
        // Phase 1: from now on a writer faults and waits.
        if ioctl::write_protect(self.fd(), src, len, true).is_err() {
            return Err(TakeOutError::Immovable);
        }
        // Phase 2: copy the present pages. A hole becomes zeros, and must not be read: that would be a fault of this
        // very thread.
        let mut done = 0;
        while done < len {
            let there = self.common.is_there(src + done);
            let mut end = done + PAGE_SIZE;
            while end < len && self.common.is_there(src + end) == there {
                end += PAGE_SIZE;
            }
            let from = if there {
                src + done
            } else {
                self.common.zeros.of(end - done)
            };
            let copied = self.copy(dst + done, from, end - done, Existing::Stops);
            if let Err(stopped) = copied {
                self.common.drop_pages(dst, done + stopped.done);
                let _ = ioctl::write_protect(self.fd(), src, len, false);
                return Err(TakeOutError::Immovable);
            }
            done = end;
        }
        // Phase 3: drop the range, and its protection with it.
        self.common.drop_pages(src, len);
        Ok(())
    }
}
