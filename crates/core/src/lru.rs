//! The lists that folios wait on: active, inactive, lazily freed, limbo, unevictable.
//!
//! A list is threaded through the folio records (intrusive, doubly linked), so that putting a folio on one and
//! taking it off again costs no memory and constant time. Heads are young, tails are old.
//!
//! User space sees no accessed bit, so *limbo* is the referenced test of this memory manager: a folio that
//! reaches the tail of the inactive list is taken out of the program but stays in RAM, uncompressed. A touch
//! there costs one small fault, proves it is in use and puts it on the active list; reaching limbo's own tail
//! means that nobody wanted it for a whole limbo's length, and it goes to the store. New folios start on the
//! inactive list: a stream that touches each page once passes through without disturbing the active list.
//!
//! There is a set of these lists, a *lruvec*, for each group and node. A folio's record names both, so that its lruvec
//! is one index away, and whatever lists a folio need not know of groups. Reclaim works inside of one lruvec at a time
//! ([`shrink_lruvec`](crate::machine::Core::shrink_lruvec)); which one, and how much of it, is said by the groups.

use crate::folio::{Folio, FolioId, Folios, ListName};
use crate::group::{GroupId, NodeId};
use crate::limits::MAX_GROUP_DEPTH;

const END: u32 = u32::MAX;

/// One list and the number of pages on it.
#[derive(Debug)]
pub(crate) struct List {
    name: ListName,
    head: u32,
    tail: u32,
    pages: u32,
}

impl List {
    pub(crate) fn new(name: ListName) -> Self {
        Self {
            name,
            head: END,
            tail: END,
            pages: 0,
        }
    }

    /// Pages of all its folios together.
    pub(crate) fn pages(&self) -> u32 {
        self.pages
    }

    /// The oldest folio.
    pub(crate) fn oldest(&self) -> Option<FolioId> {
        (self.tail != END).then_some(FolioId(self.tail))
    }

    /// The youngest folio.
    pub(crate) fn youngest(&self) -> Option<FolioId> {
        (self.head != END).then_some(FolioId(self.head))
    }

    /// The folio that is one younger than `id`.
    pub(crate) fn younger(&self, folios: &Folios, id: FolioId) -> Option<FolioId> {
        let prev = folios.get(id).prev;
        (prev != END).then_some(FolioId(prev))
    }

    /// Puts `id` at the young end.
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

    /// Puts `id` at the old end.
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

    /// Takes `id` off.
    pub(crate) fn remove(&mut self, folios: &mut Folios, id: FolioId) {
        let (prev, next, pages) = {
            let folio = folios.get_mut(id);
            debug_assert_eq!(folio.list, self.name, "{id:?} is not on this list");
            folio.list = ListName::None;
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
        self.pages -= pages;
    }

    fn adopt(&mut self, folios: &mut Folios, id: FolioId, prev: u32, next: u32) {
        let folio = folios.get_mut(id);
        debug_assert_eq!(folio.list, ListName::None, "{id:?} is on a list already");
        folio.list = self.name;
        folio.prev = prev;
        folio.next = next;
        self.pages += folio.order.pages().0;
    }
}

/// The lists of one memory cgroup and node, as Linux calls the set.
#[derive(Debug)]
pub(crate) struct Lruvec {
    pub(crate) active: List,
    pub(crate) inactive: List,
    pub(crate) limbo: List,
    pub(crate) unevictable: List,
    /// Lazily freed folios, mapped or in limbo: dropped before anything else leaves. Linux keeps them at the head
    /// of the inactive list of file pages, which it scans before that of anonymous ones; see `ops/lazy_free.rs`.
    pub(crate) lazyfree: List,
    /// Pages of folios that are being taken out, to limbo.
    pub(crate) taking_out: u32,
    /// Lazily freed pages that are in limbo.
    pub(crate) lazy_limbo: u32,
    /// How far reclaim on behalf of the group at each depth above it has put it forward; see `group.rs`.
    pub(crate) clocks: [u64; MAX_GROUP_DEPTH],
}

impl Lruvec {
    pub(crate) fn new() -> Self {
        Self {
            active: List::new(ListName::Active),
            inactive: List::new(ListName::Inactive),
            limbo: List::new(ListName::Limbo),
            unevictable: List::new(ListName::Unevictable),
            lazyfree: List::new(ListName::LazyFree),
            taking_out: 0,
            lazy_limbo: 0,
            clocks: [0; MAX_GROUP_DEPTH],
        }
    }

    /// Pages that reclaim can look at, beside what was lazily freed.
    pub(crate) fn evictable(&self) -> u32 {
        self.active.pages() + self.inactive.pages() + self.limbo.pages()
    }

    /// Pages on all of its lists.
    pub(crate) fn pages(&self) -> u32 {
        let named = ListName::ALL.iter().skip(1);
        named.map(|&name| self.list(name).pages()).sum()
    }

    pub(crate) fn list(&self, name: ListName) -> &List {
        match name {
            ListName::Active => &self.active,
            ListName::Inactive => &self.inactive,
            ListName::Limbo => &self.limbo,
            ListName::Unevictable => &self.unevictable,
            ListName::LazyFree => &self.lazyfree,
            ListName::None => unreachable!("no list has no name"),
        }
    }

    fn list_mut(&mut self, name: ListName) -> &mut List {
        match name {
            ListName::Active => &mut self.active,
            ListName::Inactive => &mut self.inactive,
            ListName::Limbo => &mut self.limbo,
            ListName::Unevictable => &mut self.unevictable,
            ListName::LazyFree => &mut self.lazyfree,
            ListName::None => unreachable!("a folio was to be listed nowhere"),
        }
    }
}

/// The number of a lruvec.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub(crate) struct VecId(u32);

/// All lruvecs: for each group one a node.
#[derive(Debug)]
pub(crate) struct Lruvecs {
    vecs: Vec<Lruvec>,
    nodes: u8,
    /// Pages on the lists of each name together.
    totals: [u32; ListName::ALL.len()],
}

impl Lruvecs {
    /// Those of the root group.
    pub(crate) fn new(nodes: u8) -> Self {
        let mut vecs = Self {
            vecs: Vec::new(),
            nodes,
            totals: [0; ListName::ALL.len()],
        };
        vecs.add_group(GroupId::ROOT);
        vecs
    }

    /// Makes the lruvecs of a group whose number is new; one that was used before has empty ones.
    pub(crate) fn add_group(&mut self, group: GroupId) {
        let want = (usize::from(group.0) + 1) * usize::from(self.nodes);
        if self.vecs.len() < want {
            self.vecs.resize_with(want, Lruvec::new);
        }
    }

    pub(crate) fn id(&self, group: GroupId, node: NodeId) -> VecId {
        VecId(u32::from(group.0) * u32::from(self.nodes) + u32::from(node.0))
    }

    /// Where a folio is listed, or would be.
    pub(crate) fn of(&self, folio: &Folio) -> VecId {
        self.id(folio.group, folio.node)
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

    /// Whose lruvec it is.
    pub(crate) fn group(&self, vec: VecId) -> GroupId {
        GroupId((vec.0 / u32::from(self.nodes)) as u16)
    }

    /// The one after `vec`, and then the first again.
    pub(crate) fn after(&self, vec: VecId) -> VecId {
        VecId((vec.0 + 1) % self.vecs.len() as u32)
    }

    /// Moves a folio to the old end of the list that it is on.
    pub(crate) fn make_oldest(&mut self, folios: &mut Folios, id: FolioId) {
        let name = self.remove(folios, id);
        self.add_old(folios, id, name);
    }

    /// Pages on all lists together.
    pub(crate) fn pages(&self) -> u32 {
        self.totals.iter().sum()
    }

    /// Pages on all lists of this name together.
    pub(crate) fn total(&self, name: ListName) -> u32 {
        self.totals[name as usize]
    }

    /// Puts `id` at the young end of `name`; pinned and immovable folios that are mapped go to the unevictable list
    /// instead.
    pub(crate) fn add(&mut self, folios: &mut Folios, id: FolioId, name: ListName) {
        self.home(folios, id, name).push_young(folios, id);
    }

    /// The same at the old end.
    pub(crate) fn add_old(&mut self, folios: &mut Folios, id: FolioId, name: ListName) {
        self.home(folios, id, name).push_old(folios, id);
    }

    /// Takes `id` off whatever list it is on, and says which.
    pub(crate) fn remove(&mut self, folios: &mut Folios, id: FolioId) -> ListName {
        let folio = folios.get(id);
        let (name, vec) = (folio.list, self.of(folio));
        if name != ListName::None {
            self.totals[name as usize] -= folio.order.pages().0;
            self.get_mut(vec).list_mut(name).remove(folios, id);
        }
        name
    }

    fn home(&mut self, folios: &Folios, id: FolioId, name: ListName) -> &mut List {
        let folio = folios.get(id);
        let stuck = folio.pins > 0 || folio.immovable;
        let name = if stuck && name != ListName::Limbo {
            ListName::Unevictable
        } else {
            name
        };
        self.totals[name as usize] += folio.order.pages().0;
        let vec = self.of(folio);
        self.get_mut(vec).list_mut(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::{Order, PageCount, PageIndex};
    use crate::folio::State;
    use crate::leaf::LeafTable;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    proptest! {
        #[test]
        fn agrees_with_a_deque(ops in prop::collection::vec((0u8..4, 0u32..24), 1..300)) {
            let mut folios = Folios::new(32);
            let mut leaves = LeafTable::new(PageCount(512));
            let ids: Vec<_> = (0..24)
                .map(|n| folios.alloc(leaves.place_of(PageIndex(n)), Order::ZERO, State::Resident).unwrap())
                .collect();
            let mut list = List::new(ListName::Inactive);
            let mut model: VecDeque<FolioId> = VecDeque::new();
            for (op, n) in ops {
                let id = ids[n as usize];
                let listed = model.contains(&id);
                match op {
                    0 if !listed => { list.push_young(&mut folios, id); model.push_front(id); }
                    1 if !listed => { list.push_old(&mut folios, id); model.push_back(id); }
                    2 if listed => { list.remove(&mut folios, id); model.retain(|&m| m != id); }
                    _ => {}
                }
                prop_assert_eq!(list.oldest(), model.back().copied());
                prop_assert_eq!(list.pages() as usize, model.len());
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
