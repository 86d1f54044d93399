//! Adopting memory that the kernel has backed alone so far.
//!
//! A process that begins without being managed has pages in memory before there is a driver. They become folios where
//! they lie: the page tables say which there are, and the core is told of each block.
//!
//! The folios are small. They were touched for reasons that nobody has seen, so each should be able to leave by itself.

use crate::driver::Driver;
use crate::memory::Memory;
use millpond_core::{
    Commands, Event, Order, OrderPolicy, PageCount, PageIndex, PageRange, Refusal, Reply,
};

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
        let (OrderPolicy::Fixed(most) | OrderPolicy::Adaptive { max: most }) = order;
        let mut adopted = PageCount::ZERO;
        let mut refused = None;
        self.mmu.present_pages(range, &mut |run| {
            if refused.is_none() {
                refused = self.adopt_run(run, MOST.min(most)).err();
                adopted.0 += run.len.0;
            }
        });
        refused.map_or(Ok(adopted), Err)
    }

    fn adopt_run(&self, run: PageRange, most: Order) -> Result<(), Refusal> {
        let mut commands = Commands::new();
        let mut at = run.start;
        let mut core = self.lock();
        while at < run.end() {
            let block = largest_block(at, run.end(), most);
            match core.handle(Event::Adopt { at: block }, &mut commands) {
                Reply::Done => at = block.end(),
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

/// The largest block, up to `most`, that begins at `at` and does not go beyond `end`.
fn largest_block(at: PageIndex, end: PageIndex, most: Order) -> PageRange {
    let fits =
        |&order: &Order| at.0.is_multiple_of(order.pages().0) && order.pages().0 <= end.0 - at.0;
    let order = Order::up_to(most).rev().find(fits).unwrap_or(Order::ZERO);
    PageRange::new(at, order.pages())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_cut_into_aligned_blocks_of_at_most_four_pages() {
        let cut = |mut at: u32, end: u32| {
            let mut lengths = Vec::new();
            while at < end {
                let block = largest_block(PageIndex(at), PageIndex(end), MOST);
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
