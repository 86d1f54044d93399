//! Boards for the tests, and the drawn screens as text.

mod drawing;
mod model;
mod selecting;

use crate::top::app::App;
use crate::top::model::Look;
use millpond_board::{Field, Fields, SlotReading, State};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use std::time::Duration;

const SECOND: u64 = 1_000_000_000;
const MIB: u64 = 1 << 20;
const PAGES: u64 = MIB / 4096;

/// A process that was claimed in the first second, as it wrote at `published_ns`.
fn slot(pid: u32, name: &str, published_ns: u64, values: &[(Field, u64)]) -> SlotReading {
    let mut fields = Fields::default();
    for &(field, value) in values {
        fields.set(field, value);
    }
    SlotReading {
        number: pid as usize,
        pid,
        parent: None,
        name: name.to_owned(),
        state: State::Running,
        claimed_ns: SECOND,
        published_ns,
        fields,
        torn: false,
    }
}

/// A look at a run's board, with live processes.
fn run(owner: u32, name: &str, slots: Vec<SlotReading>) -> Look {
    Look {
        board: u64::from(owner),
        owner,
        name: name.to_owned(),
        library: false,
        slots: slots.into_iter().map(|slot| (slot, true)).collect(),
    }
}

/// A look at a program's own board.
fn library(slots: Vec<SlotReading>) -> Look {
    let owner = slots[0].pid;
    Look {
        library: true,
        ..run(owner, "library", slots)
    }
}

fn app() -> App {
    App::new(None, Duration::from_secs(1))
}

/// The text that a terminal of that size shows, a string for each row without the spaces at its end.
fn drawn(app: &App, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal
        .draw(|frame| crate::top::view::draw(app, frame))
        .unwrap();
    let buffer = terminal.backend().buffer();
    let cells: Vec<&str> = buffer.content().iter().map(|cell| cell.symbol()).collect();
    let rows = cells.chunks(usize::from(width).max(1));
    rows.map(|row| row.concat().trim_end().to_owned()).collect()
}
