//! Stuck memory: folios that cannot leave do not keep the others from leaving.
//!
//! A take-out can be refused for reasons invisible to user space: a device reads into the page, io_uring has registered
//! it, `process_vm_readv` holds a thousand pages while it waits for the very fault that reclaims. Such a folio is
//! *busy*. Nothing reports when it no longer is, so it has to be tried again, and the question is when.
//!
//! *The next victim.* A busy folio is in use, so it counts as used now. It goes behind all that may still leave, and
//! its turn comes again after these have been tried. In an early version it kept its age: a folio that a stream had
//! left behind was older than anything else, was busy, and was the next victim forever, while the rest of memory stayed
//! untouched.
//!
//! *When to give up.* Each lruvec counts the refusals since a folio last left. When there are as many refusals as
//! mapped folios, all were asked: reclaim gives no more commands, and if limbo is also empty, a fault is served above
//! the limit and counted, with a single page. The alternatives are to hang and to lose data. The count restarts with
//! every folio that leaves, and with each tick (100 ms), as nothing reports when a page is free again.
//!
//! *A large folio of which a part is held* is held as a whole. Two hundred threads that waited in `read` held 8 MiB in
//! pieces of 16 KiB, and with them 50 MiB of folios. While most requests are refused, each refused folio is halved, so
//! that after a few rounds only the parts that are held stay. Folios are not halved earlier, because most calls are
//! short, and a whole folio comes back by one fault.
//!
//! *A folio whose mapping does not let it go* ([`TakeOutImmovable`](crate::Outcome::TakeOutImmovable)) waits on the
//! unevictable list. The program reports changes of protection, but memory can also be held in place in other ways (a
//! lock by a system call that is not intercepted). So with each tick a few of these folios are tried again, oldest
//! first.
//!
//! If the guess is wrong (the kernel released a page a moment ago), memory stays above the limit for a tick.

use crate::addr::PageCount;
use crate::command::Commands;
use crate::ids::{FolioId, GroupId, ListName, VecId};
use crate::limits::{HALVED_LEAST, LOOK_AGAIN};
use crate::machine::Core;
use crate::stats::Excess;
use crate::tables::lru::Lruvec;

impl Lruvec {
    /// Number of mapped folios that reclaim may ask for.
    fn asked(&self) -> u32 {
        let lists = [ListName::Active, ListName::Inactive];
        lists
            .into_iter()
            .flat_map(|name| self.lists(name))
            .map(|list| list.folios())
            .sum()
    }

    /// Whether half of the mapped folios or more were asked for, and refused, since a folio left.
    fn is_mostly_refused(&self) -> bool {
        2 * self.refusals >= self.asked()
    }

    /// Whether all mapped folios were asked for, and refused, since a folio left.
    pub(crate) fn is_stuck(&self) -> bool {
        self.refusals >= self.asked()
    }
}

impl Core {
    /// Notes that the kernel holds a page of a folio that was to be taken out: the folio is in use, and stays.
    pub(crate) fn is_busy(&mut self, id: FolioId, out: &mut Commands) {
        self.stat.takeout_busy += 1;
        let lists = self.lruvec_of(id);
        lists.refusals = lists.refusals.saturating_add(1);
        let age = lists.workingset.tick();
        let is_halved = lists.is_mostly_refused();
        self.folios.get_mut(id).age = age;
        self.stays(id, ListName::Active);
        if is_halved {
            self.halve(id, out);
        }
    }

    /// Splits a folio of which the kernel may hold only a part, if the region's orders are adaptive.
    fn halve(&mut self, id: FolioId, out: &mut Commands) {
        let (order, at) = (self.folios.get(id).order, self.at(id));
        if order > HALVED_LEAST && self.may_split(at.start) {
            self.split_at(id, at.start.plus(order.pages().0 / 2), out);
        }
    }

    /// Notes that a folio has left the program's memory: folios that were busy may be asked for again.
    pub(crate) fn has_left(&mut self, id: FolioId) {
        self.lruvec_of(id).refusals = 0;
    }

    /// Whether no folio of `scope`, and of the groups below it, can leave memory now: nothing is in flight, limbo is
    /// empty, and every mapped folio was asked for and refused, or must stay.
    pub(crate) fn nothing_leaves(&self, scope: GroupId) -> bool {
        if !self.is_quiet() || scope == GroupId::ROOT && self.limbo > 0 {
            return false;
        }
        let below = |vec: VecId| self.groups.is_below(self.lru.group(vec), scope);
        let mut vecs = self.lru.iter().filter(|&(vec, _)| below(vec));
        vecs.all(|(vec, lists)| {
            let group = self.groups.get(self.lru.group(vec));
            group.limbo == 0 && lists.is_stuck()
        })
    }

    /// Records which pages held the memory when a fault was served above the limit because nothing could leave.
    pub(crate) fn note_excess(&mut self) {
        let mapped = [ListName::Active, ListName::Inactive].map(|name| self.lru.total(name));
        self.excess = Excess {
            stays: PageCount(self.lru.total(ListName::Unevictable)),
            refused: PageCount(mapped.into_iter().sum()),
        };
    }

    /// The pages that held the memory when a fault was last served above the limit because nothing could leave.
    #[must_use]
    pub fn excess(&self) -> Excess {
        self.excess
    }

    /// Notes that some time has passed: folios that were refused may be asked for again.
    pub(crate) fn look_again(&mut self) {
        for vec in self.lru.ids() {
            self.lru.get_mut(vec).refusals = 0;
            for _ in 0..LOOK_AGAIN {
                let Some(id) = self.lru.get(vec).oldest_beside_immovable() else {
                    break;
                };
                self.lru.make_youngest(&mut self.folios, id);
                if self.folios.get(id).pins == 0 {
                    self.unlist(id);
                    self.folios.get_mut(id).immovable = false;
                    let age = self.lruvec_of(id).workingset.now();
                    self.folios.get_mut(id).age = age;
                    self.list(id, ListName::Inactive);
                }
            }
        }
    }

    /// Whether every mapped folio of `group`, without the groups below it, was asked for and refused since one left.
    #[must_use]
    pub fn all_refused(&self, group: GroupId) -> bool {
        let mut own = self
            .lru
            .iter()
            .filter(|&(vec, _)| self.lru.group(vec) == group);
        own.all(|(_, lists)| lists.is_stuck())
    }

    /// Number of folios that reclaim would take and that, as far as is known, the kernel does not release.
    #[must_use]
    pub fn refused_folios(&self) -> u32 {
        self.lru
            .iter()
            .map(|(_, lists)| lists.refusals.min(lists.asked()))
            .sum()
    }
}
