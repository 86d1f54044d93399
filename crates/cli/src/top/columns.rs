//! The columns of the list: what each shows of a process, how wide it is, and which columns are dropped first.
//!
//! A terminal may have any width. Columns are taken in the order of their importance as long as there is room, and
//! shown in the order in which they are declared. An unknown value is a dash, and sorts after all others in both
//! directions.

use crate::numbers::Thousands;
use crate::size::Human;
use crate::top::model::Row;
use millpond_board::Field;
use std::cmp::Ordering;

const PAGE: u64 = 4096;

/// A column, in the order from left to right.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Column {
    /// The process's number.
    Pid,
    /// The process's program, or the name that the library's user gives the manager.
    Name,
    /// The budget.
    Budget,
    /// The resident set as a part of the budget.
    Use,
    /// The resident set.
    Resident,
    /// Memory that waits in RAM for a second touch.
    Limbo,
    /// Memory in RAM that is lazily freed.
    Lazy,
    /// Memory in RAM that holds pages of files.
    Files,
    /// Bytes in the store, before compression.
    Store,
    /// Bytes that the store takes for its contents.
    Stored,
    /// Bytes in the store before compression, divided by the bytes that the store takes for its contents.
    Ratio,
    /// Faults a second that read from the store.
    Major,
    /// Bytes a second from the store.
    In,
    /// Bytes a second to the store.
    Out,
    /// Times a second that a fault reclaimed memory itself.
    Stalls,
    /// Per cent of the last 10 seconds in which some thread waited for memory.
    Some10,
    /// Per cent of the last 10 seconds in which all threads that used any memory waited for it.
    Full10,
}

impl Column {
    /// All columns, from left to right.
    pub const ALL: [Self; 17] = [
        Self::Pid,
        Self::Name,
        Self::Budget,
        Self::Use,
        Self::Resident,
        Self::Limbo,
        Self::Lazy,
        Self::Files,
        Self::Store,
        Self::Stored,
        Self::Ratio,
        Self::Major,
        Self::In,
        Self::Out,
        Self::Stalls,
        Self::Some10,
        Self::Full10,
    ];

    /// The heading of the column, the number of cells that it needs, and its place in the order of importance.
    const fn form(self) -> (&'static str, u16, u8) {
        match self {
            Self::Pid => ("PID", 7, 0),
            Self::Name => ("NAME", 10, 1),
            Self::Budget => ("BUDGET", 8, 3),
            Self::Use => ("USE", 10, 2),
            Self::Resident => ("RSS", 8, 7),
            Self::Limbo => ("LIMBO", 8, 12),
            Self::Lazy => ("LAZY", 8, 15),
            Self::Files => ("FILES", 8, 16),
            Self::Store => ("STORE", 8, 6),
            Self::Stored => ("TAKES", 8, 14),
            Self::Ratio => ("RATIO", 6, 11),
            Self::Major => ("MAJOR/s", 8, 4),
            Self::In => ("IN/s", 8, 9),
            Self::Out => ("OUT/s", 8, 10),
            Self::Stalls => ("STALL/s", 8, 8),
            Self::Some10 => ("SOME%", 6, 5),
            Self::Full10 => ("FULL%", 6, 13),
        }
    }

    /// The heading of the column.
    #[must_use]
    pub const fn heading(self) -> &'static str {
        self.form().0
    }

    /// Whether the column is text: text begins at the left, numbers end at the right.
    #[must_use]
    pub const fn is_text(self) -> bool {
        matches!(self, Self::Name)
    }

    /// The column's value for a process, to sort by and to draw; `None` if it is unknown, and for text.
    #[must_use]
    pub fn value(self, row: &Row) -> Option<f64> {
        let bytes = |field| row.get(field) as f64;
        let known = |field| Some(bytes(field)).filter(|&value| value > 0.0);
        let rate = |name| row.recent().map(|figures| figures.rate(name));
        let bytes_a_second = |name| rate(name).map(|pages| pages * PAGE as f64);
        let percent = |field| row.get(field) as f64 / 100.0;
        match self {
            Self::Pid => Some(f64::from(row.slot().pid)),
            Self::Name => None,
            Self::Budget => known(Field::Budget),
            Self::Use => Some(known(Field::Rss)? / known(Field::Budget)?),
            Self::Resident => known(Field::Rss),
            Self::Limbo => Some(bytes(Field::NrLimbo) * PAGE as f64),
            Self::Lazy => Some(bytes(Field::LazyFree)),
            Self::Files => Some(bytes(Field::NrFilePages) * PAGE as f64),
            Self::Store => Some(bytes(Field::StoreLogical)),
            Self::Stored => Some(bytes(Field::StoreStored)),
            Self::Ratio => Some(bytes(Field::StoreLogical) / known(Field::StoreStored)?),
            Self::Major => rate("pgmajfault"),
            Self::In => bytes_a_second("pswpin"),
            Self::Out => bytes_a_second("pswpout"),
            Self::Stalls => rate("allocstall"),
            Self::Some10 => Some(percent(Field::PressureSome10)),
            Self::Full10 => Some(percent(Field::PressureFull10)),
        }
    }

    /// The text that is shown for a process.
    #[must_use]
    pub fn text(self, row: &Row) -> String {
        if self == Self::Name {
            return row.slot().name.clone();
        }
        let Some(value) = self.value(row) else {
            return "-".to_owned();
        };
        match self {
            Self::Pid | Self::Name => row.slot().pid.to_string(),
            Self::Use => format!("{:.0} %", value * 100.0),
            Self::Major | Self::Stalls => count(value),
            Self::Ratio | Self::Some10 | Self::Full10 => format!("{value:.1}"),
            _ => Human(value.round() as u64).to_string(),
        }
    }

    /// Decides which of two processes comes first: the one with the larger value, or the one with the lower number or
    /// name.
    #[must_use]
    pub fn compare(self, one: &Row, other: &Row, reversed: bool) -> Ordering {
        let turned = |order: Ordering| if reversed { order.reverse() } else { order };
        let order = match (self.value(one), self.value(other)) {
            (Some(a), Some(b)) if self == Self::Pid => turned(a.total_cmp(&b)),
            (Some(a), Some(b)) => turned(b.total_cmp(&a)),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) if self == Self::Name => turned(one.slot().name.cmp(&other.slot().name)),
            (None, None) => Ordering::Equal,
        };
        let number = |row: &Row| (row.slot().pid, row.slot().number);
        order.then_with(|| number(one).cmp(&number(other)))
    }
}

/// A number of events a second: small numbers have one decimal place.
#[must_use]
pub fn count(value: f64) -> String {
    if value > 0.0 && value < 9.95 {
        format!("{value:.1}")
    } else {
        Thousands(value.round() as u64).to_string()
    }
}

/// The columns that fit `width` cells, each with its own width; the name has the cells that the others leave.
#[must_use]
pub fn fitting(width: u16) -> Vec<(Column, u16)> {
    let mut by_importance = Column::ALL;
    by_importance.sort_unstable_by_key(|column| column.form().2);
    let mut left = width;
    let mut fitting = Vec::new();
    for column in by_importance {
        // There is a space between two columns; the first one is cut short rather than left out.
        let needed = column.form().1 + u16::from(!fitting.is_empty());
        if needed > left && !fitting.is_empty() {
            break;
        }
        left = left.saturating_sub(needed);
        fitting.push(column);
    }
    let width = |column: Column| {
        let own = column.form().1;
        (column, own + if column == Column::Name { left } else { 0 })
    };
    let shown = Column::ALL
        .into_iter()
        .filter(|column| fitting.contains(column));
    shown.map(width).collect()
}
