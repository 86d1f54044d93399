//! The files of a recording: one for each process that touches memory.

use crate::record::error::RecordError;
use millpond_board::{TapeState, Tapes};
use millpond_replay::format::{Header, Writer};
use millpond_replay::import::Access;
use rustix::process::{Pid, test_kill_process};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fs::{File, Permissions};
use std::io::{self, BufWriter};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// A finished stream.
#[derive(Debug)]
pub struct Recorded {
    /// The file of the stream.
    pub path: PathBuf,
    /// The name of the program that was recorded.
    pub name: String,
    /// The process that was recorded.
    pub pid: u32,
    /// Entries in the stream.
    pub entries: u64,
    /// Entries missing from the stream.
    pub lost: u64,
}

/// All streams, in the order in which their processes claimed a tape.
#[derive(Debug)]
pub struct Streams {
    output: PathBuf,
    directory: PathBuf,
    streams: BTreeMap<u64, Stream>,
}

#[derive(Debug)]
struct Stream {
    file: NamedTempFile,
    writer: Writer<BufWriter<File>>,
    about: TapeState,
}

impl Streams {
    /// Begins streams that will go to `output` and to files next to it.
    ///
    /// # Errors
    /// When nothing can be written there.
    pub fn begin(output: &Path) -> Result<Self, RecordError> {
        let parent = output
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty());
        let directory = parent.unwrap_or(Path::new(".")).to_owned();
        let streams = Self {
            output: output.to_owned(),
            directory,
            streams: BTreeMap::new(),
        };
        // The path is tried now, so that a long run does not end without its trace because of a mistyped directory.
        if output.file_name().is_none() || output.is_dir() {
            return Err(streams.failed(io::ErrorKind::IsADirectory.into()));
        }
        streams.new_file()?;
        Ok(streams)
    }

    fn failed(&self, source: io::Error) -> RecordError {
        RecordError::Write {
            path: self.output.clone(),
            source,
        }
    }

    /// Makes a file that vanishes unless it is kept.
    fn new_file(&self) -> Result<NamedTempFile, RecordError> {
        tempfile::Builder::new()
            .prefix(".millpond-")
            .permissions(Permissions::from_mode(0o666))
            .tempfile_in(&self.directory)
            .map_err(|error| self.failed(error))
    }

    /// Takes the entries from a tape, and frees the tape when its process is gone.
    ///
    /// # Errors
    /// When the entries cannot be written.
    pub fn take(&mut self, tapes: &Tapes, number: usize) -> Result<(), RecordError> {
        let gone = |pid: u32| {
            let pid = Pid::from_raw(pid.cast_signed());
            pid.is_none_or(|pid| test_kill_process(pid) == Err(rustix::io::Errno::SRCH))
        };
        // This is checked before the tape is emptied: a process that is already gone writes nothing more.
        let was_gone = tapes.owner(number).is_some_and(gone);
        let mut words = Vec::new();
        let Some(about) = tapes.drain(number, &mut |some| words.extend_from_slice(some)) else {
            return Ok(());
        };
        let ended = was_gone || about.ended;
        if !words.is_empty() {
            self.write(&about, &words)?;
        }
        if ended {
            tapes.free(number);
        }
        Ok(())
    }

    fn write(&mut self, about: &TapeState, words: &[u64]) -> Result<(), RecordError> {
        if !self.streams.contains_key(&about.claim) {
            let file = self.new_file()?;
            let writer = file
                .reopen()
                .and_then(|file| Writer::new(BufWriter::new(file), Header::pages_of_4k(false)))
                .map_err(|error| self.failed(error))?;
            let stream = Stream {
                file,
                writer,
                about: about.clone(),
            };
            self.streams.insert(about.claim, stream);
        }
        let stream = self.streams.get_mut(&about.claim).expect("it is there now");
        stream.about = about.clone();
        let mut push = |&page: &u64| stream.writer.push(Access::read(page));
        words
            .iter()
            .try_for_each(&mut push)
            .map_err(|source| RecordError::Write {
                path: self.output.clone(),
                source,
            })
    }

    /// Ends all files and gives them their names, the longest stream first. Streams with no more than `least` entries
    /// are dropped, unless all are that short. Also returns the number of dropped streams.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn finish(self, least: u64) -> Result<(Vec<Recorded>, usize), RecordError> {
        let mut streams: Vec<Stream> = self.streams.into_values().collect();
        let all = streams.len();
        streams.sort_by_key(|stream| Reverse(stream.writer.accesses()));
        let long = streams
            .iter()
            .filter(|stream| stream.writer.accesses() > least);
        streams.truncate(long.count().max(1));
        let dropped = all - streams.len();
        let mut recorded = Vec::new();
        for (number, stream) in streams.into_iter().enumerate() {
            let path = match number {
                0 => self.output.clone(),
                _ => numbered(&self.output, number + 1),
            };
            let failed = |source| RecordError::Write {
                path: path.clone(),
                source,
            };
            let entries = stream.writer.accesses();
            stream.writer.finish().map_err(failed)?;
            let kept = stream.file.persist(&path);
            kept.map_err(|error| failed(error.error))?;
            recorded.push(Recorded {
                path,
                name: stream.about.name,
                pid: stream.about.pid,
                entries,
                lost: stream.about.lost,
            });
        }
        Ok((recorded, dropped))
    }
}

/// Adds a number to a name: `trace` becomes `trace.2`.
fn numbered(path: &Path, number: usize) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}"));
    name.into()
}
