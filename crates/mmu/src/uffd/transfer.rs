//! Transfers pages from one place to another, and trusts only the page tables about how far it got.
//!
//! A `UFFDIO_MOVE` of several pages can stop part of the way. It then returns EAGAIN and how many bytes it moved, and
//! the next call at that offset says why. But the call can also fail *after* moving a page: it moves, finds that the
//! processor set an accessed or dirty bit meanwhile, and returns EEXIST or "0 bytes". A caller that believed that
//! would drop the only copy of a page. So after every error we check the page tables: a page that is in the
//! destination and not in the source has been moved, whatever the call said. Such a call does not wake the threads
//! that wait for the page either, so we wake them with another one. (Without that, a thread slept for ever at a page
//! that was there.)
//!
//! `UFFDIO_COPY` counts correctly and needs no such care.

use rustix::io::Errno;

use millpond_core::PAGE_SIZE;

use super::UffdMemory;
use crate::report;
use crate::sys::ioctl;

/// How a copy handles a page that is already there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Existing {
    /// The page stays, and the rest is mapped around it.
    Stays,
    /// The copy stops before it.
    Stops,
}

/// A copy that stopped part of the way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Stopped {
    /// The number of bytes, from the start, that are mapped.
    pub(super) done: usize,
    /// The kernel's reason.
    pub(super) errno: Errno,
}

impl UffdMemory {
    /// Moves pages until all are moved or the kernel has a reason not to. Returns how many bytes were moved from the
    /// start of the range, and the reason if that is not all.
    pub(super) fn move_some(
        &self,
        dst: usize,
        src: usize,
        len: usize,
        mode: u64,
    ) -> (usize, Option<Errno>) {
        let mut done = 0;
        while done < len {
            // SAFETY: one of the two ranges is a leased frame, the other is arena memory, which Rust only sees
            // through raw pointers, or through references whose use a fault may delay but that never see bytes
            // change.
            let (moved, error) =
                unsafe { ioctl::move_pages(self.fd(), dst + done, src + done, len - done, mode) };
            done += moved;
            let Some(errno) = error else { break };
            if moved > 0 {
                continue;
            }
            let silently = self.moved_silently(dst + done, src + done, len - done);
            if silently > 0 && mode & ioctl::DONT_WAKE == 0 {
                // The kernel only wakes the threads that wait for what it says it moved.
                let _ = ioctl::wake(self.fd(), dst + done, silently);
            }
            done += silently;
            if silently == 0 {
                if errno != Errno::AGAIN {
                    return (done, Some(errno));
                }
                rustix::thread::sched_yield();
            }
        }
        (done, None)
    }

    /// Copies pages until all are copied or the kernel has a reason not to. If existing pages stay, an unreadable
    /// source stops the process: its contents are needed, and nobody else has them.
    pub(super) fn copy(
        &self,
        dst: usize,
        src: usize,
        len: usize,
        existing: Existing,
    ) -> Result<(), Stopped> {
        let mut done = 0;
        let mut patience = 1000;
        while done < len {
            // SAFETY: the source is a leased frame, a buffer, the zeros or arena memory; if it is not readable the
            // call fails. The destination is a leased hole or arena memory, which Rust only sees through raw
            // pointers, or through references whose use a fault may delay but that never see bytes change.
            let (copied, error) =
                unsafe { ioctl::copy(self.fd(), dst + done, src + done, len - done) };
            done += copied;
            match error {
                None => break,
                Some(_) if copied > 0 => {}
                Some(Errno::AGAIN) => rustix::thread::sched_yield(),
                Some(Errno::NOMEM) if patience > 0 => {
                    // The kernel itself is short of pages; reclaim of other memory may help in a moment.
                    patience -= 1;
                    pause();
                }
                Some(Errno::NOMEM) => report::stop(format_args!(
                    "the kernel has had no page for the program for a second (ENOMEM): stopped; \
                     give the machine or the cgroup more memory, or this program a smaller budget"
                )),
                Some(Errno::EXIST) if existing == Existing::Stays => {
                    self.say_surprise(dst + done);
                    done += PAGE_SIZE;
                }
                Some(Errno::FAULT) if existing == Existing::Stays => report::stop(format_args!(
                    "the frame at {:#x} is not readable: stopped",
                    src + done
                )),
                Some(errno) => return Err(Stopped { done, errno }),
            }
        }
        Ok(())
    }

    /// Returns how many bytes at the start of the range are in the destination and no longer in the source.
    fn moved_silently(&self, dst: usize, src: usize, len: usize) -> usize {
        let mut moved = 0;
        while moved < len && self.common.is_there(dst + moved) && !self.common.is_there(src + moved)
        {
            moved += PAGE_SIZE;
        }
        moved
    }
}

/// Sleeps for a millisecond.
fn pause() {
    std::thread::sleep(std::time::Duration::from_millis(1));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Delivery;
    use crate::uffd::one_leaf::one_leaf;
    use millpond_core::{Frame, Mmu, Order, PageIndex};
    use std::sync::mpsc;
    use std::time::Duration;

    /// Guards against a thread that slept for ever at a page that was there: the kernel had moved the page, reported
    /// that it had moved nothing, because a bit of the entry had changed meanwhile, and woken nobody.
    #[test]
    fn a_waiter_is_woken_after_a_move_that_the_kernel_did_not_report() {
        const PAGES: usize = 16;
        const LEN: usize = PAGES * PAGE_SIZE;
        let Some(uffd) = one_leaf(Delivery::Handler) else {
            return;
        };
        // Never dropped: if this test failed, the thread would touch memory that is gone.
        let uffd = std::mem::ManuallyDrop::new(uffd);
        let frame = Frame::new(Order::new(4).unwrap(), 0);
        let fill = &mut |bytes: &mut [u8]| {
            bytes.fill(77);
            Ok(())
        };
        uffd.fill(frame, true, fill).unwrap();
        let to = uffd.common.at(PageIndex(0));
        let (say, said) = mpsc::channel();
        // No handler is attached, so only the code below resolves this fault.
        std::thread::spawn(move || {
            // SAFETY: the page belongs to the arena, which lives until the thread has sent this.
            say.send(unsafe { core::ptr::read_volatile((to + 3 * PAGE_SIZE) as *const u8) })
        });
        assert!(said.recv_timeout(Duration::from_millis(100)).is_err());
        let lease = uffd.common.pool.lease(frame);
        // SAFETY: the frame is leased and populated, and the arena's pages are absent.
        let moved =
            unsafe { ioctl::move_pages(uffd.fd(), to, lease.addr(), LEN, ioctl::DONT_WAKE) };
        assert_eq!(moved, (LEN, None));
        assert!(said.recv_timeout(Duration::from_millis(100)).is_err());
        // Now the kernel reports that there is nothing to move.
        assert_eq!(uffd.move_some(to, lease.addr(), LEN, 0), (LEN, None));
        assert_eq!(said.recv_timeout(Duration::from_secs(20)), Ok(77));
        // A take-out wakes nobody: its folio is in flight until the core says so.
        assert_eq!(
            uffd.move_some(lease.addr(), to, LEN, ioctl::DONT_WAKE),
            (LEN, None)
        );
    }
}
