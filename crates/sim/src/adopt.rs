//! Adopted memory: a region whose pages the kernel has mapped, with contents, before the core hears of them.

use millpond_core::{Event, Kind, Order, PageCount, PageIndex, PageRange, Refusal, Reply};

use crate::actor::OPERATOR;
use crate::mmu::{BLANK, LINES};
use crate::report::{Check, breach};
use crate::world::World;

/// The most runs of pages that are adopted in one region, and the most pages of a run.
const RUNS: u32 = 6;
const PAGES: u32 = 200;

impl World {
    /// Maps some pages of a new region, of folios of at most this order, with contents, and has the core adopt them,
    /// as a process does that engages.
    ///
    /// # Errors
    /// A rule is broken.
    pub(crate) fn adopt_some(&mut self, range: PageRange, kind: Kind, largest: Order) -> Check {
        let adopted = self.profile.adopted;
        // A world that adopts nothing draws nothing for it.
        if adopted == 0 || kind != Kind::Anonymous || !self.rng.chance(adopted) {
            return Ok(());
        }
        let mut at = range.start.0;
        for _ in 0..self.rng.between(1, RUNS) {
            let left = range.end().0.saturating_sub(at);
            if left == 0 {
                break;
            }
            let start = at + self.rng.below(left);
            let end = range.end().0.min(start + self.rng.between(1, PAGES));
            let run = PageRange::new(PageIndex(start), PageCount(end - start));
            if !self.adopt_run(run, largest)? {
                break;
            }
            at = end + 1;
        }
        Ok(())
    }

    /// Adopts pages by blocks of various orders. Returns whether there was room for all of them.
    fn adopt_run(&mut self, run: PageRange, largest: Order) -> Check<bool> {
        let mut left = run;
        while !left.is_empty() {
            let most = Order::new(self.rng.below(5) as u8).expect("orders are below ten");
            let block = left.first_block(most.min(largest));
            // A process engages while its memory fits. (What does not is for a test of the core.)
            if self.core.available() < block.len {
                return Ok(false);
            }
            for page in block.pages() {
                let mut content = BLANK;
                if self.rng.chance(800) {
                    self.stamp += 1;
                    content[self.rng.below(LINES as u32) as usize] = self.stamp;
                }
                self.oracle.begins_as(page, content);
                self.mmu.was_mapped(page, content)?;
            }
            match self.send(OPERATOR, Event::Adopt { at: block })? {
                Reply::Done => left = run.tail(block.end()),
                Reply::Refused(Refusal::OutOfRecords) => {
                    self.mmu.zap_all(block)?;
                    block
                        .pages()
                        .for_each(|page| self.oracle.begins_as(page, BLANK));
                    return Ok(false);
                }
                reply => breach!("{block} of a new region is adopted with {reply:?}"),
            }
        }
        Ok(true)
    }
}
