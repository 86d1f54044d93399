//! `heap_reads`: a program that reads a file from the page cache into its heap, 4 KiB per call, as `dd` does.

use crate::data::{self, PAGE};
use crate::error::Failure;
use crate::fits::job::{Outcome, Place};
use crate::jobs::Job;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;
use std::time::Instant;

/// Pages of the file: 64 MiB.
const PAGES: usize = 1 << 14;
/// How often the file is read.
const LAPS: u32 = 60;

/// The program's output: the time of its reads, and the number of wrong pages.
type Found = (f64, u64);

/// Starts the program. It times its reads itself.
///
/// # Errors
/// When the program cannot be started, or fails.
pub fn work(place: &Place<'_>) -> Result<Outcome, Failure> {
    let file = place.directory().join("data");
    let mut bytes = vec![0; PAGES * PAGE];
    data::fill_all(&mut bytes);
    fs::write(&file, &bytes)?;
    drop(bytes);
    let job = Job::FitsHeapReads(file, place.sizes().times(LAPS));
    let arguments = job.to_arguments()?;
    let program = std::env::current_exe()?;
    let name = "the program that reads into its heap";
    let arguments = arguments.each_ref().map(OsStr::new);
    let (_, said, ended) = place.run(name, &program, &arguments)?;
    let (seconds, wrong): Found = serde_json::from_str(&said)?;
    place.outcome(seconds, &ended, wrong)
}

/// Runs as the measured program.
///
/// # Errors
/// When the file cannot be read.
pub fn read(file: &Path, laps: u32) -> Result<Found, Failure> {
    let mut heap = vec![0; usize::try_from(fs::metadata(file)?.len())?];
    let started = Instant::now();
    for _ in 0..laps {
        let mut file = File::open(file)?;
        for page in heap.chunks_exact_mut(PAGE) {
            if file.read(page)? != PAGE {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    Ok((seconds, data::wrong_pages(&heap)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_is_not_right_is_counted() {
        let mut bytes = vec![0; 3 * PAGE];
        data::fill_all(&mut bytes);
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(&file, &bytes).unwrap();
        assert_eq!(read(file.path(), 2).unwrap().1, 0);
        bytes[PAGE + 5] ^= 1;
        fs::write(&file, &bytes).unwrap();
        assert_eq!(read(file.path(), 2).unwrap().1, 1);
    }
}
