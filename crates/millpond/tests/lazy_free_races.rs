//! Lazy free by racing threads: in whatever order calls and writes meet, no write is lost, no word comes back after it
//! was zero, and a page goes as a whole. `common/page_model.rs` says which contents are allowed.
//!
//! Each test lasts MILLPOND_STRESS_SECS seconds (3), shared out among the deliveries, the ways of taking out and the
//! orders.

mod common;

use common::page_model::{Frees, PageModel, WORDS, Words, read, word};
use common::{MIB, PAGE, Rng, is_over, small, stress_time, ways};
use millpond::{Advice, Manager, Order, Region};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

/// State that the threads of one race share.
struct Race {
    name: String,
    end: Instant,
    /// Number of drops that the writer of the page has seen.
    drops: AtomicU64,
}

impl Race {
    fn is_over(&self) -> bool {
        is_over(self.end, self.drops.load(Relaxed) > 0)
    }

    fn saw(&self, drop: bool) {
        self.drops.fetch_add(u64::from(drop), Relaxed);
    }

    /// Writes page by page to twice the budget, so that lazily freed memory goes.
    fn press(&self, manager: &Manager) {
        let region = manager.region(32 * MIB).unwrap();
        for page in (0..32 * MIB / PAGE).cycle() {
            word(region.as_ptr() as usize, page, 0).fetch_add(1, Relaxed);
            if self.is_over() {
                return;
            }
        }
    }
}

/// Runs the race in each way, with each order.
fn each_way(orders: &[u8], mut run: impl FnMut(&Race, &Manager, Order)) {
    let time = stress_time() / (ways().len() * orders.len()) as u32;
    for (delivery, method) in ways() {
        for &order in orders {
            let manager = small().delivery(delivery).take_out(method).build().unwrap();
            let race = Race {
                name: format!("{delivery:?} {method:?} order {order}"),
                end: Instant::now() + time,
                drops: AtomicU64::new(0),
            };
            run(&race, &manager, Order::new(order).unwrap());
            let (vm, drops) = (manager.stats().vm, race.drops.into_inner());
            println!(
                "{}: {drops} drops seen; {} pages freed, {} dropped, {} used again",
                race.name, vm.pglazyfree, vm.pglazyfreed, vm.pglazyfree_reused
            );
            assert!(
                vm.pglazyfreed > 0 && vm.pglazyfree_reused > 0 && drops > 0,
                "{} tested nothing: {vm:#?}",
                race.name
            );
        }
    }
}

fn some_pages(rng: &mut Rng, pages: usize, most: usize) -> Range<usize> {
    let start = rng.below(pages);
    start..(start + 1 + rng.below(most)).min(pages)
}

fn bytes(pages: &Range<usize>) -> Range<usize> {
    pages.start * PAGE..pages.end * PAGE
}

const PAGES: usize = 8 * MIB / PAGE;
const WRITERS: usize = 2;

/// State that all threads of the shared race use.
struct Shared<'a> {
    race: &'a Race,
    region: &'a Region,
    base: usize,
    frees: Vec<Frees>,
    /// The page where pages were freed last, near which a check is worth while.
    freed_last: AtomicUsize,
    kept: AtomicU64,
    raced: AtomicU64,
}

impl Shared<'_> {
    /// Writes to every `WRITERS`th page as the only thread, so that neighbours in a folio belong to others.
    fn write(&self, me: usize) {
        let mut rng = Rng(0x1001 + me as u64);
        let mut models = vec![PageModel::untouched(); PAGES];
        while !self.race.is_over() {
            let page = self.choose(&mut rng) / WRITERS * WRITERS + me;
            let (model, frees) = (&mut models[page], &self.frees[page]);
            let write = match rng.below(4) {
                0 | 1 => {
                    let dropped = model.check(self.base, page, frees).expect("a read");
                    self.race.saw(dropped);
                    continue;
                }
                2 => model.write(self.base, page, None, frees),
                _ => model.write(self.base, page, Some(rng.below(WORDS)), frees),
            };
            let write = write.expect("a write");
            self.race.saw(write.dropped);
            match write.kept {
                true => self.kept.fetch_add(1, Relaxed),
                false => self.raced.fetch_add(1, Relaxed),
            };
        }
    }

    /// Chooses one of the pages freed last, or of all.
    fn choose(&self, rng: &mut Rng) -> usize {
        match rng.below(4) {
            0 => rng.below(PAGES),
            _ => (self.freed_last.load(Relaxed) + rng.below(48)).min(PAGES - 1),
        }
    }

    /// Reads the words that others write. A word grows, and may become zero; it never becomes again what it was before.
    fn read(&self) {
        let mut rng = Rng(0x2002);
        let mut highest: Vec<Words> = vec![[0; WORDS]; PAGES];
        let mut zeroed = vec![[false; WORDS]; PAGES];
        while !self.race.is_over() {
            let page = self.choose(&mut rng);
            for (i, seen) in read(self.base, page).into_iter().enumerate() {
                let (highest, zeroed) = (&mut highest[page][i], &mut zeroed[page][i]);
                if seen == 0 {
                    *zeroed = *highest > 0;
                    continue;
                }
                let came_back = seen < *highest || (seen == *highest && *zeroed);
                assert!(
                    !came_back,
                    "word {i} of page {page} is {seen} again after {highest}, zeroed: {zeroed}"
                );
                (*highest, *zeroed) = (seen, false);
            }
        }
    }

    /// Frees runs of pages, whole folios and parts of them, one by one and several by one call.
    fn free(&self) {
        let mut rng = Rng(0x3003);
        while !self.race.is_over() {
            let count = 1 + rng.below(4);
            let runs: Vec<_> = (0..count)
                .map(|_| some_pages(&mut rng, PAGES, 48))
                .collect();
            let pages = || runs.iter().cloned().flatten();
            self.freed_last.store(runs[0].start, Relaxed);
            pages().for_each(|page| self.frees[page].begin());
            let ranges: Vec<_> = runs.iter().map(bytes).collect();
            let freed = match &ranges[..] {
                // SAFETY: no references to plain bytes of the region exist.
                [one] => unsafe { self.region.lazy_free_shared(one.clone()) },
                // SAFETY: no references to plain bytes of the region exist.
                many => unsafe { self.region.lazy_free_shared_vectored(many) },
            };
            freed.unwrap();
            pages().for_each(|page| self.frees[page].end());
        }
    }

    fn evict(&self) {
        let mut rng = Rng(0x4004);
        while !self.race.is_over() {
            let range = bytes(&some_pages(&mut rng, PAGES, 64));
            self.region.advise(range, Advice::PageOut).unwrap();
            let range = bytes(&some_pages(&mut rng, PAGES, 16));
            self.region.populate(range).unwrap();
            std::thread::yield_now();
        }
    }
}

/// The region is shared by address: writers and readers know nothing of the thread that frees their pages lazily.
/// Another thread pages out, and there is pressure.
#[test]
fn racing_writes_are_never_lost_and_freed_bytes_never_come_back() {
    each_way(&[0, 4, 9], |race, manager, order| {
        let region = manager.region_with(PAGES * PAGE, order).unwrap();
        let shared = Shared {
            race,
            base: region.as_ptr() as usize,
            region: &region,
            frees: (0..PAGES).map(|_| Frees::default()).collect(),
            freed_last: AtomicUsize::new(0),
            kept: AtomicU64::new(0),
            raced: AtomicU64::new(0),
        };
        let shared = &shared;
        std::thread::scope(|scope| {
            for me in 0..WRITERS {
                scope.spawn(move || shared.write(me));
            }
            scope.spawn(|| shared.read());
            scope.spawn(|| shared.free());
            scope.spawn(|| shared.evict());
            race.press(manager);
        });
        let (kept, raced) = (shared.kept.load(Relaxed), shared.raced.load(Relaxed));
        println!("{kept} writes kept, {raced} raced with a free");
        assert!(kept > 0, "{}", race.name);
    });
}

const BLOCK: usize = 8 * MIB / PAGE;
const OWNERS: u64 = 3;

/// Is one owner of a region: writes, reads, frees and discards, all by itself.
fn own(race: &Race, region: &mut Region, seed: u64) {
    let mut rng = Rng(seed);
    let base = region.as_ptr() as usize;
    let frees: Vec<Frees> = (0..BLOCK).map(|_| Frees::default()).collect();
    let mut models = vec![PageModel::untouched(); BLOCK];
    while !race.is_over() {
        let runs: Vec<_> = (0..1 + rng.below(4))
            .map(|_| some_pages(&mut rng, BLOCK, 64))
            .collect();
        let ranges: Vec<_> = runs.iter().map(bytes).collect();
        let pages = || runs.iter().cloned().flatten();
        match rng.below(8) {
            0 => {
                region.discard(ranges[0].clone()).unwrap();
                runs[0].clone().for_each(|page| models[page].discarded());
            }
            1 => region.advise(ranges[0].clone(), Advice::PageOut).unwrap(),
            2 | 3 => {
                for page in pages() {
                    let dropped = models[page]
                        .check(base, page, &frees[page])
                        .expect("a read");
                    race.saw(dropped);
                }
            }
            _ => {
                pages().for_each(|page| frees[page].begin());
                match &ranges[..] {
                    [one] => region.lazy_free(one.clone()).unwrap(),
                    many => region.lazy_free_vectored(many).unwrap(),
                }
                pages().for_each(|page| frees[page].end());
            }
        }
        // Some of the pages are used again, or for the first time: one word of them, or all.
        for _ in 0..1 + rng.below(16) {
            let page = runs[0].start + rng.below(runs[0].len());
            let only = (rng.below(2) == 0).then(|| rng.below(WORDS));
            let wrote = models[page].write(base, page, only, &frees[page]);
            let wrote = wrote.expect("a write");
            assert!(wrote.kept);
            race.saw(wrote.dropped);
        }
    }
    for (page, model) in models.iter_mut().enumerate() {
        model.check(base, page, &frees[page]).expect("a last read");
    }
}

/// Each thread owns its blocks alone: it frees and rewrites them under the other threads' pressure. The memory is
/// zeroed in place and its next use is not announced, so this test shows whether a look at it suffices.
#[test]
fn owners_that_rewrite_what_they_freed_lose_nothing_under_pressure() {
    each_way(&[0, 2, 4, 9], |race, manager, order| {
        std::thread::scope(|scope| {
            for owner in 0..OWNERS {
                scope.spawn(move || {
                    let mut region = manager.region_with(BLOCK * PAGE, order).unwrap();
                    own(race, &mut region, 0x77 + owner);
                });
            }
            race.press(manager);
        });
    });
}
