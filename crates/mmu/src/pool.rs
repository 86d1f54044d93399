//! Where frames live: one area for each order, each aligned to 2 MiB, so that a frame's address is arithmetic.
//!
//! A frame's place is either a *hole* (no pages) or *populated*. Which one it is, is the core's business; this
//! file only knows addresses. The pool is registered with userfaultfd because the target of `UFFDIO_MOVE` must
//! be, so a hole is given pages by `UFFDIO_COPY` from zeros, or by moving a huge page in, and never by touching it: a
//! touch would be a fault of our own making that nobody serves.

use millpond_core::{Frame, Order, PoolLayout};

use crate::error::MmuError;
use crate::lease::Leases;
use crate::reservation::{HUGE, Reservation};

pub(crate) struct Pool {
    memory: Reservation,
    offset: [usize; 10],
    frames: [u32; 10],
    leases: Leases,
}

impl Pool {
    /// Reserves the areas, readable and writable, all holes, with one spare page behind them.
    pub(crate) fn new(layout: &PoolLayout) -> Result<Self, MmuError> {
        let mut offset = [0; 10];
        let mut len = 0;
        for order in Order::all() {
            let o = usize::from(order.get());
            offset[o] = len;
            len += (layout.frames[o] as usize * order.bytes()).next_multiple_of(HUGE);
        }
        let memory = Reservation::new("frame pool", len + HUGE)?;
        memory
            .protect(memory.base(), memory.len(), true)
            .map_err(|errno| MmuError::Reserve {
                what: "frame pool",
                bytes: len,
                errno,
            })?;
        Ok(Self {
            memory,
            offset,
            frames: layout.frames,
            leases: Leases::new(&layout.frames),
        })
    }

    pub(crate) fn memory(&self) -> &Reservation {
        &self.memory
    }

    /// A page of the pool that no frame covers: the bell that stops the handler thread.
    pub(crate) fn bell(&self) -> usize {
        self.memory.base() + self.memory.len() - HUGE
    }

    /// Address of the frame's first byte.
    ///
    /// # Panics
    /// When the pool has no such frame.
    pub(crate) fn addr(&self, frame: Frame) -> usize {
        let o = usize::from(frame.order().get());
        assert!(
            frame.index() < self.frames[o],
            "frame {frame} is beyond the pool's {} of its order",
            self.frames[o]
        );
        self.memory.base() + self.offset[o] + frame.index() as usize * frame.order().bytes()
    }

    /// The addresses of one of `of` equal parts of the area of each order, as whole pages.
    pub(crate) fn parts(&self, part: u8, of: u8) -> impl Iterator<Item = (usize, usize)> + '_ {
        Order::all().map(move |order| {
            let o = usize::from(order.get());
            let len = (self.frames[o] / u32::from(of)) as usize * order.bytes();
            let start = self.memory.base() + self.offset[o] + usize::from(part) * len;
            (start, len)
        })
    }

    /// Takes the frame for one operation; see [`Leases`].
    pub(crate) fn lease(&self, frame: Frame) -> Lease<'_> {
        let addr = self.addr(frame);
        self.leases.take(frame);
        Lease {
            pool: self,
            frame,
            addr,
        }
    }

    /// Forgets all leases: in a new child, where the threads that held them do not exist.
    pub(crate) fn forget_leases(&self) {
        self.leases.clear();
    }
}

/// The right to use one frame's place, exclusively, until dropped.
pub(crate) struct Lease<'a> {
    pool: &'a Pool,
    frame: Frame,
    addr: usize,
}

impl Lease<'_> {
    pub(crate) fn addr(&self) -> usize {
        self.addr
    }

    pub(crate) fn len(&self) -> usize {
        self.frame.order().bytes()
    }

    /// The frame's bytes.
    ///
    /// # Safety
    /// The frame is populated: reading a hole would be a fault that nobody serves.
    pub(crate) unsafe fn bytes(&self) -> &[u8] {
        // SAFETY: the place lies in the pool's mapping, is populated (caller), and the lease keeps every other
        // operation off it while the slice lives.
        unsafe { core::slice::from_raw_parts(self.addr as *const u8, self.len()) }
    }

    /// The frame's bytes, for writing.
    ///
    /// # Safety
    /// The frame is populated.
    pub(crate) unsafe fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `bytes`, and `&mut self` keeps a second slice from being made.
        unsafe { core::slice::from_raw_parts_mut(self.addr as *mut u8, self.len()) }
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        self.pool.leases.give_back(self.frame);
    }
}
