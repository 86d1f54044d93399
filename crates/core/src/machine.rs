//! The core itself: all state in one value, with one input and one output.
//!
//! [`Core::handle`] is a function of the state and the event alone. It reads no clock, takes no lock, does no I/O and
//! draws no random number; the same events give the same commands on real memory, in the simulator and under replay.
//! The caller (the driver) holds one lock around it and none while it carries the commands out.
//!
//! # Calls that are not events
//! Besides [`Core::handle`], seven functions change the core. Five of them fill or answer a batch that the caller
//! passes ([`Gather`](crate::gather::Gather)): [`Core::gather`], [`Core::gathered`], [`Core::gather_spare`],
//! [`Core::gather_scattered`] and [`Core::gather_copied`]. They are not events because an event is a small value that
//! can be copied into a log, while a batch owns the memory for its runs and slots. The other two report something:
//! [`Core::keep`], how much the driver keeps in place, and [`Core::throttled`], that a thread was held up. Like events,
//! all seven depend only on the state and their arguments, and are called under the same lock. The simulator calls all
//! seven and checks the whole state after each call as after an event, so what it shows for events holds for them.
//!
//! # What is counted
//! `mapped` counts the pages of folios that are mapped or on their way in or out of the program, `limbo` those in limbo
//! or being saved. Spare frames hold pages too, and so do ranges that are being given back. Together these are the
//! frames, and their sum stays within the limit: a fault that would exceed it answers [`Reply::Reclaim`]. Two things
//! may exceed it for a while, and are reported: frames in flight (a copied folio and the frame it was copied from), and
//! faults that are served while the store accepts nothing.

use crate::addr::{LEAF_PAGES, Order, PageCount, PageIndex, PageRange};
use crate::command::{Commands, Releases};
use crate::config::{Config, ConfigError};
use crate::event::{Event, Refusal, Reply, SlotPart};
use crate::ids::RegionId;
use crate::ids::{
    ANON, EntryId, FILE, FolioId, GroupId, KINDS, Kind, ListName, NodeId, Rule, SlotId, VecId,
};
use crate::limits::{DEFERRED_SPLITS, LARGE, REFAULT_COST_MOST, TRIM_AT_ONCE};
use crate::policy::copied::CopiedFrames;
use crate::policy::demand::Demand;
use crate::policy::order::{OrderPolicy, Trends};
use crate::policy::sample::is_watched;
use crate::policy::shadow::ShadowLayout;
use crate::policy::store_room::StoreRoom;
use crate::policy::whole_leaf::LeafEvictions;
use crate::stats::{Excess, VmStat};
use crate::tables::fold::Folds;
use crate::tables::folio::{Folio, Folios, State};
use crate::tables::frames::Frames;
use crate::tables::group::{GroupLimits, Groups, Spared};
use crate::tables::leaf::{Entry, LeafTable};
use crate::tables::leaving::Leaving;
use crate::tables::lru::{EVICTABLE, Lruvec, Lruvecs, kind_of};
use crate::tables::recount::Recount;
use crate::tables::region::Regions;
use crate::tables::swap::Slots;
use std::collections::VecDeque;

/// The state machine: an event goes in, commands come out ([`Core::handle`]). It contains all state, and touches
/// nothing outside.
#[derive(Debug)]
pub struct Core {
    pub(crate) config: Config,
    pub(crate) limit: u32,
    pub(crate) leaves: LeafTable,
    pub(crate) folios: Folios,
    pub(crate) frames: Frames,
    pub(crate) slots: Slots,
    pub(crate) regions: Regions,
    pub(crate) lru: Lruvecs,
    pub(crate) groups: Groups,
    /// Where the next check of lazily freed memory begins.
    pub(crate) recount: Recount,
    pub(crate) shadows: ShadowLayout,
    /// The cost of a major fault, in sixteenths of a rescue, by kind.
    pub(crate) refault_cost: [u32; KINDS],
    /// The node of the next region: regions go to the nodes in turn.
    pub(crate) next_node: NodeId,
    pub(crate) trends: Trends,
    pub(crate) folds: Folds,
    /// Folios of which a part was freed, oldest first.
    pub(crate) deferred: VecDeque<FolioId>,
    /// Pages of folios that are mapped, or on their way in or out.
    pub(crate) mapped: u32,
    /// Pages of folios in limbo, being saved or being rescued.
    pub(crate) limbo: u32,
    /// Pages that are mapped and were lazily freed.
    pub(crate) lazy_mapped: u32,
    /// Of the pages in `lazy_mapped`, those that are only a part of their folio.
    pub(crate) lazy_parts: u32,
    /// Of the pages in `lazy_mapped`, those that are being taken out to be dropped.
    pub(crate) lazy_leaving: u32,
    /// Pages in limbo that were lazily freed.
    pub(crate) lazy_limbo: u32,
    /// Mapped pages of ranges that were unhooked and are being given back.
    pub(crate) unhooked: u32,
    /// Pages of frames that were unhooked and are being given back.
    pub(crate) gathered_frames: u32,
    /// How many pages faults bring in.
    pub(crate) demand: Demand,
    pub(crate) copied: CopiedFrames,
    /// Leaves that leave by their tables.
    pub(crate) leaving: Leaving,
    /// Leaves that are evicted so that a stream gets them in one piece.
    pub(crate) evictions: LeafEvictions,
    /// Commands that name a folio and have not been answered.
    pub(crate) flights: u32,
    /// Slots that the store has been asked to forget.
    pub(crate) releasing: u32,
    /// Pages whose entry is not empty.
    pub(crate) held: u32,
    /// Of the pages in `held`, those that left memory as zeros.
    pub(crate) zeros: u32,
    /// Number of pins in force, so that operations need not look for pins when there are none.
    pub(crate) pins: u32,
    /// The pages that held memory when the limit was last exceeded because nothing could leave.
    pub(crate) excess: Excess,
    /// Whether the store was full or failed: then nothing new is given to it until [`Event::RetryStore`].
    pub(crate) store_blocked: bool,
    /// Whether a file refused something: then nothing that is known to wait for its file is offered again until
    /// [`Event::RetryStore`].
    pub(crate) files_blocked: bool,
    /// Pages of files that are on their way out.
    pub(crate) writing_back: u32,
    /// What is known of the store's room.
    pub(crate) room: StoreRoom,
    pub(crate) stat: VmStat,
}

impl Core {
    /// A core with an empty arena.
    ///
    /// All tables are sized here; [`Core::handle`] allocates only for [`Event::CreateRegion`] and
    /// [`Event::DropRegion`].
    ///
    /// # Errors
    /// The error says what is wrong with `config`.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        config.validate()?;
        let slots = u64::from(config.arena.0) + u64::from(config.records);
        let mut leaves = LeafTable::new(config.arena, slots);
        let bits = leaves.shadow_bits().min(u32::from(config.shadow_bits));
        let shadows = ShadowLayout::new(bits, config.limit.0, config.nodes);
        let lru = Lruvecs::new(config.nodes);
        leaves.set_owners(lru.len());
        Ok(Self {
            config,
            limit: config.limit.0,
            leaves,
            shadows,
            refault_cost: [config.refault_cost, config.file_cost],
            folios: Folios::new(config.records),
            frames: Frames::new(&config.pool, config.nodes),
            slots: Slots::new(config.arena.0, config.records),
            regions: Regions::new(config.arena),
            lru,
            groups: Groups::new(GroupLimits {
                lazyfree_max: config.lazyfree_max,
                ..GroupLimits::default()
            }),
            recount: Recount::default(),
            next_node: NodeId(0),
            folds: Folds::new(),
            deferred: VecDeque::with_capacity(DEFERRED_SPLITS),
            trends: Trends::new(config.arena.0 / LEAF_PAGES),
            mapped: 0,
            limbo: 0,
            lazy_mapped: 0,
            lazy_parts: 0,
            lazy_leaving: 0,
            lazy_limbo: 0,
            unhooked: 0,
            gathered_frames: 0,
            demand: Demand::default(),
            copied: CopiedFrames::default(),
            leaving: Leaving::default(),
            evictions: LeafEvictions::default(),
            flights: 0,
            releasing: 0,
            held: 0,
            zeros: 0,
            pins: 0,
            excess: Excess::default(),
            store_blocked: false,
            files_blocked: false,
            writing_back: 0,
            room: StoreRoom::default(),
            stat: VmStat::default(),
        })
    }

    /// Makes the tables of the root group take all the memory that they will ever take, so that a budget for frames
    /// only is not reduced later.
    pub fn fill_tables(&mut self) {
        self.lru.fill();
    }

    /// The assumed cost of a major fault of an anonymous page, in sixteenths of a rescue: [`Config::refault_cost`], or
    /// the latest [`Event::SetRefaultCost`].
    #[must_use]
    pub fn refault_cost(&self) -> u32 {
        self.refault_cost[ANON]
    }

    /// Takes one event and answers it, adding commands to `out`.
    ///
    /// # Panics
    /// When `out` has no room for what one event may give (it should be empty), or when a completion names a folio that
    /// is not in flight: then the driver has lost count, and continuing would lose data.
    pub fn handle(&mut self, event: Event, out: &mut Commands) -> Reply {
        let reply = match event {
            Event::Fault {
                page,
                max_order,
                within,
            } => self.fault(page, max_order, within, out),
            Event::Adopt { at } => self.adopt(at, out),
            Event::Completed { folio, outcome } => self.complete(folio, outcome, out),
            Event::LeafTakenOut { at, taken } => self.leaf_taken_out(at, taken, out),
            Event::TakeLeaves { on } => {
                self.leaving.allowed = on;
                Reply::Done
            }
            Event::FrameFreed { frame } => self.frame_freed(frame),
            Event::SlotReleased { slot } => self.slot_released(slot),
            Event::Reclaim { pages, by } => self.reclaim(pages, by, GroupId::ROOT, out),
            Event::ReclaimGroup { group, pages, by } => self.reclaim(pages, by, group, out),
            Event::Discard { range } => self.discard(range, out),
            Event::LazyFree { range, mode } => self.lazy_free(range, mode, out),
            Event::TrimLazyFree => self.trim_lazyfree(out),
            Event::GiveFreedBack { range } => self.give_freed_back(range, out),
            Event::RecountLazyFree { left } => self.recount_lazyfree(left, out),
            Event::Purge { range } => self.purge(range, out),
            Event::Pin { range } => self.pin(range, out),
            Event::Unpin { range } => self.unpin(range, out),
            Event::Advise { range, advice } => self.advise(range, advice, out),
            Event::Protected { range } => self.protected(range, out),
            Event::Snapshot { region, base, copy } => self.snapshot(region, base, copy),
            Event::Remap { from, to } => self.remap(from, to, out),
            Event::Resize { region, pages } => self.resize(region, pages),
            Event::Detach { region } => self.detach(region),
            Event::Merge { base, from } => self.merge(base, from, out),
            Event::CreateRegion { pages, order, kind } => self.create_region(pages, order, kind),
            Event::CreateGroup { parent, limits } => self.create_group(parent, limits),
            Event::SetGroupLimits { group, limits } => self.set_group_limits(group, limits),
            Event::RemoveGroup { group } => self.remove_group(group),
            Event::MoveRegion {
                region,
                group,
                from,
            } => self.move_region(region, group, from),
            Event::DropRegion { region } => self.drop_region(region),
            Event::SetLimit { pages } => {
                self.limit = pages.0;
                // The spare frames of a larger excess go back in batches ([`Core::gather_spare`]).
                if self.over_limit() <= TRIM_AT_ONCE {
                    self.trim(out);
                }
                Reply::Done
            }
            Event::SetRefaultCost { sixteenths } => {
                self.refault_cost[ANON] = sixteenths.min(REFAULT_COST_MOST);
                Reply::Done
            }
            Event::SetFileCost { sixteenths } => {
                self.refault_cost[FILE] = sixteenths.min(REFAULT_COST_MOST);
                Reply::Done
            }
            Event::KeepCopies { keep } => self.keep_copies(keep),
            Event::Tick => self.tick(),
            Event::RetryStore => {
                self.open_store();
                self.files_blocked = false;
                Reply::Done
            }
        };
        self.stat.peak_frames = self.stat.peak_frames.max(u64::from(self.frames_in_use()));
        self.stat.touched = self.stat.touched.max(u64::from(self.held));
        reply
    }

    /// Pages that faults can still take before the limit. Spare frames count as available.
    #[must_use]
    pub fn available(&self) -> PageCount {
        PageCount(
            self.limit
                .saturating_sub(self.mapped + self.limbo + self.unhooked + self.gathered_frames),
        )
    }

    /// Maximum number of frames.
    #[must_use]
    pub fn limit(&self) -> PageCount {
        PageCount(self.limit)
    }

    /// Where in the store `page` is, if it is there.
    ///
    /// # Panics
    /// When `page` lies beyond the end of the arena.
    #[must_use]
    pub fn stored(&self, page: PageIndex) -> Option<SlotPart> {
        match self.leaves.get(page) {
            Entry::Swapped { slot, index } => Some(SlotPart {
                slot,
                first: index,
                order: Order::ZERO,
            }),
            _ => None,
        }
    }

    /// How many pages must be available for a need of `missing` more: these, and the reserve of unused pages.
    #[must_use]
    pub fn wanted(&self, missing: PageCount) -> PageCount {
        let wanted = u64::from(missing.0) + u64::from(self.limit);
        PageCount(wanted.saturating_sub(u64::from(self.frames_in_use())) as u32)
    }

    /// Whether background reclaim should begin.
    #[must_use]
    pub fn below_low_mark(&self) -> bool {
        self.available().0 < self.watermark(self.config.low_mark)
    }

    /// Whether the next folio to leave memory is large and has to be written: then saving takes far longer than
    /// capturing, and a second saving thread is worth the interruptions. The store must also accept something.
    #[must_use]
    pub fn victims_are_work(&self) -> bool {
        let next = self.next_victim(GroupId::ROOT, Spared::Low, None);
        let next = next.and_then(|next| {
            let lists = self.lru.get(next.vec);
            let oldest = |name| lists.oldest(&self.folios, name);
            oldest(ListName::Limbo).or(oldest(ListName::Inactive))
        });
        let is_work = |id| {
            let folio = self.folios.get(id);
            folio.order >= LARGE && folio.slot().is_none() && !folio.is_from_file()
        };
        !self.store_blocked && next.is_some_and(is_work)
    }

    /// How many pages background reclaim should free to reach its high mark; zero when it may rest.
    #[must_use]
    pub fn below_high_mark(&self) -> PageCount {
        PageCount(self.high_mark().0.saturating_sub(self.available().0))
    }

    /// The pages that background reclaim wants to have available.
    pub(crate) fn high_mark(&self) -> PageCount {
        PageCount(self.watermark(self.config.high_mark))
    }

    /// Counters and gauges.
    #[must_use]
    pub fn stats(&self) -> VmStat {
        let mut stat = self.stat;
        stat.nr_mapped = u64::from(self.mapped);
        stat.nr_limbo = u64::from(self.limbo);
        stat.nr_unhooked = u64::from(self.unhooked);
        stat.nr_lazyfree = u64::from(self.lazy_mapped + self.lazy_limbo);
        stat.nr_lazyfree_mapped = u64::from(self.lazy_mapped);
        stat.nr_free_frames = u64::from(self.frames.spare_pages());
        stat.nr_swapped = u64::from(self.held - self.zeros - self.mapped - self.limbo);
        stat.nr_active = u64::from(self.lru.total(ListName::Active));
        stat.nr_inactive = u64::from(self.lru.total(ListName::Inactive));
        stat.nr_active_file = u64::from(self.lru.total_in(ListName::Active, FILE));
        stat.nr_inactive_file = u64::from(self.lru.total_in(ListName::Inactive, FILE));
        let of_files = EVICTABLE.map(|name| u64::from(self.lru.total_in(name, FILE)));
        stat.nr_file_pages = of_files.into_iter().sum();
        let stranded = self
            .lru
            .iter()
            .map(|(_, lists)| u64::from(lists.stranded()));
        stat.nr_dirty = stranded.sum();
        stat.nr_writeback = u64::from(self.writing_back);
        stat.nr_unevictable = u64::from(self.lru.total(ListName::Unevictable));
        let past = (0..self.lru.len()).map(|vec| u64::from(self.leaves.past_tables(vec)));
        stat.workingset_nodes = past.sum();
        stat.nr_limit = u64::from(self.limit);
        stat
    }

    /// Bytes of memory that the core's own tables take.
    #[must_use]
    pub fn metadata_bytes(&self) -> u64 {
        self.trends.bytes()
            + self.leaves.bytes()
            + self.folios.bytes()
            + self.slots.bytes()
            + self.frames.bytes()
            + self
                .lru
                .iter()
                .map(|(_, lists)| lists.workingset.bytes())
                .sum::<u64>()
    }

    /// How the bits of shadows are allocated.
    #[must_use]
    pub fn shadow_layout(&self) -> ShadowLayout {
        self.shadows
    }

    /// The rule by which the root group's lruvec of the first node chooses the list that gives the next victim.
    #[must_use]
    pub fn rule(&self) -> Rule {
        let root = self.lru.id(GroupId::ROOT, NodeId::default());
        self.lru.get(root).workingset.rule()
    }

    /// The orders of a region's folios.
    #[must_use]
    pub fn order_of(&self, region: RegionId) -> Option<OrderPolicy> {
        self.regions.get(region).map(|region| region.order)
    }

    /// Whether a region inherits from a base that it shares with its source or a snapshot of it.
    #[must_use]
    pub fn inherits(&self, region: RegionId) -> bool {
        self.regions
            .get(region)
            .is_some_and(|region| region.base.is_some())
    }

    /// The node that a region's memory should be on.
    #[must_use]
    pub fn node_of_region(&self, region: RegionId) -> Option<NodeId> {
        self.regions.get(region).map(|region| region.node)
    }

    /// How many leaves of `range` hold anything.
    #[must_use]
    pub fn leaves_in_use(&self, range: PageRange) -> u32 {
        let in_use = |&start: &PageIndex| self.leaves.leaf_in_use(start);
        range.leaf_starts().filter(in_use).count() as u32
    }

    /// Length of the arena.
    #[must_use]
    pub fn arena(&self) -> PageCount {
        self.config.arena
    }

    /// Whether no command is waiting for its answer: the state describes the world as it is.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        let given_back = self.releasing == 0 && self.unhooked == 0 && self.gathered_frames == 0;
        let leaving = self.leaving.is_busy();
        self.flights == 0 && given_back && self.frames.draining_pages() == 0 && !leaving
    }

    /// Number of slots that are in use, or that the store is about to forget.
    #[must_use]
    pub fn slots_in_use(&self) -> u32 {
        self.slots.in_use()
    }

    /// Whether the store accepts nothing at the moment.
    #[must_use]
    pub fn store_blocked(&self) -> bool {
        self.store_blocked
    }

    /// Whether a file recently refused something: pages that wait for a file are not offered at the moment.
    #[must_use]
    pub fn files_blocked(&self) -> bool {
        self.files_blocked
    }

    /// Where a folio's pages are mapped, or belong.
    pub(crate) fn at(&self, id: FolioId) -> PageRange {
        let folio = self.folios.get(id);
        PageRange::new(self.leaves.page_at(folio.entry), folio.order.pages())
    }

    /// Whether a folio whose first entry is this one is watched.
    pub(crate) fn is_watched_at(&self, entry: EntryId) -> bool {
        self.config.workingset && is_watched(entry.number(), self.limit)
    }

    /// A record for a folio that begins at `start`, charged to the group of its region; `None` when all records are
    /// in use. The folio's entries must be set next.
    pub(crate) fn new_folio(
        &mut self,
        start: PageIndex,
        order: Order,
        state: State,
    ) -> Option<FolioId> {
        if !self.folios.room(1) {
            return None;
        }
        let region = self.regions.of(start)?;
        let (group, node, kind) = (self.group_of(start), region.node, region.kind);
        let entry = self.leaves.entry_of(start);
        let id = self.folios.alloc(entry, order, state)?;
        let watched = self.is_watched_at(entry);
        let now = self.lru.get(self.lru.id(group, node)).workingset.now();
        let folio = self.folios.get_mut(id);
        (folio.group, folio.node) = (group, node);
        folio.age = now;
        folio.set_watched(watched);
        folio.set_kind(kind);
        Some(id)
    }

    /// Pages in frames: mapped, in limbo, being given back, and spare.
    pub(crate) fn frames_in_use(&self) -> u32 {
        self.mapped + self.limbo + self.unhooked + self.gathered_frames + self.frames.spare_pages()
    }

    /// Puts a folio on a list at the young end, or on the unevictable list where it belongs.
    pub(crate) fn list(&mut self, id: FolioId, name: ListName) {
        self.settle_group(id);
        self.lru.add(&mut self.folios, id, name);
    }

    /// Puts a folio on a list at the old end, or on the unevictable list where it belongs.
    pub(crate) fn list_old(&mut self, id: FolioId, name: ListName) {
        self.settle_group(id);
        self.lru.add_old(&mut self.folios, id, name);
    }

    /// Takes a folio off its list.
    pub(crate) fn unlist(&mut self, id: FolioId) -> ListName {
        self.lru.remove(&mut self.folios, id)
    }

    /// The lruvec whose lists a folio is on, or would be.
    pub(crate) fn lruvec_of(&mut self, id: FolioId) -> &mut Lruvec {
        let vec = self.lru.of(self.folios.get(id));
        self.lru.get_mut(vec)
    }

    /// The node that the memory of a page should be on.
    pub(crate) fn node_of(&self, page: PageIndex) -> NodeId {
        if self.config.nodes == 1 {
            return NodeId(0);
        }
        let region = self.regions.of(page);
        region.map_or(NodeId(0), |region| region.node)
    }

    /// The cost of a major fault for pages of this folio's kind, in sixteenths of a rescue.
    pub(crate) fn cost_of(&self, folio: &Folio) -> u32 {
        self.refault_cost[kind_of(folio)]
    }

    /// The cost of a major fault for the most expensive kind of pages in a lruvec, in sixteenths of a rescue.
    pub(crate) fn dearest(&self, vec: VecId) -> u32 {
        let kinds = self.lru.get(vec).kinds().iter();
        let costs = kinds.map(|&kind| self.refault_cost[kind]);
        costs.max().unwrap_or_default()
    }

    /// Whether the pages of the region around `page` are a file's.
    pub(crate) fn is_of_file(&self, page: PageIndex) -> bool {
        if self.regions.of_files() == 0 {
            return false;
        }
        let region = self.regions.of(page);
        region.is_some_and(|region| region.kind != Kind::Anonymous)
    }

    /// Whether the store may keep the contents of `page`.
    pub(crate) fn has_slots(&self, page: PageIndex) -> bool {
        let region = self.regions.of(page);
        region.is_none_or(|region| matches!(region.kind, Kind::Anonymous | Kind::Private))
    }

    /// Whether the region at either end of `range` is a file's.
    pub(crate) fn meets_file(&self, range: PageRange) -> bool {
        let last = PageIndex(range.end().0.saturating_sub(1));
        self.is_of_file(range.start) || self.is_of_file(last)
    }

    /// Records that a command for `id` was given: the folio is in `state` until the completion.
    pub(crate) fn begin(&mut self, id: FolioId, state: State) {
        let folio = self.folios.get_mut(id);
        debug_assert!(!folio.in_flight(), "{id:?} is in flight already");
        folio.state = state;
        folio.waited_for = false;
        self.flights += 1;
    }

    /// Gives up `pages` pages of `slot`, which are no longer needed.
    pub(crate) fn drop_slot_pages(&mut self, slot: SlotId, pages: u32, out: &mut impl Releases) {
        if self.slots.drop_pages(slot, pages) {
            self.releasing += 1;
            out.release(slot);
        }
    }

    /// Whether `range` is not empty and inside the arena.
    pub(crate) fn range_ok(&self, range: PageRange) -> bool {
        !range.is_empty()
            && range
                .start
                .0
                .checked_add(range.len.0)
                .is_some_and(|end| end <= self.config.arena.0)
    }

    fn watermark(&self, share: u16) -> u32 {
        (u64::from(self.limit) * u64::from(share) / 1024) as u32
    }

    fn create_region(&mut self, pages: PageCount, order: OrderPolicy, kind: Kind) -> Reply {
        if pages.0 == 0 || pages.0 > self.config.arena.0 {
            return Reply::Refused(Refusal::BadRange);
        }
        match self.regions.create(pages, order, kind, self.next_node) {
            Some((region, range)) => {
                self.next_node = NodeId((self.next_node.0 + 1) % self.config.nodes);
                Reply::Region { region, range }
            }
            None => Reply::Refused(Refusal::NoAddressSpace),
        }
    }

    fn drop_region(&mut self, id: RegionId) -> Reply {
        let Some(region) = self.regions.get(id) else {
            return Reply::Refused(Refusal::UnknownRegion);
        };
        if region.base.is_some() || region.heirs > 0 || region.leaving.is_some() {
            return Reply::Refused(Refusal::RegionInUse);
        }
        let range = region.range;
        let in_use = |leaf| self.leaves.leaf_in_use(leaf);
        if range.leaf_starts().any(in_use) {
            return Reply::Refused(Refusal::RegionInUse);
        }
        self.regions.remove(id);
        for leaf in range.leaf_starts() {
            self.trends.forget(leaf);
            self.leaves.drop_past(leaf.leaf());
        }
        Reply::Done
    }
}
