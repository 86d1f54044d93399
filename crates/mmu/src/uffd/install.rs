//! Maps a frame, or zeros, where the program faulted.
//!
//! The page was not there, so it is in flight and no other thread maps it. Threads of the program wait for it, or
//! will. Both ways of mapping are atomic for each page: a racing thread sees the whole page or faults. The ioctl
//! itself wakes the waiting threads.
//!
//! These are the possible failures, and how they are handled:
//!
//! - *The pages are shared after a fork* (EBUSY), or the mapping is not writable (EINVAL): the pages cannot be moved,
//!   so they are copied.
//! - *The range crosses mappings* (ENOENT, or EINVAL of the copy): contents are copied page by page. Zeros are not
//!   put where no thread asked for them: the result is [`Split`](InstallError::Split), and the caller asks again page
//!   by page.
//! - *The range is not ours any more* (the same errors, for single pages): the result is [`Gone`](InstallError::Gone)
//!   or `Split`. The kernel checks the range before it maps anything. A part can only be mapped if the mapping
//!   changes during the call, and that part may have been written to by then. It is taken back, never dropped.
//! - *A page is already there* (EEXIST). No live thread can have mapped it. It happens in a forked child, if a page
//!   was touched after the fork and before the child registered its memory: the kernel gave it a zero page and the
//!   child continued from there. The bytes that the child wrote then are newer than those in the frame. The page
//!   stays, the rest is mapped around it, and one line reports it.

use core::sync::atomic::Ordering;
use std::time::Instant;

use rustix::io::Errno;

use millpond_core::{Frame, InstallError, Order, PAGE_SIZE, PageRange, Placed};

use super::UffdMemory;
use super::cost::{Choice, Method};
use super::transfer::{Existing, Stopped};
use crate::common::{Install, refusal};
use crate::pool::Lease;
use crate::report;
use crate::reservation::HUGE;

/// What to do with a folio that lies across the border of two mappings, if it has to be copied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AtBorder {
    /// It is taken back, and the result is [`Split`](InstallError::Split).
    Split,
    /// It is copied page by page.
    Cross,
}

impl UffdMemory {
    /// Implements [`Mmu::install_zero`](millpond_core::Mmu::install_zero).
    pub(super) fn install_zero(
        &self,
        at: PageRange,
        frame: Option<Frame>,
    ) -> Result<Placed, InstallError> {
        let choice = frame.map(|frame| (frame, self.choose(frame.order())));
        if let Some((frame, choice)) = choice
            && choice.method == Method::Move
        {
            let mut lease = self.common.pool.lease(frame);
            // SAFETY: the caller guarantees that the frame is populated.
            unsafe { lease.bytes_mut() }.fill(0);
            // Frames of zeros are never copied page by page. A caller that gets Split for zeros forgets the frame,
            // and the program may have written to the pages before a border by the time that the border is reached.
            return self.install_by(choice, &lease, frame, at, AtBorder::Split);
        }
        // For a copy, the ready-made zeros are as good as a zeroed frame, so the frame is left unchanged.
        let timed = choice.filter(|(_, choice)| choice.timed);
        let since = timed.map(|_| Instant::now());
        let (start, len) = (self.common.at(at.start), at.len.bytes() as usize);
        let done = match len {
            HUGE => self.place_zeros(start),
            _ => 0,
        };
        let zeros = self.common.zeros.of(len - done);
        self.copy(start + done, zeros, len - done, Existing::Stays)
            .map_err(|stopped| self.give_up_zeros(at, done + stopped.done))?;
        if let (Some((frame, choice)), Some(since)) = (timed, since) {
            self.costs.took(frame.order(), choice.method, since);
        }
        Ok(Placed::Copied)
    }

    /// Drops new zeros whose first `mapped` bytes were mapped before the mapping changed. They contain zeros, or
    /// bytes that the program has since written to a page that it was unmapping at the same time.
    pub(super) fn give_up_zeros(&self, at: PageRange, mapped: usize) -> InstallError {
        self.common.drop_pages(self.common.at(at.start), mapped);
        refusal(at.len.bytes() as usize)
    }

    /// Chooses how to map as many pages as a folio of `order` has.
    pub(super) fn choose(&self, order: Order) -> Choice {
        if self.can_move {
            self.costs.choose(order)
        } else {
            Choice {
                method: Method::Copy,
                timed: false,
            }
        }
    }

    /// Installs a frame with the chosen method.
    pub(super) fn install_by(
        &self,
        choice: Choice,
        lease: &Lease<'_>,
        frame: Frame,
        at: PageRange,
        border: AtBorder,
    ) -> Result<Placed, InstallError> {
        let (dst, len) = self.common.folio(at, frame);
        let src = lease.addr();
        let since = choice.timed.then(Instant::now);

        // Phase 1: move as many pages as possible.
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
        let placed = self.complete(lease, dst, (moved, done), border)?;
        if let Some(since) = since
            && (moved == len || choice.method == Method::Copy)
        {
            self.costs.took(frame.order(), choice.method, since);
        }
        Ok(placed)
    }

    /// Completes the install of a frame after `done` bytes are mapped; `moved` of them were moved.
    pub(super) fn complete(
        &self,
        lease: &Lease<'_>,
        dst: usize,
        (moved, done): (usize, usize),
        border: AtBorder,
    ) -> Result<Placed, InstallError> {
        let (src, len) = (lease.addr(), lease.len());
        // Phase 2: copy the rest. If that fails, take back all of it.
        if done < len {
            let (to, from, rest) = (dst + done, src + done, len - done);
            let copied = match border {
                AtBorder::Split => self
                    .copy(to, from, rest, Existing::Stays)
                    .map_err(|stopped| stopped.done),
                AtBorder::Cross => self.copy_in(to, from, rest),
            };
            if let Err(copied) = copied {
                self.take_back(dst, src, moved, done - moved + copied);
                return Err(refusal(len));
            }
        }
        // Phase 3: the frame becomes a hole or stays populated, never half and half.
        if moved == 0 {
            return Ok(Placed::Copied);
        }
        self.common.drop_pages(src + moved, len - moved);
        Ok(Placed::Moved)
    }

    /// Reports, once, that a page was mapped without telling us.
    pub(super) fn say_surprise(&self, addr: usize) {
        if !self.surprised.swap(true, Ordering::Relaxed) {
            report::line(format_args!(
                "the page at {addr:#x} was mapped behind millpond's back (touched in a forked child before its memory \
                 was set up?); it keeps what the program wrote there"
            ));
        }
    }
}

impl Install for UffdMemory {
    /// Uses a huge page where possible, otherwise pages copied from zeros.
    fn populate(&self, at: usize, len: usize) {
        let huge = match len {
            HUGE => self.place_zeros_in_frame(at),
            _ => 0,
        };
        let (at, len) = (at + huge, len - huge);
        let zeros = self.common.zeros.of(len);
        let copied = self.copy(at, zeros, len, Existing::Stops);
        if let Err(Stopped { done, errno }) = copied {
            report::stop(format_args!(
                "the frame at {:#x} cannot be given pages ({errno}): the frame pool was unmapped or is in use",
                at + done
            ));
        }
    }

    fn copy_in(&self, dst: usize, src: usize, len: usize) -> Result<(), usize> {
        let Err(stopped) = self.copy(dst, src, len, Existing::Stays) else {
            return Ok(());
        };
        for done in (stopped.done..len).step_by(PAGE_SIZE) {
            self.copy(dst + done, src + done, PAGE_SIZE, Existing::Stays)
                .map_err(|_| done)?;
        }
        Ok(())
    }

    fn install_leased(
        &self,
        lease: &Lease<'_>,
        frame: Frame,
        at: PageRange,
    ) -> Result<Placed, InstallError> {
        let choice = self.choose(frame.order());
        self.install_by(choice, lease, frame, at, AtBorder::Cross)
    }
}
