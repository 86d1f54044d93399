//! The effects of commands on the simulated memory and store, and the failures among them.

use millpond_core::{
    Command, FoldPart, InstallError, LeafPages, Outcome, PageRange, Placed, TakeOutError,
};

use crate::actor::Ear;
use crate::mmu::{BLANK, Content};
use crate::report::{Check, Coverage, breach};
use crate::rng::Rng;
use crate::world::World;

impl World {
    /// Carries out the effect of a command on memory and store.
    pub(crate) fn carry_out(
        &mut self,
        command: Command,
        parts: &[FoldPart],
        leaf: &LeafPages,
    ) -> Check<Option<Outcome>> {
        let outcome = match command {
            Command::Zero { at, frame, .. } => {
                if self.inject(self.profile.gone, "gone") {
                    return Ok(Some(self.gone(at, frame.is_some())));
                }
                let copy = self.inject(self.profile.copies, "copied");
                let result = self.mmu.install_zero(at, frame, copy)?;
                self.installed(at, result, frame.is_some())
            }
            Command::Load {
                part,
                at,
                frame,
                fresh,
                ..
            } => {
                if part.order != frame.order() {
                    breach!(at at.start, "load of {part:?} into {frame}");
                }
                let contents = self.store.load(part, &mut self.rng)?;
                let failed = contents.is_none();
                // The kernel may even have had no pages for a fresh frame.
                let frame_kept = !(failed && fresh && self.rng.chance(300));
                if frame_kept {
                    self.mmu.fill(frame, fresh, contents)?;
                }
                if failed {
                    Coverage::count(&mut self.coverage.injected, "load failed");
                    self.oracle.load_failed(at);
                    return Ok(Some(Outcome::LoadFailed { frame_kept }));
                }
                self.place(at, frame, false)?
            }
            Command::Fold {
                at, frame, fresh, ..
            } => {
                let contents = self.load_parts(parts)?;
                let failed = contents.is_none();
                if contents
                    .as_ref()
                    .is_some_and(|c| c.len() != at.len.0 as usize)
                {
                    breach!(at at.start, "the parts of {at} are {parts:?}");
                }
                let frame_kept = !(failed && fresh && self.rng.chance(300));
                if frame_kept {
                    self.mmu.fill(frame, fresh, contents)?;
                }
                if failed {
                    Coverage::count(&mut self.coverage.injected, "fold failed");
                    return Ok(Some(Outcome::InstallSplit { frame_kept }));
                }
                self.place(at, frame, false)?
            }
            // Memory that a merge hands over may lie across a protection, and only a store could have it page by page.
            Command::Rescue { at, frame, .. } => self.place(at, frame, self.siege)?,
            Command::Copy {
                at, from, frame, ..
            } => {
                if self.inject(self.profile.gone, "gone") {
                    return Ok(Some(self.gone(at, frame.is_some())));
                }
                let copy = self.inject(self.profile.copies, "copied");
                let result = self.mmu.copy(at, from, frame, copy)?;
                self.installed(at, result, frame.is_some())
            }
            Command::TakeOut { at, frame, .. } => {
                let busy = self.held || self.inject(self.profile.busy, "busy");
                match self.mmu.take_out(at, frame, busy)? {
                    Ok(()) => Outcome::TakenOut,
                    Err(error) => self.not_taken(error),
                }
            }
            Command::TakeOutLeaf { at, frame } => {
                let busy = self.held || self.inject(self.profile.busy, "busy");
                match self.mmu.take_out_leaf(at, frame, leaf, busy)? {
                    Ok(()) => Outcome::TakenOut,
                    Err(_) => Outcome::TakeOutBusy,
                }
            }
            Command::Save {
                frame,
                slot,
                previous,
                ..
            } => {
                let outcome =
                    self.store
                        .save(slot, previous, self.mmu.frame(frame)?, &mut self.rng)?;
                match outcome {
                    Outcome::StoreFull => {
                        Coverage::count(&mut self.coverage.injected, "store full");
                    }
                    Outcome::StoreFailed => {
                        Coverage::count(&mut self.coverage.injected, "save failed");
                    }
                    _ => {}
                }
                outcome
            }
            Command::TakeOutIfBlank { at, frame, .. } => {
                self.expect_readable(at)?;
                if !self.mmu.is_blank(at, true)? {
                    return Ok(Some(Outcome::Written));
                }
                let busy = self.held || self.inject(self.profile.busy, "busy");
                match self.mmu.take_out(at, frame, busy)? {
                    Ok(()) if self.mmu.frame_is_blank(frame)? => Outcome::TakenOutBlank,
                    Ok(()) => Outcome::TakenOut,
                    Err(error) => self.not_taken(error),
                }
            }
            Command::Clear { part, .. } => {
                self.mmu.clear(part)?;
                Outcome::Cleared
            }
            Command::Look { part, .. } => {
                self.expect_readable(part)?;
                match self.mmu.is_blank(part, false)? {
                    true => Outcome::Blank,
                    false => Outcome::Written,
                }
            }
            Command::Zap { at, .. } => {
                self.mmu.zap(at)?;
                Outcome::Zapped
            }
            Command::Poison { at, .. } => {
                // The heirs of a base find what it has lost to be lost: they are asked about it when they do.
                if !self.is_in_base(at) {
                    self.oracle.poisoned(at)?;
                }
                self.mmu.poison(at)?;
                Outcome::Poisoned
            }
            Command::Read {
                at, frame, fresh, ..
            } => self.read_file(at, frame, fresh)?,
            Command::WriteBack { at, frame, .. } => self.write_file(at, frame)?,
            Command::Release { slot } => {
                self.store.release(slot)?;
                return Ok(None);
            }
            other => unreachable!("{other:?} is carried out at once"),
        };
        Ok(Some(outcome))
    }

    /// The contents of the parts of a fold, put together, or `None` when the store fails to give one of them.
    fn load_parts(&mut self, parts: &[FoldPart]) -> Check<Option<Vec<Content>>> {
        let mut all = Vec::new();
        for part in parts {
            let pages = usize::from(part.pages);
            match part.slot {
                None => all.resize(all.len() + pages, BLANK),
                Some(slot) => match self
                    .store
                    .load_pages(slot, part.first, pages, &mut self.rng)?
                {
                    Some(contents) => all.extend(contents),
                    None => return Ok(None),
                },
            }
        }
        Ok(Some(all))
    }

    pub(crate) fn place(
        &mut self,
        at: PageRange,
        frame: millpond_core::Frame,
        across: bool,
    ) -> Check<Outcome> {
        if self.inject(self.profile.gone, "gone") {
            return Ok(self.gone(at, true));
        }
        let copy = self.inject(self.profile.copies, "copied");
        let result = self.mmu.install(frame, at, copy, across)?;
        Ok(self.installed(at, result, true))
    }

    fn installed(
        &mut self,
        at: PageRange,
        result: Result<Placed, InstallError>,
        had_frame: bool,
    ) -> Outcome {
        match result {
            Ok(placed) => {
                self.wake(at, Ear::Installs);
                Outcome::Installed {
                    frame_kept: had_frame && placed == Placed::Copied,
                }
            }
            Err(InstallError::Split) => Outcome::InstallSplit {
                frame_kept: had_frame,
            },
            Err(InstallError::Gone) => Outcome::InstallGone {
                frame_kept: had_frame,
            },
        }
    }

    /// The answer for a range whose mapping has changed: a single page is gone; of more pages there may be a part.
    fn gone(&mut self, at: PageRange, frame_kept: bool) -> Outcome {
        if at.len.0 == 1 || self.aside(6).chance(300) {
            return Outcome::InstallGone { frame_kept };
        }
        Coverage::count(&mut self.coverage.injected, "gone in part");
        Outcome::InstallSplit { frame_kept }
    }

    /// The answer for a take-out that was refused. The MMU says that a folio cannot be moved for any error that it does
    /// not foresee, without a protection and for as long as it takes.
    fn not_taken(&mut self, error: TakeOutError) -> Outcome {
        match error {
            TakeOutError::Busy if !self.held && self.aside(7).chance(250) => {
                Coverage::count(&mut self.coverage.injected, "immovable for a while");
                Outcome::TakeOutImmovable
            }
            TakeOutError::Busy => Outcome::TakeOutBusy,
            TakeOutError::Immovable => Outcome::TakeOutImmovable,
        }
    }

    /// Randomness that leaves the run's own as it is.
    fn aside(&self, what: u64) -> Rng {
        Rng::new(self.rng.clone().word() ^ what)
    }

    fn inject(&mut self, per_mille: u32, what: &'static str) -> bool {
        let hit = !self.calm && self.rng.chance(per_mille);
        if hit {
            Coverage::count(&mut self.coverage.injected, what);
        }
        hit
    }
}
