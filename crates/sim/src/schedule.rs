//! Commands under way: the effect that happens next, and the completion that is reported next.
//!
//! The driver carries out commands on any thread and in any order, and any amount of time may pass between an effect
//! and the moment when the core is told. So each command has two moments here, drawn independently: its effect on the
//! simulated world, and its completion. Any of the commands under way may be next; some are held back for a long time.
//!
//! The rules that do not depend on the world's actions are checked when a command comes in: a folio is in one command
//! at a time, and no frame or page is in two commands at once.

use millpond_core::{
    Command, CopyFrom, Event, FoldPart, Frame, LeafPages, Outcome, PageRange, SlotId,
};

use crate::mmu::overlap;
use crate::report::{Check, breach, command_folio, command_range};
use crate::rng::Rng;

/// A command that has been given but not answered.
#[derive(Clone, Debug)]
pub struct Pending {
    /// The command.
    pub command: Command,
    /// The parts of a fold.
    pub parts: Vec<FoldPart>,
    /// The pages of a leaf to be taken out.
    pub leaf: LeafPages,
    /// The ranges that may contain the folio to copy from.
    pub lenders: Vec<PageRange>,
    /// The actor whose event the command came with.
    pub owner: usize,
    /// The event for the core, once the command has had its effect.
    pub answer: Option<Event>,
    /// Nothing happens to the command before this step.
    pub not_before: u64,
    /// The batch of a discard to which this command belongs: all parts are reported to the core at once.
    pub batch: Option<u64>,
}

/// All commands under way.
#[derive(Debug, Default)]
pub struct Schedule {
    pending: Vec<Pending>,
    /// Answers that have been partly reported to the core. Their commands are over, and clash with none.
    half_told: Vec<Pending>,
}

/// The event for the core when `command` has had its effect, with `outcome` if `command` names a folio.
///
/// # Panics
/// When `command` needs no answer.
#[must_use]
pub fn answer(command: &Command, outcome: Option<Outcome>) -> Event {
    match (*command, command_folio(command), outcome) {
        (Command::FreeFrame { frame }, ..) => Event::FrameFreed { frame },
        (Command::Release { slot }, ..) => Event::SlotReleased { slot },
        (Command::TakeOutLeaf { at, .. }, _, Some(outcome)) => Event::LeafTakenOut {
            at,
            taken: outcome == Outcome::TakenOut,
        },
        (_, Some(folio), Some(outcome)) => Event::Completed { folio, outcome },
        _ => panic!("{command:?} with {outcome:?} has no answer"),
    }
}

/// The pages that a command reads or changes.
fn pages(command: &Command) -> impl Iterator<Item = PageRange> {
    let source = match *command {
        Command::Copy {
            at,
            from: CopyFrom::Mapped(first),
            ..
        } => Some(PageRange::new(first, at.len)),
        _ => None,
    };
    command_range(command).into_iter().chain(source)
}

/// The frames that a command works on, each with the number of frames in its run.
fn frames(command: &Command) -> impl Iterator<Item = (Frame, u32)> {
    let len = match command {
        Command::TakeOutLeaf { at, .. } => at.len.0,
        _ => 1,
    };
    let source = match *command {
        Command::Copy {
            from: CopyFrom::Frame { frame, .. },
            ..
        } => Some(frame),
        _ => None,
    };
    let all = command_frame(command).into_iter().chain(source);
    all.map(move |frame| (frame, len))
}

/// Whether two runs of frames have one in common.
fn meet(a: (Frame, u32), b: (Frame, u32)) -> bool {
    let end = |(first, len): (Frame, u32)| first.index() + len;
    a.0.order() == b.0.order() && a.0.index() < end(b) && b.0.index() < end(a)
}

/// The frame that a command fills, empties or saves.
#[must_use]
pub fn command_frame(command: &Command) -> Option<Frame> {
    match *command {
        Command::Zero { frame, .. } | Command::Copy { frame, .. } => frame,
        Command::Load { frame, .. }
        | Command::Fold { frame, .. }
        | Command::Rescue { frame, .. }
        | Command::TakeOut { frame, .. }
        | Command::TakeOutIfBlank { frame, .. }
        | Command::TakeOutLeaf { frame, .. }
        | Command::Read { frame, .. }
        | Command::WriteBack { frame, .. }
        | Command::Save { frame, .. }
        | Command::FreeFrame { frame } => Some(frame),
        _ => None,
    }
}

/// The slots that a command reads, and the slot that it changes.
fn slots(command: &Command, parts: &[FoldPart]) -> (Vec<SlotId>, Option<SlotId>) {
    match *command {
        Command::Load { part, .. } => (vec![part.slot], None),
        Command::Fold { .. } => (parts.iter().filter_map(|part| part.slot).collect(), None),
        Command::Save { slot, previous, .. } => {
            (previous.iter().map(|part| part.slot).collect(), Some(slot))
        }
        Command::Release { slot } => (Vec::new(), Some(slot)),
        _ => (Vec::new(), None),
    }
}

impl Schedule {
    /// Takes a command in.
    ///
    /// # Errors
    /// The command meets another one: the same folio, frame, page, or (if one of them changes it) slot.
    pub fn add(&mut self, new: Pending) -> Check {
        let folio = command_folio(&new.command);
        let folio = folio.filter(|_| new.batch.is_none());
        let same = |p: &&Pending| folio.is_some() && command_folio(&p.command) == folio;
        if let Some(other) = self.pending.iter().find(same) {
            breach!(
                "{:?} while {:?} is not answered: same folio",
                new.command,
                other.command
            );
        }
        self.expect_no_clash(&new.command, &new.parts)?;
        self.pending.push(new);
        Ok(())
    }

    /// Whether `command` may be given concurrently with those under way.
    ///
    /// # Errors
    /// The frame, a page or a changed slot is in use.
    pub fn expect_no_clash(&self, command: &Command, parts: &[FoldPart]) -> Check {
        let is_wake = matches!(command, Command::Wake { .. });
        for other in &self.pending {
            if frames(command).any(|a| frames(&other.command).any(|b| meet(a, b))) {
                breach!(
                    "{command:?} while {:?} is not answered: same frame",
                    other.command
                );
            }
            let meets = |a: &PageRange| pages(&other.command).any(|b| overlap(*a, b));
            if let Some(a) = pages(command).find(meets).filter(|_| !is_wake) {
                breach!(at a.start, "{command:?} while {:?} is not answered: same pages", other.command);
            }
            let (mine, theirs) = (slots(command, parts), slots(&other.command, &other.parts));
            let meets = |a: &(Vec<SlotId>, Option<SlotId>), b: &(Vec<SlotId>, Option<SlotId>)| {
                a.1.is_some_and(|slot| b.1 == Some(slot) || b.0.contains(&slot))
            };
            if meets(&mine, &theirs) || meets(&theirs, &mine) {
                breach!(
                    "{command:?} while {:?} is not answered: same slot",
                    other.command
                );
            }
        }
        Ok(())
    }

    /// Chooses a command that may continue at `step`, and returns its place.
    pub fn choose(&self, step: u64, rng: &mut Rng) -> Option<usize> {
        if self.pending.is_empty() {
            return None;
        }
        let from = rng.below(self.pending.len() as u32) as usize;
        let n = self.pending.len();
        (0..n)
            .map(|i| (from + i) % n)
            .find(|&i| self.pending[i].not_before <= step)
    }

    /// The earliest step at which a command may continue.
    #[must_use]
    pub fn next_step(&self) -> Option<u64> {
        let all = self.pending.iter().chain(&self.half_told);
        all.map(|p| p.not_before).min()
    }

    /// Keeps a command whose answer the core requests again. It will be reported later: anything may happen in between.
    pub fn told_in_part(&mut self, pending: Pending) {
        self.half_told.push(pending);
    }

    /// Takes out a command whose answer may be reported again at `step`.
    pub fn tell_again(&mut self, step: u64) -> Option<Pending> {
        let due = |p: &Pending| p.not_before <= step;
        let place = self.half_told.iter().position(due)?;
        Some(self.half_told.swap_remove(place))
    }

    /// The command at `place`.
    pub fn get_mut(&mut self, place: usize) -> &mut Pending {
        &mut self.pending[place]
    }

    /// Takes the command at `place` out, because it has been answered.
    pub fn remove(&mut self, place: usize) -> Pending {
        self.pending.swap_remove(place)
    }

    /// Records that a part of `batch` had its effect. The parts wait for each other, and then until `told` to be
    /// reported together.
    pub fn part_done(&mut self, batch: u64, told: u64) {
        let parts = self.pending.iter_mut().filter(|p| p.batch == Some(batch));
        let mut parts: Vec<_> = parts.collect();
        let all = parts.iter().all(|part| part.answer.is_some());
        for part in &mut parts {
            if part.answer.is_some() {
                part.not_before = if all { told } else { u64::MAX };
            }
        }
    }

    /// Takes all parts of a batch out, to report them to the core.
    pub fn remove_batch(&mut self, batch: u64) -> Vec<Pending> {
        let is_part = |p: &mut Pending| p.batch == Some(batch);
        self.pending.extract_if(.., is_part).collect()
    }

    /// The commands under way.
    pub fn iter(&self) -> impl Iterator<Item = &Pending> {
        self.pending.iter()
    }

    /// The number of commands under way.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pending.len()
    }

    /// Whether a command under way concerns folios.
    #[must_use]
    pub fn has_flights(&self) -> bool {
        let about_folios = |p: &Pending| {
            command_folio(&p.command).is_some() || matches!(p.command, Command::TakeOutLeaf { .. })
        };
        self.pending.iter().chain(&self.half_told).any(about_folios)
    }

    /// Whether no command is under way.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pending.is_empty() && self.half_told.is_empty()
    }

    /// The command under way that unmaps or maps a page of `range`, if there is one.
    #[must_use]
    pub fn touches(&self, range: PageRange) -> Option<Command> {
        let meets = |p: &&Pending| pages(&p.command).any(|at| overlap(at, range));
        self.pending.iter().find(meets).map(|p| p.command)
    }

    /// Pages of the folios that are in flight.
    #[must_use]
    pub fn pages(&self) -> u64 {
        let of = |p: &Pending| match (command_range(&p.command), p.command) {
            (_, Command::TakeOutLeaf { .. }) => u64::from(p.leaf.len()),
            (Some(at), _) => u64::from(at.len.0),
            (None, Command::Save { frame, .. }) => u64::from(frame.order().pages().0),
            _ => 0,
        };
        self.pending.iter().map(of).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millpond_core::{FolioId, Order, PageCount, PageIndex};

    fn zap(folio: u32, start: u32, len: u32) -> Pending {
        let at = PageRange::new(PageIndex(start), PageCount(len));
        let folio = FolioId(folio);
        let command = Command::Zap { folio, at };
        Pending {
            parts: Vec::new(),
            leaf: LeafPages::NONE,
            lenders: Vec::new(),
            command,
            owner: 0,
            answer: None,
            not_before: 0,
            batch: None,
        }
    }

    #[test]
    fn clashes_are_breaches() {
        let mut schedule = Schedule::default();
        schedule.add(zap(1, 0, 4)).unwrap();
        assert!(schedule.add(zap(1, 8, 4)).is_err(), "same folio");
        assert!(schedule.add(zap(2, 3, 4)).is_err(), "same pages");
        schedule.add(zap(2, 4, 4)).unwrap();
        let frame = Frame::new(Order::ZERO, 0);
        let folio = FolioId(3);
        let command = Command::Save {
            folio,
            frame,
            slot: SlotId(1),
            previous: None,
            forgets: false,
            read_from: None,
        };
        schedule
            .add(Pending {
                parts: Vec::new(),
                leaf: LeafPages::NONE,
                lenders: Vec::new(),
                command,
                owner: 0,
                answer: None,
                not_before: 0,
                batch: None,
            })
            .unwrap();
        assert!(
            schedule
                .expect_no_clash(&Command::FreeFrame { frame }, &[])
                .is_err(),
            "same frame"
        );
        assert!(
            schedule
                .expect_no_clash(&Command::Release { slot: SlotId(1) }, &[])
                .is_err()
        );
        assert_eq!(schedule.pages(), 9);
    }

    #[test]
    fn a_command_that_is_held_back_is_not_chosen() {
        let mut schedule = Schedule::default();
        schedule
            .add(Pending {
                not_before: 5,
                ..zap(1, 0, 4)
            })
            .unwrap();
        let mut rng = Rng::new(1);
        assert_eq!(schedule.choose(4, &mut rng), None);
        assert_eq!(schedule.choose(5, &mut rng), Some(0));
        assert_eq!(schedule.next_step(), Some(5));
    }
}
