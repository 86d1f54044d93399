//! `millpond run`: an unmodified program under a RAM budget.
//!
//! 1. Everything that can be wrong is looked at before the program starts: the program's file, the preload library, the
//!    kernel's permissions, the place for the report.
//! 2. The program starts with the library preloaded, its settings in the environment, and a board to report on.
//! 3. It ends, the report is printed, and this process ends in the same way: the same status, or the same signal. One
//!    that does not take the signal by which it is asked to end is ended (`deaf.rs`).
//!
//! Exit statuses of its own follow `env` and `nice`: 127 program not found, 126 found but cannot run (or cannot
//! run under a budget), 125 Millpond itself cannot do its part, 2 bad arguments.

mod beside;
mod deaf;
mod elf;
pub mod env;
mod report;
mod resolve;
mod signals;
mod supervise;
mod unmanaged;

pub use signals::{die_by, without_signals};
pub use supervise::{Outcome, cpu_time, reap};

use crate::{doctor, size};
use clap::{Args, ValueEnum};
use env::{EnvError, SharedBoard};
use millpond::{Order, OrderPolicy};
use millpond_board::SlotSnapshot;
use report::Report;
use resolve::ResolveError;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};

/// `millpond run`'s arguments.
#[derive(Args, Debug)]
pub struct RunArgs {
    /// The RAM budget: 64M, 1.5G, 512MiB, or bytes; 16M or more
    #[arg(long, value_name = "SIZE", value_parser = size::parse_ram)]
    ram: u64,
    /// Where memory goes that does not fit: compressed RAM (zram), an unlinked file of each process (in the directory
    /// PATH, or beside the name PATH; else in $TMPDIR or /var/tmp), or first the one, then the other (auto)
    #[arg(long, value_name = "auto|zram|file[:PATH]", default_value = "auto", value_parser = StoreChoice::parse)]
    store: StoreChoice,
    /// The report at the end: text or JSON on standard error, none, or JSON into a file, whose name has a `/` or a `.`
    #[arg(long, value_name = "text|json|none|FILE", default_value = "text", value_parser = ReportChoice::parse)]
    report: ReportChoice,
    /// What to do when the store can take nothing more
    #[arg(long, value_name = "WHAT", default_value = "exceed")]
    on_store_full: OnStoreFull,
    /// Take a directory for the store's file although it is RAM itself (tmpfs)
    #[arg(long)]
    force_tmpfs: bool,
    /// Encrypt what goes to a file, by a key of each process that is nowhere but in its memory
    #[arg(long)]
    encrypt: bool,
    /// How much comes in and goes out together: 2^N pages of 4 KiB, N from 0 to 9, or what the program's own pattern of
    /// accesses asks for, up to the largest or to N
    #[arg(long, value_name = "N|adaptive|adaptive:N", default_value = "adaptive")]
    order: OrderPolicy,
    /// Keep memory that the program frees until it is wanted elsewhere, so that using it again costs nothing; off gives
    /// it back at once
    #[arg(long, value_name = "WHEN", default_value = "on")]
    lazy_purge: Switch,
    /// The program and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "PROGRAM"
    )]
    command: Vec<OsString>,
}

impl RunArgs {
    /// What the parser lets through. A word that it does not know is the program's name to it, also one that begins as
    /// options do: it takes all that follows as it is.
    fn check(&self) -> Result<(), RunError> {
        let program = &self.command[0];
        // Directly behind `--` it is a name, whatever it begins with.
        let is_named = std::env::args_os()
            .rev()
            .nth(self.command.len())
            .is_some_and(|before| before == "--");
        if program.as_encoded_bytes().starts_with(b"-") && !is_named {
            let option = program.to_string_lossy().into_owned();
            return Err(RunError::NoOption { option });
        }
        if self.encrypt && self.store == StoreChoice::Zram {
            return Err(RunError::NothingToEncrypt);
        }
        Ok(())
    }

    /// A run whose pages are to be seen one by one: folios of order 0, and what is freed is given back at once.
    #[must_use]
    pub fn for_recording(ram: u64, command: Vec<OsString>) -> Self {
        Self {
            ram,
            store: StoreChoice::Auto,
            report: ReportChoice::None,
            on_store_full: OnStoreFull::Exceed,
            force_tmpfs: false,
            encrypt: false,
            order: OrderPolicy::Fixed(Order::ZERO),
            lazy_purge: Switch::Off,
            command,
        }
    }
}

/// Where memory goes that does not fit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StoreChoice {
    /// Whatever suits the machine.
    Auto,
    /// Compressed RAM.
    Zram,
    /// A file, in the given place or in the temporary directory.
    File(Option<PathBuf>),
}

/// What to do when the store can take nothing more.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum OnStoreFull {
    /// Go over the budget, and say so
    Exceed,
    /// Stop the program
    Abort,
}

/// Whether something is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Switch {
    /// Yes
    On,
    /// No
    Off,
}

/// Where the report goes.
#[derive(Clone, PartialEq, Eq, Debug)]
enum ReportChoice {
    Text,
    Json,
    None,
    File(PathBuf),
}

impl StoreChoice {
    /// A store by its name.
    ///
    /// # Errors
    /// When there is none of that name, or the path has no absolute form.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            None if text == "auto" => Ok(Self::Auto),
            None if text == "zram" => Ok(Self::Zram),
            None if text == "file" => Ok(Self::File(None)),
            Some(("file", path)) if !path.is_empty() => {
                // The program may change its directory before the library opens the file.
                std::path::absolute(path)
                    .map(|path| Self::File(Some(path)))
                    .map_err(|error| error.to_string())
            }
            _ => Err(format!(
                "`{text}` is no store; choose auto, zram, file or file:PATH"
            )),
        }
    }

    fn word(&self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Zram => "zram",
            Self::File(_) => "file",
        }
    }

    /// As [`StoreChoice::parse`] takes it.
    #[must_use]
    pub fn to_variable(&self) -> OsString {
        let mut variable = OsString::from(self.word());
        if let Self::File(Some(path)) = self {
            variable.push(":");
            variable.push(path);
        }
        variable
    }
}

impl OnStoreFull {
    fn word(self) -> &'static str {
        match self {
            Self::Exceed => "exceed",
            Self::Abort => "abort",
        }
    }
}

impl Switch {
    fn word(self) -> &'static str {
        match self {
            Self::On => "on",
            Self::Off => "off",
        }
    }
}

impl ReportChoice {
    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            "none" => Ok(Self::None),
            "" => Err(
                "the name of the report's file is empty; choose text, json, none or a file"
                    .to_owned(),
            ),
            // A mistyped word would leave a file of that name behind, and no report on the terminal.
            word if !word.contains(['/', '.']) => Err(format!(
                "`{word}` is no form of the report; choose text, json or none, or name a file with a `/` or a `.` in \
                 it, as ./{word} or {word}.json"
            )),
            path => Ok(Self::File(path.into())),
        }
    }
}

/// Why a program was not run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The program is missing or unfit.
    #[error(transparent)]
    Resolve(#[from] ResolveError),
    /// The library or the board.
    #[error(transparent)]
    Environment(#[from] EnvError),
    /// The kernel does not let this user manage memory.
    #[error("{0}; `millpond doctor` shows all that was found")]
    Permission(#[from] doctor::Missing),
    /// An option before the program that is none.
    #[error(
        "{option} is no option of `millpond run`; see `millpond run --help`, and put options of the program behind its name"
    )]
    NoOption {
        /// As it was given.
        option: String,
    },
    /// Encryption is for files.
    #[error(
        "--encrypt with --store zram would encrypt nothing, as compressed RAM is never written out: leave --encrypt \
         out, or choose --store file or --store auto"
    )]
    NothingToEncrypt,
    /// The directory of `--store file:PATH` is not there.
    #[error(
        "the store's directory {0} does not exist; create it, or choose another with --store file:PATH"
    )]
    NoStoreDirectory(PathBuf),
    /// The report's file cannot be made.
    #[error("cannot write the report to {path}: {error}; choose another place with --report")]
    ReportFile {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// The kernel refused to run the program for a reason not seen before.
    #[error("{}: cannot be run: {error}", .path.display())]
    Exec {
        /// The program's file.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
}

impl RunError {
    /// The exit status for this error.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Resolve(error) => error.exit_code(),
            Self::Exec { error, .. } if error.kind() == io::ErrorKind::NotFound => 127,
            Self::Exec { .. } => 126,
            Self::NoOption { .. } | Self::NothingToEncrypt => 2,
            _ => 125,
        }
    }
}

/// What may have been when SIGSYS ended the program: nobody in it could say so any more.
const ENDED_BY_FILTER: &str = "the program was ended by SIGSYS: a seccomp filter forbade a call. A filter for all \
                               threads (SECCOMP_FILTER_FLAG_TSYNC) is for Millpond's too; if it is the program's own, \
                               have it allow read, futex, ioctl, madvise, pread64 and mmap, or run it without Millpond";

/// Runs the program. Answers its exit status; does not return if a signal ended it.
///
/// # Errors
/// When the program cannot be run, or cannot be run under a budget. It was not started then.
pub fn run(args: &RunArgs) -> Result<u8, RunError> {
    let program = Program::find(args)?;
    let report_file = open_report(&args.report)?;
    let shared = SharedBoard::create(&args.command[0])?;
    let outcome = program.supervise(args, &shared.path(), Vec::new())?;

    let slots: Vec<SlotSnapshot> = shared.board.slots().collect();
    let name = args.command[0].to_string_lossy().into_owned();
    let report = Report::new(
        name,
        args.ram,
        args.store.word().to_owned(),
        args.order,
        &outcome,
        &slots,
    );
    print_report(&args.report, report_file, &report);
    if let Some((pid, line)) = shared.board.last_words() {
        // Said here, as the program may have closed its standard error.
        let _ = writeln!(io::stderr(), "millpond: process {pid}: {line}");
    }
    if outcome.status.signal() == Some(libc::SIGSYS) {
        let _ = writeln!(io::stderr(), "millpond: {ENDED_BY_FILTER}");
    }
    Ok(end_like(&outcome))
}

/// What was found out before a program is started.
pub struct Program {
    file: PathBuf,
    library: PathBuf,
}

impl Program {
    /// Looks at everything that can be wrong: the program, the library, the kernel's permissions, the store's place.
    ///
    /// # Errors
    /// The first of them that is.
    pub fn find(args: &RunArgs) -> Result<Self, RunError> {
        args.check()?;
        let file = resolve::resolve(&args.command[0], std::env::var_os("PATH").as_deref())?;
        let library = env::find_library()?;
        doctor::require_for_run()?;
        if let StoreChoice::File(Some(path)) = &args.store {
            check_store(path)?;
        }
        Ok(Self { file, library })
    }

    /// Runs it to its end, with `board` to report on and `more` variables in its environment.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn supervise(
        &self,
        args: &RunArgs,
        board: &Path,
        more: Vec<(&'static str, OsString)>,
    ) -> Result<Outcome, RunError> {
        let mut variables = env::variables(args, &self.library, board);
        variables.extend(more);
        supervise::supervise(&self.file, &args.command, &variables).map_err(|error| {
            RunError::Exec {
                path: self.file.clone(),
                error,
            }
        })
    }
}

/// The exit status that the program had; does not return if a signal ended it.
pub fn end_like(outcome: &Outcome) -> u8 {
    match (outcome.status.code(), outcome.status.signal()) {
        (Some(code), _) => code as u8,
        (None, Some(signal)) => die_by(signal),
        (None, None) => 125,
    }
}

fn check_store(path: &Path) -> Result<(), RunError> {
    let directory = if path.is_dir() {
        path
    } else {
        path.parent().unwrap_or(path)
    };
    if directory.is_dir() {
        Ok(())
    } else {
        Err(RunError::NoStoreDirectory(directory.to_owned()))
    }
}

fn open_report(choice: &ReportChoice) -> Result<Option<File>, RunError> {
    let ReportChoice::File(path) = choice else {
        return Ok(None);
    };
    // Made now, so that a long run does not end without its report because of a mistyped directory.
    File::create(path)
        .map(Some)
        .map_err(|error| RunError::ReportFile {
            path: path.clone(),
            error,
        })
}

/// Prints the report. The program has ended and its status counts: a report that cannot be written changes nothing.
fn print_report(choice: &ReportChoice, file: Option<File>, report: &Report) {
    let mut stderr = io::stderr().lock();
    let written = match (choice, file) {
        (ReportChoice::None, _) => Ok(()),
        (ReportChoice::Json, _) => stderr.write_all(report.to_json().as_bytes()),
        (ReportChoice::File(_), Some(mut file)) => file.write_all(report.to_json().as_bytes()),
        (ReportChoice::Text | ReportChoice::File(_), _) => {
            stderr.write_all(report.to_string().as_bytes())
        }
    };
    if let (Err(error), ReportChoice::File(path)) = (written, choice) {
        let _ = writeln!(
            stderr,
            "millpond: cannot write the report to {}: {error}",
            path.display()
        );
    }
}
