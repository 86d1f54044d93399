//! The lists that folios wait on: active, inactive, lazily freed, limbo, unevictable.
//!
//! A list is threaded through the folio records (intrusive, doubly linked), so that adding or removing a folio takes no
//! memory and constant time. Heads are young, tails are old.
//!
//! User space sees no accessed bit, so *limbo* is this memory manager's test for references: a folio that reaches the
//! tail of a mapped list is taken out of the program but stays in RAM, uncompressed. A touch there costs one small
//! fault and proves that the folio is in use. A folio that reaches limbo's own tail was not used for a whole limbo's
//! length, and may go to the store. Active and inactive folios also have separate lists in limbo, so that nothing is
//! forgotten about a folio there. [`workingset`] determines which folio is active, which list gives the next victim and
//! how long limbo is.
//!
//! The lists of each name come in two [parts](PARTS): *watched* folios, which are a sample, are taken out earlier than
//! others. Ages still tell which of two folios is older, whatever lists they are on.
//!
//! [`workingset`]: crate::policy::workingset
//! [`balance`]: crate::policy::balance
//!
//! The lists also come by [kind](crate::Kind): those of anonymous pages, and those of pages of files. [`balance`]
//! determines how much of each reclaim scans.
//!
//! There is a set of these lists, a *lruvec*, for each group and node. A folio's record names both, so its lruvec is
//! one index away, and code that lists a folio need not know about groups. Reclaim works inside one lruvec at a time
//! ([`shrink_lruvec`](crate::machine::Core::shrink_lruvec)). The groups determine in which one, and how much it gives.

use crate::ids::{ANON, FILE, FolioId, GroupId, KINDS, ListName, NodeId, VecId};
use crate::limits::MAX_GROUP_DEPTH;
use crate::policy::balance::Balance;
use crate::policy::workingset::Workingset;
use crate::tables::folio::{Folio, Folios};

const END: u32 = u32::MAX;

/// One list and the number of pages on it.
#[derive(Debug)]
pub(crate) struct List {
    name: ListName,
    head: u32,
    tail: u32,
    pages: u32,
    folios: u32,
    /// How many of the folios are [exceptions](is_exception). Whether a folio is an exception changes only while it
    /// is on no list.
    exceptions: u32,
    /// Pages of the folios that are [stranded](Folio::is_stranded). This, too, changes only while a folio is on no
    /// list.
    stranded: u32,
    /// The youngest [marked](Self::mark) folio.
    mark: u32,
}

impl List {
    pub(crate) fn new(name: ListName) -> Self {
        Self {
            name,
            head: END,
            tail: END,
            pages: 0,
            folios: 0,
            exceptions: 0,
            stranded: 0,
            mark: END,
        }
    }

    /// Pages of all the list's folios together.
    pub(crate) fn pages(&self) -> u32 {
        self.pages
    }

    /// How many folios are on the list.
    pub(crate) fn folios(&self) -> u32 {
        self.folios
    }

    /// How many of the list's folios are [exceptions](is_exception).
    pub(crate) fn exceptions(&self) -> u32 {
        self.exceptions
    }

    /// Pages of the list's folios that are [stranded](Folio::is_stranded).
    pub(crate) fn stranded(&self) -> u32 {
        self.stranded
    }

    /// The oldest folio.
    pub(crate) fn oldest(&self) -> Option<FolioId> {
        (self.tail != END).then_some(FolioId(self.tail))
    }

    /// The youngest folio of the list.
    pub(crate) fn youngest(&self) -> Option<FolioId> {
        (self.head != END).then_some(FolioId(self.head))
    }

    /// Marks the youngest folio, and all older ones.
    fn mark(&mut self) {
        self.mark = self.head;
    }

    /// The youngest marked folio.
    pub(crate) fn youngest_marked(&self) -> Option<FolioId> {
        (self.mark != END).then_some(FolioId(self.mark))
    }

    /// The folio that is one younger than `id`.
    pub(crate) fn younger(&self, folios: &Folios, id: FolioId) -> Option<FolioId> {
        let prev = folios.get(id).prev;
        (prev != END).then_some(FolioId(prev))
    }

    /// Puts `id` at the young end of the list.
    pub(crate) fn push_young(&mut self, folios: &mut Folios, id: FolioId) {
        let head = self.head;
        self.adopt(folios, id, END, head);
        if head == END {
            self.tail = id.0;
        } else {
            folios.get_mut(FolioId(head)).prev = id.0;
        }
        self.head = id.0;
    }

    /// Puts `id` at the old end of the list.
    pub(crate) fn push_old(&mut self, folios: &mut Folios, id: FolioId) {
        let tail = self.tail;
        self.adopt(folios, id, tail, END);
        if tail == END {
            self.head = id.0;
        } else {
            folios.get_mut(FolioId(tail)).next = id.0;
        }
        self.tail = id.0;
    }

    /// Takes `id` off the list.
    pub(crate) fn remove(&mut self, folios: &mut Folios, id: FolioId) {
        let (prev, next, pages) = {
            let folio = folios.get_mut(id);
            debug_assert_eq!(folio.list, self.name, "{id:?} is not on this list");
            folio.list = ListName::None;
            self.exceptions -= u32::from(is_exception(folio, self.name));
            self.stranded -= stranded_pages(folio);
            (folio.prev, folio.next, folio.order.pages().0)
        };
        if prev == END {
            self.head = next;
        } else {
            folios.get_mut(FolioId(prev)).next = next;
        }
        if next == END {
            self.tail = prev;
        } else {
            folios.get_mut(FolioId(next)).prev = prev;
        }
        if self.mark == id.0 {
            self.mark = next;
        }
        self.pages -= pages;
        self.folios -= 1;
    }

    fn adopt(&mut self, folios: &mut Folios, id: FolioId, prev: u32, next: u32) {
        let folio = folios.get_mut(id);
        debug_assert_eq!(folio.list, ListName::None, "{id:?} is on a list already");
        folio.list = self.name;
        folio.prev = prev;
        folio.next = next;
        self.exceptions += u32::from(is_exception(folio, self.name));
        self.stranded += stranded_pages(folio);
        self.pages += folio.order.pages().0;
        self.folios += 1;
    }
}

fn stranded_pages(folio: &Folio) -> u32 {
    match folio.is_stranded() {
        true => folio.order.pages().0,
        false => 0,
    }
}

/// The kind whose lists a folio is on.
pub(crate) fn kind_of(folio: &Folio) -> usize {
    usize::from(folio.is_from_file())
}

/// Number of parts of each name's folios: the watched ones ([`WATCHED`]) and the others.
pub(crate) const PARTS: usize = 2;
/// The part of the folios that are not watched.
pub(crate) const UNWATCHED: u8 = 0;
/// The part of the watched folios.
pub(crate) const WATCHED: u8 = 1;

/// The lists that reclaim can scan, besides that of the lazily freed folios.
pub(crate) const EVICTABLE: [ListName; 4] = [
    ListName::Active,
    ListName::Inactive,
    ListName::LimboActive,
    ListName::Limbo,
];

/// Whether the name is one of the [`EVICTABLE`] names.
fn is_evictable(name: ListName) -> bool {
    !matches!(
        name,
        ListName::None | ListName::Unevictable | ListName::LazyFree
    )
}

/// The lists of one memory cgroup and node, as Linux calls the set.
#[derive(Debug)]
pub(crate) struct Lruvec {
    /// The lists by the number of the name, then the kind, then the part. A lazily freed folio, mapped or in limbo,
    /// is dropped before any other leaves: Linux keeps such folios at the head of the inactive list of file pages,
    /// which it scans before that of anonymous ones; see `ops/lazy_free.rs`.
    lists: [[[List; PARTS]; KINDS]; ListName::ALL.len()],
    /// Pages on the lists of [`EVICTABLE`] names, by kind.
    sizes: [u32; KINDS],
    /// Pages on all lists of the lruvec.
    pages: u32,
    /// How much of each kind reclaim scans.
    pub(crate) balance: Balance,
    /// Pages of folios that are being taken out to limbo.
    pub(crate) taking_out: u32,
    /// Lazily freed pages that are in limbo.
    pub(crate) lazy_limbo: u32,
    /// Take-outs that the kernel has refused since a folio last left; see `ops/stuck.rs`.
    pub(crate) refusals: u32,
    /// The clocks that reclaim on behalf of the group at each depth above this lruvec advances; see `group.rs`.
    pub(crate) clocks: [u64; MAX_GROUP_DEPTH],
    pub(crate) workingset: Workingset,
}

impl Lruvec {
    pub(crate) fn new() -> Self {
        Self {
            lists: ListName::ALL
                .map(|name| [(); KINDS].map(|()| [(); PARTS].map(|()| List::new(name)))),
            sizes: [0; KINDS],
            pages: 0,
            balance: Balance::default(),
            taking_out: 0,
            lazy_limbo: 0,
            refusals: 0,
            clocks: [0; MAX_GROUP_DEPTH],
            workingset: Workingset::new(),
        }
    }

    /// Pages that reclaim can scan, besides the lazily freed ones.
    pub(crate) fn evictable(&self) -> u32 {
        self.sizes.iter().sum()
    }

    /// Pages that reclaim can scan, besides the lazily freed ones, by kind.
    pub(crate) fn sizes(&self) -> [u32; KINDS] {
        self.sizes
    }

    /// The kinds that have pages here.
    pub(crate) fn kinds(&self) -> &'static [usize] {
        match self.sizes {
            [_, 0] => &[ANON],
            [0, _] => &[FILE],
            _ => &[ANON, FILE],
        }
    }

    /// Folios that reclaim can scan, besides the lazily freed ones.
    pub(crate) fn folios(&self) -> u32 {
        let lists = EVICTABLE.iter().flat_map(|&name| self.lists(name));
        lists.map(List::folios).sum()
    }

    /// The oldest folio of a list in limbo on which some folio may leave without a write. A caller that puts each folio
    /// that must be written at the young end, and then takes the next, reaches that folio.
    pub(crate) fn oldest_beside_unchanged(&self) -> Option<FolioId> {
        self.limbo_lists()
            .find(|list| list.exceptions() > 0)?
            .oldest()
    }

    /// The oldest folio of a list in limbo with folios that are not [stranded](Folio::is_stranded). As
    /// [above](Self::oldest_beside_unchanged), a caller that puts each stranded folio at the young end reaches one of
    /// the others.
    pub(crate) fn oldest_beside_stranded(&self) -> Option<FolioId> {
        self.limbo_lists()
            .find(|list| list.pages() > list.stranded())?
            .oldest()
    }

    /// The oldest folio of a list in limbo with [stranded](Folio::is_stranded) folios.
    pub(crate) fn oldest_stranded(&self) -> Option<FolioId> {
        self.limbo_lists()
            .find(|list| list.stranded() > 0)?
            .oldest()
    }

    /// Pages of [stranded](Folio::is_stranded) folios in limbo.
    pub(crate) fn stranded(&self) -> u32 {
        self.limbo_lists().map(List::stranded).sum()
    }

    fn limbo_lists(&self) -> impl Iterator<Item = &List> {
        let limbo = [ListName::Limbo, ListName::LimboActive].into_iter();
        limbo.flat_map(|name| self.lists(name))
    }

    /// Pages on all lists of the lruvec.
    pub(crate) fn pages(&self) -> u32 {
        self.pages
    }

    /// Pages on the lists of this name.
    pub(crate) fn pages_of(&self, name: ListName) -> u32 {
        self.lists(name).map(List::pages).sum()
    }

    /// Pages of one kind on the lists of this name.
    pub(crate) fn pages_in(&self, name: ListName, kind: usize) -> u32 {
        self.lists[name as usize][kind]
            .iter()
            .map(List::pages)
            .sum()
    }

    /// The lists of this name.
    pub(crate) fn lists(&self, name: ListName) -> impl Iterator<Item = &List> {
        self.lists[name as usize].as_flattened().iter()
    }

    /// The list of this name, kind and part.
    pub(crate) fn list(&self, name: ListName, kind: usize, part: u8) -> &List {
        &self.lists[name as usize][kind][usize::from(part)]
    }

    fn list_mut(&mut self, name: ListName, kind: usize, part: u8) -> &mut List {
        debug_assert!(name != ListName::None, "a folio was to be listed nowhere");
        &mut self.lists[name as usize][kind][usize::from(part)]
    }

    /// The oldest lazily freed folio. Such folios are anonymous and not watched.
    pub(crate) fn oldest_lazyfree(&self) -> Option<FolioId> {
        self.list(ListName::LazyFree, ANON, UNWATCHED).oldest()
    }

    /// The oldest unevictable folio, provided that one of them is not pinned. A caller that puts each pinned folio at
    /// the young end, and then takes the next, reaches one that is not pinned.
    pub(crate) fn oldest_beside_immovable(&self) -> Option<FolioId> {
        let list = self.list(ListName::Unevictable, ANON, UNWATCHED);
        list.oldest().filter(|_| list.exceptions() > 0)
    }

    /// The youngest folio of one of the lists of this name.
    pub(crate) fn youngest(&self, name: ListName) -> Option<FolioId> {
        self.lists(name).find_map(List::youngest)
    }

    /// The oldest folio of the lists of this name and kind, by their ages.
    pub(crate) fn oldest_in(
        &self,
        folios: &Folios,
        name: ListName,
        kind: usize,
    ) -> Option<FolioId> {
        let lists = &self.lists[name as usize][kind];
        let oldest = lists.iter().filter_map(List::oldest);
        oldest.max_by_key(|&id| self.workingset.since(folios.get(id).age))
    }

    /// The youngest unproven folio of one kind in limbo.
    pub(crate) fn youngest_of_first_fill(&self, folios: &Folios, kind: usize) -> Option<FolioId> {
        let lists = &self.lists[ListName::Limbo as usize][kind];
        let marked = lists.iter().filter_map(List::youngest_marked);
        let age = |&id: &FolioId| folios.get(id).age;
        let unproven = marked.filter(|id| self.workingset.first_fill.has(age(id)));
        unproven.min_by_key(|id| self.workingset.since(age(id)))
    }

    /// The oldest folio of a name, of all kinds. Only for [`EVICTABLE`] names.
    pub(crate) fn oldest(&self, folios: &Folios, name: ListName) -> Option<FolioId> {
        let oldest = |kind| self.oldest_in(folios, name, kind);
        match self.sizes {
            [_, 0] => oldest(ANON),
            [0, _] => oldest(FILE),
            _ => self.older(folios, oldest(ANON), oldest(FILE)),
        }
    }

    /// The older of two folios.
    pub(crate) fn older(
        &self,
        folios: &Folios,
        one: Option<FolioId>,
        other: Option<FolioId>,
    ) -> Option<FolioId> {
        let both = one.into_iter().chain(other);
        both.max_by_key(|&id| self.workingset.since(folios.get(id).age))
    }
}

/// All lruvecs: one for each node, for each group.
#[derive(Debug)]
pub(crate) struct Lruvecs {
    vecs: Vec<Lruvec>,
    nodes: u8,
    /// Pages on the lists of each name together, by kind.
    totals: [[u32; KINDS]; ListName::ALL.len()],
}

impl Lruvecs {
    /// Makes the lruvecs of the root group. Tables take memory as they are used.
    pub(crate) fn new(nodes: u8) -> Self {
        let mut vecs = Self {
            vecs: Vec::new(),
            nodes,
            totals: [[0; KINDS]; ListName::ALL.len()],
        };
        vecs.add_group(GroupId::ROOT);
        vecs
    }

    /// Makes the root group's tables take all the memory that they will ever take.
    pub(crate) fn fill(&mut self) {
        for vec in self.vecs.iter_mut().take(usize::from(self.nodes)) {
            vec.workingset.curve.fill();
        }
    }

    /// How many lruvecs there are.
    pub(crate) fn len(&self) -> usize {
        self.vecs.len()
    }

    /// Makes the lruvecs of a group. They retain nothing from a former group with the same number.
    pub(crate) fn add_group(&mut self, group: GroupId) {
        let want = (usize::from(group.0) + 1) * usize::from(self.nodes);
        if self.vecs.len() < want {
            self.vecs.resize_with(want, Lruvec::new);
            return;
        }
        for vec in self.of_group(group) {
            debug_assert_eq!(self.get(vec).pages(), 0, "{vec:?} was left behind");
            *self.get_mut(vec) = Lruvec::new();
        }
    }

    pub(crate) fn id(&self, group: GroupId, node: NodeId) -> VecId {
        VecId(u32::from(group.0) * u32::from(self.nodes) + u32::from(node.0))
    }

    /// The lruvec that a folio is listed in, or would be.
    pub(crate) fn of(&self, folio: &Folio) -> VecId {
        self.id(folio.group, folio.node)
    }

    /// The number of a lruvec as an index.
    pub(crate) fn index(vec: VecId) -> usize {
        vec.0 as usize
    }

    pub(crate) fn get(&self, vec: VecId) -> &Lruvec {
        &self.vecs[vec.0 as usize]
    }

    pub(crate) fn get_mut(&mut self, vec: VecId) -> &mut Lruvec {
        &mut self.vecs[vec.0 as usize]
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (VecId, &Lruvec)> {
        let number = |(i, vec)| (VecId(i as u32), vec);
        self.vecs.iter().enumerate().map(number)
    }

    /// The lruvecs of a group, by node.
    pub(crate) fn of_group(&self, group: GroupId) -> impl Iterator<Item = VecId> + use<> {
        let first = u32::from(group.0) * u32::from(self.nodes);
        (first..first + u32::from(self.nodes)).map(VecId)
    }

    /// The group whose lruvec this is.
    pub(crate) fn group(&self, vec: VecId) -> GroupId {
        GroupId((vec.0 / u32::from(self.nodes)) as u16)
    }

    /// The node of the memory on these lists.
    pub(crate) fn node(&self, vec: VecId) -> NodeId {
        NodeId((vec.0 % u32::from(self.nodes)) as u8)
    }

    /// The lruvec after `vec`. The first follows the last.
    pub(crate) fn after(&self, vec: VecId) -> VecId {
        VecId((vec.0 + 1) % self.vecs.len() as u32)
    }

    /// Moves a folio to the old end of the list that it is on.
    pub(crate) fn make_oldest(&mut self, folios: &mut Folios, id: FolioId) {
        let name = self.remove(folios, id);
        self.add_old(folios, id, name);
    }

    /// Moves a folio to the young end of the list that it is on.
    pub(crate) fn make_youngest(&mut self, folios: &mut Folios, id: FolioId) {
        let name = self.remove(folios, id);
        self.add(folios, id, name);
    }

    /// The numbers of all lruvecs.
    pub(crate) fn ids(&self) -> impl Iterator<Item = VecId> + use<> {
        (0..self.vecs.len() as u32).map(VecId)
    }

    /// Pages on all lists together.
    pub(crate) fn pages(&self) -> u32 {
        self.totals.as_flattened().iter().sum()
    }

    /// Pages on all lists of this name together.
    pub(crate) fn total(&self, name: ListName) -> u32 {
        self.totals[name as usize].iter().sum()
    }

    /// Pages of one kind on all lists of this name together.
    pub(crate) fn total_in(&self, name: ListName, kind: usize) -> u32 {
        self.totals[name as usize][kind]
    }

    /// Puts `id` at the young end of `name`. Pinned and immovable folios that are mapped go to the unevictable list
    /// instead.
    pub(crate) fn add(&mut self, folios: &mut Folios, id: FolioId, name: ListName) {
        let folio = folios.get(id);
        let unproven = name == ListName::Limbo
            && self
                .get(self.of(folio))
                .workingset
                .first_fill
                .has(folio.age);
        let list = self.home(folios, id, name);
        list.push_young(folios, id);
        // Active folios have a list of their own in limbo.
        if unproven && list.name == ListName::Limbo {
            list.mark();
        }
    }

    /// Puts `id` at the old end of `name`, or at that of the unevictable list where [`Self::add`] would use it.
    pub(crate) fn add_old(&mut self, folios: &mut Folios, id: FolioId, name: ListName) {
        self.home(folios, id, name).push_old(folios, id);
    }

    /// Takes `id` off the list that it is on, and returns that list's name.
    pub(crate) fn remove(&mut self, folios: &mut Folios, id: FolioId) -> ListName {
        let folio = folios.get(id);
        let (name, vec) = (folio.list, self.of(folio));
        if name != ListName::None {
            let (kind, part) = kind_and_part_of(folio, name);
            self.totals[name as usize][kind] -= folio.order.pages().0;
            let lists = self.get_mut(vec);
            lists.pages -= folio.order.pages().0;
            if is_evictable(name) {
                lists.sizes[kind] -= folio.order.pages().0;
            }
            lists.list_mut(name, kind, part).remove(folios, id);
        }
        name
    }

    fn home(&mut self, folios: &mut Folios, id: FolioId, name: ListName) -> &mut List {
        let folio = folios.get_mut(id);
        let stuck = folio.pins > 0 || folio.immovable;
        let name = match name {
            ListName::Limbo | ListName::LimboActive if folio.is_active() => ListName::LimboActive,
            ListName::Limbo | ListName::LimboActive => ListName::Limbo,
            _ if stuck => ListName::Unevictable,
            name => name,
        };
        if let ListName::Active | ListName::Inactive = name {
            folio.set_active(name == ListName::Active);
        }
        let (kind, part) = kind_and_part_of(folio, name);
        self.totals[name as usize][kind] += folio.order.pages().0;
        let pages = folio.order.pages().0;
        let vec = self.of(folios.get(id));
        let lists = self.get_mut(vec);
        lists.pages += pages;
        if is_evictable(name) {
            lists.sizes[kind] += pages;
        }
        lists.list_mut(name, kind, part)
    }
}

/// Whether a folio may leave while others of its list may not. In limbo, while the store accepts nothing, this is a
/// folio that, as far as is known, needs no write. On the unevictable list it is a folio that is not pinned, as time
/// may remove the other reasons.
pub(crate) fn is_exception(folio: &Folio, name: ListName) -> bool {
    match name {
        ListName::Limbo | ListName::LimboActive => !folio.must_be_written(),
        ListName::Unevictable => folio.pins == 0,
        _ => false,
    }
}

/// The kind and the part of the list that a folio is on. Lazily freed folios are dropped in one order, and
/// unevictable folios need no order: both are in one part, of one kind.
fn kind_and_part_of(folio: &Folio, name: ListName) -> (usize, u8) {
    match name {
        ListName::LazyFree | ListName::Unevictable => (ANON, UNWATCHED),
        _ => (kind_of(folio), folio.part()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::{Order, PageCount, PageIndex};
    use crate::tables::folio::State;
    use crate::tables::leaf::LeafTable;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    proptest! {
        #[test]
        fn agrees_with_a_deque(ops in prop::collection::vec((0u8..4, 0u32..24), 1..300)) {
            let mut folios = Folios::new(32);
            let mut leaves = LeafTable::new(PageCount(512), 512);
            let ids: Vec<_> = (0..24)
                .map(|n| folios.alloc(leaves.entry_of(PageIndex(n)), Order::ZERO, State::Resident).unwrap())
                .collect();
            let mut list = List::new(ListName::Inactive);
            let mut model: VecDeque<FolioId> = VecDeque::new();
            let mut marked = None;
            for (op, n) in ops {
                let id = ids[n as usize];
                let listed = model.contains(&id);
                match op {
                    0 if !listed => { list.push_young(&mut folios, id); model.push_front(id); }
                    1 if !listed => { list.push_old(&mut folios, id); model.push_back(id); }
                    2 if listed => {
                        let at = model.iter().position(|&m| m == id).unwrap();
                        if marked == Some(id) {
                            marked = model.get(at + 1).copied();
                        }
                        list.remove(&mut folios, id);
                        model.remove(at);
                    }
                    3 => { list.mark(); marked = model.front().copied(); }
                    _ => {}
                }
                prop_assert_eq!(list.oldest(), model.back().copied());
                prop_assert_eq!(list.youngest_marked(), marked);
                prop_assert_eq!(list.pages() as usize, model.len());
                prop_assert_eq!(list.folios() as usize, model.len());
            }
            let mut walk = list.oldest();
            for expected in model.iter().rev() {
                prop_assert_eq!(walk, Some(*expected));
                walk = list.younger(&folios, *expected);
            }
            prop_assert_eq!(walk, None);
        }
    }
}
