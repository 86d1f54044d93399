//! `millpond run`: an unmodified program under a RAM budget.
//!
//! 1. Everything that can be wrong is checked before the program starts: the program's file, the preload library, the
//!    kernel's permissions, the place for the report.
//! 2. The program starts with the library preloaded, its settings in the environment, and a board to report on.
//! 3. The program ends, the report is printed, and this process ends in the same way: with the same status, or by the
//!    same signal. A program that does not take the signal by which it is asked to end is ended (`deaf.rs`).
//!
//! The exit statuses of `millpond run` itself follow `env` and `nice`: 127 if the program is not found, 126 if it is
//! found but cannot run (or cannot run under a budget), 125 if Millpond itself cannot do its part, 2 if the arguments
//! are bad.

mod args;
mod beside;
mod beyond;
mod columns;
mod deaf;
mod elf;
pub mod env;
mod history;
mod killed;
pub mod library;
mod report;
mod resolve;
mod signals;
mod status;
mod supervise;
mod unmanaged;
mod words;

pub use signals::{die_by, without_signals};
pub use supervise::{Outcome, cpu_time, reap};

use crate::{doctor, page, print};
use args::ReportChoice;
pub use args::{RunArgs, Stores, parse_store};
use beyond::{Beyond, BeyondError};
use env::{EnvError, SharedBoard};
use history::Recorder;
use library::{Library, LibraryError};
use millpond_board::{SlotReading, now_ns};
use millpond_settings::Settings;
pub use millpond_settings::{DeliveryChoice, StoreChoice};
use report::{Asked, Report};
use resolve::ResolveError;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};

/// Why a program was not run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The program is missing or unfit.
    #[error(transparent)]
    Resolve(#[from] ResolveError),
    /// There is no library to load into the program.
    #[error(transparent)]
    Library(#[from] LibraryError),
    /// The board cannot be prepared.
    #[error(transparent)]
    Environment(#[from] EnvError),
    /// The kernel does not let this user manage memory.
    #[error("{0}; `millpond doctor` shows all that was found")]
    Permission(#[from] doctor::Missing),
    /// An option before the program is not an option of `millpond run`.
    #[error(
        "{option} is no option of `millpond run`; see `millpond run --help`, and put options of the program behind its name"
    )]
    NoOption {
        /// The option as it was given.
        option: String,
    },
    /// Encryption was requested, but the store is not a file.
    #[error(
        "--encrypt with --store zram would encrypt nothing, as compressed RAM is never written out: leave --encrypt \
         out, or choose --store file or --store auto"
    )]
    NothingToEncrypt,
    /// The store beyond the machine cannot be used.
    #[error(transparent)]
    Beyond(#[from] BeyondError),
    /// A URL is given without a store on this machine.
    #[error("a URL is beyond the machine; put a store on this machine before it: --store auto,URL")]
    UrlAlone,
    /// There is a limit for a store that was not requested.
    #[error("{option} is for {wanted}; {instead}")]
    NoSuchStore {
        /// The option.
        option: &'static str,
        /// What the limit is for.
        wanted: &'static str,
        /// What to do.
        instead: &'static str,
    },
    /// The directory of `--store file:PATH` does not exist.
    #[error(
        "the store's directory {0} does not exist; create it, or choose another with --store file:PATH"
    )]
    NoStoreDirectory(PathBuf),
    /// The report's file cannot be made.
    #[error("cannot write the report to {path}: {error}; choose another place with --report")]
    ReportFile {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        error: io::Error,
    },
    /// The kernel refused to run the program for a reason that the checks did not cover.
    #[error("{}: cannot be run: {error}", .path.display())]
    Exec {
        /// The program's file.
        path: PathBuf,
        /// The system's answer.
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
            Self::NoOption { .. }
            | Self::NothingToEncrypt
            | Self::UrlAlone
            | Self::NoSuchStore { .. } => 2,
            Self::Beyond(error) => error.exit_code(),
            _ => 125,
        }
    }
}

impl RunArgs {
    /// Checks what the parser lets through. The parser takes an unknown word for the program's name, even if it looks
    /// like an option, because it takes everything that follows verbatim.
    fn check(&self) -> Result<(), RunError> {
        let program = &self.command[0];
        // Directly after `--` the word is a name, whatever it begins with.
        let is_named = std::env::args_os()
            .rev()
            .nth(self.command.len())
            .is_some_and(|before| before == "--");
        if program.as_encoded_bytes().starts_with(b"-") && !is_named {
            let option = program.to_string_lossy().into_owned();
            return Err(RunError::NoOption { option });
        }
        if self.store.is_alone {
            return Err(RunError::UrlAlone);
        }
        if self.encrypt && self.store.local == StoreChoice::Zram {
            return Err(RunError::NothingToEncrypt);
        }
        if self.file_max.is_some() && self.store.local == StoreChoice::Zram {
            return Err(RunError::NoSuchStore {
                option: "--file-max",
                wanted: "a store with a file",
                instead: "leave it out, or choose --store auto or --store file",
            });
        }
        if self.remote_max.is_some() && self.store.beyond.is_none() {
            return Err(RunError::NoSuchStore {
                option: "--remote-max",
                wanted: "a store beyond the machine",
                instead: "leave it out, or put a URL behind the store, as in --store auto,s3://BUCKET/PREFIX",
            });
        }
        Ok(())
    }
}

/// The likely reason if SIGSYS ended the program, which could no longer report it.
const ENDED_BY_FILTER: &str = "the program was ended by SIGSYS: a seccomp filter forbade a call. A filter for all \
                               threads (SECCOMP_FILTER_FLAG_TSYNC) is for Millpond's too; if it is the program's own, \
                               have it allow read, futex, ioctl, madvise, pread64 and mmap, or run it without Millpond";

/// Runs the program. Returns its exit status; does not return if a signal ended the program.
///
/// # Errors
/// When the program cannot be run, or cannot be run under a budget. In that case it was not started.
pub fn run(args: &RunArgs) -> Result<u8, RunError> {
    let program = Program::find(args)?;
    let files = open_reports(&args.report)?;
    let shared = SharedBoard::create(&args.command[0])?;
    // Only a report in a file shows values over time.
    let mut recorder = (!files.is_empty()).then(|| Recorder::new(now_ns()));
    let beyond = Beyond::open(args)?;
    let mut settings = Settings {
        board: Some(shared.path()),
        ..args.settings()
    };
    if let Some(beyond) = &beyond {
        beyond.complete(&mut settings);
    }
    let outcome = program.supervise(&args.command, &settings, &mut || {
        if let Some(recorder) = &mut recorder {
            recorder.look(shared.board.slots());
        }
    })?;

    let slots: Vec<SlotReading> = shared.board.slots().collect();
    let asked = Asked {
        program: args.command[0].to_string_lossy().into_owned(),
        ram: args.ram,
        store: args.store.local.word().to_owned(),
        order: args.order,
    };
    let report = Report::new(asked, &outcome, &slots, recorder);
    for choice in &args.report {
        print_report(choice, &report);
    }
    for (path, file) in files {
        write_report(&path, file, &report);
    }
    if let Some((pid, line)) = shared.board.last_words() {
        // The line is written here, because the program may have closed its standard error.
        let _ = writeln!(io::stderr(), "millpond: process {pid}: {line}");
    }
    if outcome.status.signal() == Some(libc::SIGSYS) {
        let _ = writeln!(io::stderr(), "millpond: {ENDED_BY_FILTER}");
    }
    if let Some(beyond) = beyond {
        beyond.end();
    }
    Ok(end_like(&outcome))
}

/// The findings about a program before it is started.
pub struct Program {
    file: PathBuf,
    /// It can be loaded as long as this value lives.
    library: Library,
}

impl Program {
    /// Checks everything that can be wrong: the program, the library, the kernel's permissions, the store's place.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn find(args: &RunArgs) -> Result<Self, RunError> {
        args.check()?;
        let file = resolve::resolve(&args.command[0], std::env::var_os("PATH").as_deref())?;
        let library = library::find()?;
        doctor::require_for_run(args.delivery)?;
        if let Some(directory) = args.store.local.directory()
            && !directory.is_dir()
        {
            return Err(RunError::NoStoreDirectory(directory.to_owned()));
        }
        Ok(Self { file, library })
    }

    /// Runs the program to its end, with `settings` in its environment. `look` is called ten times a second meanwhile.
    ///
    /// # Errors
    /// When the program cannot be started.
    pub fn supervise(
        &self,
        command: &[OsString],
        settings: &Settings,
        look: &mut dyn FnMut(),
    ) -> Result<Outcome, RunError> {
        let variables = env::variables(settings, self.library.path());
        supervise::supervise(&self.file, command, &variables, look).map_err(|error| {
            RunError::Exec {
                path: self.file.clone(),
                error,
            }
        })
    }
}

/// The program's exit status. Does not return if a signal ended the program.
pub fn end_like(outcome: &Outcome) -> u8 {
    match (outcome.status.code(), outcome.status.signal()) {
        (Some(code), _) => code as u8,
        (None, Some(signal)) => die_by(signal),
        (None, None) => 125,
    }
}

/// The files that get a report. They are made now, so that a long run does not end without its report because of a
/// mistyped directory.
fn open_reports(choices: &[ReportChoice]) -> Result<Vec<(PathBuf, File)>, RunError> {
    let paths = choices.iter().filter_map(ReportChoice::path);
    let open = |path: &Path| match File::create(path) {
        Ok(file) => Ok((path.to_owned(), file)),
        Err(error) => Err(RunError::ReportFile {
            path: path.to_owned(),
            error,
        }),
    };
    paths.map(open).collect()
}

/// Prints the report to standard error. The program has ended and its status counts: a failure to write the report does
/// not change it.
fn print_report(choice: &ReportChoice, report: &Report) {
    // Removes the colours if standard error is not a terminal, or `NO_COLOR` is set.
    let mut stderr = anstream::AutoStream::auto(io::stderr().lock());
    let _ = match choice {
        ReportChoice::Json => stderr.write_all(report.to_json().as_bytes()),
        ReportChoice::Text => stderr.write_all(print::in_colour(&report.to_string()).as_bytes()),
        ReportChoice::None | ReportChoice::File(_) => Ok(()),
    };
}

fn write_report(path: &Path, mut file: File, report: &Report) {
    let text = if page::is_page(path) {
        report.to_page()
    } else {
        report.to_json()
    };
    if let Err(error) = file.write_all(text.as_bytes()) {
        print::say(format_args!(
            "cannot write the report to {}: {error}",
            path.display()
        ));
    }
}
