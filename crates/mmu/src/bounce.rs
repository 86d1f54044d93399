//! A few buffers of ordinary memory, in which a folio's contents are made when the pool has no memory for it.
//!
//! A load into a hole of the pool would first give it zeroed pages, fill these, and move them: two calls into the
//! kernel for one page of memory. Contents made here go to their destination by one copy into new pages, which never
//! interrupts another processor, and the next load finds the buffer warm in the cache.
//!
//! A buffer is one caller's for the time of one load: a bit is taken, and no caller waits. A caller that finds no
//! buffer free goes by way of the pool. Buffers take RAM when they are first used, and the one with the lowest number
//! is taken first.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::error::MmuError;
use crate::reservation::Reservation;

/// Bytes in a buffer. Longer folios would push each other out of the cache.
pub(crate) const BUFFER: usize = 64 << 10;
/// Number of buffers, and so of callers that can have one at once.
const BUFFERS: u32 = 16;

pub(crate) struct Bounce {
    memory: Reservation,
    /// One bit for each buffer that is taken.
    taken: AtomicU32,
}

impl Bounce {
    /// Reserves the buffers.
    pub(crate) fn new() -> Result<Self, MmuError> {
        let what = "buffers for loads";
        let memory = Reservation::new(what, BUFFERS as usize * BUFFER)?;
        memory
            .protect(memory.base(), memory.len(), true)
            .map_err(|errno| MmuError::Reserve {
                what,
                bytes: memory.len(),
                errno,
            })?;
        Ok(Self {
            memory,
            taken: AtomicU32::new(0),
        })
    }

    pub(crate) fn memory(&self) -> &Reservation {
        &self.memory
    }

    /// A buffer for `len` bytes. The answer is `None` when `len` is longer than a buffer, or all buffers are taken.
    pub(crate) fn buffer(&self, len: usize) -> Option<Buffer<'_>> {
        let free = |taken: u32| {
            let index = taken.trailing_ones();
            (len <= BUFFER && index < BUFFERS).then_some(taken | 1 << index)
        };
        let before = self
            .taken
            .fetch_update(Ordering::Acquire, Ordering::Relaxed, free)
            .ok()?;
        Some(Buffer {
            bounce: self,
            index: before.trailing_ones(),
            len,
        })
    }

    /// Frees all buffers in a new child: the threads that held them do not exist there.
    pub(crate) fn forget_buffers(&self) {
        self.taken.store(0, Ordering::Relaxed);
    }
}

/// One buffer, owned until it is dropped. It holds whatever its last owner left in it.
pub(crate) struct Buffer<'a> {
    bounce: &'a Bounce,
    index: u32,
    len: usize,
}

impl Buffer<'_> {
    pub(crate) fn addr(&self) -> usize {
        self.bounce.memory.base() + self.index as usize * BUFFER
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the buffer is mapped readable and writable for as long as the `Bounce` lives; the bit makes it ours
        // alone, and `&mut self` keeps a second slice from being made.
        unsafe { core::slice::from_raw_parts_mut(self.addr() as *mut u8, self.len) }
    }
}

impl Drop for Buffer<'_> {
    fn drop(&mut self) {
        self.bounce
            .taken
            .fetch_and(!(1 << self.index), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_caller_has_a_buffer_of_its_own_and_none_waits() {
        let bounce = Bounce::new().unwrap();
        let mut buffers: Vec<_> = (0..BUFFERS)
            .map(|_| bounce.buffer(BUFFER).unwrap())
            .collect();
        assert!(bounce.buffer(1).is_none());
        for (n, buffer) in (1..).zip(&mut buffers) {
            buffer.bytes_mut().fill(n);
        }
        for (n, buffer) in (1..).zip(&mut buffers) {
            assert!(buffer.bytes_mut().iter().all(|&byte| byte == n));
        }
        buffers.remove(3);
        assert_eq!(bounce.buffer(5).unwrap().bytes_mut(), [4; 5]);
        assert!(bounce.buffer(BUFFER + 1).is_none());
    }
}
