//! Adopted memory: pages that the kernel has mapped, with contents, before the driver hears of them.
//!
//! A process that was left to the kernel engages: all of its threads are stopped, the driver learns what is in
//! memory, and then the threads and the driver's own run at once. So the regions that a world begins with may be
//! adopted, before any thread of it runs.

use crate::world::{Plot, World};
use millpond_core::{PageCount, PageIndex, PageRange};
use millpond_sim::mmu::{BLANK, LINES};
use millpond_sim::rng::Rng;

/// The most runs of pages that are mapped in a region, and the most pages of a run.
const RUNS: u32 = 5;
const PAGES: u32 = 40;
/// What is written before anything else is. Threads write other words.
const STAMP: u64 = 40 << 32;

impl World {
    /// Maps some pages of a region, at most `left` of them, with contents, and has the driver adopt the region. Returns
    /// how many pages are left.
    ///
    /// # Panics
    /// When the driver refuses, or counts other pages than there are.
    pub(crate) fn adopt_some(&self, plot: &Plot, rng: &mut Rng, left: u32) -> u32 {
        let range = plot.named.1;
        let mut mapped = 0;
        let mut at = range.start.0;
        for _ in 0..rng.between(1, RUNS) {
            let room = (range.end().0 - at).min(left - mapped);
            if room == 0 {
                break;
            }
            let start = at + rng.below(range.end().0 - at);
            let end = range.end().0.min(start + rng.between(1, PAGES).min(room));
            self.was_mapped(
                PageRange::new(PageIndex(start), PageCount(end - start)),
                rng,
            );
            mapped += end - start;
            at = end;
        }
        let adopted = self.driver.adopt(range, plot.order);
        assert_eq!(adopted, Ok(PageCount(mapped)), "{range} is adopted");
        left - mapped
    }

    /// Maps pages, most of them with contents.
    fn was_mapped(&self, run: PageRange, rng: &mut Rng) {
        let mut state = self.memory().now();
        for page in run.pages() {
            let mut content = BLANK;
            if rng.chance(800) {
                content[rng.below(LINES as u32) as usize] = STAMP + u64::from(page.0);
            }
            state.oracle.begins_as(page, content);
            let mapped = state.mmu.was_mapped(page, content);
            mapped.unwrap_or_else(|failure| panic!("{}", failure.what));
        }
    }
}
