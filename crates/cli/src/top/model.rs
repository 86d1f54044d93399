//! The model: what is known about the publishing processes, from one look at the boards to the next.
//!
//! The model reads nothing itself, has no clock and does not draw. It receives the contents of the boards and the time,
//! and says which processes there are, what they count each second and what they did before.
//!
//! The table says which processes are shown, and with which figures:
//!
//! | seen | shown |
//! | --- | --- |
//! | for the first time | what there is now; rates are between two writings and not known yet |
//! | written since the last look | everything, rates over the time between the two writings |
//! | not written since | the same, as nothing is known that contradicts it |
//! | not written for [`SILENT_NS`] | what there was; rates are not known: a stopped process counts nothing |
//! | ended, killed, or its board gone | the last that was known, once; then nothing |
//!
//! Released slots are given to other processes, so a row is identified by its board, its slot and the time when the
//! slot was claimed.

use crate::figures::{Figures, Sample};
use crate::top::history::History;
use millpond_board::{Field, SlotReading};

/// A process that has not written for this long is stopped, or its board is not updated: ten or more updates are
/// missing, and its last counts say nothing about its present activity.
pub const SILENT_NS: u64 = 2_000_000_000;
const PAGE: f64 = 4096.0;

/// The state of one board at one moment.
#[derive(Clone, Debug)]
pub struct Look {
    /// The number that distinguishes the board from others.
    pub board: u64,
    /// The process that made the board.
    pub owner: u32,
    /// The board's name.
    pub name: String,
    /// Whether the board is known to be a program's own, not a run's.
    pub library: bool,
    /// The slots of the board, each with whether its process lives.
    pub slots: Vec<(SlotReading, bool)>,
}

/// The identity of a process from look to look.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RowId {
    board: u64,
    slot: usize,
    claimed_ns: u64,
}

/// A process, or one of several managers in it.
#[derive(Debug)]
pub struct Row {
    id: RowId,
    slot: SlotReading,
    /// The figures between the last two updates, once there were two.
    between: Option<Figures>,
    history: History,
    ended: bool,
    silent: bool,
}

/// A board with its processes.
#[derive(Debug)]
pub struct Group {
    board: u64,
    /// The process that made the board.
    pub owner: u32,
    /// The board's name.
    pub name: String,
    /// Whether the board is a program's own: it needs no heading above its processes.
    pub library: bool,
    rows: Vec<Row>,
}

/// The state of all boards.
#[derive(Debug, Default)]
pub struct Model {
    groups: Vec<Group>,
    now_ns: u64,
}

impl Model {
    /// Takes in the boards that were seen at `now_ns`.
    pub fn update(&mut self, now_ns: u64, looks: Vec<Look>) {
        self.now_ns = now_ns;
        for group in &mut self.groups {
            group.rows.retain(|row| !row.ended);
            if !looks.iter().any(|look| look.board == group.board) {
                group.rows.iter_mut().for_each(|row| row.ended = true);
            }
        }
        let is_seen = |group: &Group| looks.iter().any(|look| look.board == group.board);
        self.groups
            .retain(|group| is_seen(group) || !group.rows.is_empty());
        for look in looks {
            let known = self.groups.iter().position(|g| g.board == look.board);
            let at = known.unwrap_or_else(|| {
                self.groups.push(Group::new(&look));
                self.groups.len() - 1
            });
            self.groups[at].update(now_ns, look);
        }
    }

    /// The boards, in the order in which they were found.
    #[must_use]
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// The process with this identity.
    #[must_use]
    pub fn row(&self, id: RowId) -> Option<&Row> {
        let mut rows = self.groups.iter().flat_map(|group| &group.rows);
        rows.find(|row| row.id == id)
    }

    /// The time of the last look.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }
}

impl Group {
    fn new(look: &Look) -> Self {
        Self {
            board: look.board,
            owner: look.owner,
            name: look.name.clone(),
            library: look.library,
            rows: Vec::new(),
        }
    }

    fn update(&mut self, now_ns: u64, look: Look) {
        // A program that has dropped its last manager has an empty board, which looks like a run's before its start.
        self.library |= look.library;
        self.name = look.name;
        let mut seen = Vec::with_capacity(look.slots.len());
        for (slot, alive) in look.slots {
            let id = RowId {
                board: self.board,
                slot: slot.number,
                claimed_ns: slot.claimed_ns,
            };
            seen.push(id);
            match self.rows.iter_mut().find(|row| row.id == id) {
                Some(row) => row.update(now_ns, slot, alive),
                None if alive => self.rows.push(Row::new(now_ns, id, slot)),
                None => {}
            }
        }
        for row in &mut self.rows {
            row.ended |= !seen.contains(&row.id);
        }
    }

    /// The processes of the board, by their slots.
    #[must_use]
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }
}

impl Row {
    fn new(now_ns: u64, id: RowId, slot: SlotReading) -> Self {
        Self {
            id,
            silent: is_silent(now_ns, &slot),
            slot,
            between: None,
            history: History::default(),
            ended: false,
        }
    }

    fn update(&mut self, now_ns: u64, slot: SlotReading, alive: bool) {
        self.ended = !alive;
        self.silent = is_silent(now_ns, &slot);
        let (from, to) = (self.slot.published_ns, slot.published_ns);
        if to <= from {
            return;
        }
        let before = Sample::of_one(self.slot.clone(), true);
        let figures = Figures::new(&Sample::of_one(slot.clone(), true), Some(&before));
        let rate = |name| figures.rate(name);
        let rates = [
            rate("pgmajfault"),
            rate("pswpin") * PAGE,
            rate("pswpout") * PAGE,
            rate("allocstall"),
        ];
        self.history.add(from, to, rates);
        self.between = Some(figures);
        self.slot = slot;
    }

    /// The identity of the process.
    #[must_use]
    pub fn id(&self) -> RowId {
        self.id
    }

    /// The slot as last written by the process.
    #[must_use]
    pub fn slot(&self) -> &SlotReading {
        &self.slot
    }

    /// The value of `field` when the process wrote last.
    #[must_use]
    pub fn get(&self, field: Field) -> u64 {
        self.slot.fields.get(field)
    }

    /// The figures derived from the last two updates; `None` if there were fewer than two, or the last is too long ago.
    #[must_use]
    pub fn recent(&self) -> Option<&Figures> {
        self.between.as_ref().filter(|_| !self.silent)
    }

    /// The figures derived from the process's whole life.
    #[must_use]
    pub fn since_start(&self) -> Figures {
        Figures::new(&Sample::of_one(self.slot.clone(), !self.ended), None)
    }

    /// The history of the last two minutes.
    #[must_use]
    pub fn history(&self) -> &History {
        &self.history
    }

    /// Whether the process has ended; it will disappear after the next look.
    #[must_use]
    pub fn ended(&self) -> bool {
        self.ended
    }
}

fn is_silent(now_ns: u64, slot: &SlotReading) -> bool {
    now_ns.saturating_sub(slot.published_ns) > SILENT_NS
}
