//! A few buffers of ordinary memory, in which a folio's contents are prepared when the pool has no memory for it.
//!
//! A load into a hole of the pool would first have to get zeroed pages, then fill and move them: two calls into the
//! kernel for each page of memory. Contents prepared here reach their destination by a single copy into new pages.
//! The copy never interrupts another processor, and the next load finds the buffer warm in the cache.
//!
//! A caller owns a buffer for the time of one load. It takes the buffer by setting a bit, and never waits: a caller
//! that finds no free buffer goes through the pool instead. A buffer takes RAM when it is first used, and the free
//! one with the lowest number is taken first.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::error::MmuError;
use crate::reservation::Reservation;

/// Bytes in a buffer. Longer folios would evict each other from the cache.
pub(crate) const BUFFER: usize = 64 << 10;
/// Number of buffers, and so of callers that can have one at the same time.
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

    /// Takes a buffer for `len` bytes. Returns `None` when `len` exceeds a buffer, or when all buffers are taken.
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

/// One buffer, owned until it is dropped. It still holds what its last owner wrote.
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
        // SAFETY: the buffer is mapped readable and writable for as long as the `Bounce` lives; the bit gives it to
        // this value alone, and `&mut self` prevents a second slice.
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
    fn each_caller_gets_its_own_buffer_without_waiting() {
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
