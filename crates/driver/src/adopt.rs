//! Adopting memory that the kernel has backed alone so far.
//!
//! A process that begins without being managed has pages in memory before there is a driver. They become folios where
//! they lie: the page tables say which there are, and the core is told of each block.
//!
//! The folios are small. They were touched for reasons that nobody has seen, so each should be able to leave by itself.

use crate::driver::Driver;
use crate::memory::Memory;
use millpond_core::{Commands, Event, Order, OrderPolicy, PageCount, PageRange, Refusal, Reply};

/// The largest folio that is made, where the region's may be as large: 16 KiB.
const MOST: Order = match Order::new(2) {
    Some(order) => order,
    None => panic!("an order is at most 9"),
};

impl<M: Memory> Driver<M> {
    /// Makes folios of the pages in `range` that are mapped. The range has one protection. Nothing else works on
    /// memory yet, and no thread touches the range during the call. The range is in a region whose folios have these
    /// orders. Returns how many pages were adopted.
    ///
    /// # Errors
    /// The range is in no region, the core knows some of its pages already, or there is no record left.
    pub fn adopt(&self, range: PageRange, order: OrderPolicy) -> Result<PageCount, Refusal> {
        let most = MOST.min(order.largest());
        let mut adopted = PageCount::ZERO;
        let mut refused = None;
        self.mmu.present_pages(range, &mut |run| {
            if refused.is_none() {
                refused = self.adopt_run(run, most).err();
                adopted.0 += run.len.0;
            }
        });
        refused.map_or(Ok(adopted), Err)
    }

    fn adopt_run(&self, run: PageRange, most: Order) -> Result<(), Refusal> {
        let mut commands = Commands::new();
        let mut left = run;
        let mut core = self.lock();
        while !left.is_empty() {
            let block = left.first_block(most);
            match core.handle(Event::Adopt { at: block }, &mut commands) {
                Reply::Done => left = run.tail(block.end()),
                Reply::Refused(refusal) => return Err(refusal),
                reply => unreachable!("{reply:?} is no answer to an adoption"),
            }
            if !commands.is_empty() {
                drop(core);
                self.carry_out(&mut commands);
                core = self.lock();
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millpond_core::PageIndex;

    #[test]
    fn a_run_is_cut_into_aligned_blocks_of_at_most_four_pages() {
        let cut = |mut at: u32, end: u32| {
            let mut lengths = Vec::new();
            while at < end {
                let run = PageRange::new(PageIndex(at), PageCount(end - at));
                let block = run.first_block(MOST);
                assert_eq!(block.start.0, at);
                lengths.push(block.len.0);
                at = block.end().0;
            }
            lengths
        };
        assert_eq!(cut(1, 15), [1, 2, 4, 4, 2, 1]);
        assert_eq!(cut(8, 16), [4, 4]);
        assert_eq!(cut(6, 7), [1]);
    }
}
