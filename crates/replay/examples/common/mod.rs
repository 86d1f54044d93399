//! Code that the examples over a directory of traces share: their arguments, the traces in it, and how these are read.

use millpond_replay::import::Reading;
use millpond_replay::open;
use millpond_replay::trace::Trace;
use std::path::{Path, PathBuf};

/// The arguments `DIRECTORY [PERCENT,…]`.
pub struct Arguments {
    /// Every `NAME.vz.zst` of the directory, the longest first, so that threads that share them out end together.
    pub traces: Vec<PathBuf>,
    /// Sizes of caches, in percent of a trace's footprint.
    pub percents: Vec<u64>,
}

impl Arguments {
    /// Reads the arguments of this process. The error says what is wrong with them.
    pub fn parse() -> Result<Self, String> {
        let mut args = std::env::args().skip(1);
        let directory = args.next().ok_or("name the directory with the traces")?;
        let percents = args.next().unwrap_or("10,25,50".to_owned());
        let percents: Result<Vec<u64>, _> = percents.split(',').map(str::parse).collect();
        let percents =
            percents.map_err(|_| "sizes are percents of the footprint, such as 10,25,50")?;
        let traces =
            list(Path::new(&directory)).map_err(|error| format!("{directory}: {error}"))?;
        Ok(Self { traces, percents })
    }
}

fn list(directory: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.to_string_lossy().ends_with(".vz.zst") {
            paths.push((std::fs::metadata(&path)?.len(), path));
        }
    }
    paths.sort_by_key(|&(len, _)| std::cmp::Reverse(len));
    Ok(paths.into_iter().map(|(_, path)| path).collect())
}

/// Reads a trace and its name. In traces called `pg_*` bit 0 says whether an access writes.
///
/// # Panics
/// When the file is no trace.
pub fn load(path: &Path) -> (String, Trace) {
    let name = path.file_name().expect("a file").to_string_lossy();
    let name = name.trim_end_matches(".vz.zst").to_owned();
    let reading = Reading {
        write_bit: name.starts_with("pg_"),
        instructions: false,
    };
    let trace = open::load(path, None, reading).unwrap_or_else(|error| panic!("{error}"));
    (name, trace)
}
