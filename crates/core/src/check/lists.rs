//! Checks of the lists: which folios are on which list, in what order, and what each list counts.

use crate::check::ensure;
use crate::ids::{ANON, FILE, FolioId, KINDS, ListName, VecId};
use crate::machine::Core;
use crate::tables::folio::{Folio, State};
use crate::tables::lru::{EVICTABLE, List, UNWATCHED, WATCHED, is_exception, kind_of};

impl Core {
    pub(super) fn check_list_of(&self, id: FolioId, folio: &Folio) -> Result<(), String> {
        let stuck = folio.pins > 0 || folio.immovable;
        let right = match (folio.state, folio.list) {
            (State::Resident, ListName::Unevictable) => stuck && !folio.lazy,
            (State::Resident, ListName::Active | ListName::Inactive) => !stuck && !folio.lazy,
            (State::Limbo, ListName::Limbo | ListName::LimboActive) => !folio.lazy,
            (State::Resident | State::Limbo, ListName::LazyFree) => folio.lazy && !stuck,
            (State::Resident | State::Limbo, _) => false,
            (_, list) => list == ListName::None,
        };
        ensure!(
            right,
            "{id:?}, {:?} with {} pins, is on list {:?}",
            folio.state,
            folio.pins,
            folio.list
        );
        let active = match folio.list {
            ListName::Active | ListName::LimboActive => folio.is_active(),
            ListName::Inactive | ListName::Limbo => !folio.is_active(),
            _ => true,
        };
        ensure!(
            active,
            "{id:?} on {:?} is taken for another kind",
            folio.list
        );
        ensure!(
            !folio.lazy || folio.slot().is_none(),
            "{id:?} was lazily freed, but keeps a slot"
        );
        ensure!(
            folio.pins == 0 || folio.state == State::Resident,
            "pinned {id:?} is {:?}",
            folio.state
        );
        Ok(())
    }

    pub(super) fn check_lists(&self) -> Result<(), String> {
        let in_part = |folio: &Folio| folio.lazy_part.pages > 0 && folio.state != State::Zeroing;
        let in_parts = || self.folios.iter().filter(|(_, folio)| in_part(folio));
        ensure!(
            in_parts().all(|(id, _)| self.deferred.contains(&id))
                && in_parts().count() == self.deferred.len(),
            "not just the folios that were freed in part wait to be split: {:?}",
            self.deferred
        );
        let mut listed = 0;
        let mut totals = [[0; KINDS]; ListName::ALL.len()];
        for (vec, lists) in self.lru.iter() {
            ensure!(
                lists.workingset.curve.is_bounded(),
                "a miniature of {vec:?} holds more than it has seats"
            );
            let mut marked = ListName::ALL.iter().flat_map(|&name| {
                let marks = lists.lists(name).filter_map(List::youngest_marked);
                marks.map(move |id| (name, id))
            });
            ensure!(
                marked.all(|(name, id)| self.folios.get(id).list == name),
                "a mark of {vec:?} is on a folio that has left its list"
            );
            let sizes = [ANON, FILE].map(|kind| {
                let pages = EVICTABLE.map(|name| lists.pages_in(name, kind));
                pages.into_iter().sum::<u32>()
            });
            ensure!(
                sizes == lists.sizes(),
                "{vec:?} counts {:?} pages, has {sizes:?}",
                lists.sizes()
            );
            let all: u32 = ListName::ALL.map(|name| lists.pages_of(name)).iter().sum();
            ensure!(
                all == lists.pages(),
                "{vec:?} counts {} pages, has {all}",
                lists.pages()
            );
            for &name in ListName::ALL.iter().skip(1) {
                for kind in [ANON, FILE] {
                    for part in [UNWATCHED, WATCHED] {
                        let list = lists.list(name, kind, part);
                        listed += self.check_list(vec, list, name, (kind, part))?;
                        totals[name as usize][kind] += list.pages();
                    }
                }
            }
        }
        for name in ListName::ALL {
            let said = [ANON, FILE].map(|kind| self.lru.total_in(name, kind));
            ensure!(
                totals[name as usize] == said,
                "all of {name:?} count {said:?} pages, have {:?}",
                totals[name as usize]
            );
        }
        let should = self
            .folios
            .iter()
            .filter(|(_, folio)| folio.list != ListName::None)
            .count();
        ensure!(
            listed == should,
            "{should} folios say they are listed, {listed} are found on lists"
        );
        Ok(())
    }

    fn check_list(
        &self,
        vec: VecId,
        list: &List,
        name: ListName,
        (kind, part): (usize, u8),
    ) -> Result<usize, String> {
        let (mut pages, mut folios, mut exceptions) = (0, 0, 0);
        let mut at = list.oldest();
        while let Some(id) = at {
            let folio = self.folios.get(id);
            ensure!(
                folio.list == name,
                "{id:?} on {name:?} says {:?}",
                folio.list
            );
            ensure!(
                self.lru.of(folio) == vec,
                "{id:?} of {:?}, {:?} is on {name:?} of {vec:?}",
                folio.group,
                folio.node
            );
            let of_all = matches!(name, ListName::LazyFree | ListName::Unevictable);
            ensure!(
                of_all || kind_of(folio) == kind,
                "{id:?}, {:?}, is on {name:?} of another kind",
                folio.kind()
            );
            ensure!(
                of_all || folio.part() == part,
                "{id:?} of part {} is on {name:?} of part {part}",
                folio.part()
            );
            pages += folio.order.pages().0;
            folios += 1;
            exceptions += u32::from(is_exception(folio, name));
            at = list.younger(&self.folios, id);
        }
        ensure!(
            pages == list.pages(),
            "{name:?} counts {} pages, has {pages}",
            list.pages()
        );
        ensure!(
            folios == list.folios() as usize,
            "{name:?} counts {} folios, has {folios}",
            list.folios()
        );
        ensure!(
            exceptions == list.exceptions(),
            "{name:?} counts {} exceptions, has {exceptions}",
            list.exceptions()
        );
        Ok(folios)
    }
}
