//! Checks of the backing of folios: frames, slots in the store, and the bases of snapshots.

use crate::check::ensure;
use crate::machine::Core;
use crate::tables::folio::{Errand, Folio, State};
use crate::tables::frames::PlaceState;
use crate::tables::swap::SlotState;
use std::collections::HashMap;

impl Core {
    /// Checks that the busy places are those that folios name, each once.
    pub(super) fn check_frames(&self) -> Result<(), String> {
        let mut named = Vec::new();
        for (id, folio) in self.folios.iter() {
            let Some(frame) = folio.frame else {
                let has_none = matches!(
                    folio.state,
                    State::Resident
                        | State::Zapping
                        | State::Poisoning
                        | State::Filling
                        | State::Zeroing
                        | State::Looking
                        | State::Lending
                );
                ensure!(has_none, "{id:?} is {:?} without a frame", folio.state);
                continue;
            };
            ensure!(
                folio.state != State::Resident,
                "resident {id:?} keeps frame {frame}"
            );
            ensure!(
                frame.order() == folio.order,
                "{id:?} of {:?} names frame {frame}",
                folio.order
            );
            ensure!(
                self.frames.node_of(frame) == folio.node,
                "{id:?} of {:?} names frame {frame} of another node",
                folio.node
            );
            ensure!(
                self.frames.state_of(frame) == Some(PlaceState::Busy),
                "{id:?} names idle frame {frame}"
            );
            named.push(frame);
        }
        named.sort_unstable();
        if let Some(twice) = named.windows(2).find(|two| two[0] == two[1]) {
            return Err(format!("frame {} is named twice", twice[0]));
        }
        for frame in self.frames.busy() {
            ensure!(
                named.binary_search(&frame).is_ok() || self.leaves_to(frame),
                "frame {frame} is busy for nobody"
            );
        }
        Ok(())
    }

    /// Checks that each slot's live pages are the entries that name it, or the folio that it backs or fills.
    pub(super) fn check_slots(&self, mut live: Vec<u32>) -> Result<(), String> {
        let mut folds = 0;
        for (id, folio) in self.folios.iter() {
            if let Some(slot) = folio.slot() {
                live[slot.0 as usize] += folio.order.pages().0;
                let (pages, first) = (folio.order.pages().0, u32::from(folio.slot_first));
                ensure!(
                    first % pages == 0 && first + pages <= self.slots.get(slot).order.pages().0,
                    "{id:?} is backed by {pages} pages from page {first} of {slot:?}, which has no such part"
                );
            }
            if let Errand::Fold(fold) = folio.errand {
                for part in self.folds.get(fold).as_slice() {
                    if let Some(slot) = part.slot {
                        live[slot.0 as usize] += u32::from(part.pages);
                    }
                }
                folds += 1;
            }
            if folio.state == State::Saving && !folio.is_in_file() {
                let slot = folio.saved_as();
                ensure!(
                    self.slots.get(slot).state == SlotState::Saving,
                    "{slot:?} of {id:?} is not being saved"
                );
            }
        }
        ensure!(
            folds == self.folds.len(),
            "{} folds are kept, {folds} are under way",
            self.folds.len()
        );
        for (id, slot) in self.slots.iter() {
            let found = std::mem::take(&mut live[id.0 as usize]);
            let said = if slot.state == SlotState::Held {
                slot.live
            } else {
                0
            };
            ensure!(
                found == said,
                "{id:?}, {:?}, counts {said} live pages, has {found}",
                slot.state
            );
            ensure!(
                slot.state != SlotState::Held || said > 0,
                "{id:?} is held for nobody"
            );
        }
        let releasing = self
            .slots
            .iter()
            .filter(|(_, slot)| slot.state == SlotState::Releasing)
            .count();
        ensure!(
            releasing == self.releasing as usize,
            "releases: said {}, are {releasing}",
            self.releasing
        );
        if let Some(free) = live.iter().position(|&pages| pages > 0) {
            return Err(format!("free slot {free} is named"));
        }
        Ok(())
    }

    /// Checks that heirs are counted and do not inherit in a circle, and that each folio that is being copied has its
    /// own lender.
    pub(super) fn check_bases(&self) -> Result<(), String> {
        let mut heirs: HashMap<_, u32> = HashMap::new();
        for (id, region) in self.regions.iter() {
            let Some(base) = region.base else { continue };
            let Some(found) = self.regions.get(base) else {
                return Err(format!("{id:?} inherits from {base:?}, which is gone"));
            };
            ensure!(
                found.heirs > 0,
                "{id:?} inherits from {base:?}, which has no heirs"
            );
            *heirs.entry(base).or_insert(0) += 1;
            let (mut at, mut steps) = (Some(base), 0);
            while let Some(next) = at {
                ensure!(next != id && steps < 1 << 20, "{id:?} inherits from itself");
                at = self.regions.get(next).and_then(|region| region.base);
                steps += 1;
            }
        }
        for (id, region) in self.regions.iter() {
            let found = heirs.get(&id).copied().unwrap_or(0);
            ensure!(
                found == region.heirs,
                "{id:?} counts {} heirs, has {found}",
                region.heirs
            );
        }
        let lent = |folio: &Folio| matches!(folio.state, State::Lending | State::LendingFrame);
        let mut lenders: Vec<_> = self
            .folios
            .iter()
            .filter(|(_, f)| lent(f))
            .map(|(id, _)| id)
            .collect();
        for (id, folio) in self.folios.iter() {
            if folio.state == State::Filling && folio.errand == Errand::Copy {
                let Some(found) = lenders.iter().position(|&lender| lender == folio.lender())
                else {
                    return Err(format!("{id:?} is copied from nobody"));
                };
                lenders.swap_remove(found);
            }
        }
        ensure!(lenders.is_empty(), "{lenders:?} are lent to nobody");
        Ok(())
    }
}
