//! Snapshots, step by step, as the driver takes them.
//!
//! An actor that takes a snapshot has exclusive use of its region: ongoing operations there end first, and no new ones
//! start. Base and copy are made; then the gate closes. No actor begins anything any more, completions are reported
//! until no command is under way, and then the pages change hands in memory and in the core. For the oracle a snapshot
//! is a copy of what is known about each page; from then on source and copy are two ordinary regions.
//!
//! The chains of bases are also kept here, independently of the core, so that its answers can be checked.

use millpond_core::limits::DISCARD_WALK;
use millpond_core::{
    Command, CopyFrom, Event, GroupId, Kind, LEAF_PAGES, Order, PageCount, PageIndex, PageRange,
    PageState, Refusal, RegionId, Reply,
};

use crate::actor::{Blocked, Op};
use crate::mmu::overlap;
use crate::report::{Check, Coverage, Entry, breach};
use crate::world::{SimRegion, World};

/// The cases of snapshots and bases that must be covered.
pub const SEEN: [&str; 26] = [
    "refused: no address space",
    "refused: pinned",
    "refused: busy",
    "of a snapshot",
    "chain of three",
    "chain of six",
    "with lazily freed pages",
    "with volatile pages",
    "copy of what is mapped",
    "copy of what is in limbo",
    "copy of a part",
    "shared slot",
    "inherited zeros",
    "inherited loss",
    "orphan",
    "orphans in a chain",
    "merged",
    "merge of what is mapped",
    "merge of what is in limbo",
    "merge of what is partly hidden and mapped",
    "merge of what is partly hidden and in limbo",
    "merge of what is hidden and mapped",
    "merge waits",
    "merge of a loss",
    "merge given up",
    "merge beside another",
];

/// A region in the core.
pub type Named = (RegionId, PageRange);

/// A hidden region, which holds the common contents of its heirs at the time of a snapshot.
#[derive(Clone, Copy, Debug)]
pub struct SimBase {
    /// The base's name.
    pub id: RegionId,
    /// The base's pages.
    pub range: PageRange,
    /// The base from which this base itself inherits.
    pub base: Option<RegionId>,
    /// The group of the base's memory.
    pub group: GroupId,
}

/// How far a snapshot has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SnapshotStage {
    /// Other operations still work in the region.
    Quiet,
    /// Next: make base and copy.
    Make,
    /// Base and copy are made. Once the gate is closed and nothing is under way, the pages change hands.
    Take {
        /// The region that will hold the contents.
        base: Named,
        /// The region that will be the snapshot.
        copy: Named,
    },
}

impl World {
    /// Takes one step of a snapshot.
    ///
    /// # Errors
    /// A rule is broken.
    pub(crate) fn step_snapshot(
        &mut self,
        i: usize,
        range: PageRange,
        stage: SnapshotStage,
    ) -> Check {
        let Some(place) = self.regions.iter().position(|r| r.range == range) else {
            breach!("actor {i} takes a snapshot of {range}, which is no region");
        };
        let source = self.regions[place];
        let stage = match stage {
            SnapshotStage::Quiet => {
                let pinned = self.core.first_pinned(range).is_some();
                if source.users > 0 && !(pinned && self.rng.chance(200)) {
                    self.actors[i].blocked = Blocked::Until(self.step + 20);
                    return Ok(());
                }
                SnapshotStage::Make
            }
            SnapshotStage::Make => match self.make_regions(i, range.len)? {
                Some((base, copy)) => {
                    self.expect_busy(i, source.id, base.0, copy.0)?;
                    self.gate = Some(i);
                    SnapshotStage::Take { base, copy }
                }
                None => {
                    self.regions[place].closing = false;
                    self.finish(i);
                    return Ok(());
                }
            },
            SnapshotStage::Take { base, copy } => {
                self.gate = None;
                if self.core.first_pinned(range).is_none() && source.users > 0 {
                    // The pin that would have prevented the snapshot is gone by now, and other operations still work
                    // here.
                    self.forget_regions(i, &[base, copy])?;
                    SnapshotStage::Quiet
                } else {
                    self.regions[place].closing = false;
                    self.finish(i);
                    return self.take(i, source, base, copy);
                }
            }
        };
        self.actors[i].op = Some(Op::Snapshot { range, stage });
        Ok(())
    }

    /// Takes one step while the gate is closed by `i`.
    ///
    /// # Errors
    /// A rule is broken.
    pub(crate) fn become_quiet(&mut self, i: usize) -> Check {
        // An actor that has started with a leaf is in the middle of an operation: it continues until the command has
        // been given.
        let can_go_on = |&j: &usize| self.actors[j].leaf && self.is_ready(j);
        if let Some(j) = (0..self.actors.len()).find(can_go_on) {
            return self.step_actor(j);
        }
        let begun = self.actors.iter().any(|actor| actor.leaf);
        if !begun && !self.schedule.has_flights() {
            return self.step_actor(i);
        }
        if self.advance()? {
            return Ok(());
        }
        self.skip_time()
    }

    /// Makes two new regions of `pages` pages; returns `None` when there are no addresses for both.
    fn make_regions(&mut self, i: usize, pages: PageCount) -> Check<Option<(Named, Named)>> {
        let mut made = Vec::new();
        for _ in 0..2 {
            let (order, kind) = (Order::ZERO.into(), Kind::Anonymous);
            match self.send(i, Event::CreateRegion { pages, order, kind })? {
                Reply::Region { region, range } => {
                    let elsewhere = self.ranges().all(|other| !overlap(other, range));
                    if range.len != pages || !elsewhere {
                        breach!("a region of {pages:?} for a snapshot is at {range}");
                    }
                    made.push((region, range));
                }
                Reply::Refused(Refusal::NoAddressSpace) => {
                    self.count_snapshot("refused: no address space");
                    self.forget_regions(i, &made)?;
                    return Ok(None);
                }
                other => breach!("a region for a snapshot is answered with {other:?}"),
            }
        }
        Ok(Some((made[0], made[1])))
    }

    fn forget_regions(&mut self, i: usize, regions: &[Named]) -> Check {
        for (region, _) in regions.iter().copied() {
            let reply = self.send(i, Event::DropRegion { region })?;
            if reply != Reply::Done {
                breach!("dropping {region:?}, which was never used, is answered with {reply:?}");
            }
        }
        Ok(())
    }

    /// Checks that a snapshot is refused while a command is under way.
    fn expect_busy(&mut self, i: usize, region: RegionId, base: RegionId, copy: RegionId) -> Check {
        if !self.schedule.has_flights() || !self.rng.chance(200) {
            return Ok(());
        }
        self.count_snapshot("refused: busy");
        let reply = self.send(i, Event::Snapshot { region, base, copy })?;
        if reply != Reply::Refused(Refusal::Busy) {
            breach!("a snapshot while commands are out is answered with {reply:?}");
        }
        Ok(())
    }

    /// Transfers the pages, unless one is pinned. Nothing is under way.
    fn take(&mut self, i: usize, source: SimRegion, base: Named, copy: Named) -> Check {
        let range = source.range;
        let event = Event::Snapshot {
            region: source.id,
            base: base.0,
            copy: copy.0,
        };
        if let Some(page) = self.core.first_pinned(range) {
            self.expect_pinned(page, range)?;
            self.count_snapshot("refused: pinned");
            let reply = self.send(i, event)?;
            if reply != Reply::Refused(Refusal::Pinned { page }) {
                breach!(at page, "a snapshot of {range} with a pin is answered with {reply:?}");
            }
            return self.forget_regions(i, &[base, copy]);
        }
        self.mmu.hand_over(range, base.1)?;
        let reply = self.hold(i, event)?;
        if reply != Reply::Done {
            breach!("a snapshot of {range} is answered with {reply:?}");
        }
        self.log
            .push(self.step, Entry::Snapshot(range, base.1, copy.1));
        let inside = self.volatile.iter().filter(|v| range.covers(v.range));
        let unpurged: Vec<_> = inside.filter(|v| !v.purged).map(|v| v.range).collect();
        self.oracle.snapshot(range, copy.1, &unpurged)?;
        self.bases.push(SimBase {
            id: base.0,
            range: base.1,
            base: source.base,
            group: source.group,
        });
        let mut heir = source;
        heir.base = Some(base.0);
        let known = self.regions.iter_mut().find(|r| r.id == source.id);
        known.expect("it is a region").base = heir.base;
        self.regions.push(SimRegion {
            id: copy.0,
            range: copy.1,
            users: 0,
            closing: false,
            ..heir
        });
        self.moved(range, base.1);
        self.count_taken(copy.1, !unpurged.is_empty());
        self.give_out(i)
    }

    fn count_taken(&mut self, copy: PageRange, volatile: bool) {
        let depth = self.bases_of(copy.start).count();
        let lazy = self.core.lazyfree_pages() > PageCount::ZERO;
        let counts = [
            (depth > 1, "of a snapshot"),
            (depth >= 3, "chain of three"),
            (depth >= 6, "chain of six"),
            (lazy, "with lazily freed pages"),
            (volatile, "with volatile pages"),
        ];
        for (_, what) in counts.iter().filter(|(seen, _)| *seen) {
            self.count_snapshot(what);
        }
    }

    /// Records that the folios of `from` now lie in `to`, with their marks.
    pub(crate) fn moved(&mut self, from: PageRange, to: PageRange) {
        for at in self.folio_at.values_mut().filter(|at| from.covers(**at)) {
            at.start = to.start.plus(at.start.0 - from.start.0);
        }
        for page in from.pages().chain(to.pages()) {
            let state = self.core.page_state(page);
            self.marked[page.0 as usize] = matches!(state, PageState::LazyFree { .. });
        }
    }

    /// The ranges of all regions, hidden or not.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = PageRange> + '_ {
        let regions = self.regions.iter().map(|region| region.range);
        regions.chain(self.bases.iter().map(|base| base.range))
    }

    /// Whether `at` lies in a hidden region.
    pub(crate) fn is_in_base(&self, at: PageRange) -> bool {
        self.bases.iter().any(|base| base.range.covers(at))
    }

    /// The base that the region or base named `id` inherits from.
    pub(crate) fn base_of(&mut self, id: RegionId) -> Option<&mut Option<RegionId>> {
        let regions = self.regions.iter_mut().map(|r| (r.id, &mut r.base));
        let bases = self.bases.iter_mut().map(|b| (b.id, &mut b.base));
        let mut named = regions.chain(bases).filter(|(other, _)| *other == id);
        named.next().map(|(_, base)| base)
    }

    /// The number of regions and bases that inherit from `base` directly.
    pub(crate) fn heirs(&self, base: RegionId) -> usize {
        let regions = self.regions.iter().map(|region| region.base);
        let links = regions.chain(self.bases.iter().map(|other| other.base));
        links.filter(|link| *link == Some(base)).count()
    }

    /// The pages that an empty `page` may stand for: one in each base, the nearest first.
    pub(crate) fn bases_of(&self, page: PageIndex) -> impl Iterator<Item = PageIndex> + '_ {
        let region = self.regions.iter().find(|r| r.range.contains(page));
        let offset = region.map_or(0, |region| page.0 - region.range.start.0);
        let mut next = region.and_then(|region| region.base);
        std::iter::from_fn(move || {
            let base = self.bases.iter().find(|base| Some(base.id) == next)?;
            next = base.base;
            (offset < base.range.len.0).then(|| base.range.start.plus(offset))
        })
    }

    /// The ranges that may contain the folio that is copied to `at`.
    pub(crate) fn lenders_of(&self, at: PageRange) -> Vec<PageRange> {
        let region = self.regions.iter().find(|r| r.range.covers(at));
        let order = Order::new(region.map_or(0, |r| r.largest)).expect("orders are below ten");
        let block = |page| PageRange::block(page, order);
        self.bases_of(at.start).map(block).collect()
    }

    /// Whether a thread that wants `page` can be told to wait at `base`.
    pub(crate) fn is_above(&self, page: PageIndex, base: PageIndex) -> bool {
        let lenders = self.lenders_of(PageRange::new(page, PageCount(1)));
        lenders.iter().any(|block| block.contains(base))
    }

    /// Pages whose marks an event may have changed without a command that names them: those of a lent folio, and those
    /// that a merge has passed.
    pub(crate) fn silently_changed(&self, event: &Event, given: &[Command]) -> Vec<PageRange> {
        let mut changed = Vec::new();
        for command in given {
            if let Command::Copy { at, .. } = *command {
                changed.extend(self.lenders_of(at));
            }
        }
        if let Event::Merge { base, from } = *event {
            changed.extend(self.merged_pages(base, from).into_iter().flatten());
        }
        changed
    }

    /// The pages that one round of a merge passes, in the base and in its heir.
    pub(crate) fn merged_pages(&self, base: RegionId, from: PageIndex) -> Option<[PageRange; 2]> {
        let base = self.bases.iter().find(|other| other.id == base)?;
        let regions = self.regions.iter().map(|r| (r.base, r.range));
        let mut heirs = regions.chain(self.bases.iter().map(|b| (b.base, b.range)));
        let (_, heir) = heirs.find(|(link, _)| *link == Some(base.id))?;
        // A folio moves as a whole, even if it begins before that page.
        let whole = PageIndex(from.leaf() * LEAF_PAGES);
        let offset = whole.0.checked_sub(base.range.start.0)?;
        let len = (DISCARD_WALK + 2 * LEAF_PAGES).min(base.range.len.0.checked_sub(offset)?);
        let part = |range: PageRange| PageRange::new(range.start.plus(offset), PageCount(len));
        Some([part(base.range), part(heir)])
    }

    pub(crate) fn count_snapshot(&mut self, what: &'static str) {
        Coverage::count(&mut self.coverage.snapshots, what);
    }

    pub(crate) fn count_copies(&mut self, given: &[Command]) {
        for command in given {
            let Command::Copy { at, from, .. } = *command else {
                continue;
            };
            self.count_snapshot(match from {
                CopyFrom::Mapped(_) => "copy of what is mapped",
                CopyFrom::Frame { .. } => "copy of what is in limbo",
            });
            let in_flight = |page: &PageIndex| self.core.page_state(*page) == PageState::InFlight;
            let lender = self.bases_of(at.start).find(in_flight);
            let twice = Order::new(at.len.0.trailing_zeros() as u8 + 1);
            if let (Some(page), Some(twice)) = (lender, twice)
                && PageRange::block(page, twice).pages().all(|p| in_flight(&p))
            {
                self.count_snapshot("copy of a part");
            }
        }
    }

    /// Counts a fault at a page whose state was `was`; the commands under way from `given` on resulted from it.
    pub(crate) fn count_inherited(&mut self, was: PageState, reply: Reply, given: usize) {
        let first = self.schedule.iter().nth(given).map(|p| p.command);
        let what = match (was, reply, first) {
            (PageState::Inherited, Reply::Done, Some(Command::Load { .. })) => "shared slot",
            (PageState::Inherited, Reply::Done, Some(Command::Zero { .. })) => "inherited zeros",
            (PageState::Inherited, Reply::Refused(Refusal::Poisoned { .. }), _) => "inherited loss",
            _ => return,
        };
        self.count_snapshot(what);
    }
}
