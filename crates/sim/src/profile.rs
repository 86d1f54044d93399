//! The kind of world that a seed lives in.
//!
//! A single mixture of everything finds few bugs: a store that fails once in a hundred saves hardly ever fails twice in
//! a row, and a run in which everything is slow never reaches deep reclaim. So each seed first draws a profile, calm in
//! most respects and extreme in some, and the run draws its steps from that.

use millpond_core::limits::MIN_LIMIT_PAGES;
use millpond_core::{Config, LEAF_PAGES, Order, PageCount, PoolLayout};

use crate::disk::DiskSabotage;
use crate::mmu::MmuSabotage;
use crate::rng::Rng;
use crate::store::Weather;

/// Pages of the simulated arena.
pub const ARENA_PAGES: u32 = 32 * 1024;

/// The first seed whose world has groups.
pub const WITH_GROUPS: u64 = 1 << 24;

/// The first seed whose world has files in addition to groups.
pub const WITH_FILES: u64 = 1 << 25;

/// The first seed whose world has small folios, in leaves that may be taken out by their page tables; it has neither
/// groups nor files.
pub const WITH_LEAVES: u64 = 3 << 24;

/// The first seed in whose world streams reach leaves that are partly in memory; it too has neither groups nor files.
pub const WITH_STREAMS: u64 = 4 << 24;

/// The first seed in whose world a stream's window is a whole leaf, as with a budget of 128 MiB or more. The budget
/// stays small, so that a run is short, but one fault may take a larger part of it.
pub const WITH_WINDOWS: u64 = 5 << 24;

/// The first seed in whose world new regions have pages that were mapped before, as in a process that engages. In all
/// else these worlds are those of the first seeds.
pub const WITH_ADOPTED: u64 = 6 << 24;

/// New seeds are drawn below this bound, which makes each kind of world equally likely.
pub const SEEDS: u64 = 7 << 24;

/// The settings of one run; chances are per mille.
#[derive(Clone, Copy, Debug)]
pub struct Profile {
    /// The configuration that the core is built from.
    pub config: Config,
    /// Threads of the program.
    pub threads: usize,
    /// Pages that the program's regions have together at the start.
    pub footprint: u32,
    /// Commands that start late, and completions that are reported late.
    pub slow: u32,
    /// The delay of a slow command, in steps.
    pub slow_steps: u32,
    /// Installs that copy instead of moving.
    pub copies: u32,
    /// Take-outs that meet a busy page.
    pub busy: u32,
    /// Installs that find their mapping gone.
    pub gone: u32,
    /// Pages that the store has room for.
    pub store_pages: u64,
    /// The weather while it is bad.
    pub storm: Weather,
    /// How often a change of the weather makes it bad.
    pub storms: u32,
    /// Operations that go to the pages that other threads use.
    pub crowding: u32,
    /// Accesses that write.
    pub writes: u32,
    /// Writes that write zero.
    pub zeros: u32,
    /// Operations on unwanted memory: lazy free and volatile ranges.
    pub freeing: u32,
    /// Operations that take a snapshot.
    pub snapshots: u32,
    /// Operations that move pages, or give a region another length.
    pub remaps: u32,
    /// Operations that move a region to another group; when this is zero, there are no groups.
    pub groups: u32,
    /// Regions backed by a file.
    pub files: u32,
    /// Operations in regions of shared files that sync them.
    pub syncs: u32,
    /// Changes of circumstances by which a file becomes shorter or longer.
    pub cuts: u32,
    /// New regions of which a part is adopted.
    pub adopted: u32,
    /// Leaves of small folios may be taken out by their page tables.
    pub takes_leaves: bool,
    /// The operator switches whether pages in memory keep copies in the store.
    pub drops_copies: bool,
    /// Regions are of small folios and are swept with strides, so that most leaves could leave by their tables.
    pub is_scattered: bool,
    /// Regions are adaptive, and both streams and single reads run through them.
    pub is_streamed: bool,
    /// The pool has few places.
    pub is_cramped: bool,
    /// Threads are woken only as the contract promises: faults by installs and `Wake`, other calls by `Wake`. Otherwise
    /// they are woken by every completion at their page.
    pub strict_wake: bool,
}

impl Profile {
    /// The profile of a seed. Seeds from [`WITH_GROUPS`] on have groups, and some of them several nodes; those from
    /// [`WITH_FILES`] on have files, too. Seeds from [`WITH_LEAVES`] on have leaves of small folios instead, little of
    /// what keeps a leaf where it is, and no groups. Seeds from [`WITH_STREAMS`] on have streams and single reads of
    /// what is rarely written. Seeds from [`WITH_WINDOWS`] on have such streams with windows of a whole leaf, and first
    /// touches. Seeds from [`WITH_ADOPTED`] on adopt memory.
    pub fn of(seed: u64, rng: &mut Rng) -> Self {
        let mut profile = Self::draw(rng);
        if seed >= WITH_ADOPTED {
            profile.adopted = 700;
        } else if seed >= WITH_LEAVES {
            let mut rng = Rng::new(!seed);
            profile.takes_leaves = true;
            profile.is_streamed = seed >= WITH_STREAMS;
            profile.is_scattered = !profile.is_streamed;
            // A leaf that is taken out is a small part of memory.
            let limit = PageCount(2 * MIN_LIMIT_PAGES);
            if !profile.is_cramped {
                profile.config.pool = PoolLayout::for_limit(limit);
            }
            profile.config.limit = limit;
            profile.config.workingset = rng.chance(500);
            profile.footprint = rng.between(3 * MIN_LIMIT_PAGES, 5 * MIN_LIMIT_PAGES);
            profile.freeing = rng.pick(&[0, 0, 20]);
            profile.snapshots = rng.pick(&[0, 0, 10]);
            profile.busy = rng.pick(&[0, 200, 500]);
            profile.crowding = rng.pick(&[0, 100, 300]);
            profile.config.lazyfree_max = PageCount(0);
            if profile.is_streamed {
                (profile.writes, profile.zeros) = (rng.pick(&[0, 0, 5, 50]), rng.pick(&[0, 0, 5]));
                profile.threads = rng.between(1, 4) as usize;
            }
            if seed >= WITH_WINDOWS {
                profile.config.folio_share = profile.config.limit.0 / LEAF_PAGES;
                profile.config.workingset = rng.chance(900);
                profile.writes = rng.pick(&[0, 50, 400]);
                profile.freeing = rng.pick(&[0, 20, 200]);
            }
        } else if seed >= WITH_GROUPS {
            let mut rng = Rng::new(!seed);
            profile.groups = rng.pick(&[10, 30, 80]);
            profile.config.nodes = rng.pick(&[1, 1, 2, 4]);
            if seed >= WITH_FILES {
                profile.files = rng.pick(&[200, 500, 800]);
                profile.config.file_cost = rng.pick(&[16, 256, 1000]);
                profile.syncs = rng.pick(&[20, 100, 300]);
                profile.cuts = rng.pick(&[0, 50, 300]);
                // The kernel accepts writes that its device fails later, so this is independent of failed writes.
                profile.storm.sync_errors = rng.pick(&[0, 200, 700]);
            }
        }
        profile
    }

    fn draw(rng: &mut Rng) -> Self {
        let mut config = Config::new(PageCount(ARENA_PAGES), PageCount(MIN_LIMIT_PAGES));
        let is_cramped = rng.chance(250);
        if is_cramped {
            // A cramped pool: running out of places for frames must delay, never break.
            for order in Order::all() {
                let n = usize::from(order.get());
                config.pool.frames[n] = config.pool.frames[n].min(rng.between(4, 40));
            }
        }
        if rng.chance(300) {
            config.low_mark = rng.between(1, 60) as u16;
            config.high_mark = config.low_mark + rng.between(1, 60) as u16;
            config.limbo_share = rng.between(0, 200) as u16;
        }
        config.shadow_bits = Rng::new(rng.clone().word() ^ 1).pick(&[12, 16, 32]);
        config.workingset = !Rng::new(rng.clone().word() ^ 2).chance(30);
        config.lazyfree_max = match rng.below(4) {
            0 => PageCount(rng.below(2000)),
            1 => PageCount(0),
            _ => config.lazyfree_max,
        };
        let footprint = rng.between(2 * MIN_LIMIT_PAGES, 3 * MIN_LIMIT_PAGES);
        let store_pages = match rng.below(4) {
            0 => u64::from(rng.between(0, 2 * MIN_LIMIT_PAGES)),
            _ => u64::MAX,
        };
        Self {
            config,
            threads: rng.between(2, 7) as usize,
            footprint,
            slow: rng.pick(&[0, 50, 300, 700]),
            slow_steps: rng.pick(&[20, 100, 1000]),
            copies: rng.pick(&[0, 200, 1000]),
            busy: rng.pick(&[0, 10, 200]),
            gone: rng.pick(&[0, 0, 5, 20]),
            store_pages,
            storm: Weather {
                full: rng.chance(300),
                save_errors: rng.pick(&[0, 20, 500, 1000]),
                load_errors: rng.pick(&[0, 10, 100]),
                sync_errors: 0,
            },
            storms: rng.pick(&[0, 200, 700]),
            crowding: rng.pick(&[100, 400, 700]),
            writes: rng.pick(&[200, 600, 950]),
            zeros: rng.pick(&[0, 100, 900]),
            freeing: rng.pick(&[0, 60, 200, 500]),
            snapshots: rng.pick(&[0, 0, 10, 25]),
            strict_wake: rng.chance(500),
            is_cramped,
            takes_leaves: Rng::new(rng.clone().word() ^ 3).chance(500),
            drops_copies: Rng::new(rng.clone().word() ^ 4).chance(500),
            is_scattered: false,
            is_streamed: false,
            groups: 0,
            files: 0,
            syncs: 0,
            cuts: 0,
            adopted: 0,
            remaps: Rng::new(rng.clone().word()).pick(&[0, 10, 25]),
        }
    }
}

/// The part to break on purpose, to see that the checks notice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sabotage {
    /// The simulated memory is broken.
    Mmu(MmuSabotage),
    /// A file, or what the driver does with it, is broken.
    Disk(DiskSabotage),
    /// Every few saves, the store keeps another slot's bytes.
    StaleStore(u32),
    /// `Wake` is not passed on, and completions wake no actor.
    SwallowWakes,
    /// `Wake` is not passed on to actors that wait at pages of a base, nor do completions wake them.
    SwallowBaseWakes,
    /// An actor that takes back a volatile mark or drops a region does not wait for ongoing purges.
    HastyOwner,
    /// A region that moves to another group in parts stops where its first part ended.
    LeaveMove,
    /// The limits of groups are not passed on when they change.
    KeepLimits,
    /// One slot of each freed batch is forgotten.
    KeepSlot,
    /// A run of a discard also drops the page after it, even if another thread has brought that page in.
    Overrun,
}

/// The caller's options for a run.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Events before the program is asked to end.
    pub events: u64,
    /// The interval, in events, of the core's own whole-state check.
    pub check_every: u64,
    /// [`Profile::freeing`], instead of what the seed draws.
    pub freeing: Option<u32>,
    /// [`Profile::snapshots`], instead of what the seed draws.
    pub snapshots: Option<u32>,
    /// [`Profile::remaps`], instead of what the seed draws.
    pub remaps: Option<u32>,
    /// The part to break on purpose.
    pub sabotage: Option<Sabotage>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            events: 30_000,
            check_every: 64,
            freeing: None,
            snapshots: None,
            remaps: None,
            sabotage: None,
        }
    }
}
