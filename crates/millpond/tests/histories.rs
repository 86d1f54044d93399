//! Racing snapshots and remaps: threads write to, check, snapshot, move, grow, shrink, discard, pin and drop regions
//! that descend from each other, under a budget that holds a fraction of them. Each thread knows the contents of its
//! regions, page by page. Whatever the other threads copy, share, evict, move or merge at the same time, every page
//! reads as its region's own history says.
//!
//! The test lasts MILLPOND_STRESS_SECS seconds (3), shared out among the deliveries, the ways of taking out and the
//! orders.

mod common;

use common::{MIB, PAGE, Rng, is_over, page_is, small, stress_time, ways, write_page};
use millpond::{Manager, Order, OrderPolicy, Region};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

const LEN: usize = 4 * MIB;
const PAGES: usize = LEN / PAGE;
const THREADS: usize = 3;
/// Most regions alive at once: with their bases they are several times the budget.
const MOST: u64 = 12;

/// The contents that a page may have.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Page {
    Zeros,
    Number(u64),
    /// The page was lazily freed: it may read as zeros or as the number.
    ZerosOr(u64),
}

/// A region, and its contents as its thread knows them.
struct Known {
    region: Region,
    pages: Vec<Page>,
}

struct Race<'a> {
    name: String,
    manager: &'a Manager,
    end: Instant,
    /// Regions on their way from one thread to another.
    market: Mutex<Vec<Known>>,
    alive: AtomicU64,
    snapshots: AtomicU64,
    moves: AtomicU64,
    drops: AtomicU64,
    checks: AtomicU64,
}

impl Known {
    fn page(&mut self, page: usize) -> &mut [u8] {
        &mut self.region.as_mut_slice()[page * PAGE..][..PAGE]
    }

    fn write(&mut self, page: usize, number: u64) {
        write_page(self.page(page), number);
        self.pages[page] = Page::Number(number);
    }

    fn check(&mut self, page: usize, race: &str) {
        let bytes = &self.region.as_slice()[page * PAGE..][..PAGE];
        let zeros = bytes.iter().all(|&byte| byte == 0);
        let right = match self.pages[page] {
            Page::Zeros => zeros,
            Page::Number(number) => page_is(bytes, number),
            Page::ZerosOr(number) => zeros || page_is(bytes, number),
        };
        let found = u64::from_le_bytes(*bytes.last_chunk().unwrap());
        assert!(
            right,
            "{race}: page {page} at {:p} ends in {found:#x}",
            bytes.as_ptr()
        );
        if zeros {
            // A page that once was zeros stays zeros.
            self.pages[page] = Page::Zeros;
        }
    }
}

impl Race<'_> {
    fn is_over(&self) -> bool {
        let shown = [&self.drops, &self.snapshots, &self.moves].map(|done| done.load(Relaxed) > 20);
        let shown = !shown.contains(&false);
        is_over(self.end, shown)
    }

    fn act(&self, own: &mut Vec<Known>, rng: &mut Rng) {
        let which = rng.below(own.len());
        let known = &mut own[which];
        let pages = known.pages.len();
        let (page, length) = (rng.below(pages), 1 + rng.below(64));
        let range = page..(page + length).min(pages);
        match rng.below(100) {
            0..40 => range.for_each(|page| known.write(page, rng.next())),
            40..85 => {
                self.checks.fetch_add(range.len() as u64, Relaxed);
                range.for_each(|page| known.check(page, &self.name));
            }
            85..88 => {
                let bytes = range.start * PAGE..range.end * PAGE;
                known.region.discard(bytes).unwrap();
                known.pages[range].fill(Page::Zeros);
            }
            88..91 => {
                let bytes = range.start * PAGE..range.end * PAGE;
                known.region.lazy_free(bytes).unwrap();
                for page in &mut known.pages[range] {
                    if let Page::Number(number) = *page {
                        *page = Page::ZerosOr(number);
                    }
                }
            }
            91..94 => self.snapshot(own, which),
            94 => {
                let bytes = range.start * PAGE..range.end * PAGE;
                let guard = known.region.pin(bytes).unwrap();
                drop(guard);
            }
            95 => self.resize(known, rng),
            96 => self.remap(own, which, rng),
            _ => self.give_away(own, which),
        }
        if let (true, Ok(mut market)) = (rng.below(20) == 0, self.market.lock()) {
            own.extend(market.pop());
        }
    }

    fn snapshot(&self, own: &mut [Known], which: usize) {
        if self.alive.load(Relaxed) >= MOST {
            return;
        }
        let known = &mut own[which];
        let region = known.region.snapshot().unwrap();
        let pages = known.pages.clone();
        self.alive.fetch_add(1, Relaxed);
        self.snapshots.fetch_add(1, Relaxed);
        self.market.lock().unwrap().push(Known { region, pages });
    }

    fn resize(&self, known: &mut Known, rng: &mut Rng) {
        let pages = 1 + rng.below(PAGES + PAGES / 2);
        match pages > known.pages.len() {
            true => known.region.grow(pages * PAGE).unwrap(),
            false => known.region.shrink(pages * PAGE).unwrap(),
        }
        known.pages.resize(pages, Page::Zeros);
        self.moves.fetch_add(1, Relaxed);
    }

    /// Moves a part of a region to another region, or to a new one.
    fn remap(&self, own: &mut Vec<Known>, which: usize, rng: &mut Rng) {
        let mut known = own.swap_remove(which);
        let pages = known.pages.len();
        let start = rng.below(pages);
        let range = start..start + 1 + rng.below(pages - start);
        let bytes = range.start * PAGE..range.end * PAGE;
        let moved = known.pages[range.clone()].to_vec();
        let end = own
            .last_mut()
            .and_then(|target| Some((target.pages.len().checked_sub(moved.len())?, target)));
        match end {
            Some((room, target)) => {
                // Every other move is between places that lie alike in their 2 MiB.
                let alike = range.start % 512;
                let offset = match rng.below(2) == 0 && alike <= room {
                    true => alike + (room - alike) / 512 * 512,
                    false => rng.below(room + 1),
                };
                known
                    .region
                    .remap(bytes, &mut target.region, offset * PAGE)
                    .unwrap();
                target.pages[offset..offset + moved.len()].copy_from_slice(&moved);
            }
            None if self.alive.load(Relaxed) < MOST => {
                let len = bytes.len();
                let region = known.region.remap_anywhere(bytes, len).unwrap();
                own.push(Known {
                    region,
                    pages: moved,
                });
                self.alive.fetch_add(1, Relaxed);
            }
            None => return own.push(known),
        }
        known.pages[range].fill(Page::Zeros);
        self.moves.fetch_add(1, Relaxed);
        own.push(known);
    }

    /// Gives a region to another thread, or drops it.
    fn give_away(&self, own: &mut Vec<Known>, which: usize) {
        if own.len() < 2 {
            return;
        }
        let known = own.swap_remove(which);
        if self.alive.load(Relaxed) >= MOST / 2 {
            match self.drops.load(Relaxed) % 2 {
                0 => drop(known),
                _ => known.region.free_async(),
            }
            self.alive.fetch_sub(1, Relaxed);
            self.drops.fetch_add(1, Relaxed);
        } else {
            self.market.lock().unwrap().push(known);
        }
    }
}

fn race(manager: &Manager, name: String, time: Duration) {
    let race = Race {
        name,
        manager,
        end: Instant::now() + time,
        market: Mutex::default(),
        alive: AtomicU64::new(THREADS as u64),
        snapshots: AtomicU64::new(0),
        moves: AtomicU64::new(0),
        drops: AtomicU64::new(0),
        checks: AtomicU64::new(0),
    };
    std::thread::scope(|scope| {
        for seed in 1..=THREADS as u64 {
            let race = &race;
            scope.spawn(move || {
                let region = race.manager.region(LEN).unwrap();
                let pages = vec![Page::Zeros; PAGES];
                let mut own = vec![Known { region, pages }];
                let mut rng = Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
                while !race.is_over() {
                    race.act(&mut own, &mut rng);
                }
                for mut known in own {
                    (0..known.pages.len()).for_each(|page| known.check(page, &race.name));
                }
            });
        }
    });
    drop(race.market.into_inner().unwrap());
    manager.quiesce();
    let vm = manager.stats().vm;
    println!(
        "{}: {} snapshots, {} moves, {} drops, {} pages checked; {} copied, {} written out, {} read back",
        race.name,
        race.snapshots.into_inner(),
        race.moves.into_inner(),
        race.drops.into_inner(),
        race.checks.into_inner(),
        vm.snapshot_copy,
        vm.pswpout,
        vm.pswpin
    );
    assert!(
        vm.snapshot_copy > 0 && vm.pswpout > 0 && vm.pswpin > 0,
        "{} tested nothing: {vm:#?}",
        race.name
    );
    assert_eq!(
        (vm.nr_mapped, vm.nr_limbo, vm.nr_swapped),
        (0, 0, 0),
        "{}",
        race.name
    );
}

#[test]
fn every_region_keeps_its_own_history() {
    let adaptive = OrderPolicy::Adaptive { max: Order::MAX };
    let orders = [0, 4].map(|order| OrderPolicy::from(common::order(order)));
    let orders = [orders[0], orders[1], adaptive];
    let time = stress_time() / (ways().len() * orders.len()) as u32;
    for (delivery, method) in ways() {
        for order in orders {
            let builder = small().delivery(delivery).take_out(method).order(order);
            let name = format!("{delivery:?} {method:?} order {order}");
            race(&builder.build().unwrap(), name, time);
        }
    }
}
