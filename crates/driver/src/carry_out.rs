//! Carries out commands, and reports their results to the core.
//!
//! Each round has four phases, until the core asks for no more:
//!
//! 1. frames go back to the kernel first, because the other commands may need the room;
//! 2. commands that the MMU can carry out more efficiently together are combined: take-outs, zaps, the zeros of a
//!    window;
//! 3. the rest are carried out one by one: loads, rescues, saves;
//! 4. all results are reported to the core under one lock, as far as its answers fit in the list.

use crate::driver::Driver;
use crate::memory::Memory;
use crate::reclaim::give_way;
use crate::state::config::OnStoreFull;
use arrayvec::ArrayVec;
use millpond_core::limits::{ANSWER_COMMANDS, FOLD_PARTS, MAX_COMMANDS};
use millpond_core::{
    Command, Commands, Event, FillOrInstallError, FilledAndInstalled, FoldPart, FolioId, Frame,
    InstallError, Load, LoadError, Outcome, PAGE_SIZE, PageRange, Placed, Reply, SaveError, Saved,
    SlotId, SlotPart, TakeOutError,
};
use millpond_mmu::report;
use millpond_sync::atomic::Ordering;
use millpond_sync::time::Instant;
use std::mem;

/// Results on their way to the core.
struct Results(ArrayVec<Event, MAX_COMMANDS>);

impl Results {
    fn new() -> Self {
        Self(ArrayVec::new())
    }

    fn push(&mut self, event: Event) {
        self.0.push(event);
    }

    fn completed(&mut self, folio: FolioId, outcome: Outcome) {
        self.push(Event::Completed { folio, outcome });
    }
}

/// A bounded list of the subjects of all commands of one kind.
type Batch<T> = ArrayVec<T, MAX_COMMANDS>;

/// Outcome of the install among the commands, if there was one.
pub type Installed = Option<Outcome>;

impl<M: Memory> Driver<M> {
    /// Carries out `commands` and all further commands that the core answers with; the list is empty afterwards.
    pub fn carry_out(&self, commands: &mut Commands) -> Installed {
        let mut installed = None;
        while !commands.is_empty() {
            let mut results = Results::new();
            // A fault has one or two commands: it need not pay for the lists of other kinds.
            let any = |kind: fn(&Command) -> bool| commands.iter().any(|command| kind(&command));
            if any(|command| matches!(command, Command::FreeFrame { .. })) {
                self.free_frames(commands, &mut results);
            }
            if any(|command| {
                matches!(
                    command,
                    Command::TakeOut { .. } | Command::TakeOutIfBlank { .. }
                )
            }) {
                self.take_out(commands, &mut results);
            }
            if !commands.leaf_pages().is_empty() {
                self.take_out_leaf(commands, &mut results);
            }
            if any(|command| matches!(command, Command::Zap { .. })) {
                self.zap(commands, &mut results);
            }
            let zeros = |command: &&Command| matches!(command, Command::Zero { .. });
            let together = commands.iter().filter(|command| zeros(&command)).count() > 1;
            let mut zeroed = together
                .then(|| self.zero(commands, &mut results))
                .flatten();
            for command in commands.iter() {
                let outcome = match command {
                    Command::Zero { .. } if together => zeroed.take(),
                    _ => self.carry_out_one(command, commands, &mut results),
                };
                // The requested folio comes first; the others are the rest of its window.
                installed = installed.or(outcome);
            }
            commands.clear();
            self.report(&results, commands);
        }
        installed
    }

    /// Reports the results to the core. If the list is full, its commands are carried out in between.
    fn report(&self, results: &Results, commands: &mut Commands) {
        let mut core = self.lock();
        for event in &results.0 {
            if commands.room() < ANSWER_COMMANDS {
                drop(core);
                self.carry_out(commands);
                core = self.lock();
            }
            while let Reply::More { .. } = core.handle(*event, commands) {
                drop(core);
                self.carry_out(commands);
                give_way();
                core = self.lock();
            }
        }
        drop(core);
        if self.waiters_for_any.load(Ordering::SeqCst) > 0 {
            self.settled.notify_all();
        }
    }

    fn free_frames(&self, commands: &Commands, results: &mut Results) {
        let mut frames = Batch::new();
        for command in commands.iter() {
            if let Command::FreeFrame { frame } = command {
                frames.push(frame);
                results.push(Event::FrameFreed { frame });
            }
        }
        if !frames.is_empty() {
            self.mmu.free_frames(&frames);
        }
    }

    fn take_out(&self, commands: &Commands, results: &mut Results) {
        let mut work = Batch::new();
        let mut folios = Batch::new();
        for command in commands.iter() {
            match command {
                Command::TakeOut { folio, at, frame } => {
                    work.push((at, frame));
                    folios.push((folio, false));
                }
                Command::TakeOutIfBlank { folio, at, frame } => {
                    if self.mmu.is_blank(at, true) {
                        work.push((at, frame));
                        folios.push((folio, true));
                    } else {
                        results.completed(folio, Outcome::Written);
                    }
                }
                _ => {}
            }
        }
        if work.is_empty() {
            return;
        }
        let mut taken: Batch<_> = work.iter().map(|_| Ok(())).collect();
        let take_out = || self.mmu.take_out_all(&work, &mut taken);
        self.traces.call(work.iter().map(|&(at, _)| at), take_out);
        for (&(folio, blank), (&(_, frame), taken)) in folios.iter().zip(work.iter().zip(taken)) {
            results.completed(
                folio,
                match taken {
                    Ok(()) if blank && self.is_zeros(frame) => Outcome::TakenOutBlank,
                    Ok(()) => Outcome::TakenOut,
                    Err(TakeOutError::Busy) => Outcome::TakeOutBusy,
                    Err(TakeOutError::Immovable) => Outcome::TakeOutImmovable,
                },
            );
        }
    }

    /// Takes out a leaf by its table.
    fn take_out_leaf(&self, commands: &Commands, results: &mut Results) {
        for command in commands.iter() {
            let Command::TakeOutLeaf { at, frame } = command else {
                continue;
            };
            let taken = self.mmu.take_out_leaf(at, frame, commands.leaf_pages());
            self.traces.leaf(at);
            let taken = taken.is_ok();
            results.push(Event::LeafTakenOut { at, taken });
        }
    }

    /// Maps zeros for several folios. Returns the outcome of the first one.
    fn zero(&self, commands: &Commands, results: &mut Results) -> Installed {
        let mut work = Batch::new();
        let mut folios = Batch::new();
        for command in commands.iter() {
            if let Command::Zero { folio, at, frame } = command {
                work.push((at, frame));
                folios.push(folio);
            }
        }
        let mut placed: Batch<_> = work.iter().map(|_| Err(InstallError::Gone)).collect();
        self.mmu.install_zero_all(&work, &mut placed);
        let mut first = None;
        for (folio, ((_, frame), placed)) in folios.into_iter().zip(work.iter().zip(placed)) {
            let outcome = install_outcome(placed, frame.is_some());
            first = first.or(Some(outcome));
            results.completed(folio, outcome);
        }
        first
    }

    fn is_zeros(&self, frame: Frame) -> bool {
        let mut zeros = false;
        self.mmu.read_frame(frame, &mut |bytes| {
            let blank = |line: &[u8]| line.iter().fold(0, |sum, byte| sum | byte) == 0;
            zeros = bytes.chunks(512).all(blank);
        });
        zeros
    }

    fn zap(&self, commands: &Commands, results: &mut Results) {
        let mut ranges: Batch<PageRange> = Batch::new();
        for command in commands.iter() {
            let Command::Zap { folio, at } = command else {
                continue;
            };
            results.completed(folio, Outcome::Zapped);
            match ranges.last_mut() {
                Some(last) if last.end() == at.start => last.len.0 += at.len.0,
                _ => ranges.push(at),
            }
        }
        if !ranges.is_empty() {
            self.mmu.zap(&ranges);
        }
    }

    /// Carries out a command that is not combined with others. Returns the outcome of an install.
    fn carry_out_one(&self, command: Command, all: &Commands, results: &mut Results) -> Installed {
        let (folio, outcome) = match command {
            Command::Zero { folio, at, frame } => {
                let placed = self.mmu.install_zero(at, frame);
                (folio, install_outcome(placed, frame.is_some()))
            }
            Command::Copy {
                folio,
                at,
                from,
                frame,
            } => {
                let placed = self.mmu.copy(at, from, frame);
                (folio, install_outcome(placed, frame.is_some()))
            }
            Command::Rescue { folio, at, frame } => {
                (folio, install_outcome(self.mmu.install(frame, at), true))
            }
            Command::Load {
                folio,
                part,
                at,
                frame,
                fresh,
                forgets,
            } => {
                let outcome = self.load_and_install(part, at, frame, fresh);
                if forgets && matches!(outcome, Outcome::Installed { .. }) {
                    self.store.forget(part);
                }
                (folio, outcome)
            }
            Command::Fold {
                folio,
                parts,
                at,
                frame,
                fresh,
            } => (
                folio,
                self.load_and_install_fold(all.parts(parts), at, frame, fresh),
            ),
            Command::Read {
                folio,
                at,
                frame,
                fresh,
            } => (folio, self.read_and_install(at, frame, fresh)),
            other => {
                self.carry_out_quietly(other, results);
                return None;
            }
        };
        results.completed(folio, outcome);
        Some(outcome)
    }

    /// Carries out a command that is not combined with others and installs nothing.
    fn carry_out_quietly(&self, command: Command, results: &mut Results) {
        match command {
            Command::Save {
                folio,
                frame,
                slot,
                previous,
                forgets,
                read_from,
            } => {
                let outcome = self.save(frame, slot, previous, read_from);
                if matches!(outcome, Outcome::Stored | Outcome::AllZero)
                    && let Some(part) = previous.filter(|_| forgets)
                {
                    self.store.forget(part);
                }
                results.completed(folio, outcome);
            }
            Command::ZeroInPlace { folio, part, .. } => {
                self.mmu.zero_in_place(part);
                results.completed(folio, Outcome::Zeroed);
            }
            Command::Look { folio, part, .. } => {
                let outcome = match self.mmu.is_blank(part, false) {
                    true => Outcome::Blank,
                    false => Outcome::Written,
                };
                results.completed(folio, outcome);
            }
            Command::Release { slot } => {
                self.store.release(slot);
                results.push(Event::SlotReleased { slot });
            }
            Command::Wake { at } => {
                self.mmu.wake(at);
                self.wake_waiters();
            }
            Command::Poison { folio, at } => {
                self.poison(at);
                results.completed(folio, Outcome::Poisoned);
            }
            Command::WriteBack { folio, at, frame } => {
                results.completed(folio, self.write_back(at, frame));
            }
            Command::Zero { .. }
            | Command::Copy { .. }
            | Command::Rescue { .. }
            | Command::Load { .. }
            | Command::Fold { .. }
            | Command::Read { .. } => unreachable!("{command:?} installs"),
            // These commands are combined, and were already carried out.
            Command::FreeFrame { .. }
            | Command::TakeOut { .. }
            | Command::TakeOutIfBlank { .. }
            | Command::TakeOutLeaf { .. }
            | Command::Zap { .. } => {}
        }
    }

    /// Maps a part of a slot at `at`.
    fn load_and_install(
        &self,
        part: SlotPart,
        at: PageRange,
        frame: Frame,
        fresh: bool,
    ) -> Outcome {
        let load = &mut |bytes: &mut [u8]| self.load(part, bytes);
        filled_outcome(self.mmu.fill_and_install(frame, fresh, at, load))
    }

    /// Maps the parts of a fold, put together, at `at`. A fold that cannot be loaded is then read page by page, and
    /// only the pages that cannot be read are lost.
    fn load_and_install_fold(
        &self,
        parts: &[FoldPart],
        at: PageRange,
        frame: Frame,
        fresh: bool,
    ) -> Outcome {
        let load = &mut |bytes: &mut [u8]| self.load_parts(parts, bytes);
        match filled_outcome(self.mmu.fill_and_install(frame, fresh, at, load)) {
            Outcome::LoadFailed { frame_kept } => Outcome::InstallSplit { frame_kept },
            outcome => outcome,
        }
    }

    fn save(
        &self,
        frame: Frame,
        slot: SlotId,
        previous: Option<SlotPart>,
        read_from: Option<PageRange>,
    ) -> Outcome {
        let mut saved = Err(SaveError::Io(0));
        let began = Instant::now();
        self.mmu.read_frame(frame, &mut |bytes| {
            let save = || self.store.save(slot, previous, bytes);
            saved = match read_from {
                Some(at) => self.save_if_changed(at, bytes, save),
                None => save(),
            };
        });
        let (pages, took) = (frame.order().pages().0.into(), began.elapsed());
        match saved {
            Ok(Saved::Stored) => self.saves.stored(pages, took, previous.is_some()),
            Ok(Saved::Unchanged) => self.saves.unchanged(pages, took),
            Ok(Saved::AllZero) | Err(_) => {}
        }
        self.save_outcome(saved)
    }

    /// Loads a slot's part. I/O errors can be transient: the load is tried again before a page is given up. Damaged
    /// data is not read again.
    fn load(&self, part: SlotPart, bytes: &mut [u8]) -> Result<(), LoadError> {
        const ATTEMPTS: usize = 3;
        let bytes = &mut bytes[..part.order.bytes()];
        let mut result = Err(LoadError::Missing);
        for _ in 0..ATTEMPTS {
            result = self.store.load(part.slot, part.first, bytes);
            if !matches!(result, Err(LoadError::Io(_))) {
                break;
            }
        }
        if let Err(error) = result {
            self.store_failures.fetch_add(1, Ordering::Relaxed);
            say(format_args!(
                "the store cannot give back {} bytes ({error:?}): they are lost; whoever touches them gets SIGBUS",
                bytes.len()
            ));
        }
        result
    }

    fn load_parts(&self, parts: &[FoldPart], mut bytes: &mut [u8]) -> Result<(), LoadError> {
        let mut loads = ArrayVec::<Load<'_>, FOLD_PARTS>::new();
        for part in parts {
            let pages = usize::from(part.pages);
            let (out, rest) = mem::take(&mut bytes).split_at_mut(pages * PAGE_SIZE);
            bytes = rest;
            match part.slot {
                Some(slot) => loads.push(Load {
                    slot,
                    first_page: part.first,
                    out,
                }),
                None => out.fill(0),
            }
        }
        self.store.load_all(&mut loads)
    }

    fn save_outcome(&self, saved: Result<Saved, SaveError>) -> Outcome {
        match saved {
            Ok(Saved::Stored) => Outcome::Stored,
            Ok(Saved::Unchanged) => Outcome::Unchanged,
            Ok(Saved::AllZero) => Outcome::AllZero,
            Err(error) => {
                self.store_refused(error);
                match error {
                    SaveError::Full => Outcome::StoreFull,
                    SaveError::Io(_) => Outcome::StoreFailed,
                }
            }
        }
    }

    /// Writes a line about the store's first refusal; later refusals are only counted.
    fn store_refused(&self, error: SaveError) {
        let first = self.store_failures.fetch_add(1, Ordering::Relaxed) == 0;
        let what = match error {
            SaveError::Full => "is full",
            SaveError::Io(_) => "failed",
        };
        match self.on_store_full {
            OnStoreFull::Exceed if first => say(format_args!(
                "the store {what} ({error:?}): what it does not take stays in RAM, above the budget; \
                 give a larger store or a larger budget"
            )),
            OnStoreFull::Exceed => {}
            OnStoreFull::Abort => {
                report::stop(format_args!(
                    "the store {what} ({error:?}): stopping, as asked; give a larger store or a larger budget"
                ));
            }
        }
    }

    /// Writes a line about pages that are lost.
    pub(crate) fn say_lost(&self, at: PageRange) {
        let from = self.mmu.address(at.start);
        say(format_args!("lost: {} bytes at {from:#x}", at.len.bytes()));
    }

    /// Wakes every thread that waits until something has settled.
    pub fn wake_waiters(&self) {
        if self.waiters.load(Ordering::SeqCst) > 0 {
            self.settled.notify_all();
        }
    }
}

pub(crate) fn filled_outcome(brought: FilledAndInstalled) -> Outcome {
    let frame_kept = brought.populated;
    match brought.outcome {
        Ok(()) => Outcome::Installed { frame_kept },
        Err(FillOrInstallError::Fill(_)) => Outcome::LoadFailed { frame_kept },
        Err(FillOrInstallError::Install(InstallError::Split)) => {
            Outcome::InstallSplit { frame_kept }
        }
        Err(FillOrInstallError::Install(InstallError::Gone)) => Outcome::InstallGone { frame_kept },
    }
}

fn install_outcome(placed: Result<Placed, InstallError>, has_frame: bool) -> Outcome {
    match placed {
        Ok(placed) => Outcome::Installed {
            frame_kept: has_frame && placed == Placed::Copied,
        },
        Err(InstallError::Split) => Outcome::InstallSplit {
            frame_kept: has_frame,
        },
        Err(InstallError::Gone) => Outcome::InstallGone {
            frame_kept: has_frame,
        },
    }
}

/// Writes a line about the store. Under the test scheduler a store fails a thousand times on purpose, so nothing is
/// written there.
pub(crate) fn say(message: std::fmt::Arguments<'_>) {
    if cfg!(not(feature = "shuttle")) {
        report::line(message);
    }
}
