//! What somebody who watches has in front of them: the list or one process, and what a key changes of it.

use crate::top::columns::Column;
use crate::top::keys::Action;
use crate::top::model::{Look, Model, RowId};
use crate::top::order::{Order, Selection, processes};
use std::time::Duration;

/// What to do when a key has been acted on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// Show what there is now.
    Draw,
    /// The same on a terminal that may show anything.
    Redraw,
    /// Give the terminal back for a while.
    Suspend,
    /// End.
    Leave,
}

/// Everything that decides what is shown.
#[derive(Debug)]
pub struct App {
    /// What is known.
    pub model: Model,
    /// How the list is sorted.
    pub order: Order,
    /// What is selected in it.
    pub selection: Selection,
    /// The process that is looked at closely.
    pub open: Option<RowId>,
    /// The keys are shown.
    pub help: bool,
    /// The process or run that was asked for.
    pub only: Option<u32>,
    /// Boards of another version.
    pub foreign: usize,
    /// Time between two looks.
    pub interval: Duration,
    looked: bool,
}

impl App {
    /// Before the first look; `only` one process or run, or everybody.
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

    /// Takes in what was seen at `now_ns`, with so many boards that are of another version.
    pub fn look(&mut self, now_ns: u64, looks: Vec<Look>, foreign: usize) {
        let looks = match self.only {
            Some(pid) => only(looks, pid),
            None => looks,
        };
        self.model.update(now_ns, looks);
        self.foreign = foreign;
        let there = self.settle();
        let first = !std::mem::replace(&mut self.looked, true);
        // Who asks for one process wants to see that one.
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

    /// Brings up to date what refers to processes; the processes that there are.
    fn settle(&mut self) -> Vec<RowId> {
        let there = processes(&self.order.lines(&self.model));
        self.selection.settle(&there);
        self.open = self.open.filter(|id| there.contains(id));
        there
    }

    /// The keys that do something now, for the last line.
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

    /// The column that is sorted by, with an arrow that says which way.
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
