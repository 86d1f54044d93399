//! `millpond stat`: the counters of a running process, like `vmstat`.
//!
//! A process under `millpond run`, and one whose managers are built with `.publish(name)`, writes its counters on a
//! board ten times a second ([`millpond_board`]). This command reads boards and disturbs no process: it has no right to
//! write there, and a process cannot tell that it is observed.
//!
//! | arguments | output |
//! | --- | --- |
//! | none | a line for each board that this user may see, and one for each process on it |
//! | `PID` | all its counters once, under Linux's names, and figures derived from them |
//! | `PID --curve` | what more memory would have saved of its major faults so far |
//! | `PID INTERVAL [COUNT]` | a line every INTERVAL seconds: first for the time since the start, as `vmstat` does, then for each interval |
//!
//! `PID` may be a `millpond run`, which means all its processes together, one of these processes, or a process that
//! publishes its own counters.

mod table;

use crate::figures::{self, Figures, Sample, is_alive, kind};
use crate::{curve, print};
use clap::Args;
use millpond_board::list::{Found, list};
use millpond_board::{BoardError, SlotReading, View};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags};
use serde_json::json;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::time::Duration;
use table::{Listing, Table};

/// `millpond stat`'s arguments.
#[derive(Args, Debug)]
pub struct StatArgs {
    /// The process id of a `millpond run`, of one of its processes, or of another process that publishes its
    /// counters. Without a PID all of them are listed
    #[arg(value_parser = clap::value_parser!(i32).range(1..))]
    pid: Option<i32>,
    /// Print a line of counters every INTERVAL seconds, at least 0.1. Without an INTERVAL all counters are printed once
    #[arg(value_name = "INTERVAL", value_parser = parse_interval)]
    interval: Option<Duration>,
    /// How many lines to print. Without a COUNT, lines are printed until the process ends
    #[arg(value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Print how many of the major faults so far would have been avoided with more memory, as a table and a plot
    #[arg(long, requires = "pid", conflicts_with = "interval")]
    curve: bool,
    /// Print JSON, one object per line
    #[arg(long)]
    json: bool,
}

/// Parses the seconds between two lines.
///
/// # Errors
/// When `text` is not a number, or is less than the time between two updates of the counters.
pub fn parse_interval(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text
        .parse()
        .map_err(|_| format!("`{text}` is not a number of seconds"))?;
    if !(0.1..=86_400.0).contains(&seconds) {
        return Err(format!(
            "`{text}` is not between 0.1 and 86400 seconds; counters are published ten times a second"
        ));
    }
    Ok(Duration::from_secs_f64(seconds))
}

/// A reason why there is nothing to show.
#[derive(Debug, thiserror::Error)]
pub enum StatError {
    /// No process has the number.
    #[error("there is no process {0}; `millpond stat` lists processes that publish counters")]
    NoProcess(i32),
    /// The process belongs to another user.
    #[error("process {0} belongs to another user; be that user, or root")]
    Denied(i32),
    /// The process is on no board.
    #[error(
        "process {0} publishes no counters: it does not run under `millpond run`, and has no manager built with `.publish(name)`; `millpond stat` lists processes that publish counters"
    )]
    NotPublished(i32),
    /// The process's board is of another version.
    #[error(transparent)]
    Board(#[from] BoardError),
    /// The process cannot be waited for.
    #[error("cannot wait for process {pid}: {errno}")]
    Wait {
        /// The process.
        pid: i32,
        /// The kernel's answer.
        errno: rustix::io::Errno,
    },
    /// The result cannot be printed.
    #[error("cannot print: {0}")]
    Print(#[from] io::Error),
}

/// Shows the requested figures.
///
/// # Errors
/// When there is no such process, it cannot be inspected, or nothing can be printed.
pub fn stat(args: &StatArgs) -> Result<u8, StatError> {
    let shown = match args.pid {
        None => print_list(args.json),
        Some(pid) if args.curve => print_curve(pid, args.json),
        Some(pid) => print_figures(pid, args),
    };
    match shown {
        // A reader may have seen enough: `millpond stat PID 1 | head`.
        Err(StatError::Print(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(0),
        other => other.map(|()| 0),
    }
}

fn print_list(as_json: bool) -> Result<(), StatError> {
    let mut stdout = io::stdout().lock();
    let mut none = true;
    let mut listing = Listing::new();
    for Found { path, view } in list() {
        let view = match view {
            Ok(view) => view,
            Err(error) => {
                print::say(format_args!("{}: {error}", path.display()));
                continue;
            }
        };
        none = false;
        let slots: Vec<SlotReading> = view.slots().collect();
        if as_json {
            writeln!(stdout, "{}", json_of_board(view, &slots))?;
        } else {
            listing.add(view.owner(), &view.name(), &slots);
        }
    }
    if none {
        print::say(format_args!(
            "there is no `millpond run` that this user may see, and no program whose manager was built with `.publish(name)`"
        ));
    } else if !as_json {
        write!(stdout, "{listing}")?;
    }
    Ok(())
}

fn json_of_board(view: View, slots: &[SlotReading]) -> serde_json::Value {
    json!({
        "schema": "millpond-stat-list/1",
        "pid": view.owner(),
        "name": view.name(),
        "kind": kind(view.owner(), slots),
        "processes": slots.iter().filter(|slot| is_alive(slot)).map(figures::process).collect::<Vec<_>>(),
    })
}

/// The process or run to show.
pub struct Target {
    view: View,
    /// The only process to show; `None` for all processes on the board.
    only: Option<u32>,
    /// The handle, which becomes readable at the end of the process.
    handle: OwnedFd,
}

impl Target {
    /// Finds the process `pid`, or the run of which it is a part.
    ///
    /// # Errors
    /// When there is no such process, or it cannot be inspected.
    pub fn find(pid: i32) -> Result<Self, StatError> {
        let wait = |errno| StatError::Wait { pid, errno };
        let number = Pid::from_raw(pid).ok_or(StatError::NoProcess(pid))?;
        let handle = match rustix::process::pidfd_open(number, PidfdFlags::empty()) {
            // A thread other than its process's first is refused as invalid.
            Err(rustix::io::Errno::SRCH | rustix::io::Errno::INVAL) => {
                return Err(StatError::NoProcess(pid));
            }
            other => other.map_err(wait)?,
        };
        let wanted = pid.unsigned_abs();
        let own = format!("/proc/{pid}/");
        let mut member = None;
        for Found { path, view } in list() {
            match view {
                Ok(view) if view.owner() == wanted => {
                    let only = None;
                    return Ok(Self { view, only, handle });
                }
                Ok(view) if view.slots().any(|slot| slot.pid == wanted) => member = Some(view),
                Err(error) if path.starts_with(&own) => return Err(error.into()),
                _ => {}
            }
        }
        match member {
            Some(view) => Ok(Self {
                view,
                only: Some(wanted),
                handle,
            }),
            None if std::fs::read_dir(format!("/proc/{pid}/fd")).is_err() => {
                Err(StatError::Denied(pid))
            }
            None => Err(StatError::NotPublished(pid)),
        }
    }

    fn slots(&self) -> impl Iterator<Item = SlotReading> {
        let asked_for = |slot: &SlotReading| self.only.is_none_or(|pid| slot.pid == pid);
        self.view.slots().filter(asked_for)
    }

    fn sample(&self) -> Sample {
        Sample::new(self.slots().collect())
    }

    /// Waits for `time`, or until the process ends; returns whether it has ended.
    fn has_ended_after(&self, time: Duration) -> rustix::io::Result<bool> {
        let mut ended = [PollFd::new(&self.handle, PollFlags::IN)];
        let time = Timespec {
            tv_sec: time.as_secs() as i64,
            tv_nsec: time.subsec_nanos().into(),
        };
        Ok(poll(&mut ended, Some(&time))? > 0)
    }
}

/// Prints the JSON object: `schema` = `millpond-curve/1`, `pid`, `name`, and the fields of [`curve::to_json`].
fn print_curve(pid: i32, as_json: bool) -> Result<(), StatError> {
    let target = Target::find(pid)?;
    let slots: Vec<SlotReading> = target.slots().collect();
    let curve = curve::of(slots.iter());
    let mut stdout = io::stdout().lock();
    if as_json {
        let mut line = curve::to_json(&curve);
        line["schema"] = "millpond-curve/1".into();
        line["pid"] = pid.into();
        line["name"] = target.view.name().into();
        writeln!(stdout, "{line}")?;
    } else {
        write!(stdout, "{curve}")?;
    }
    Ok(())
}

fn print_figures(pid: i32, args: &StatArgs) -> Result<(), StatError> {
    let target = Target::find(pid)?;
    let mut stdout = io::stdout().lock();
    let mut table = Table::new();
    let mut before: Option<Sample> = None;
    let mut left = args.count.unwrap_or(u64::MAX);
    let mut ended = false;
    loop {
        let now = target.sample();
        let figures = Figures::new(&now, before.as_ref());
        if args.json {
            writeln!(stdout, "{}", figures.to_json(pid, &target.view.name()))?;
        } else if args.interval.is_some() {
            table.write(&mut stdout, &figures)?;
        } else {
            write!(stdout, "{figures}")?;
        }
        stdout.flush()?;
        left -= 1;
        let Some(interval) = args.interval.filter(|_| left > 0 && !ended) else {
            return Ok(());
        };
        before = Some(now);
        // The events between the last line and the end are worth one more line.
        ended = target
            .has_ended_after(interval)
            .map_err(|errno| StatError::Wait { pid, errno })?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_short_or_invalid_intervals_are_refused() {
        assert_eq!(parse_interval("0.5"), Ok(Duration::from_millis(500)));
        for text in ["0", "0.05", "-1", "x", "NaN", "1e9"] {
            let error = parse_interval(text).unwrap_err();
            assert!(error.contains(&format!("`{text}`")), "{error}");
        }
    }
}
