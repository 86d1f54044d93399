//! `millpond top`: a live view of the processes that run under a budget.
//!
//! The command reads what `millpond stat` reads, the boards ([`millpond_board`]) on which these processes write their
//! counters ten times a second. It writes nowhere: a process cannot tell that it is watched. Between two updates it
//! sleeps until the interval is over, a key is pressed or a signal arrives.
//!
//! ```text
//! boards ──look──▶ model ──lines──▶ list_view, detail_view ──▶ screen
//!                    ▲                   ▲
//!                 figures           app ◀── keys ◀── wait
//! ```
//!
//! | file | contents |
//! | --- | --- |
//! | `model.rs`, `history.rs` | which processes there are and what they count each second; no clock, no I/O |
//! | `columns.rs`, `order.rs`, `budget.rs` | what is shown of a process, in which order, and where its memory is |
//! | `app.rs`, `keys.rs` | what is selected and open, and how keys change that |
//! | `list_view.rs`, `detail_view.rs`, `panels.rs` | how it looks |
//! | `wait.rs`, `screen.rs` | the terminal and signals |

mod app;
mod budget;
mod columns;
mod detail_view;
mod history;
mod keys;
mod list_view;
mod model;
mod order;
mod panels;
mod screen;
#[cfg(test)]
mod tests;
mod view;
mod wait;

use crate::figures::{is_alive, kind};
use crate::stat::{StatError, Target, parse_interval};
use app::{App, Next};
use clap::Args;
use keys::{Action, Decoder, REST_MS};
use millpond_board::now_ns;
use millpond_board::watch::{Watch, Watched};
use model::Look;
use screen::Screen;
use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};
use wait::{Wait, Who, Woken};

/// The time between two searches for new boards: finding them requires examining the descriptors of all processes.
const SEARCH: Duration = Duration::from_secs(1);

/// `millpond top`'s arguments.
#[derive(Args, Debug)]
pub struct TopArgs {
    /// The process id of a `millpond run`, of one of its processes, or of another process that publishes its
    /// counters. Without a PID all of them are shown
    #[arg(value_parser = clap::value_parser!(i32).range(1..))]
    pid: Option<i32>,
    /// Seconds between two updates of the screen, at least 0.1
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = parse_interval)]
    interval: Duration,
}

/// A reason why there is nothing to watch.
#[derive(Debug, thiserror::Error)]
pub enum TopError {
    /// The output or the input is not a terminal.
    #[error(
        "`millpond top` needs a terminal, and standard input or output is none; `millpond stat` prints these figures without one, and `millpond stat PID 1` each second"
    )]
    NoTerminal,
    /// The requested process cannot be inspected.
    #[error(transparent)]
    Target(#[from] StatError),
    /// The terminal failed.
    #[error("cannot use the terminal: {0}")]
    Terminal(#[from] io::Error),
}

/// Shows the processes until the user leaves.
///
/// # Errors
/// When there is no terminal, the terminal fails, or the requested process cannot be inspected.
pub fn top(args: &TopArgs) -> Result<u8, TopError> {
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        return Err(TopError::NoTerminal);
    }
    if let Some(pid) = args.pid {
        Target::find(pid)?;
    }
    // This comes before the terminal is changed: from here on, signals end the program only by way of its normal exit
    // path.
    let wait = Wait::begin()?;
    let mut screen = Screen::open()?;
    let mut app = App::new(args.pid.map(i32::unsigned_abs), args.interval);
    match watch(&mut app, &wait, &mut screen) {
        // The terminal disappeared while it was drawn on; no one is left to report that to.
        Err(error) if error.raw_os_error() == Some(libc::EIO) => Ok(0),
        other => Ok(other.map(|()| 0)?),
    }
}

fn watch(app: &mut App, wait: &Wait, screen: &mut Screen) -> io::Result<()> {
    let mut boards = Boards::default();
    let mut decoder = Decoder::default();
    let mut next_look = Instant::now();
    loop {
        if Instant::now() >= next_look {
            boards.look(app);
            next_look = Instant::now() + app.interval;
        }
        screen.draw(|frame| view::draw(app, frame))?;
        let rest = decoder
            .waits()
            .then(|| Instant::now() + Duration::from_millis(REST_MS));
        let keys = match wait.wait(rest.map_or(next_look, |rest| rest.min(next_look)))? {
            Woken::End => return Ok(()),
            Woken::Stop => {
                suspend(wait, Who::Itself, screen)?;
                continue;
            }
            Woken::Continued => {
                screen.take()?;
                continue;
            }
            Woken::Time if rest.is_some_and(|rest| Instant::now() >= rest) => {
                decoder.finish().into_iter().collect()
            }
            // The drawing asks for the size.
            Woken::Time | Woken::Resized => continue,
            Woken::Typed(bytes) => decoder.take(&bytes),
        };
        for action in keys.into_iter().filter_map(Action::of) {
            match app.act(action) {
                Next::Leave => return Ok(()),
                Next::Suspend => suspend(wait, Who::Group, screen)?,
                Next::Redraw => screen.forget()?,
                Next::Draw => {}
            }
        }
    }
}

fn suspend(wait: &Wait, who: Who, screen: &mut Screen) -> io::Result<()> {
    screen.give_back();
    wait.stop(who);
    screen.take()
}

/// The current boards.
#[derive(Default)]
struct Boards {
    watch: Watch,
    searched: Option<Instant>,
}

impl Boards {
    fn look(&mut self, app: &mut App) {
        if self.searched.is_none_or(|then| then.elapsed() >= SEARCH) {
            self.searched = Some(Instant::now());
            self.watch.look();
        }
        let looks = self.watch.boards().map(look).collect();
        app.look(now_ns(), looks, self.watch.foreign());
    }
}

fn look(board: &Watched) -> Look {
    let slots = board.slots();
    let library = kind(board.owner(), &slots) == "library";
    let with_life = slots.into_iter().map(|slot| {
        let alive = is_alive(&slot);
        (slot, alive)
    });
    Look {
        board: board.id(),
        owner: board.owner(),
        name: board.name(),
        library,
        slots: with_life.collect(),
    }
}
