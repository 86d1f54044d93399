//! A file as a store, for contents that do not fit in RAM at all.
//!
//! Each slot has one extent of 4 KiB blocks in the file. It is read and written through page-aligned buffers, bypassing
//! the page cache where the file system allows that: cached, the data would take the RAM that it was meant to free. An
//! extent is read by one call and written by one. Small extents are written in batches ([`pending`]), and the
//! neighbours of a small extent are read with it ([`clusters`]). LZ4 is used for a block when it saves at least 4 KiB
//! of the file, so never for single pages.
//!
//! # Forks
//! A descriptor that a child inherits refers to the parent's file. The child reads the parent's saved slots there, and
//! the parent keeps them until the child is gone ([`alloc`]). Slots that the child saves go to a new file of its own;
//! when the child releases one of its parent's slots, it only forgets the slot. Its own children do the same, so a
//! process holds a chain of files, up to [`GENERATIONS`]; a slot's place names the file that it is in.
//!
//! # Several files
//! A store may have several files, each on a device of its own ([`areas`]).

mod alloc;
mod areas;
mod awake;
mod behind;
mod cipher;
mod clusters;
mod holes;
mod io;
mod load;
mod load_all;
#[cfg(test)]
pub(crate) mod noise;
mod page_sums;
mod pending;
mod save;
mod segments;

use crate::checksum::Checksums;
use crate::codec::COMPRESSED_MAX;
use crate::error::OpenError;
use crate::image::{self, BLOCK, Image, MAX_SLOT};
use crate::scratch::ScratchPool;
use crate::slot_table::{Block, Kind, SlotTable};
use alloc::{BlockMap, FILE_BLOCK};
pub use areas::FileArea;
use areas::{Area, FILES, NUMBER_BITS, generation_of, number};
use awake::Awake;
pub use awake::IO_OF_STORE;
use cipher::Cipher;
use clusters::Clusters;
pub(crate) use io::out_of_the_way;
use millpond_core::SlotId;
use millpond_core::SlotPart;
use millpond_core::port::{Forks, Load, LoadError, SaveError, Saved, Slots, StoreUsage, Upkeep};
use page_sums::PageSums;
use pending::Pending;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd};
use rustix::io::Errno;
use segments::{INDEX_BITS, Index, Segments};
use std::num::NonZeroU32;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering::*};

/// The most processes whose files a process may hold: itself, its parent, and so on.
const GENERATIONS: usize = 8;
/// A place consists of the index of segments, if the block has one, in the highest bits, then the file's number, then
/// the block's number.
const INDEX_SHIFT: u32 = u64::BITS - INDEX_BITS;
const FILE_SHIFT: u32 = INDEX_SHIFT - NUMBER_BITS;
/// The most bytes in a file for which no limit is set.
const DEFAULT_MAX: u64 = 1 << 40;
/// The bytes of a slot's longest extent, plus the room that the compressor needs after its last block.
const WIRE: usize = MAX_SLOT + COMPRESSED_MAX - BLOCK;

/// The place for the file of a [`FileStore`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Location {
    /// The file is in this directory, without a name: it disappears with its last user, however that process ends.
    Directory(PathBuf),
    /// The file is at this path. It is created for its owner alone (mode 0600), must be empty if it exists, and is not
    /// removed; the store empties it when dropped.
    File(PathBuf),
}

impl Location {
    /// The path that was given.
    pub(crate) fn path(&self) -> &PathBuf {
        let (Self::Directory(path) | Self::File(path)) = self;
        path
    }

    /// The directory that the file is in, or will be.
    ///
    /// # Errors
    /// The path names no file.
    fn directory(&self) -> Result<&Path, OpenError> {
        let path = match self {
            Self::Directory(path) => return Ok(path),
            Self::File(path) => path,
        };
        match path.file_name().and(path.parent()) {
            None => Err(OpenError::NoFileName { path: path.clone() }),
            Some(parent) if parent.as_os_str().is_empty() => Ok(Path::new(".")),
            Some(parent) => Ok(parent),
        }
    }
}

/// The configuration of a [`FileStore`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileStoreConfig {
    /// The place for the file.
    pub location: Location,
    /// The most bytes of the file, rounded down to 4 KiB; 1 TiB when `None`. A forked child's own file has the same
    /// limit.
    pub max_bytes: Option<u64>,
    /// Whether a directory on tmpfs or ramfs, which are RAM themselves, is accepted.
    pub force_tmpfs: bool,
    /// Whether all written data is encrypted (AES-256-XTS), with a key that exists only in this store.
    pub encrypt: bool,
    /// Whether what a background thread saves may be written behind its back ([`Upkeep::write_behind`]), where the
    /// kernel allows that.
    pub write_behind: bool,
    /// The priority of this file among `more`.
    pub priority: i16,
    /// Further files, three at most. A file of a higher priority is used first; files of the same priority take turns,
    /// 8 MiB at a time. If a file is full or fails, new slots go to the others.
    pub more: Vec<FileArea>,
}

impl FileStoreConfig {
    /// Configures one file, without a limit, not on tmpfs, not encrypted.
    pub const fn at(location: Location) -> Self {
        Self {
            location,
            max_bytes: None,
            force_tmpfs: false,
            encrypt: false,
            write_behind: true,
            priority: 0,
            more: Vec::new(),
        }
    }

    /// Configures one unnamed file in `directory`, without a limit, not on tmpfs, not encrypted.
    pub fn in_directory(directory: impl Into<PathBuf>) -> Self {
        Self::at(Location::Directory(directory.into()))
    }
}

/// A store that keeps slots in a file.
///
/// ```
/// # use millpond_store::*;
/// # use millpond_core::{SlotId, port::{Saved, Slots}};
/// # let dir = tempfile::tempdir()?;
/// let config = FileStoreConfig { force_tmpfs: true, ..FileStoreConfig::in_directory(dir.path()) };
/// let store = FileStore::create(&config)?;
/// assert_eq!(store.save(SlotId(0), None, b"pond".repeat(1024).as_slice()), Ok(Saved::Stored));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct FileStore {
    table: SlotTable,
    sums: Checksums,
    scratches: ScratchPool,
    pending: Pending,
    clusters: Clusters,
    awake: Awake,
    page_sums: PageSums,
    segments: Segments,
    cipher: Cipher,
    /// The files of this process by their priorities, the highest first.
    areas: Vec<Area>,
    /// The next area to give room back to the file system.
    hand: AtomicUsize,
    /// Number of blocks placed so far; it decides whose turn it is among areas of one priority.
    placed: AtomicU64,
    /// The descriptors of all files by their [numbers](number), -1 where there is none.
    files: [AtomicI32; FILES],
    /// The generation of this process's own files.
    own: AtomicUsize,
    /// Number of file blocks of all slots, in all files.
    stored: AtomicU64,
}

impl FileStore {
    /// The smallest limit: it holds one slot of the longest kind.
    pub const MIN_BYTES: u64 = 2 << 20;

    /// Makes an empty store in a new file, or in several.
    ///
    /// # Errors
    /// A file cannot be created, is not empty, or lies on tmpfs without `force_tmpfs`; a limit is below
    /// [`FileStore::MIN_BYTES`]; there are more than four files; or the kernel provides no memory for tables.
    /// [`OpenError`] lists all reasons.
    pub fn create(config: &FileStoreConfig) -> Result<Self, OpenError> {
        let memory = |errno| OpenError::Memory { errno };
        let table = SlotTable::new(BLOCK).map_err(memory)?;
        let scratches = ScratchPool::new(WIRE).map_err(memory)?;
        let pending = Pending::new(config.write_behind).map_err(memory)?;
        let clusters = Clusters::new().map_err(memory)?;
        let segments = Segments::new().map_err(memory)?;
        let random = |errno| OpenError::Random { errno };
        let sums = Checksums::new().map_err(random)?;
        let cipher = match config.encrypt {
            true => Cipher::random().map_err(random)?,
            false => Cipher::none(),
        };

        let (areas, opened): (Vec<_>, Vec<_>) = areas::open_all(config)?.into_iter().unzip();
        let most = areas.iter().map(|area| area.limit).max().unwrap_or(0);
        let page_sums = PageSums::new(most);
        for area in 0..areas.len() {
            page_sums.begin(number(0, area)).map_err(memory)?;
        }
        let files = [const { AtomicI32::new(-1) }; FILES];
        for (area, file) in opened.into_iter().enumerate() {
            files[number(0, area)].store(file.into_raw_fd(), Relaxed);
        }
        Ok(Self {
            table,
            sums,
            scratches,
            pending,
            clusters,
            awake: Awake::new(),
            page_sums,
            segments,
            cipher,
            areas,
            hand: AtomicUsize::new(0),
            placed: AtomicU64::new(0),
            files,
            own: AtomicUsize::new(0),
            stored: AtomicU64::new(0),
        })
    }

    /// A description of the store in one line, for reports: where its files are, whether they are encrypted, and
    /// whether I/O bypasses the page cache.
    #[must_use]
    pub fn describe(&self) -> String {
        let areas: Vec<_> = (0..self.areas.len())
            .map(|area| self.describe_area(area))
            .collect();
        areas.join("; ")
    }

    fn describe_area(&self, at: usize) -> String {
        let (area, own) = (&self.areas[at], self.own.load(Acquire));
        let direct = self.file(number(own, at)).is_some_and(io::is_direct);
        let kind = if area.owner.is_some() && own == 0 {
            "file"
        } else {
            "unnamed file in"
        };
        let io = if direct {
            "direct I/O"
        } else {
            "I/O through the page cache"
        };
        let encrypted = match self.cipher.is_some() {
            true => "encrypted, ",
            false => "",
        };
        format!("{kind} {} ({encrypted}{io})", area.path.display())
    }

    /// Uses the key of another store's checksums, so that one image serves both.
    ///
    /// # Panics
    /// If anything is already stored.
    pub(crate) fn share_checksums(&mut self, sums: &Checksums) {
        assert_eq!(
            self.table.usage().slots,
            0,
            "a store gets its key before its first slot"
        );
        self.sums = sums.clone();
    }

    /// Whether `part` holds exactly this image, as far as is known without reading. Returns false for a part of a block
    /// that was compressed as a whole.
    pub(crate) fn holds_image(&self, part: SlotPart, image: &Image<'_>) -> bool {
        let Some(slot) = self.table.pin(part.slot) else {
            return false;
        };
        if slot.pages() == image.pages() {
            return part.first == 0 && image.is_held_by(&slot);
        }
        image.is_held_from(&slot, part.first, |block, len, number, _, sum| {
            self.is_page(block, len, number, sum)
        })
    }

    /// Whether page `number` of `block`, which has `len` bytes, has this checksum, as far as that is known.
    fn is_page(&self, block: &Block, len: usize, number: usize, sum: u128) -> bool {
        match (block.kind, index_of(block)) {
            (Kind::Raw, _) => self.page_sums.is(block, len, number, sum),
            (Kind::Packed, Some(index)) => self.segments.is(index, number, sum),
            _ => false,
        }
    }

    /// Whether `slot` holds anything.
    pub(crate) fn holds(&self, slot: SlotId) -> bool {
        self.table.pin(slot).is_some()
    }

    fn file(&self, number: usize) -> Option<BorrowedFd<'_>> {
        let fd = self.files.get(number)?.load(Acquire);
        // SAFETY: a descriptor in `files` is ours, and is not closed before the store is dropped.
        (fd >= 0).then(|| unsafe { BorrowedFd::borrow_raw(fd) })
    }

    /// Frees blocks, if they are in one of this process's own files.
    fn free(&self, file: usize, blocks: Range<u64>) {
        let is_own = generation_of(file) == self.own.load(Acquire);
        if !self.pending.release(file, &blocks, &self.scratches) && is_own {
            let area = &self.areas[file - number(generation_of(file), 0)];
            area.blocks().free(blocks.start, blocks.end - blocks.start);
        }
    }
}

/// Number of bytes of the file that a block takes.
fn extent(block: &Block, len: usize) -> usize {
    match block.kind {
        Kind::Fill => 0,
        Kind::Raw => len,
        Kind::Packed => usize::from(block.size).next_multiple_of(FILE_BLOCK),
    }
}

/// The number of the file that a block is in, and the block's offset there.
fn locate(block: &Block) -> (usize, u64) {
    let number = block.place & ((1 << FILE_SHIFT) - 1);
    let file = block.place >> FILE_SHIFT & ((1 << NUMBER_BITS) - 1);
    (file as usize, number * FILE_BLOCK as u64)
}

/// The index of a block that is compressed in segments; `None` for other blocks.
fn index_of(block: &Block) -> Option<Index> {
    let index = NonZeroU32::new((block.place >> INDEX_SHIFT) as u32).map(Index);
    index.filter(|_| block.kind == Kind::Packed)
}

impl Slots for FileStore {
    fn save(
        &self,
        slot: SlotId,
        previous: Option<SlotPart>,
        data: &[u8],
    ) -> Result<Saved, SaveError> {
        let holds = |part, image: &Image<'_>| self.holds_image(part, image);
        let put = |image: &Image<'_>| self.put(slot, image);
        image::save(
            &image::NewSlot {
                data,
                block: BLOCK,
                previous,
                keys: &self.sums,
            },
            holds,
            put,
        )
    }

    fn load(&self, slot: SlotId, first_page: u16, out: &mut [u8]) -> Result<(), LoadError> {
        self.get(slot, first_page, out)
    }

    fn load_all(&self, loads: &mut [Load<'_>]) -> Result<(), LoadError> {
        self.get_all(loads)
    }

    fn release(&self, slot: SlotId) {
        let Some(slot) = self.table.take(slot) else {
            return;
        };
        self.give_indices_back(slot.blocks().map(|(block, _)| block));
        let mut stored = slot.blocks().filter(|(block, _)| block.kind != Kind::Fill);
        let Some((first, len)) = stored.next() else {
            return;
        };
        let (file, start) = locate(&first);
        let end = stored
            .last()
            .map_or(start + extent(&first, len) as u64, |(last, len)| {
                locate(&last).1 + extent(&last, len) as u64
            });
        let blocks = start / FILE_BLOCK as u64..end / FILE_BLOCK as u64;
        self.stored.fetch_sub(blocks.end - blocks.start, Relaxed);
        self.free(file, blocks);
    }
}

impl Upkeep for FileStore {
    fn usage(&self) -> StoreUsage {
        let table = self.table.usage();
        let blocks = self.areas.iter().map(|area| area.blocks().ram_bytes());
        let ram = blocks.sum::<u64>()
            + self.page_sums.ram_bytes()
            + self.segments.ram_bytes()
            + self.scratches.ram_bytes()
            + self.pending.ram_bytes()
            + self.clusters.ram_bytes();
        StoreUsage {
            stored_bytes: self.stored.load(Relaxed) * FILE_BLOCK as u64,
            ram_bytes: table.ram_bytes + ram,
            ..table
        }
    }

    fn stay_awake(&self, on: bool) {
        self.awake.want(on);
    }

    fn write_behind(&self) {
        self.pending.adopt_thread();
    }

    fn give_room_back(&self) -> bool {
        self.pending.look(&self.media());
        self.punch()
    }
}

impl Forks for FileStore {
    fn descriptors(&self, keep: &mut dyn FnMut(i32)) {
        for fd in &self.files {
            let fd = fd.load(Acquire);
            if fd >= 0 {
                keep(fd);
            }
        }
        for area in &self.areas {
            keep(area.directory.as_raw_fd());
        }
    }

    fn after_fork_in_child(&self) -> Result<(), i32> {
        let generation = self.own.load(Acquire) + 1;
        if generation == GENERATIONS {
            return Err(Errno::MFILE.raw_os_error());
        }
        let mut why = None;
        for (at, area) in self.areas.iter().enumerate() {
            let made = self.begin_area(area, number(generation, at));
            why = why.or(made.err());
        }
        let has_file = (0..self.areas.len()).any(|at| self.file(number(generation, at)).is_some());
        if let Some(errno) = why.filter(|_| !has_file) {
            return Err(errno.raw_os_error());
        }
        self.pending.disown();
        self.awake.forget();
        self.own.store(generation, Release);
        Ok(())
    }

    fn before_fork(&self, child: u64) {
        self.pending.flush(&self.media());
        for area in &self.areas {
            area.blocks().before_fork(child);
        }
    }

    fn child_gone(&self, child: u64) {
        for area in &self.areas {
            area.blocks().child_gone(child);
        }
    }
}

impl FileStore {
    /// Creates a child's own file in an area. An area in which this fails is skipped, as long as there is another.
    fn begin_area(&self, area: &Area, number: usize) -> Result<(), Errno> {
        let blocks = BlockMap::new(area.limit)?;
        let file = io::open_unnamed(area.directory.as_fd())?;
        self.page_sums.begin(number)?;
        *area.blocks() = blocks;
        self.files[number].store(file.into_raw_fd(), Release);
        Ok(())
    }
}

impl Drop for FileStore {
    fn drop(&mut self) {
        // The kernel still reads the bytes being written, and would extend a file that was already emptied.
        self.pending.settle();
        for (at, area) in self.areas.iter().enumerate() {
            if let (Some(owner), Some(file)) = (area.owner, self.file(number(0, at)))
                && owner == rustix::process::getpid()
            {
                let _ = rustix::fs::ftruncate(file, 0);
            }
        }
        for fd in &self.files {
            let fd = fd.load(Acquire);
            if fd >= 0 {
                // SAFETY: the descriptor is ours, and nothing borrows from the store any more.
                unsafe { rustix::io::close(fd) };
            }
        }
    }
}

#[cfg(test)]
mod tests;
