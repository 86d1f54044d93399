//! The order of the lines, and which of them is selected.
//!
//! Processes of a run stay together under its heading, so runs are sorted by the first of their processes. The
//! selection belongs to a process, not to a place: it moves along when lines change places. When the process
//! disappears, the process that took its place is selected, as in a list from which an item was removed.

use crate::top::columns::Column;
use crate::top::model::{Group, Model, Row, RowId};
use std::cmp::Ordering;

/// The order in which the list is sorted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Order {
    /// The column by which the list is sorted.
    pub column: Column,
    /// Whether the order is reversed.
    pub reversed: bool,
}

impl Default for Order {
    /// The process that is closest to its budget comes first.
    fn default() -> Self {
        Self {
            column: Column::Use,
            reversed: false,
        }
    }
}

/// A line of the list.
#[derive(Clone, Copy, Debug)]
pub enum Line<'a> {
    /// The heading of a run.
    Run(&'a Group),
    /// A process.
    Process {
        /// The process's row.
        row: &'a Row,
        /// Whether the process stands under a heading.
        of_run: bool,
    },
}

impl Order {
    /// Sorts by the next column to the right, or to the left.
    pub fn turn(&mut self, right: bool) {
        let columns = Column::ALL;
        let at = columns.iter().position(|&column| column == self.column);
        let step = if right { 1 } else { columns.len() - 1 };
        self.column = columns[(at.unwrap_or(0) + step) % columns.len()];
    }

    fn compare(self, one: &Row, other: &Row) -> Ordering {
        self.column.compare(one, other, self.reversed)
    }

    /// The lines of the list from top to bottom.
    #[must_use]
    pub fn lines(self, model: &Model) -> Vec<Line<'_>> {
        let mut groups: Vec<(&Group, Vec<&Row>)> = Vec::new();
        for group in model.groups() {
            if group.library {
                // Managers of one program have only the program in common.
                groups.extend(group.rows().iter().map(|row| (group, vec![row])));
                continue;
            }
            let mut rows: Vec<&Row> = group.rows().iter().collect();
            rows.sort_by(|one, other| self.compare(one, other));
            groups.push((group, rows));
        }
        groups.sort_by(|(a, one), (b, other)| match (one.first(), other.first()) {
            (Some(one), Some(other)) => self.compare(one, other),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => a.owner.cmp(&b.owner),
        });
        let mut lines = Vec::new();
        for (group, rows) in groups {
            let of_run = !group.library;
            lines.extend(of_run.then_some(Line::Run(group)));
            lines.extend(rows.into_iter().map(|row| Line::Process { row, of_run }));
        }
        lines
    }
}

/// The processes among lines, from top to bottom.
#[must_use]
pub fn processes(lines: &[Line<'_>]) -> Vec<RowId> {
    let process = |line: &Line<'_>| match line {
        Line::Run(_) => None,
        Line::Process { row, .. } => Some(row.id()),
    };
    lines.iter().filter_map(process).collect()
}

/// The selection: the process on which keys act.
#[derive(Clone, Copy, Debug, Default)]
pub struct Selection {
    id: Option<RowId>,
    /// The place of the selected process among the processes.
    at: usize,
}

impl Selection {
    /// The selected process; `None` when there is none at all.
    #[must_use]
    pub fn id(&self) -> Option<RowId> {
        self.id
    }

    /// Updates the selection for the current processes, from top to bottom.
    pub fn settle(&mut self, there: &[RowId]) {
        let is_at = self
            .id
            .and_then(|id| there.iter().position(|&other| other == id));
        self.move_to(there, is_at.unwrap_or(self.at));
    }

    /// Selects the process `by` places further down, or up if negative; the selection stops at the ends.
    pub fn step(&mut self, there: &[RowId], by: isize) {
        self.settle(there);
        self.move_to(there, self.at.saturating_add_signed(by));
    }

    fn move_to(&mut self, there: &[RowId], at: usize) {
        self.at = at.min(there.len().saturating_sub(1));
        self.id = there.get(self.at).copied();
    }
}
