//! Millpond's own policy under a trace: the real [`Core`], driven access by access on a machine where everything
//! succeeds immediately.
//!
//! # What is simulated
//! The driver and everything that it touches are simulated, reduced to what decisions depend on:
//!
//! - An access to a mapped page costs nothing, and the core does not hear of it, as on a real machine. The commands
//!   determine which pages are mapped (a bit for each page).
//! - Any other access is an [`Event::Fault`] with folios of order 0. The commands are carried out immediately: the
//!   success of each is reported before anything else happens. So no page is ever in flight when the next access comes.
//! - When the core answers [`Reply::Reclaim`], it is told to reclaim just the missing pages until these are available,
//!   and the fault is repeated. The driver has the same loop, but requests at least 128 pages, so that they share a TLB
//!   shootdown. That would leave a good part of a small cache empty. There is no background reclaim, so a cache of *n*
//!   pages holds *n*.
//! - Zeros are never found, and the store never fills. A page that was not written since it was loaded is `Unchanged`
//!   when it is saved; if the trace does not distinguish writes, that is every page that was stored before.
//!
//! # What is counted
//! A *miss* is an access to a page that is neither mapped nor in limbo: a first touch or a load from the store (the
//! core's major faults). A *rescue* is an access to a page in limbo: a fault, but a cheap one. The budget covers both
//! mapped pages and limbo, so the hit ratio is comparable with that of a textbook policy with as many pages.
//!
//! A core is built for at least [`MIN_LIMIT_PAGES`]. A smaller cache is a core of that size whose limit is lowered by
//! [`Event::SetLimit`], as the governor of the driver does.

use crate::curve::Curve;
use crate::trace::Trace;
use millpond_core::limits::MIN_LIMIT_PAGES;
use millpond_core::{
    Command, Commands, Config, ConfigError, Core, Event, FolioId, Kind, LEAF_PAGES, Order, Outcome,
    PageCount, PageRange, Reclaimer, Reply, VmStat,
};

/// Why the core cannot replay a trace.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CoreError {
    /// The configuration is refused.
    #[error("no core can be built for {pages} pages in a cache of {cache} ({error:?})")]
    Config {
        /// Length of the arena, in pages.
        pages: u32,
        /// Size of the cache, in pages.
        cache: u32,
        /// The wrong setting.
        error: ConfigError,
    },
    /// The cache has no room for a page.
    #[error("a cache of 0 pages holds nothing; give it 1 page or more")]
    NoCache,
    /// The core gave an answer that is not allowed on a machine where nothing takes time and nothing fails.
    #[error("access {access} to page {page} was answered by {reply:?}: this is a bug")]
    Answer {
        /// Number of the access.
        access: u64,
        /// The page of the arena.
        page: u32,
        /// The core's answer.
        reply: Reply,
    },
    /// An access needed memory, but reclaim freed none.
    #[error("access {access} to page {page} found no memory, and reclaim gave none: this is a bug")]
    Stuck {
        /// Number of the access.
        access: u64,
        /// The page of the arena.
        page: u32,
    },
}

/// Outcome of an access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Touch {
    /// The page was mapped.
    Hit,
    /// The page was in limbo.
    Rescue,
    /// The page was never touched before.
    First,
    /// The page was in the store.
    Refault,
}

/// Counts of a replay.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CoreCounts {
    /// Number of accesses.
    pub accesses: u64,
    /// Number of accesses to pages in limbo.
    pub rescues: u64,
    /// Number of first touches.
    pub first: u64,
    /// Number of loads from the store.
    pub refaults: u64,
}

impl CoreCounts {
    /// Number of accesses to pages that were not in memory.
    #[must_use]
    pub fn misses(&self) -> u64 {
        self.first + self.refaults
    }
}

/// Millpond's own policy as a cache that receives accesses. See the [module](self).
///
/// ```
/// use millpond_replay::core_policy::{CorePolicy, Touch};
///
/// let mut policy = CorePolicy::new(512, 8).unwrap();
/// assert_eq!(policy.access(3, false), Ok(Touch::First));
/// assert_eq!(policy.access(3, true), Ok(Touch::Hit));
/// ```
#[derive(Debug)]
pub struct CorePolicy {
    core: Core,
    region: PageRange,
    /// A bit for each page of the arena that is mapped.
    mapped: Vec<u64>,
    /// A bit for each page of the arena that was written since it was stored.
    dirty: Vec<u64>,
    /// The most recently taken out page, by folio.
    page_of: Vec<u32>,
    out: Commands,
    todo: Vec<Command>,
    counts: CoreCounts,
}

impl CorePolicy {
    /// Makes a core for `arena_pages` pages (a whole number of leaves), of which `cache` fit in memory.
    ///
    /// # Errors
    /// When the core does not accept these numbers.
    pub fn new(arena_pages: u32, cache: u32) -> Result<Self, CoreError> {
        let arena = PageCount(arena_pages.next_multiple_of(LEAF_PAGES).max(LEAF_PAGES));
        let config = Config::new(arena, PageCount(cache.max(MIN_LIMIT_PAGES)));
        Self::with_config(config, cache)
    }

    /// Makes a core with the caller's configuration, whose limit must be at least `cache`.
    ///
    /// # Errors
    /// When the core does not accept the configuration.
    pub fn with_config(config: Config, cache: u32) -> Result<Self, CoreError> {
        if cache == 0 {
            return Err(CoreError::NoCache);
        }
        let pages = config.arena.0;
        let mut core = Core::new(config).map_err(|error| CoreError::Config {
            pages,
            cache,
            error,
        })?;
        let mut out = Commands::new();
        let limit = PageCount(cache);
        core.handle(Event::SetLimit { pages: limit }, &mut out);
        let region = Event::CreateRegion {
            pages: config.arena,
            order: Order::ZERO.into(),
            kind: Kind::Anonymous,
        };
        let region = match core.handle(region, &mut out) {
            Reply::Region { range, .. } => range,
            reply => {
                return Err(CoreError::Answer {
                    access: 0,
                    page: 0,
                    reply,
                });
            }
        };
        let words = (pages as usize).div_ceil(64);
        Ok(Self {
            core,
            region,
            mapped: vec![0; words],
            dirty: vec![0; words],
            page_of: Vec::new(),
            out,
            todo: Vec::with_capacity(128),
            counts: CoreCounts::default(),
        })
    }

    /// Replays a trace in a cache of `cache` pages.
    ///
    /// # Errors
    /// When the core does not accept that size.
    pub fn replay(trace: &Trace, cache: u32) -> Result<Self, CoreError> {
        let mut policy = Self::new(trace.arena_pages(), cache)?;
        policy.run(trace)?;
        Ok(policy)
    }

    /// Replays a trace, whose arena must fit into this one.
    ///
    /// # Errors
    /// When the core gives an answer that is not allowed.
    pub fn run(&mut self, trace: &Trace) -> Result<(), CoreError> {
        let has_writes = trace.has_writes();
        for (n, &id) in trace.ids().iter().enumerate() {
            self.access(trace.arena_page(id), has_writes && trace.is_write(n))?;
        }
        Ok(())
    }

    /// Replays an access to a page of the arena.
    ///
    /// # Errors
    /// When the core gives an answer that is not allowed.
    ///
    /// # Panics
    /// When the page is outside the arena.
    pub fn access(&mut self, page: u32, write: bool) -> Result<Touch, CoreError> {
        self.counts.accesses += 1;
        let (word, bit) = (page as usize / 64, 1 << (page % 64));
        let touch = if self.mapped[word] & bit != 0 {
            Touch::Hit
        } else {
            self.fault(page)?
        };
        if write || touch == Touch::First {
            self.dirty[word] |= bit;
        }
        Ok(touch)
    }

    /// The counts so far.
    #[must_use]
    pub fn counts(&self) -> CoreCounts {
        self.counts
    }

    /// The core's own counters.
    #[must_use]
    pub fn stats(&self) -> VmStat {
        self.core.stats()
    }

    /// The curve of what more memory would have saved so far, by the core's own counters, as a live run has it.
    #[must_use]
    pub fn curve(&self) -> Curve {
        Curve::from(&self.core.stats())
    }

    /// The core, for inspection.
    #[must_use]
    pub fn core(&self) -> &Core {
        &self.core
    }

    fn fault(&mut self, page: u32) -> Result<Touch, CoreError> {
        let at = self.region.start.plus(page);
        let fault = Event::Fault {
            page: at,
            max_order: Order::ZERO,
            within: PageRange::ALL,
        };
        loop {
            let reply = self.core.handle(fault, &mut self.out);
            match reply {
                Reply::Done => {
                    let how = self.out.iter().find_map(touch_of);
                    self.settle();
                    match how {
                        Some(Touch::Rescue) => self.counts.rescues += 1,
                        Some(Touch::First) => self.counts.first += 1,
                        Some(Touch::Refault) => self.counts.refaults += 1,
                        Some(Touch::Hit) | None => return Err(self.odd(page, reply)),
                    }
                    return Ok(how.expect("looked at just now"));
                }
                Reply::Reclaim { pages } => {
                    let want = self.core.wanted(pages);
                    self.settle();
                    self.reclaim(want, page)?;
                }
                _ => return Err(self.odd(page, reply)),
            }
        }
    }

    fn odd(&self, page: u32, reply: Reply) -> CoreError {
        CoreError::Answer {
            access: self.counts.accesses - 1,
            page,
            reply,
        }
    }

    /// Reclaims until `want` pages are available.
    fn reclaim(&mut self, want: PageCount, page: u32) -> Result<(), CoreError> {
        // Batches fill limbo to its share before the first page leaves it: each batch moves at least one page.
        let patience = self.core.stats().nr_limit + 64;
        let mut idle = 0;
        while self.core.available() < want {
            let before = self.core.available();
            let by = Reclaimer::Direct;
            let pages = PageCount(want.0 - before.0);
            self.core
                .handle(Event::Reclaim { pages, by }, &mut self.out);
            let asked = !self.out.is_empty();
            self.settle();
            idle = if self.core.available() > before {
                0
            } else {
                idle + 1
            };
            if idle > patience || !asked && self.core.available() <= before {
                return Err(CoreError::Stuck {
                    access: self.counts.accesses - 1,
                    page,
                });
            }
        }
        Ok(())
    }

    /// Carries out the core's commands, and those that result from them, until there are none left.
    fn settle(&mut self) {
        let mut next = 0;
        loop {
            self.todo.extend(self.out.iter());
            self.out.clear();
            let Some(&command) = self.todo.get(next) else {
                self.todo.clear();
                return;
            };
            next += 1;
            if let Some(answer) = self.carry_out(command) {
                self.core.handle(answer, &mut self.out);
            }
        }
    }

    /// The answer of a machine on which this command has succeeded.
    fn carry_out(&mut self, command: Command) -> Option<Event> {
        let (folio, outcome) = match command {
            Command::Zero { folio, at, .. }
            | Command::Load { folio, at, .. }
            | Command::Fold { folio, at, .. }
            | Command::Copy { folio, at, .. }
            | Command::Read { folio, at, .. }
            | Command::Rescue { folio, at, .. } => {
                self.set_mapped(at, true);
                (folio, Outcome::Installed { frame_kept: false })
            }
            Command::TakeOut { folio, at, .. } | Command::TakeOutIfBlank { folio, at, .. } => {
                self.set_mapped(at, false);
                self.taken_out(folio, at);
                (folio, Outcome::TakenOut)
            }
            Command::TakeOutLeaf { .. } => unreachable!("nobody has allowed it"),
            Command::Save {
                folio, previous, ..
            } => (folio, self.save(folio, previous.is_some())),
            Command::WriteBack { folio, .. } => (folio, Outcome::Unchanged),
            Command::ZeroInPlace { folio, .. } => (folio, Outcome::Zeroed),
            Command::Look { folio, .. } => (folio, Outcome::Written),
            Command::Zap { folio, at } => {
                self.set_mapped(at, false);
                (folio, Outcome::Zapped)
            }
            Command::FreeFrame { frame } => return Some(Event::FrameFreed { frame }),
            Command::Release { slot } => return Some(Event::SlotReleased { slot }),
            Command::Poison { folio, .. } => (folio, Outcome::Poisoned),
            Command::Wake { .. } => return None,
        };
        Some(Event::Completed { folio, outcome })
    }

    fn set_mapped(&mut self, at: PageRange, mapped: bool) {
        for page in at.pages() {
            let page = page.0 - self.region.start.0;
            let (word, bit) = (page as usize / 64, 1 << (page % 64));
            if mapped {
                self.mapped[word] |= bit;
            } else {
                self.mapped[word] &= !bit;
            }
        }
    }

    fn taken_out(&mut self, folio: FolioId, at: PageRange) {
        let index = folio.0 as usize;
        if index >= self.page_of.len() {
            self.page_of.resize(index + 1, 0);
        }
        self.page_of[index] = at.start.0 - self.region.start.0;
    }

    fn save(&mut self, folio: FolioId, has_previous: bool) -> Outcome {
        let page = self.page_of[folio.0 as usize];
        let (word, bit) = (page as usize / 64, 1 << (page % 64));
        let dirty = self.dirty[word] & bit != 0;
        self.dirty[word] &= !bit;
        if has_previous && !dirty {
            Outcome::Unchanged
        } else {
            Outcome::Stored
        }
    }
}

/// The kind of access that a fault's command stands for.
fn touch_of(command: Command) -> Option<Touch> {
    match command {
        Command::Zero { .. } => Some(Touch::First),
        Command::Load { .. } => Some(Touch::Refault),
        Command::Rescue { .. } => Some(Touch::Rescue),
        _ => None,
    }
}
