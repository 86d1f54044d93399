//! `millpond record`: a program's page accesses, as a trace for `millpond replay`.
//!
//! The program runs as under `millpond run`, but only a small window of its pages stays mapped, so that each page is
//! seen repeatedly as it is used (`driver/src/record.rs` explains what such a trace is worth). Pages outside the window
//! stay in RAM: the budget is all RAM of the machine unless one is given.
//!
//! The recording covers managed memory: malloc, anonymous mmap, brk, in units of 4 KiB. Code, static variables, the
//! first thread's stack, files and shared mappings are not recorded.
//!
//! Each process is a separate stream, and a process that executes another program begins another stream. The longest
//! stream goes to the named file, the next to that name with `.2`, and so on: programs are often started by scripts,
//! whose memory is of no interest. Streams that did not outgrow the window contain no information and are dropped. The
//! files grow while the program runs: a thread takes the entries from the tapes ([`Tapes`]). They have no names until
//! the end, so that a named file is always a complete trace.

mod error;
mod streams;

use crate::run::env::SharedBoard;
use crate::run::{self, Program, RunArgs, RunError};
use crate::{print, size};
use clap::Args;
pub use error::RecordError;
use millpond::space::Recording;
use millpond_board::{TAPES, Tapes, path_of};
use millpond_settings::{Record, Settings};
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;
use streams::{Recorded, Streams};

/// The interval at which the tapes are read. A program takes 10 µs or more to enter a page, so that a tape is never an
/// eighth full.
const EVERY: Duration = Duration::from_millis(20);

/// `millpond record`'s arguments.
#[derive(Args, Debug)]
pub struct RecordArgs {
    /// The file for the trace. If several processes are recorded, the longest trace goes to FILE, and the others go to
    /// FILE.2, FILE.3 and so on
    #[arg(short, long, value_name = "FILE", default_value = "millpond.trace")]
    output: PathBuf,
    /// How many pages stay mapped while the program runs. The minimum is 64. A smaller window records more accesses
    /// and slows the program down more. The trace can be replayed with a memory size many times that of the window
    #[arg(long, value_name = "PAGES", default_value = "256", value_parser = parse_window)]
    window: u32,
    /// The RAM budget; the default is all of the machine's RAM
    #[arg(long, value_name = "SIZE", value_parser = size::parse_ram)]
    ram: Option<u64>,
    /// The program and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "PROGRAM"
    )]
    command: Vec<OsString>,
}

fn parse_window(text: &str) -> Result<u32, String> {
    const MOST: u32 = 1 << 24;
    let least = Recording::MIN_WINDOW;
    match text.parse() {
        Ok(pages) if (least..=MOST).contains(&pages) => Ok(pages),
        _ => Err(format!(
            "`{text}` is no window; write a number of pages from {least} to {MOST}"
        )),
    }
}

/// Runs the program and writes the traces. Returns the program's exit status; does not return if a signal ended it.
///
/// # Errors
/// When the program cannot be run, or a trace cannot be written.
pub fn record(args: &RecordArgs) -> Result<u8, RecordError> {
    let ram = args.ram.unwrap_or_else(machine_ram);
    let run_args = RunArgs::for_recording(ram, args.command.clone());
    let program = Program::find(&run_args)?;
    let board = SharedBoard::create(&args.command[0]).map_err(RunError::from)?;
    let (tapes, file) = Tapes::create()?;
    let mut streams = Streams::begin(&args.output)?;
    let settings = Settings {
        board: Some(board.path()),
        record: Some(Record {
            window: args.window,
            tapes: path_of(&file),
        }),
        ..run_args.settings()
    };
    let ended = AtomicBool::new(false);
    let outcome = thread::scope(|scope| {
        // The thread that waits for the program fetches and forwards signals; this one must not receive any.
        let taking = run::without_signals(|| scope.spawn(|| take_all(tapes, &mut streams, &ended)));
        let outcome = program.supervise(&args.command, &settings, &mut || {});
        ended.store(true, Ordering::Release);
        taking
            .join()
            .expect("the thread that takes does not panic")?;
        Ok::<_, RecordError>(outcome?)
    })?;
    let (recorded, dropped) = streams.finish(u64::from(args.window))?;
    for stream in &recorded {
        say(stream, args.window);
    }
    if dropped > 0 {
        print::say(format_args!(
            "{dropped} other processes or programs touched no more pages than the window has, and have no trace"
        ));
    }
    if tapes.refused() > 0 {
        print::say(format_args!(
            "{} processes were not recorded: at most {TAPES} are at a time",
            tapes.refused()
        ));
    }
    if recorded.is_empty() {
        return Err(RecordError::Nothing);
    }
    Ok(run::end_like(&outcome))
}

/// Takes the entries from the tapes until the program has ended, and then the remaining ones.
fn take_all(tapes: Tapes, streams: &mut Streams, ended: &AtomicBool) -> Result<(), RecordError> {
    loop {
        let last = ended.load(Ordering::Acquire);
        for number in 0..TAPES {
            streams.take(&tapes, number)?;
        }
        if last {
            return Ok(());
        }
        thread::sleep(EVERY);
    }
}

fn machine_ram() -> u64 {
    let machine = rustix::system::sysinfo();
    let bytes = machine.totalram as u64 * u64::from(machine.mem_unit);
    bytes.clamp(size::MIN_RAM, size::MAX_RAM)
}

fn say(stream: &Recorded, window: u32) {
    let Recorded {
        path,
        name,
        pid,
        entries,
        lost,
    } = stream;
    let bytes = std::fs::metadata(path).map_or(0, |file| file.len());
    print::say(format_args!(
        "{}: {entries} entries into a window of {window} pages by {name} (process {pid}), {}",
        path.display(),
        size::Human(bytes)
    ));
    if *lost > 0 {
        print::say(format_args!(
            "{}: {lost} entries are missing: the disk was too slow; record to another one",
            path.display()
        ));
    }
}
