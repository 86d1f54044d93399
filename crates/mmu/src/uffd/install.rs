//! Mapping a frame, or zeros, where the program faulted.
//!
//! The page was not there, so it is in flight and no other thread maps it. Threads of the program wait for it, or
//! will. Both ways of mapping are atomic for each page: a racing thread sees the page whole or faults. Threads that
//! wait are woken by the ioctl itself.
//!
//! These are the possible failures, and what is done about them:
//!
//! - *The pages are shared after a fork* (EBUSY), or the mapping is not writable (EINVAL): the pages cannot be moved,
//!   and are copied.
//! - *The range crosses mappings* (ENOENT, EINVAL of the copy): contents are copied page by page. Zeros are not put
//!   where no thread asked for them: the answer is [`Split`](InstallError::Split), and they are asked for again page
//!   by page.
//! - *The range is not ours any more* (the same errors, for single pages): the answer is [`Gone`](InstallError::Gone)
//!   or `Split`. The kernel looks at the range before it maps anything. Only when the mapping changes during the call
//!   can a part be mapped, and that part may have been written to by then. It is taken back, never dropped.
//! - *A page is there already* (EEXIST). No live thread can have mapped it. It happens in a forked child, when a page
//!   was touched after the fork and before the child registered its memory: the kernel gave it a zero page and the
//!   child went on from there. The bytes that the child wrote then are newer than those in the frame. The page stays,
//!   the rest is mapped around it, and one line says so.

use core::sync::atomic::Ordering;
use std::time::Instant;

use rustix::io::Errno;

use millpond_core::{
    FillOrInstallError, FilledAndInstalled, Frame, InstallError, LoadError, Order, PAGE_SIZE,
    PageRange, Placed,
};

use super::Uffd;
use super::cost::{Choice, Method};
use crate::bounce::Buffer;
use crate::pool::Lease;
use crate::report;
use crate::reservation::HUGE;
use crate::sys::advise::{self, Span};

impl Uffd {
    /// Implements [`Mmu::install_zero`](millpond_core::Mmu::install_zero).
    pub(super) fn install_zero_pages(
        &self,
        at: PageRange,
        frame: Option<Frame>,
    ) -> Result<Placed, InstallError> {
        let choice = frame.map(|frame| (frame, self.choose(frame)));
        if let Some((frame, choice)) = choice
            && choice.method == Method::Move
        {
            let mut lease = self.pool.lease(frame);
            // SAFETY: the caller guarantees that the frame is populated.
            unsafe { lease.bytes_mut() }.fill(0);
            // Frames of zeros are never copied page by page. A caller that gets the answer Split for zeros forgets
            // the frame, and the program may have written to the pages before a border by the time that the border is
            // met.
            return self.install_with(&lease, frame, at, choice, Self::copy_around);
        }
        // For a copy the zeros at hand do as well as a zeroed frame, so the frame is left as it is.
        let timed = choice.filter(|(_, choice)| choice.timed);
        let since = timed.map(|_| Instant::now());
        let (start, len) = (self.at(at.start), at.len.bytes() as usize);
        let huge = if len == HUGE {
            self.place_zeros(start)
        } else {
            0
        };
        let copied = self.copy_zeros(at, huge);
        if let (Ok(_), Some((frame, choice)), Some(since)) = (copied, timed, since) {
            self.costs.took(frame.order(), choice.method, since);
        }
        copied
    }

    /// Maps new zeros at `at`, where `done` bytes from the start are mapped already.
    pub(super) fn copy_zeros(&self, at: PageRange, done: usize) -> Result<Placed, InstallError> {
        let (start, len) = (self.at(at.start), at.len.bytes() as usize);
        self.copy_around(start + done, self.zeros.of(len - done), len - done)
            .map(|()| Placed::Copied)
            .map_err(|copied| {
                // The pages that were mapped before the mapping changed hold zeros, or bytes that the program wrote
                // since then to a page that it was unmapping at the same time.
                self.drop_pages(start, done + copied);
                refusal(len)
            })
    }

    /// Implements [`Mmu::install`](millpond_core::Mmu::install).
    pub(super) fn install_frame(
        &self,
        lease: &Lease<'_>,
        frame: Frame,
        at: PageRange,
    ) -> Result<Placed, InstallError> {
        self.install_chosen(lease, frame, at, self.choose(frame))
    }

    /// Implements [`Mmu::fill_and_install`](millpond_core::Mmu::fill_and_install).
    pub(super) fn fill_and_install(
        &self,
        frame: Frame,
        fresh: bool,
        at: PageRange,
        fill: &mut dyn FnMut(&mut [u8]) -> Result<(), LoadError>,
    ) -> FilledAndInstalled {
        let mut lease = self.pool.lease(frame);
        let filled = if !fresh {
            // SAFETY: the caller guarantees that the frame is populated.
            fill(unsafe { lease.bytes_mut() })
        } else if let Some(mut buffer) = self.bounce.buffer(lease.len()) {
            let filled = fill(buffer.bytes_mut());
            let outcome = filled.map_err(FillOrInstallError::Fill);
            return FilledAndInstalled::past_frame(
                outcome.and_then(|()| self.install_bytes(&mut lease, &mut buffer, at)),
            );
        } else {
            self.populate(lease.addr(), lease.len());
            // SAFETY: the frame was populated just now.
            fill(unsafe { lease.bytes_mut() })
        };
        FilledAndInstalled::through_frame(filled, || self.install_frame(&lease, frame, at))
    }

    /// Maps new pages with the buffer's bytes at `at`. On an error nothing is mapped, and the hole has become a
    /// populated frame with these bytes, or with what the program has made of them since.
    fn install_bytes(
        &self,
        hole: &mut Lease<'_>,
        buffer: &mut Buffer<'_>,
        at: PageRange,
    ) -> Result<(), FillOrInstallError> {
        let (dst, len) = (self.at(at.start), at.len.bytes() as usize);
        let Err(copied) = self.copy_across(dst, buffer.addr(), len) else {
            return Ok(());
        };
        self.populate(hole.addr(), len);
        // SAFETY: the frame was populated just now.
        unsafe { hole.bytes_mut() }.copy_from_slice(buffer.bytes_mut());
        self.take_back(dst, hole.addr(), 0, copied);
        Err(FillOrInstallError::Install(refusal(len)))
    }

    pub(super) fn choose(&self, frame: Frame) -> Choice {
        self.choose_for(frame.order())
    }

    /// The way of mapping as many pages as a folio of `order` has.
    pub(super) fn choose_for(&self, order: Order) -> Choice {
        if self.can_move {
            self.costs.choose(order)
        } else {
            Choice {
                method: Method::Copy,
                timed: false,
            }
        }
    }

    pub(super) fn install_chosen(
        &self,
        lease: &Lease<'_>,
        frame: Frame,
        at: PageRange,
        choice: Choice,
    ) -> Result<Placed, InstallError> {
        self.install_with(lease, frame, at, choice, Self::copy_across)
    }

    /// Installs a frame by the chosen method; `copy` is the way to copy pages that cannot be moved.
    fn install_with(
        &self,
        lease: &Lease<'_>,
        frame: Frame,
        at: PageRange,
        choice: Choice,
        copy: fn(&Self, usize, usize, usize) -> Result<(), usize>,
    ) -> Result<Placed, InstallError> {
        let (dst, len) = self.folio(at, frame);
        let src = lease.addr();
        let since = choice.timed.then(Instant::now);

        // Phase 1: as many pages as possible are moved.
        if len == HUGE {
            self.make_room(dst, HUGE);
        }
        let (moved, error) = match choice.method {
            Method::Move => self.move_some(dst, src, len, 0),
            Method::Copy => (0, None),
        };
        // A huge page that is shared after a fork is copied into a new huge page.
        let mut done = moved;
        if len == HUGE && moved == 0 && error == Some(Errno::BUSY) {
            done = self.place_copy(dst, src);
        }
        self.finish(dst, src, len, (moved, done), copy)?;
        if let Some(since) = since
            && (moved == len || choice.method == Method::Copy)
        {
            self.costs.took(frame.order(), choice.method, since);
        }
        Ok(self.placed(src, len, moved))
    }

    /// Finishes a frame of zeros of which `moved` bytes were moved by a call for several frames.
    pub(super) fn finish_zeros(
        &self,
        frame: Frame,
        at: PageRange,
        moved: usize,
    ) -> Result<Placed, InstallError> {
        let lease = self.pool.lease(frame);
        let ((dst, len), src) = (self.folio(at, frame), lease.addr());
        self.finish(dst, src, len, (moved, moved), Self::copy_around)?;
        Ok(self.placed(src, len, moved))
    }

    /// Phase 2: the bytes that are not `done` are copied; `moved` of the bytes that are done were moved. If the copy
    /// fails, all of it is taken back.
    fn finish(
        &self,
        dst: usize,
        src: usize,
        len: usize,
        (moved, done): (usize, usize),
        copy: fn(&Self, usize, usize, usize) -> Result<(), usize>,
    ) -> Result<(), InstallError> {
        if done < len
            && let Err(copied) = copy(self, dst + done, src + done, len - done)
        {
            self.take_back(dst, src, moved, done - moved + copied);
            return Err(refusal(len));
        }
        Ok(())
    }

    /// Phase 3: the frame becomes a hole or stays populated, never half of each.
    fn placed(&self, src: usize, len: usize, moved: usize) -> Placed {
        if moved == 0 {
            return Placed::Copied;
        }
        self.drop_pages(src + moved, len - moved);
        Placed::Moved
    }

    /// Copies as [`copy_around`](Self::copy_around) does, but page by page where the range crosses mappings: contents
    /// that exist are mapped whatever the program has made of its protection meanwhile.
    fn copy_across(&self, dst: usize, src: usize, len: usize) -> Result<(), usize> {
        let Err(mut done) = self.copy_around(dst, src, len) else {
            return Ok(());
        };
        while done < len {
            self.copy_around(dst + done, src + done, PAGE_SIZE)
                .map_err(|_| done)?;
            done += PAGE_SIZE;
        }
        Ok(())
    }

    /// Copies into the arena and passes over pages that are there already. The error is the number of bytes from the
    /// start that are mapped.
    pub(super) fn copy_around(&self, dst: usize, src: usize, len: usize) -> Result<(), usize> {
        // SAFETY: `src` is a leased, populated frame, a buffer or the zeros.
        if let Some(installed) = unsafe { self.install_closed(dst, src, len) } {
            return installed;
        }
        let mut done = 0;
        while done < len {
            // SAFETY: `src` is a leased, populated frame, a buffer or the zeros; the arena is seen through raw
            // pointers.
            let (copied, error) = unsafe { self.copy_some(dst + done, src + done, len - done) };
            done += copied;
            match error {
                None => break,
                Some(Errno::EXIST) => {
                    self.say_surprise(dst + done);
                    done += PAGE_SIZE;
                }
                Some(Errno::FAULT) => report::stop(format_args!(
                    "the frame at {:#x} is not readable: stopped",
                    src + done
                )),
                Some(_) => return Err(done),
            }
        }
        Ok(())
    }

    /// Undoes a partial mapping: `moved` bytes were moved, `copied` more were copied. Afterwards nothing of it is
    /// mapped and the frame is populated with the bytes that the program last saw.
    fn take_back(&self, dst: usize, src: usize, moved: usize, copied: usize) {
        for offset in (0..moved + copied).step_by(PAGE_SIZE) {
            let (dst, src) = (dst + offset, src + offset);
            if offset >= moved {
                self.drop_pages(src, PAGE_SIZE);
            }
            if self.capture(dst, src, PAGE_SIZE).is_err() {
                // The address is now mapped by something else: the bytes that the program had there went with their
                // mapping.
                self.populate(src, PAGE_SIZE);
            }
        }
    }

    /// Drops the pages of one range of the arena or of a leased frame.
    pub(super) fn drop_pages(&self, start: usize, len: usize) {
        if len > 0 {
            // SAFETY: the caller holds the folio or frame in flight, and its contents are no longer wanted.
            unsafe { advise::discard(None, &[Span { start, len }]) };
        }
    }

    pub(super) fn say_surprise(&self, addr: usize) {
        if !self.surprised.swap(true, Ordering::Relaxed) {
            report::line(format_args!(
                "the page at {addr:#x} was mapped behind millpond's back (touched in a forked child before its memory \
                 was set up?); it keeps what the program wrote there"
            ));
        }
    }
}

pub(super) fn refusal(len: usize) -> InstallError {
    if len > PAGE_SIZE {
        InstallError::Split
    } else {
        InstallError::Gone
    }
}
