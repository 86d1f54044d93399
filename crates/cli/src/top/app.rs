//! The state of the user interface: the list or one process, and how keys change it.

use crate::top::columns::Column;
use crate::top::keys::Action;
use crate::top::model::{Look, Model, RowId};
use crate::top::order::{Order, Selection, processes};
use std::time::Duration;

/// What to do after a key has been handled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// Show the present state.
    Draw,
    /// Redraw the whole screen, whose contents are unknown.
    Redraw,
    /// Give the terminal back for a while.
    Suspend,
    /// End the program.
    Leave,
}

/// Everything that decides what is shown.
#[derive(Debug)]
pub struct App {
    /// The known processes.
    pub model: Model,
    /// The order of the list.
    pub order: Order,
    /// The selection in the list.
    pub selection: Selection,
    /// The process whose details are shown.
    pub open: Option<RowId>,
    /// Whether the list of keys is shown.
    pub help: bool,
    /// The requested process or run.
    pub only: Option<u32>,
    /// The number of boards of another version.
    pub foreign: usize,
    /// The time between two looks.
    pub interval: Duration,
    looked: bool,
}

impl App {
    /// The state before the first look. `only` limits it to one process or run.
    #[must_use]
    pub fn new(only: Option<u32>, interval: Duration) -> Self {
        Self {
            model: Model::default(),
            order: Order::default(),
            selection: Selection::default(),
            open: None,
            help: false,
            only,
            foreign: 0,
            interval,
            looked: false,
        }
    }

    /// Takes in the boards that were seen at `now_ns`, and the number of boards of another version.
    pub fn look(&mut self, now_ns: u64, looks: Vec<Look>, foreign: usize) {
        let looks = match self.only {
            Some(pid) => only(looks, pid),
            None => looks,
        };
        self.model.update(now_ns, looks);
        self.foreign = foreign;
        let there = self.settle();
        let first = !std::mem::replace(&mut self.looked, true);
        // A user who asks for one process wants to see that one.
        if let ([id], true, Some(_)) = (&there[..], first, self.only) {
            self.open = Some(*id);
        }
    }

    /// Acts on a key.
    pub fn act(&mut self, action: Action) -> Next {
        match action {
            Action::Leave => return Next::Leave,
            Action::Suspend => return Next::Suspend,
            Action::Redraw => return Next::Redraw,
            Action::Back if self.help => self.help = false,
            Action::Back if self.open.is_none() => return Next::Leave,
            Action::Back => self.open = None,
            Action::Help => self.help = !self.help,
            Action::Open if self.open.is_some() => self.open = None,
            Action::Open => self.open = self.selection.id(),
            Action::Step(by) => {
                let there = processes(&self.order.lines(&self.model));
                self.selection.step(&there, by);
                if self.open.is_some() {
                    self.open = self.selection.id();
                }
            }
            Action::Sort { right } => self.order.turn(right),
            Action::Reverse => self.order.reversed = !self.order.reversed,
        }
        self.settle();
        Next::Draw
    }

    /// Updates the parts that refer to processes, and returns the current processes.
    fn settle(&mut self) -> Vec<RowId> {
        let there = processes(&self.order.lines(&self.model));
        self.selection.settle(&there);
        self.open = self.open.filter(|id| there.contains(id));
        there
    }

    /// The keys that currently have an effect, for the last line.
    #[must_use]
    pub fn keys(&self) -> &'static str {
        match (self.help, self.open) {
            (false, _) => "? keys  q leave",
            (true, None) => {
                "j/k select  Enter look closer  </> sort by  r reverse  ^Z pause  q leave"
            }
            (true, Some(_)) => "j/k another  Enter, Esc the list  ^Z pause  q leave",
        }
    }

    /// An arrow for the direction of the sorting, if the list is sorted by `column`.
    #[must_use]
    pub fn sorted(&self, column: Column) -> Option<char> {
        let arrow = if self.order.reversed { '▲' } else { '▼' };
        (column == self.order.column).then_some(arrow)
    }
}

/// The part of `looks` that is about `pid`: all of its run, or of its program, or that one process.
fn only(looks: Vec<Look>, pid: u32) -> Vec<Look> {
    let part = |mut look: Look| {
        if look.owner != pid {
            look.slots.retain(|(slot, _)| slot.pid == pid);
        }
        (look.owner == pid || !look.slots.is_empty()).then_some(look)
    };
    looks.into_iter().filter_map(part).collect()
}
