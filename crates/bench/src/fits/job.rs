//! The measured process: it starts the part's program on one side, and times the work.

use crate::error::{Failure, Skip};
use crate::fits::{Part, Side, commands, heap, http, nginx, redis, sqlite};
use crate::outcome::{highest, outcome};
use crate::programs_here;
use crate::under_run;
use crate::worker::tie;
use millpond_cli::{run, sibling};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::io::Read;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The maximum time until a server listens.
const PATIENCE: Duration = Duration::from_secs(20);

/// Sizes of one measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, clap::Args)]
#[group(skip)]
pub struct Sizes {
    /// The budget of each program, large enough for all of its memory
    #[arg(long, default_value = "2G", value_parser = millpond_cli::size::parse_ram, value_name = "SIZE")]
    pub ram: u64,
    /// The amount of work of each program, in percent of the default
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000), value_name = "PERCENT")]
    pub amount: u32,
}

impl Sizes {
    /// The number of repetitions, where `usual` is the default; at least one.
    #[must_use]
    pub fn times(self, usual: u32) -> u32 {
        let times = u64::from(usual) * u64::from(self.amount) / 100;
        u32::try_from(times).unwrap_or(u32::MAX).max(1)
    }
}

outcome! {
    /// The measurements of one run.
    pub struct Outcome {
        /// The time of the work, in seconds.
        pub seconds: f64,
        /// Processor time of the program from start to end; for a server, without its clients.
        pub cpu_seconds: f64,
        /// Bytes that went to the store or came from it. There should be none.
        pub store_bytes: u64 = highest,
        /// The number of wrong answers.
        pub wrong: u64 = highest,
    }
    wrong |r| r.wrong;
    figures {
        time "seconds" = |r| r.seconds,
        time "processor" = |r| r.cpu_seconds,
        other "store bytes" = |r| r.store_bytes,
    }
}

/// One measurement.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Task {
    /// The part.
    pub part: Part,
    /// Who serves the program's faults.
    pub side: Side,
    /// The sizes.
    pub sizes: Sizes,
}

/// Checks that the programs of a part are on this machine.
///
/// # Errors
/// The name of the missing program.
pub fn can_run(part: Part) -> Result<(), Skip> {
    let wanted: &[&str] = match part {
        Part::RedisSet | Part::RedisGet => &[redis::SERVER, redis::CLIENT],
        Part::HeapReads => &[],
        Part::Sqlite => &[sqlite::PROGRAM],
        Part::Http => &[http::PROGRAM],
        Part::Nginx => &[nginx::PROGRAM],
        part => commands::of(part).map_or(&[], |command| command.programs),
    };
    wanted
        .iter()
        .try_for_each(|name| programs_here::find(name).map(drop))
}

/// Runs the part's program, and times it.
///
/// # Errors
/// When the program cannot be started, or fails.
pub fn work(task: &Task) -> Result<Outcome, Failure> {
    let place = Place::new(task)?;
    match task.part {
        Part::RedisSet => redis::set(&place),
        Part::RedisGet => redis::get(&place),
        Part::HeapReads => heap::work(&place),
        Part::Sqlite => sqlite::work(&place),
        Part::Http => http::work(&place),
        Part::Nginx => nginx::work(&place),
        part => {
            let command = commands::of(part).ok_or("no such part")?;
            commands::work(&place, &command)
        }
    }
}

/// The place in which a part's program runs: its own directory, and a side.
pub struct Place<'a> {
    task: &'a Task,
    directory: TempDir,
}

impl<'a> Place<'a> {
    fn new(task: &'a Task) -> Result<Self, Failure> {
        // The files' contents are in the page cache, so the disk does not matter, and no tmpfs is needed.
        let directory = tempfile::tempdir_in("/var/tmp")?;
        Ok(Self { task, directory })
    }

    /// The directory, which is removed afterwards.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The amount of work.
    #[must_use]
    pub fn sizes(&self) -> Sizes {
        self.task.sizes
    }

    /// Starts `program` on the side. Its standard output is a pipe, and its standard error is discarded.
    ///
    /// # Errors
    /// When the program cannot be started.
    pub fn start(&self, program: &Path, arguments: &[&OsStr]) -> Result<Started, Failure> {
        let mut command = self.command(program)?;
        command
            .args(arguments)
            .current_dir(self.directory())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        // `millpond run` forwards this signal to its program; it could not forward SIGKILL.
        tie(&mut command, Signal::TERM);
        let child = command
            .spawn()
            .map_err(|error| format!("cannot start {}: {error}", program.display()))?;
        Ok(Started {
            child,
            is_over: false,
        })
    }

    /// Runs a program of this name to its end. Returns the time from start to end in seconds, what it has printed, and
    /// how it ended.
    ///
    /// # Errors
    /// When the program cannot be started, or fails.
    pub fn run(
        &self,
        name: &str,
        program: &Path,
        arguments: &[&OsStr],
    ) -> Result<(f64, String, Ended), Failure> {
        let clock = Instant::now();
        let mut started = self.start(program, arguments)?;
        let mut said = String::new();
        started.output()?.read_to_string(&mut said)?;
        let ended = started.wait()?;
        let seconds = clock.elapsed().as_secs_f64();
        match ended.status.success() {
            true => Ok((seconds, said, ended)),
            false => Err(format!("{name}: {}", ended.status).into()),
        }
    }

    fn command(&self, program: &Path) -> Result<Command, Failure> {
        let options = match self.task.side {
            Side::Plain => return Ok(Command::new(program)),
            Side::Handler => under_run::BY_HANDLER,
            Side::FromStart => under_run::FROM_START,
            Side::Direct => under_run::WHEN_NEEDED,
        };
        let mut command = Command::new(sibling::find(sibling::MILLPOND)?);
        command
            .args(["run", "--tell=machine", "--ram"])
            .arg(self.task.sizes.ram.to_string())
            .args(options)
            .arg("--report")
            .arg(self.report())
            .arg("--")
            .arg(program);
        Ok(command)
    }

    fn report(&self) -> std::path::PathBuf {
        self.directory().join("report.json")
    }

    /// Composes the outcome after the program has ended.
    ///
    /// # Errors
    /// When `millpond run` left no report.
    pub fn outcome(&self, seconds: f64, ended: &Ended, wrong: u64) -> Result<Outcome, Failure> {
        let store_bytes = match self.task.side {
            Side::Plain => 0,
            Side::Handler | Side::FromStart | Side::Direct => {
                let text =
                    std::fs::read(self.report()).map_err(|error| format!("no report: {error}"))?;
                let report: serde_json::Value = serde_json::from_slice(&text)?;
                let bytes = |field: &str| {
                    report[field]
                        .as_u64()
                        .ok_or(format!("no {field} in the report"))
                };
                bytes("in_bytes")? + bytes("out_bytes")?
            }
        };
        Ok(Outcome {
            seconds,
            cpu_seconds: run::cpu_time(&ended.usage).as_secs_f64(),
            store_bytes,
            wrong,
        })
    }
}

/// A port that is free now. If another program takes it first, the server that is to have it ends with an error.
///
/// # Errors
/// When there is none.
pub fn free_port() -> Result<u16, Failure> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    Ok(listener.local_addr()?.port())
}

/// Waits until a server listens.
///
/// # Errors
/// When it ends first, or takes too long.
pub fn wait_for(server: &mut Started, name: &str, port: u16) -> Result<(), Failure> {
    let until = Instant::now() + PATIENCE;
    while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
        server.check()?;
        if Instant::now() > until {
            return Err(format!("{name} does not listen at port {port}").into());
        }
        sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// A running program. It is ended when this is dropped.
pub struct Started {
    child: Child,
    is_over: bool,
}

/// How a program ended.
pub struct Ended {
    /// Its exit status.
    pub status: ExitStatus,
    usage: libc::rusage,
}

impl Started {
    /// Takes the program's standard output.
    ///
    /// # Errors
    /// When it was taken before.
    pub fn output(&mut self) -> Result<std::process::ChildStdout, Failure> {
        self.child
            .stdout
            .take()
            .ok_or_else(|| "the output was taken".into())
    }

    /// Fails if the program has ended.
    ///
    /// # Errors
    /// When the program has ended, with its status.
    pub fn check(&mut self) -> Result<(), Failure> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => {
                self.is_over = true;
                Err(format!("the program has ended too early: {status}").into())
            }
        }
    }

    /// Waits for the end.
    ///
    /// # Errors
    /// When the kernel does not know this child.
    pub fn wait(mut self) -> Result<Ended, Failure> {
        let ended = run::reap(Pid::from_child(&self.child), 0)?;
        self.is_over = true;
        let (status, usage) = ended.ok_or("the program has not ended")?;
        Ok(Ended { status, usage })
    }

    /// Asks the program to end, and waits until it has.
    ///
    /// # Errors
    /// The errors of [`Started::wait`].
    pub fn end(self) -> Result<Ended, Failure> {
        kill_process(Pid::from_child(&self.child), Signal::TERM)?;
        self.wait()
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if !self.is_over {
            let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
            let _ = self.child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_scale_with_the_share_and_are_never_zero() {
        let sizes = |amount| Sizes {
            ram: 1 << 30,
            amount,
        };
        assert_eq!(sizes(100).times(7), 7);
        assert_eq!(sizes(250).times(10), 25);
        assert_eq!(sizes(1).times(7), 1);
    }

    #[test]
    fn a_program_that_ends_too_early_is_an_error() {
        let task = Task {
            part: Part::Sqlite,
            side: Side::Plain,
            sizes: Sizes {
                ram: 1 << 30,
                amount: 1,
            },
        };
        let place = Place::new(&task).unwrap();
        let mut started = place.start(Path::new("/bin/false"), &[]).unwrap();
        while started.check().is_ok() {}
        let error = started.check().unwrap_err();
        assert!(error.to_string().contains("ended too early"), "{error}");
    }
}
