//! The effects of commands on the simulated memory and store, and the failures among them.

use millpond_core::{
    Command, CopyFrom, FoldPart, Frame, InstallError, LeafPages, Outcome, PageRange, Placed,
    SlotId, SlotPart, TakeOutError,
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
        use Command as C;
        let outcome = match command {
            C::Zero { at, frame, .. } => self.zero(at, frame)?,
            C::Load {
                part,
                at,
                frame,
                fresh,
                forgets,
                ..
            } => {
                let outcome = self.load(part, at, frame, fresh)?;
                if forgets && matches!(outcome, Outcome::Installed { .. }) {
                    self.store.forget(part)?;
                }
                outcome
            }
            C::Fold {
                at, frame, fresh, ..
            } => self.fold(parts, at, frame, fresh)?,
            // Memory that a merge hands over may lie across a protection, and only a store could have it page by page.
            C::Rescue { at, frame, .. } => self.place(at, frame, self.siege)?,
            C::Copy {
                at, from, frame, ..
            } => self.copy(at, from, frame)?,
            C::TakeOut { at, frame, .. } => self.take_out(at, frame)?,
            C::TakeOutLeaf { at, frame } => self.take_out_leaf(at, frame, leaf)?,
            C::TakeOutIfBlank { at, frame, .. } => self.take_out_if_blank(at, frame)?,
            C::Save {
                frame,
                slot,
                previous,
                forgets,
                read_from,
                ..
            } => {
                let outcome = self.save(frame, slot, previous, read_from)?;
                if matches!(outcome, Outcome::Stored | Outcome::AllZero)
                    && let Some(part) = previous.filter(|_| forgets)
                {
                    self.store.forget(part)?;
                }
                outcome
            }
            C::ZeroInPlace { part, .. } => {
                self.mmu.zero_in_place(part)?;
                Outcome::Zeroed
            }
            C::Look { part, .. } => {
                self.expect_readable(part)?;
                match self.mmu.is_blank(part, false)? {
                    true => Outcome::Blank,
                    false => Outcome::Written,
                }
            }
            C::Zap { at, .. } => {
                self.forget_failures(at);
                self.mmu.zap(at)?;
                Outcome::Zapped
            }
            C::Poison { at, .. } => self.poison(at)?,
            C::Read {
                at, frame, fresh, ..
            } => self.read_file(at, frame, fresh)?,
            C::WriteBack { at, frame, .. } => self.write_file(at, frame)?,
            C::Release { slot } => {
                self.store.release(slot)?;
                return Ok(None);
            }
            other => unreachable!("{other:?} is carried out at once"),
        };
        Ok(Some(outcome))
    }

    fn zero(&mut self, at: PageRange, frame: Option<Frame>) -> Check<Outcome> {
        if self.inject(self.profile.gone, "gone") {
            return Ok(self.gone(at, frame.is_some()));
        }
        let copy = self.inject(self.profile.copies, "copied");
        let result = self.mmu.install_zero(at, frame, copy)?;
        Ok(self.installed(at, result, frame.is_some()))
    }

    fn copy(&mut self, at: PageRange, from: CopyFrom, frame: Option<Frame>) -> Check<Outcome> {
        if self.inject(self.profile.gone, "gone") {
            return Ok(self.gone(at, frame.is_some()));
        }
        let copy = self.inject(self.profile.copies, "copied");
        let result = self.mmu.copy(at, from, frame, copy)?;
        Ok(self.installed(at, result, frame.is_some()))
    }

    fn load(&mut self, part: SlotPart, at: PageRange, frame: Frame, fresh: bool) -> Check<Outcome> {
        if part.order != frame.order() {
            breach!(at at.start, "load of {part:?} into {frame}");
        }
        let contents = self.store.load(part, &mut self.rng)?;
        let failed = contents.is_none();
        let frame_kept = self.fill(frame, fresh, contents)?;
        if failed {
            Coverage::count(&mut self.coverage.injected, "load failed");
            self.oracle.load_failed(at);
            return Ok(Outcome::LoadFailed { frame_kept });
        }
        self.place(at, frame, false)
    }

    fn fold(
        &mut self,
        parts: &[FoldPart],
        at: PageRange,
        frame: Frame,
        fresh: bool,
    ) -> Check<Outcome> {
        let contents = self.load_parts(parts)?;
        let failed = contents.is_none();
        if contents
            .as_ref()
            .is_some_and(|c| c.len() != at.len.0 as usize)
        {
            breach!(at at.start, "the parts of {at} are {parts:?}");
        }
        let frame_kept = self.fill(frame, fresh, contents)?;
        if failed {
            Coverage::count(&mut self.coverage.injected, "fold failed");
            return Ok(Outcome::InstallSplit { frame_kept });
        }
        self.place(at, frame, false)
    }

    /// Puts the result of a load, if there is one, into its frame. Returns whether the frame is populated: if a load
    /// failed, the kernel may even have had no pages for a fresh frame.
    fn fill(&mut self, frame: Frame, fresh: bool, contents: Option<Vec<Content>>) -> Check<bool> {
        let frame_kept = !(contents.is_none() && fresh && self.rng.chance(300));
        if frame_kept {
            self.mmu.fill(frame, fresh, contents)?;
        }
        Ok(frame_kept)
    }

    fn take_out(&mut self, at: PageRange, frame: Frame) -> Check<Outcome> {
        let busy = self.held || self.inject(self.profile.busy, "busy");
        Ok(match self.mmu.take_out(at, frame, busy)? {
            Ok(()) => Outcome::TakenOut,
            Err(error) => self.not_taken(error),
        })
    }

    fn take_out_leaf(&mut self, at: PageRange, frame: Frame, leaf: &LeafPages) -> Check<Outcome> {
        let busy = self.held || self.inject(self.profile.busy, "busy");
        Ok(match self.mmu.take_out_leaf(at, frame, leaf, busy)? {
            Ok(()) => Outcome::TakenOut,
            Err(_) => Outcome::TakeOutBusy,
        })
    }

    fn take_out_if_blank(&mut self, at: PageRange, frame: Frame) -> Check<Outcome> {
        self.expect_readable(at)?;
        if !self.mmu.is_blank(at, true)? {
            return Ok(Outcome::Written);
        }
        Ok(match self.take_out(at, frame)? {
            Outcome::TakenOut if self.mmu.frame_is_blank(frame)? => Outcome::TakenOutBlank,
            outcome => outcome,
        })
    }

    fn save(
        &mut self,
        frame: Frame,
        slot: SlotId,
        previous: Option<SlotPart>,
        read_from: Option<PageRange>,
    ) -> Check<Outcome> {
        if let Some(at) = read_from {
            let contents = self.mmu.frame(frame)?.to_vec();
            if self.is_as_read(at, &contents)? {
                self.leave_file(at, &contents)?;
                return Ok(Outcome::Unchanged);
            }
        }
        let contents = self.mmu.frame(frame)?;
        let outcome = self.store.save(slot, previous, contents, &mut self.rng)?;
        match outcome {
            Outcome::StoreFull => Coverage::count(&mut self.coverage.injected, "store full"),
            Outcome::StoreFailed => Coverage::count(&mut self.coverage.injected, "save failed"),
            _ => {
                if let Some(at) = read_from {
                    self.become_own(at);
                }
            }
        }
        Ok(outcome)
    }

    fn poison(&mut self, at: PageRange) -> Check<Outcome> {
        // Pages that a base has lost are also lost for its heirs. The oracle is asked when an heir finds one.
        if !self.is_in_base(at) {
            self.oracle.poisoned(at)?;
        }
        self.mmu.poison(at)?;
        Ok(Outcome::Poisoned)
    }

    /// The assembled contents of the parts of a fold, or `None` if the store fails to provide one of them.
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

    pub(crate) fn place(&mut self, at: PageRange, frame: Frame, across: bool) -> Check<Outcome> {
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

    /// The answer for a range whose mapping has changed: a single page is gone; of several pages, some may remain.
    fn gone(&mut self, at: PageRange, frame_kept: bool) -> Outcome {
        if at.len.0 == 1 || self.aside(6).chance(300) {
            return Outcome::InstallGone { frame_kept };
        }
        Coverage::count(&mut self.coverage.injected, "gone in part");
        Outcome::InstallSplit { frame_kept }
    }

    /// The answer for a refused take-out. For any unforeseen error the MMU says that a folio cannot be moved, without
    /// there being a protection and for as long as the error lasts.
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

    /// Randomness that does not advance the run's own.
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
