//! Gather: what one free leaves behind, so that it can be given back in bulk and by somebody else.
//!
//! Freeing has two halves. *Unhooking* makes the tables forget a range, and must be done under the core's lock; *giving
//! back* hands memory to the kernel and slots to the store, takes a hundred times as long, and needs no lock. A folio
//! that is discarded alone goes through both by a command and its completion (`ops/discard.rs`), because threads may touch
//! its pages meanwhile. A range that nobody can touch any more (a region that is dropped, a base without heirs)
//! needs no such care: its folios are unhooked by the thousand, and what is left of them is collected here.
//!
//! What is mapped needs no list, since it is given back by its range: at most 32 MiB at a time, in which nobody else's
//! fault or mmap has to wait for longer than 10 ms. What is collected are slots and frames: the first few inline, as most
//! frees are small, then in pages of 510, and when the pages are full the batch is handed over and the next one begun. (The
//! kernel's mmu_gather does the same with pages: a batch on the stack, then chained ones.)
//!
//! Until [`Core::gathered`](crate::Core::gathered) says that it was given back, all of it counts as it did: the frames in
//! use are the truth at every moment.

use crate::addr::{Frame, Order, PageCount, PageRange};
use crate::swap::SlotId;

/// Entries of the batch that needs no page.
const INLINE: usize = 8;
/// Entries of a page: with its length and link, 4 KiB.
pub const GATHER_PAGE: usize = 510;

/// Something to give back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gathered {
    /// A slot: the store is to forget it.
    Slot(SlotId),
    /// A populated frame of the pool: its pages go to the kernel.
    Frame(Frame),
}

#[derive(Clone, Copy)]
struct Packed(u64);

impl Packed {
    fn pack(item: Gathered) -> Self {
        Self(match item {
            Gathered::Slot(slot) => u64::from(slot.0),
            Gathered::Frame(frame) => {
                1 << 63 | u64::from(frame.order().get()) << 32 | u64::from(frame.index())
            }
        })
    }

    fn unpack(self) -> Gathered {
        let number = self.0 as u32;
        if self.0 >> 63 == 0 {
            return Gathered::Slot(SlotId(number));
        }
        let order = Order::new((self.0 >> 32) as u8).expect("packed from an order");
        Gathered::Frame(Frame::new(order, number))
    }
}

/// One batch. Its pages are had before the core's lock is taken, and used again and again.
pub struct Gather {
    pub(crate) zap: PageRange,
    /// Mapped pages in that range, which are given back with it.
    pub(crate) mapped: u32,
    /// Pages of the frames among the items.
    pub(crate) frames: u32,
    inline: [Packed; INLINE],
    pages: Vec<[Packed; GATHER_PAGE]>,
    len: usize,
}

impl Gather {
    /// An empty batch with room for `pages` pages of entries beside the inline ones.
    #[must_use]
    pub fn with_pages(pages: usize) -> Self {
        Self {
            zap: PageRange::default(),
            mapped: 0,
            frames: 0,
            inline: [Packed(0); INLINE],
            pages: vec![[Packed(0); GATHER_PAGE]; pages],
            len: 0,
        }
    }

    /// How many more slots and frames fit.
    #[must_use]
    pub fn room(&self) -> usize {
        INLINE + self.pages.len() * GATHER_PAGE - self.len
    }

    /// Whether there is nothing to give back.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0 && self.mapped == 0
    }

    /// The range whose mapped pages are to be dropped, if there are any in it.
    #[must_use]
    pub fn zap(&self) -> Option<PageRange> {
        (self.mapped > 0).then_some(self.zap)
    }

    /// Pages that go to the kernel with it: mapped ones, and those of its frames.
    #[must_use]
    pub fn pages(&self) -> PageCount {
        PageCount(self.mapped + self.frames)
    }

    /// Slots and frames, in the order in which they were found.
    pub fn items(&self) -> impl Iterator<Item = Gathered> + '_ {
        let chained = self.pages.iter().flatten();
        self.inline
            .iter()
            .chain(chained)
            .take(self.len)
            .map(|packed| packed.unpack())
    }

    /// Makes it empty, to be used again.
    pub fn clear(&mut self) {
        (self.zap, self.mapped, self.frames, self.len) = (PageRange::default(), 0, 0, 0);
    }

    pub(crate) fn push(&mut self, item: Gathered) {
        let packed = Packed::pack(item);
        match self.len.checked_sub(INLINE) {
            None => self.inline[self.len] = packed,
            Some(at) => self.pages[at / GATHER_PAGE][at % GATHER_PAGE] = packed,
        }
        self.len += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_come_back_in_their_order_across_pages() {
        let mut gather = Gather::with_pages(2);
        let items: Vec<_> = (0..gather.room() as u32)
            .map(|n| match n % 3 {
                0 => Gathered::Frame(Frame::new(Order::new((n % 10) as u8).unwrap(), n)),
                _ => Gathered::Slot(SlotId(u32::MAX - n)),
            })
            .collect();
        items.iter().for_each(|&item| gather.push(item));
        assert_eq!(
            (gather.room(), gather.items().collect::<Vec<_>>()),
            (0, items)
        );
        gather.clear();
        assert!(gather.is_empty() && gather.items().next().is_none());
    }
}
