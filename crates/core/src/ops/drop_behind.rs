//! A stream passes: what is behind it is put at the old end of its list. Why, and when: [`drop_behind`](crate::drop_behind).

use crate::addr::{PageCount, PageIndex};
use crate::folio::{FolioId, ListName, State};
use crate::leaf::Entry;
use crate::limits::{FAULT_FOLIOS, PASSING_RUN};
use crate::lru::VecId;
use crate::machine::Core;
use crate::order::Way;
use crate::workingset::Shadow;

impl Core {
    /// A fault at `page`, which had left `shadow` behind, asks for `pages` pages and continues a run of `run`. Is it a part of a stream that is
    /// longer than memory?
    pub(crate) fn passes(
        &mut self,
        page: PageIndex,
        shadow: u32,
        run: u16,
        pages: PageCount,
    ) -> bool {
        if run < PASSING_RUN {
            return false;
        }
        let group = self.group_of(page);
        let node = self.regions.of(page).expect("a fault is in a region").node;
        let (vec, depth) = (self.lru.id(group, node), self.groups.depth(group));
        let lists = self.lru.get_mut(vec);
        let Some(shadow) = self.shadows.unpack(shadow, depth, node) else {
            return false;
        };
        let room = lists.pages();
        let distance = self.shadows.distance(shadow, lists.workingset.now());
        lists.workingset.pages_in(distance) >= u64::from(room)
            && lists.workingset.streams().passed(page, pages.0, room)
    }

    /// Pages have come back that were last used `distance` ago. Of what was inactive, memory would have kept those that are near.
    pub(crate) fn returned(&mut self, vec: VecId, shadow: Shadow, distance: u32, pages: PageCount) {
        let lists = self.lru.get_mut(vec);
        let room = lists.pages();
        if !shadow.workingset && lists.workingset.pages_in(distance) < u64::from(room) {
            lists.workingset.streams().missed(pages.0, room);
        }
    }

    /// Such a stream has come to `page`, which is in memory now.
    pub(crate) fn drop_behind(&mut self, page: PageIndex, way: Way) {
        let mut at = page;
        for _ in 0..=FAULT_FOLIOS {
            let Some(id) = self.folio_in_region(at, page) else {
                break;
            };
            let folio = self.at(id);
            if !folio.contains(page) {
                self.pass(id);
            }
            let next = match way {
                Way::Up => folio.start.0.checked_sub(1),
                Way::Down => Some(folio.end().0),
                Way::Unknown => None,
            };
            let Some(next) = next else {
                break;
            };
            at = PageIndex(next);
        }
    }

    /// The folio that holds `page`, if that is in the same region as `other`.
    fn folio_in_region(&self, page: PageIndex, other: PageIndex) -> Option<FolioId> {
        let region = self
            .regions
            .of(other)
            .expect("a fault is in a region")
            .range;
        match region.contains(page).then(|| self.leaves.get(page))? {
            Entry::Folio(id) => Some(id),
            _ => None,
        }
    }

    /// A folio is behind the stream.
    fn pass(&mut self, id: FolioId) {
        let folio = *self.folios.get(id);
        let listed = match folio.list {
            ListName::Inactive => folio.state == State::Resident,
            ListName::Limbo => folio.state == State::Limbo,
            _ => false,
        };
        if !listed || folio.is_referenced() || folio.freed.pages > 0 || self.is_coldest(id) {
            return;
        }
        let pages = u64::from(folio.order.pages().0);
        self.count(folio.group, |stat| stat.drop_behind += pages);
        let list = self.unlist(id);
        self.make_coldest(id);
        self.list_old(id, list);
    }
}
