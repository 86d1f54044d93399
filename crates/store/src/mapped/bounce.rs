//! Physically contiguous memory through which large reads go.
//!
//! A direct read goes from the device to the pages of its buffer. If the frame is a huge page, these are adjacent in
//! physical memory, and the read goes there. Otherwise they seldom are: they have circulated between program and pool
//! one by one. A read of 1 MiB is then 256 pieces to the device, the most that a request may have, and each piece costs
//! the device time: on a virtual disk such reads reached 300 MiB a second, and reads into a huge page 1,860, regardless
//! of the number in flight. So a large read goes to a part of a huge page first, and is copied from there, at ten times
//! the device's rate.
//!
//! There is one huge page for all files of a process, in four parts, since four threads read a stream ([`Part`]). A
//! part is taken by one atomic operation; a thread that finds none free reads into its frame. If the kernel has no huge
//! page available, the copy is wasted.

use super::stream_reads;
use crate::mem::{Mapping, PAGE};
use millpond_sync::{PerProcess, Rank};
use rustix::io::Errno;
use rustix::mm::{self, Advice};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

/// Bytes of the huge page.
pub(super) const BYTES: usize = 2 << 20;
/// Parts of it.
const PARTS: usize = 4;
/// Bytes of a part: the length of one read.
pub(super) const PART: usize = BYTES / PARTS;
/// The fewest bytes of a read that goes through the huge page: the cost of shorter ones is the call.
pub(super) const LEAST: usize = 8 * PAGE;

/// The huge page of a process, while there are files that use it.
static SHARED: PerProcess<Weak<Bounce>> = PerProcess::new(Rank::Files, Weak::new);

/// A huge page in parts. See the [module](self).
pub(super) struct Bounce {
    memory: Mapping,
    taken: [AtomicBool; PARTS],
}

/// A part that a thread has taken.
pub(super) struct Part<'a> {
    bounce: &'a Bounce,
    number: usize,
}

impl Bounce {
    /// The huge page of the process. It takes memory when it is first used.
    ///
    /// # Errors
    /// The system has no address space for it.
    pub(super) fn shared() -> Result<Arc<Self>, Errno> {
        if let Some(bounce) = SHARED.lock().upgrade() {
            return Ok(bounce);
        }
        let made = Arc::new(Self::new()?);
        let mut shared = SHARED.lock();
        if let Some(bounce) = shared.upgrade() {
            return Ok(bounce);
        }
        *shared = Arc::downgrade(&made);
        Ok(made)
    }

    /// One file's share of the memory, and of the rings that fill it: all files that use it have equal shares.
    pub(super) fn ram_bytes(this: &Arc<Self>) -> u64 {
        (BYTES as u64 + stream_reads::ram_bytes()) / Arc::strong_count(this) as u64
    }

    fn new() -> Result<Self, Errno> {
        let memory = Mapping::aligned(BYTES)?;
        // SAFETY: the range is the mapping's, and the advice does not change its contents. If it is refused, the memory
        // consists of small pages.
        let _ = unsafe { mm::madvise(memory.as_ptr().cast(), BYTES, Advice::LinuxHugepage) };
        let taken = [const { AtomicBool::new(false) }; PARTS];
        Ok(Self { memory, taken })
    }

    /// A free part, if there is one.
    pub(super) fn take(&self) -> Option<Part<'_>> {
        let free = |taken: &AtomicBool| !taken.swap(true, Ordering::Acquire);
        let number = self.taken.iter().position(free)?;
        let bounce = self;
        Some(Part { bounce, number })
    }
}

impl Part<'_> {
    /// The part's bytes.
    pub(super) fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the part lies in the mapping, which is readable, writable and initialised (to zeros), and no other
        // thread has it while this value lives.
        unsafe {
            let start = self.bounce.memory.as_ptr().add(self.number * PART);
            std::slice::from_raw_parts_mut(start, PART)
        }
    }
}

impl Drop for Part<'_> {
    fn drop(&mut self) {
        self.bounce.taken[self.number].store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_disjoint_and_free_again_when_dropped() {
        let bounce = Bounce::shared().unwrap();
        let same = Bounce::shared().unwrap();
        assert!(Arc::ptr_eq(&bounce, &same));
        let bounce = Bounce::new().unwrap();
        let mut parts: Vec<_> = (0..PARTS).map(|_| bounce.take().unwrap()).collect();
        assert!(bounce.take().is_none());
        for (number, part) in (0..).zip(&mut parts) {
            part.bytes().fill(number);
        }
        for (number, part) in (0..).zip(&mut parts) {
            assert!(part.bytes().iter().all(|&byte| byte == number));
        }
        parts.pop();
        assert!(bounce.take().is_some());
    }
}
