//! A gather collects the memory that one free leaves behind, so that another thread can give it back in bulk.
//!
//! Freeing has two halves. *Unhooking* makes the tables forget a range, and must be done under the core's lock.
//! *Giving back* hands memory to the kernel and slots to the store, takes a hundred times as long, and needs no lock.
//! The gather is what the first half leaves for the second.
//!
//! *A range that nobody can touch any longer* (a dropped region, a base without heirs; `ops/free.rs`) needs no care:
//! its entries are empty at once, and its mapped pages are given back as one range, whatever lies between them.
//!
//! *A range in use* (a discard; `ops/discard.rs`) may be touched in the meantime. So its folios stay in flight until
//! their pages are gone, and a thread that faults there waits. The mapped pages are collected as *runs*: neighbouring
//! folios, however many, are one run and dropped by one call. A run ends at a page that is not part of the discard:
//! that page is empty, and a fault may bring it in before the run is dropped.
//!
//! Both give at most 32 MiB to the kernel at a time, so that no other thread's fault or mmap has to wait for longer
//! than 10 ms. Slots, frames and runs are collected in their order: the first few inline, as most frees are small, then
//! in pages of 510. When the pages are full, the batch is handed over and the next one begun. (The kernel's mmu_gather
//! does the same with pages: a batch on the stack, then chained ones.)
//!
//! Until [`Core::gathered`](crate::Core::gathered) says that the batch was given back, all of it is counted as before:
//! the count of frames in use is correct at every moment.

use crate::addr::{Frame, Order, PageCount, PageIndex, PageRange};
use crate::ids::SlotId;
use crate::limits::{DISCARD_WALK, MAX_COMMANDS};
use arrayvec::ArrayVec;

/// Entries of the batch that are kept inline: as many as one event could ask for by commands.
const INLINE: usize = MAX_COMMANDS;
/// Entries of a page of the batch. With its length and link a page takes 4 KiB.
pub const GATHER_PAGE: usize = 510;

/// Something to give back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gathered {
    /// A slot that the store should forget.
    Slot(SlotId),
    /// A populated frame of the pool: its pages go to the kernel.
    Frame(Frame),
    /// Mapped pages (or poison) to drop. Their folios are in flight until then.
    Run(PageRange),
}

#[derive(Clone, Copy, Debug)]
struct Packed(u64);

const FRAME: u64 = 1 << 63;
const RUN: u64 = 1 << 62;

// The length of a run lies between its start and these marks.
const _: () = assert!(DISCARD_WALK < 1 << 30);

impl Packed {
    fn pack(item: Gathered) -> Self {
        let and = |upper: u32, lower: u32| u64::from(upper) << 32 | u64::from(lower);
        Self(match item {
            Gathered::Slot(slot) => u64::from(slot.0),
            Gathered::Frame(frame) => FRAME | and(frame.order().get().into(), frame.index()),
            Gathered::Run(at) => RUN | and(at.len.0, at.start.0),
        })
    }

    fn unpack(self) -> Gathered {
        let lower = self.0 as u32;
        let upper = ((self.0 & !(FRAME | RUN)) >> 32) as u32;
        if self.0 & FRAME != 0 {
            let order = Order::new(upper as u8).expect("packed from an order");
            return Gathered::Frame(Frame::new(order, lower));
        }
        match self.0 & RUN {
            0 => Gathered::Slot(SlotId(lower)),
            _ => Gathered::Run(PageRange::new(PageIndex(lower), PageCount(upper))),
        }
    }
}

/// One batch. Its pages are allocated before the core's lock is taken, and used again and again.
#[derive(Debug)]
pub struct Gather {
    pub(crate) zap: PageRange,
    /// Mapped pages in `zap`, which are given back with it.
    pub(crate) mapped: u32,
    /// Pages of the frames among the items.
    pub(crate) frames: u32,
    /// Pages of the runs.
    runs: u32,
    /// The last run, which may become longer.
    last: PageRange,
    inline: ArrayVec<Packed, INLINE>,
    /// The pages of the batch, as packed entries. Memory for a page is taken when it is written.
    pages: Vec<u64>,
    /// Entries in `pages`.
    chained: usize,
}

impl Gather {
    /// An empty batch without pages. It costs nothing to make.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            zap: NOTHING,
            mapped: 0,
            frames: 0,
            runs: 0,
            last: NOTHING,
            inline: ArrayVec::new_const(),
            pages: Vec::new(),
            chained: 0,
        }
    }

    /// An empty batch with room for `pages` pages of entries beside the inline ones.
    #[must_use]
    pub fn with_pages(pages: usize) -> Self {
        Self {
            pages: vec![0; pages * GATHER_PAGE],
            ..Self::new()
        }
    }

    /// How many more slots, frames and runs fit.
    #[must_use]
    pub fn room(&self) -> usize {
        let used = self.len() + usize::from(!self.last.is_empty());
        INLINE + self.pages.len() - used
    }

    /// Number of entries, without the last run.
    fn len(&self) -> usize {
        self.inline.len() + self.chained
    }

    /// Whether there is nothing to give back.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0 && self.mapped == 0 && self.last.is_empty()
    }

    /// The range whose mapped pages are to be dropped whatever lies between, if there are any in it.
    #[must_use]
    pub fn zap(&self) -> Option<PageRange> {
        (self.mapped > 0).then_some(self.zap)
    }

    /// Pages that go to the kernel with the batch: mapped ones, and those of its frames.
    #[must_use]
    pub fn pages(&self) -> PageCount {
        PageCount(self.mapped + self.frames + self.runs)
    }

    /// The slots, frames and runs of the batch.
    pub fn items(&self) -> impl Iterator<Item = Gathered> + '_ {
        let chained = self.pages.iter().take(self.chained);
        let last = (!self.last.is_empty()).then_some(Gathered::Run(self.last));
        let chained = chained.map(|&packed| Packed(packed));
        let packed = self.inline.iter().copied().chain(chained);
        packed.map(Packed::unpack).chain(last)
    }

    /// Makes the batch empty, to be used again.
    pub fn clear(&mut self) {
        (self.zap, self.mapped, self.frames) = (NOTHING, 0, 0);
        (self.runs, self.last, self.chained) = (0, NOTHING, 0);
        self.inline.clear();
    }

    pub(crate) fn push(&mut self, item: Gathered) {
        let packed = Packed::pack(item);
        if self.inline.try_push(packed).is_err() {
            self.pages[self.chained] = packed.0;
            self.chained += 1;
        }
    }

    /// Adds the mapped pages of a folio: they extend the last run, or begin another.
    pub(crate) fn push_run(&mut self, at: PageRange) {
        self.runs += at.len.0;
        if !self.last.is_empty() && self.last.end() == at.start {
            self.last.len.0 += at.len.0;
            return;
        }
        let ended = std::mem::replace(&mut self.last, at);
        if !ended.is_empty() {
            self.push(Gathered::Run(ended));
        }
    }
}

impl Default for Gather {
    fn default() -> Self {
        Self::new()
    }
}

const NOTHING: PageRange = PageRange {
    start: PageIndex(0),
    len: PageCount(0),
};

#[cfg(test)]
mod tests {
    use super::*;

    fn run(start: u32, len: u32) -> PageRange {
        PageRange::new(PageIndex(start), PageCount(len))
    }

    #[test]
    fn items_come_back_in_their_order_across_pages() {
        let mut gather = Gather::with_pages(2);
        let items: Vec<_> = (0..gather.room() as u32)
            .map(|n| match n % 4 {
                0 => Gathered::Frame(Frame::new(Order::new((n % 10) as u8).unwrap(), n)),
                1 => Gathered::Run(run(u32::MAX - 3 * n, DISCARD_WALK.min(n))),
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

    #[test]
    fn adjacent_runs_join_whatever_is_gathered_in_between() {
        let mut gather = Gather::new();
        let room = gather.room();
        gather.push_run(run(0, 1));
        gather.push(Gathered::Slot(SlotId(7)));
        gather.push_run(run(1, 4));
        gather.push_run(run(6, 2));
        let items: Vec<_> = gather.items().collect();
        let slot = Gathered::Slot(SlotId(7));
        let runs = [run(0, 5), run(6, 2)].map(Gathered::Run);
        assert_eq!(items, [slot, runs[0], runs[1]]);
        assert_eq!((gather.pages(), room - gather.room()), (PageCount(7), 3));
        gather.clear();
        assert!(gather.is_empty() && gather.items().next().is_none());
        assert_eq!((gather.pages(), gather.room()), (PageCount(0), room));
    }
}
