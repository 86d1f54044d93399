//! Discards of memory in use: gathered pages are freed in runs while other threads touch them.
//!
//! A page reads as it did or as zeros while it is being discarded. When the call returns, it has lost nothing else: its
//! words are then zeros, or were written since the call began. A word that is written while no discard is under way
//! stays (`common/page_model.rs`). The test lasts MILLPOND_STRESS_SECS seconds (3), shared out among the deliveries,
//! the ways of taking out and the orders.

mod common;

use common::page_model::{Frees, PageModel, WORDS, read};
use common::{MIB, PAGE, Rng, is_over, small, stress_time, ways};
use millpond::{Advice, Manager, Order, Region};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

const PAGES: usize = 12 * MIB / PAGE;
const WRITERS: usize = 2;

struct Race<'a> {
    name: String,
    end: Instant,
    manager: &'a Manager,
    region: &'a Region,
    base: usize,
    discards: Vec<Frees>,
    /// First of the pages that are being discarded, where writes are worth while.
    here: AtomicUsize,
    /// Writes that met no discard. `raced` counts writes that did, `rewritten` pages that had been written to again
    /// when a discard returned.
    kept: AtomicU64,
    raced: AtomicU64,
    rewritten: AtomicU64,
}

impl Race<'_> {
    fn is_over(&self) -> bool {
        is_over(self.end, self.raced.load(Relaxed) > 0)
    }

    /// Writes to every `WRITERS`th page as the only thread, so that neighbours in a folio belong to others.
    fn write(&self, me: usize) {
        let mut rng = Rng(0x51 + me as u64);
        let mut models = vec![PageModel::untouched(); PAGES];
        while !self.is_over() {
            for _ in 0..256 {
                let near = self.here.load(Relaxed) + rng.below(512);
                let page = [near, rng.below(PAGES)][rng.below(2)].min(PAGES - WRITERS);
                let page = page / WRITERS * WRITERS + me;
                let (model, discards) = (&mut models[page], &self.discards[page]);
                let wrote = match rng.below(3) {
                    0 => {
                        let read = model.check(self.base, page, discards);
                        read.unwrap_or_else(|what| panic!("{}: a read: {what}", self.name));
                        continue;
                    }
                    1 => model.write(self.base, page, None, discards),
                    _ => model.write(self.base, page, Some(rng.below(WORDS)), discards),
                };
                let wrote = wrote.unwrap_or_else(|what| panic!("{}: a write: {what}", self.name));
                let count = if wrote.kept { &self.kept } else { &self.raced };
                count.fetch_add(1, Relaxed);
            }
        }
        for page in (me..PAGES).step_by(WRITERS) {
            let read = models[page].check(self.base, page, &self.discards[page]);
            read.unwrap_or_else(|what| panic!("{}: the last read: {what}", self.name));
        }
    }

    /// Discards runs from one page to most of the region, and checks at once what they read as. Two threads do so, each
    /// in its half: only one of them has the large batch.
    fn discard(&self, half: usize) {
        let mut rng = Rng(0x7007 + half as u64);
        let mut before = vec![[0; WORDS]; PAGES];
        while !self.is_over() {
            let most = [4, 64, 1024, PAGES][rng.below(4)];
            let start = half * PAGES / 2 + rng.below(PAGES / 2);
            let pages = start..(start + 1 + rng.below(most)).min((half + 1) * PAGES / 2);
            self.here.store(pages.start, Relaxed);
            pages.clone().for_each(|page| self.discards[page].begin());
            // This check brings pages in.
            let looked_at = || pages.clone().step_by(1 + pages.len() / 32);
            for page in looked_at() {
                before[page] = read(self.base, page);
            }
            let range = pages.start * PAGE..pages.end * PAGE;
            // SAFETY: no references to plain bytes of the region exist.
            unsafe { self.region.discard_shared(range) }.unwrap();
            for page in looked_at() {
                let after = read(self.base, page);
                // A word's values grow, so what is not larger than before is old.
                let old = (0..WORDS).find(|&i| after[i] != 0 && after[i] <= before[page][i]);
                assert_eq!(
                    old, None,
                    "{}: page {page} was discarded and is {after:?}, before {:?}",
                    self.name, before[page]
                );
                let again = after.iter().any(|&word| word != 0);
                self.rewritten.fetch_add(u64::from(again), Relaxed);
            }
            pages.clone().for_each(|page| self.discards[page].end());
        }
    }

    fn evict(&self) {
        let mut rng = Rng(0x6006);
        while !self.is_over() {
            let start = rng.below(PAGES);
            let range = start * PAGE..(start + 1 + rng.below(64)).min(PAGES) * PAGE;
            self.region.advise(range, Advice::PageOut).unwrap();
            std::thread::yield_now();
        }
    }

    /// Uses more than the budget leaves, and gives it up in place. So less is kept in the pool, and pages that other
    /// threads discard go to the kernel.
    fn press(&self) {
        let mut other = self.manager.region(8 * MIB).unwrap();
        while !self.is_over() {
            other
                .as_mut_slice()
                .chunks_mut(PAGE)
                .for_each(|page| page[0] = 1);
            other.discard(0..8 * MIB).unwrap();
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn discard_of_memory_in_use_is_complete_and_loses_nothing_else() {
    const ORDERS: [u8; 3] = [0, 4, 9];
    let time = stress_time() / (ways().len() * ORDERS.len()) as u32;
    let mut gathered = 0;
    for (delivery, method) in ways() {
        for order in ORDERS {
            let manager = small().delivery(delivery).take_out(method).build().unwrap();
            let order = Order::new(order).unwrap();
            let region = manager.region_with(PAGES * PAGE, order).unwrap();
            let race = Race {
                name: format!("{delivery:?} {method:?} {order:?}"),
                end: Instant::now() + time,
                manager: &manager,
                base: region.as_ptr() as usize,
                region: &region,
                discards: (0..PAGES).map(|_| Frees::default()).collect(),
                here: AtomicUsize::new(0),
                kept: AtomicU64::new(0),
                raced: AtomicU64::new(0),
                rewritten: AtomicU64::new(0),
            };
            std::thread::scope(|scope| {
                for me in 0..WRITERS {
                    let race = &race;
                    scope.spawn(move || race.write(me));
                }
                for half in 0..2 {
                    let race = &race;
                    scope.spawn(move || race.discard(half));
                }
                scope.spawn(|| race.evict());
                scope.spawn(|| race.press());
            });
            let [kept, raced, rewritten] =
                [&race.kept, &race.raced, &race.rewritten].map(|count| count.load(Relaxed));
            let free = manager.stats().free;
            println!(
                "{}: {kept} writes kept, {raced} raced, {rewritten} pages rewritten meanwhile; {} batches, {} MiB, {} slots",
                race.name,
                free.batches,
                free.bytes >> 20,
                free.slots
            );
            assert!(kept > 0 && raced > 0, "{}", race.name);
            gathered += free.bytes;
            drop(region);
            let vm = manager.stats().vm;
            assert_eq!((vm.nr_mapped, vm.nr_limbo, vm.nr_swapped), (0, 0, 0));
        }
    }
    assert!(gathered > 0, "nothing went to the kernel");
}
