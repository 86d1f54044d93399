//! The files of a store by their priorities, like swap areas on Linux.
//!
//! ```text
//!   priority 10   │ /fast/a │ /fast/b │     striped: 8 MiB go to one of them, the next 8 MiB to the other
//!   priority  0   │ /slow   │               used while those above are full or fail
//! ```
//!
//! A slot lies in one file as a whole, so a read asks one device. Striping adds up the devices' rates. What is written
//! together is read together, so a stripe is long enough for a device to read in order, and short compared with what a
//! program evicts in a second.
//!
//! *An area that fails* for a write gets no further blocks for a while ([`PROBE`]), as long as another has room: a
//! device that is gone costs an occasional failing write, but no save. Slots that it already holds are still read from
//! it. If all areas fail, saves are refused, as with one file.
//!
//! *Forks.* A child has its own file in addition to each of its parent's ([`FileStore::after_fork_in_child`]), so a
//! file's number consists of the generation and the area: see [`number`].

use super::alloc::{BlockMap, FILE_BLOCK};
use super::cipher::Cipher;
use super::clusters::Clusters;
use super::{DEFAULT_MAX, FileStore, FileStoreConfig, GENERATIONS, Location, io};
use crate::error::OpenError;
use crate::scratch::ScratchPool;
use arrayvec::ArrayVec;
use millpond_sync::{Held, Rank, Ranked};
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::process::Pid;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::*};

/// The most files of a store.
pub(super) const AREAS: usize = 4;
/// The most files that a process may hold, including those of its ancestors.
pub(super) const FILES: usize = GENERATIONS * AREAS;
/// A file's number takes this many bits of a place, below those of the index.
pub(super) const NUMBER_BITS: u32 = FILES.ilog2();
const _: () = assert!(FILES == 1 << NUMBER_BITS);
/// Number of blocks that go to one area before it is the turn of the next one of its priority.
const PIECE: u64 = 2048;
/// Number of blocks that go elsewhere before a failed area is tried again.
const PROBE: u64 = 4096;

/// A further file of a [`FileStore`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileArea {
    /// The place for the file.
    pub location: Location,
    /// The most bytes of the file, rounded down to 4 KiB; 1 TiB when `None`.
    pub max_bytes: Option<u64>,
    /// Its place among the files: one of a higher priority is used first.
    pub priority: i16,
}

/// A file that the store may write, and which of its blocks are free.
pub(super) struct Area {
    pub(super) blocks: Ranked<BlockMap>,
    /// The most blocks.
    pub(super) limit: u64,
    priority: i16,
    /// The directory for the files of forked children.
    pub(super) directory: OwnedFd,
    /// The process that may empty the file when the store ends, if the file has a name.
    pub(super) owner: Option<Pid>,
    pub(super) path: PathBuf,
    /// One more than the number of blocks that had been placed when a write to it last failed; 0 if none has failed
    /// since the last success.
    failed_at: AtomicU64,
}

/// A file that this process writes, with everything that belongs to it.
pub(super) struct Medium<'a> {
    pub(super) fd: BorrowedFd<'a>,
    /// The number of that file.
    pub(super) file: usize,
    area: &'a Area,
    placed: &'a AtomicU64,
    /// The kept clusters of all files.
    pub(super) clusters: &'a Clusters,
    /// The cipher that encrypts the file.
    pub(super) cipher: &'a Cipher,
    /// The scratches from which extents are written.
    pub(super) scratches: &'a ScratchPool,
}

/// The files that this process writes, in the order in which they are tried.
pub(super) struct Media<'a>(ArrayVec<Medium<'a>, AREAS>);

/// The number of an area's file in a generation.
pub(super) const fn number(generation: usize, area: usize) -> usize {
    generation * AREAS + area
}

/// The generation of a file.
pub(super) const fn generation_of(file: usize) -> usize {
    file / AREAS
}

impl Area {
    /// Opens the file of an area, and returns it with the area.
    fn open(area: &FileArea, force_tmpfs: bool) -> Result<(Self, OwnedFd), OpenError> {
        let limit = blocks_of(area.max_bytes)?;
        let blocks = BlockMap::new(limit).map_err(|errno| OpenError::Memory { errno })?;
        let (directory, file) = io::open(&area.location, force_tmpfs)?;
        let named = matches!(area.location, Location::File(_));
        let area = Self {
            blocks: Ranked::new(Rank::FileBlocks, blocks),
            limit,
            priority: area.priority,
            directory,
            owner: named.then(rustix::process::getpid),
            path: area.location.path().clone(),
            failed_at: AtomicU64::new(0),
        };
        Ok((area, file))
    }

    pub(super) fn blocks(&self) -> Held<'_, BlockMap> {
        self.blocks.lock()
    }

    /// Whether a write has failed so recently that other areas come first.
    fn fails(&self, placed: u64) -> bool {
        let failed_at = self.failed_at.load(Relaxed);
        failed_at > 0 && placed < failed_at + PROBE
    }
}

/// The most blocks of a file of `max_bytes` bytes.
fn blocks_of(max_bytes: Option<u64>) -> Result<u64, OpenError> {
    let (bytes, least) = (max_bytes.unwrap_or(DEFAULT_MAX), FileStore::MIN_BYTES);
    match bytes < least {
        true => Err(OpenError::LimitTooSmall { bytes, least }),
        false => Ok((bytes / FILE_BLOCK as u64).min(1 << super::FILE_SHIFT)),
    }
}

/// Opens all areas, the highest priority first, and their files.
pub(super) fn open_all(config: &FileStoreConfig) -> Result<Vec<(Area, OwnedFd)>, OpenError> {
    let first = FileArea {
        location: config.location.clone(),
        max_bytes: config.max_bytes,
        priority: config.priority,
    };
    if config.more.len() >= AREAS {
        let (files, most) = (config.more.len() + 1, AREAS);
        return Err(OpenError::TooManyFiles { files, most });
    }
    let areas = std::iter::once(&first).chain(&config.more);
    let mut areas = areas
        .map(|area| Area::open(area, config.force_tmpfs))
        .collect::<Result<Vec<_>, _>>()?;
    areas.sort_by_key(|(area, _)| std::cmp::Reverse(area.priority));
    Ok(areas)
}

impl Medium<'_> {
    pub(super) fn blocks(&self) -> Held<'_, BlockMap> {
        self.area.blocks()
    }

    /// Takes `count` contiguous blocks.
    pub(super) fn alloc(&self, count: u64) -> Option<u64> {
        let start = self.blocks().alloc(count)?;
        self.placed.fetch_add(count, Relaxed);
        Some(start)
    }

    /// Takes up to `most` contiguous blocks, as [`BlockMap::alloc_run`] does.
    pub(super) fn alloc_run(&self, most: u64) -> Option<(u64, u64)> {
        let (start, count) = self.blocks().alloc_run(most)?;
        self.placed.fetch_add(count, Relaxed);
        Some((start, count))
    }

    /// Records the result of a write to the file.
    pub(super) fn note(&self, written: Result<(), Errno>) {
        let failed_at = match written {
            Ok(()) => 0,
            Err(_) => self.placed.load(Relaxed) + 1,
        };
        if failed_at != self.area.failed_at.load(Relaxed) {
            self.area.failed_at.store(failed_at, Relaxed);
        }
    }
}

impl<'a> Media<'a> {
    /// The files in the order in which they are tried.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Medium<'a>> {
        self.0.iter()
    }

    /// The file with this number, if this process writes it.
    pub(super) fn of(&self, file: usize) -> Option<&Medium<'a>> {
        self.0.iter().find(|medium| medium.file == file)
    }

    /// Whether there is a file other than this one.
    pub(super) fn has_other_than(&self, file: usize) -> bool {
        self.0.iter().any(|medium| medium.file != file)
    }
}

impl FileStore {
    /// The files that this process writes, in the order in which they are tried for the next blocks.
    pub(super) fn media(&self) -> Media<'_> {
        let generation = self.own.load(Acquire);
        let placed = self.placed.load(Relaxed);
        // Evaluated once: an area that failed in the first check but not in the second would be skipped by both.
        let failing: ArrayVec<bool, AREAS> =
            self.areas.iter().map(|area| area.fails(placed)).collect();
        let mut media = ArrayVec::new();
        for fails in [false, true] {
            let mut before = 0;
            for equals in self
                .areas
                .chunk_by(|one, other| one.priority == other.priority)
            {
                let first = (placed / PIECE) as usize % equals.len();
                for at in (0..equals.len()).map(|at| (first + at) % equals.len()) {
                    let (area, file) = (&equals[at], number(generation, before + at));
                    let fd = self.file(file).filter(|_| failing[before + at] == fails);
                    media.extend(fd.map(|fd| Medium {
                        fd,
                        file,
                        area,
                        placed: &self.placed,
                        clusters: &self.clusters,
                        cipher: &self.cipher,
                        scratches: &self.scratches,
                    }));
                }
                before += equals.len();
            }
        }
        Media(media)
    }
}

#[cfg(test)]
mod tests;
