//! The world of a seed: a driver over simulated memory, regions, and the preferences of its threads.

use crate::kernel::Kernel;
use crate::memory::{Moods, Simulated};
use crate::store;
use millpond_core::limits::MIN_LIMIT_PAGES;
use millpond_core::{
    Config, Core, Event, GroupId, GroupLimits, LEAF_PAGES, Order, OrderPolicy, PAGE_SIZE,
    PageCount, PageRange, Reply,
};
use millpond_driver::state::named::Named;
use millpond_driver::state::queue::FreeTuning;
use millpond_driver::{Background, Charge, Driver, OnStoreFull, Parts};
use millpond_mmu::Delivery;
use millpond_sim::rng::Rng;
use millpond_sim::store::Weather;
use millpond_sync::RwLock;
use std::sync::Arc;

/// Leaves of the arena. Regions begin at leaves, and a snapshot takes two further regions.
const LEAVES: u32 = 24;

/// The parameters that a seed draws. Small worlds reach the rare states soonest: a few regions, and memory for a part
/// of them.
#[derive(Clone, Debug)]
pub struct Profile {
    /// Threads of the program.
    pub threads: usize,
    /// Places for regions.
    pub plots: usize,
    /// The budget, in pages.
    pub ram: u32,
    /// Longest region, in pages.
    pub longest: u32,
    /// Number of times that all threads come to rest.
    pub phases: u32,
    /// Operations of each thread between two rests.
    pub acts: u32,
    /// Rounds of the thread that reclaims.
    pub rounds: u32,
    /// Forks.
    pub forks: u32,
    /// The times at which a second thread reclaims.
    pub background: Background,
    /// The operations to draw from: the more often one is listed, the more often it is done.
    pub likes: Vec<Act>,
    /// Writes among touches, per mille.
    pub writes: u32,
    moods: Moods,
    lazyfree_max: PageCount,
    store_pages: u64,
    /// How the store fails in every other phase.
    pub weather: Weather,
    /// Groups other than the root. Each region is in one of them or in the root.
    pub groups: usize,
    /// Memory nodes that regions use in turn; 0 means one.
    pub nodes: u8,
    is_cramped: bool,
    /// Which thread serves a fault.
    pub delivery: Delivery,
    /// The part of memory, as a divisor, that one fault may bring in. Memory is small here: with the usual part it
    /// would be a page.
    pub folio_share: u32,
    /// Threads that give memory back.
    pub workers: usize,
    /// Pages that a thread unhooks before it passes batches to these threads.
    pub batch_pages: u32,
    /// Pages that are mapped before the driver hears of them, at most.
    pub adopted: u32,
}

/// An operation of a thread of the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Act {
    /// Reads and writes pages.
    Touch,
    /// Discards pages that others may touch, or that no one else touches.
    Discard,
    /// Frees pages lazily, and writes them again.
    LazyFree,
    /// Marks pages volatile, or takes the mark back.
    Volatile,
    /// Ends a region, and makes another one.
    Replace,
    /// Moves pages to another region.
    Remap,
    /// Moves pages to another region while other threads touch them.
    RemapWatched,
    /// Moves a region into another group, or changes a group's max.
    Regroup,
    /// Makes a region longer or shorter.
    Resize,
    /// Takes a snapshot in place of another region.
    Snapshot,
    /// Makes the prefetching thread bring pages in.
    Prefetch,
    /// Pins pages and touches them.
    Pin,
    /// Takes pages out, brings them in, or declares them cold.
    Advise,
    /// Changes the budget.
    Budget,
    /// Reads figures.
    Look,
}

const ACTS: [Act; 15] = [
    Act::Touch,
    Act::Discard,
    Act::LazyFree,
    Act::Volatile,
    Act::Replace,
    Act::Remap,
    Act::RemapWatched,
    Act::Regroup,
    Act::Resize,
    Act::Snapshot,
    Act::Prefetch,
    Act::Pin,
    Act::Advise,
    Act::Budget,
    Act::Look,
];

impl Profile {
    /// Draws a profile: calm in most respects, with a preference for a few operations.
    fn draw(rng: &mut Rng) -> Self {
        let mut likes = vec![Act::Touch; rng.between(2, 12) as usize];
        likes.extend(ACTS);
        for _ in 0..3 {
            let act = rng.pick(&ACTS);
            likes.extend([act; 6]);
        }
        // A transient error is visible at a rest only if nothing has happened since: hence short bursts of few
        // operations.
        let bursts = rng.chance(300);
        // The book of kept pages changes with discards and with ended regions, as long as it is not full.
        if rng.chance(300) {
            likes = vec![Act::Touch; 3];
            likes.extend([Act::Discard; 10]);
            likes.extend([Act::Replace; 5]);
        }
        let weather = Weather {
            full: rng.chance(150),
            save_errors: rng.pick(&[0, 0, 50, 500]),
            load_errors: rng.pick(&[0, 0, 0, 20, 300]),
            // There are no files.
            sync_errors: 0,
        };
        // Which heirs lose a page that a base has lost is for `sim` to judge.
        if weather.load_errors > 0 {
            likes.retain(|&act| act != Act::Snapshot);
        }
        // A thread that stops to reclaim frees 64 pages, so with less than twice that no page would stay for long.
        let ram = rng.pick(&[160, 200, 320]);
        Self {
            threads: rng.between(2, 4) as usize,
            plots: rng.between(2, 4) as usize,
            ram,
            longest: rng.pick(&[24, 64, 160, 256]),
            phases: if bursts { 30 } else { rng.pick(&[1, 2, 6, 12]) },
            acts: if bursts { 2 } else { rng.pick(&[2, 4, 10, 40]) },
            rounds: rng.pick(&[0, 1, 3, 12]),
            forks: rng.pick(&[0, 0, 1, 2]),
            background: rng.pick(&[Background::Never, Background::Large, Background::Always]),
            likes,
            writes: rng.pick(&[200, 600, 950]),
            moods: Moods {
                copies: rng.pick(&[0, 200, 1000]),
                busy: rng.pick(&[0, 10, 200]),
                direct: rng.pick(&[0, 500]),
            },
            lazyfree_max: rng.pick(&[PageCount(u32::MAX), PageCount(0), PageCount(40)]),
            store_pages: u64::MAX,
            weather,
            groups: rng.pick(&[0, 0, 1, 3]),
            nodes: rng.pick(&[0, 0, 2]),
            is_cramped: rng.chance(200),
            delivery: rng.pick(&[Delivery::InThread, Delivery::Handler]),
            folio_share: rng.pick(&[2, 16, 16]),
            workers: rng.below(3) as usize,
            batch_pages: rng.pick(&[0, 16, 256 << 10]),
            // A process engages while its memory fits.
            adopted: rng.pick(&[0, 0, ram / 4, ram / 2]),
        }
    }

    /// A profile without anything random, for tests that do one thing.
    #[must_use]
    pub fn plain(plots: usize) -> Self {
        Self {
            threads: 0,
            plots,
            ram: 160,
            longest: 256,
            phases: 1,
            acts: 0,
            rounds: 0,
            forks: 0,
            background: Background::Never,
            likes: Vec::new(),
            writes: 1000,
            moods: Moods::default(),
            lazyfree_max: PageCount(u32::MAX),
            store_pages: u64::MAX,
            weather: Weather::default(),
            groups: 0,
            nodes: 0,
            is_cramped: false,
            delivery: Delivery::InThread,
            folio_share: 2,
            workers: 0,
            batch_pages: 0,
            adopted: 0,
        }
    }

    fn config(&self, rng: &mut Rng) -> Config {
        let mut config = Config::new(PageCount(LEAVES * LEAF_PAGES), PageCount(MIN_LIMIT_PAGES));
        config.lazyfree_max = self.lazyfree_max;
        config.folio_share = self.folio_share;
        config.nodes = self.nodes.max(1);
        if self.is_cramped {
            for places in &mut config.pool.frames {
                *places = (*places).min(rng.between(4, 40));
            }
        }
        config
    }
}

/// A region, in its place.
#[derive(Clone, Debug)]
pub struct Plot {
    /// Its name and its pages.
    pub named: Named,
    /// The orders of its folios.
    pub order: OrderPolicy,
    /// Its volatile ranges.
    pub volatile: Vec<PageRange>,
}

/// The root and up to `most` groups below it, each with a protected part of memory that others may not take.
fn groups_in(driver: &Driver<Simulated>, most: usize, ram: u32, rng: &mut Rng) -> Vec<GroupId> {
    let mut groups = vec![GroupId::ROOT];
    for _ in 0..most {
        let low = PageCount(rng.below(ram / 2));
        let limits = GroupLimits {
            min: PageCount(rng.below(low.0 + 1)),
            low,
            ..GroupLimits::default()
        };
        let parent = rng.pick(&groups);
        match driver.tell(Event::CreateGroup { parent, limits }) {
            Reply::Group { group } => groups.push(group),
            reply => panic!("a group is refused: {reply:?}"),
        }
    }
    groups
}

/// Everything that the threads share.
pub struct World {
    /// The driver.
    pub driver: Arc<Driver<Simulated>>,
    /// The driver's store.
    pub store: store::Simulated,
    /// The regions. A thread that shares a region holds its lock for reading, and a thread that needs exclusive use of
    /// the region holds it for writing, as Rust's borrow rules demand of the facade.
    pub plots: Vec<RwLock<Option<Plot>>>,
    /// The groups that regions are in; the root is one of them.
    pub groups: Vec<GroupId>,
    /// Held for writing during a move of pages that other threads touch, and for reading during a discard or free of
    /// pages that others touch: the oracle cannot say at which of the two places the zeros will appear.
    pub moves: RwLock<()>,
    /// The parameters drawn by the seed.
    pub profile: Profile,
    /// Whether the threads' actions are written to standard error.
    pub log: bool,
}

impl World {
    /// Makes the world of a seed.
    ///
    /// # Panics
    /// When the core refuses its configuration.
    #[must_use]
    pub fn new(seed: u64, log: bool) -> Self {
        let mut rng = Rng::new(seed);
        let profile = Profile::draw(&mut rng);
        Self::of(profile, rng, log)
    }

    /// Makes the world of a profile.
    ///
    /// # Panics
    /// When the core refuses its configuration or a group.
    #[must_use]
    pub fn of(profile: Profile, mut rng: Rng, log: bool) -> Self {
        let config = profile.config(&mut rng);
        let core = Core::new(config).unwrap_or_else(|error| panic!("{config:?}: {error:?}"));
        let memory = Simulated::new(
            config.arena,
            config.pool.on_nodes(config.nodes),
            profile.moods,
            (profile.delivery == Delivery::Handler).then(Kernel::default),
            Rng::new(rng.word()),
        );
        let store = store::Simulated::new(profile.store_pages, Rng::new(rng.word()));
        let most = u64::from(profile.ram) * PAGE_SIZE as u64;
        let driver = Arc::new(Driver::new(
            core,
            Parts {
                mmu: memory,
                nodes: (0..u32::from(profile.nodes)).collect(),
                store: Box::new(store.clone()),
                delivery: profile.delivery,
                ram: most,
                charge: Charge::Frames,
                on_store_full: OnStoreFull::Exceed,
                background: profile.background,
                lazyfree_max: profile.lazyfree_max,
                on_tick: None,
                publisher: None,
                recording: None,
            },
        ));
        driver.set_ram(most);
        driver.freer.set_tuning(FreeTuning {
            workers: profile.workers,
            batch_pages: profile.batch_pages,
            ..FreeTuning::default()
        });
        let groups = groups_in(&driver, profile.groups, profile.ram, &mut rng);
        let world = Self {
            groups,
            moves: RwLock::new(()),
            driver,
            store,
            plots: (0..profile.plots).map(|_| RwLock::new(None)).collect(),
            profile,
            log,
        };
        let mut left = world.profile.adopted;
        for plot in &world.plots {
            let mut plot = plot.write().expect("nobody has panicked");
            *plot = world.new_plot(&mut rng);
            if let Some(plot) = plot.as_ref().filter(|_| left > 0) {
                left = world.adopt_some(plot, &mut rng, left);
            }
        }
        world
    }

    /// Writes a line of the log.
    pub fn note(&self, who: usize, what: std::fmt::Arguments<'_>) {
        if self.log {
            eprintln!("{who}: {what}");
        }
    }

    /// The driver's memory.
    #[must_use]
    pub fn memory(&self) -> &Simulated {
        &self.driver.mmu
    }

    /// Makes any region.
    pub(crate) fn new_plot(&self, rng: &mut Rng) -> Option<Plot> {
        let pages = PageCount(
            rng.pick(&[8, 16, 24, 64, 160, 256])
                .min(self.profile.longest),
        );
        let order = Order::new(rng.below(4) as u8).expect("it is small");
        let order = match rng.chance(200) {
            true => OrderPolicy::Adaptive { max: Order::MAX },
            false => OrderPolicy::Fixed(order),
        };
        self.region(pages, order)
    }

    /// Makes a region, as the facade does. `None` without addresses.
    pub fn region(&self, pages: PageCount, order: OrderPolicy) -> Option<Plot> {
        let named = match self.driver.take_whole(pages, order) {
            Some(named) => named,
            None => {
                let named = self.driver.new_region(pages, order)?;
                let opened = millpond_driver::memory::Memory::open(self.memory(), named.1);
                opened.expect("simulated memory opens");
                named
            }
        };
        self.begins_blank(named.1);
        Some(Plot {
            named,
            order,
            volatile: Vec::new(),
        })
    }

    /// Tells the oracle that new addresses read as zeros.
    pub fn begins_blank(&self, range: PageRange) {
        let mut state = self.memory().now();
        for page in range.pages() {
            state.oracle.begins_as(page, millpond_sim::mmu::BLANK);
        }
    }
}
