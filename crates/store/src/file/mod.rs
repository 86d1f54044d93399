//! A file as store, for contents that do not fit in RAM at all.
//!
//! Each slot has one extent of 4 KiB blocks in the file. It is read and written through page-aligned buffers, past
//! the page cache where the file system allows that: cached, the data would take the RAM that it was meant to leave.
//! An extent is read by one call and written by one. Small ones are written by the batch ([`pending`]), and the
//! neighbours of a small one are read with it ([`clusters`]). LZ4 is used for a block when it saves at least 4 KiB of
//! the file, so never for single pages.
//!
//! # Forks
//! A descriptor that a child inherits leads to the parent's file. The child reads there the slots that the parent had
//! saved, and the parent keeps them until the child is gone ([`alloc`]). Slots that the child saves go to a new file
//! of its own; slots of the parent's that it releases are only forgotten. Its own children do the same, so a process
//! holds a chain of files, up to [`GENERATIONS`]; a slot's place names the file that it is in.

mod alloc;
mod awake;
mod cipher;
mod clusters;
mod holes;
mod io;
mod load;
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
use awake::Awake;
pub use awake::IO_OF_STORE;
use cipher::Cipher;
use clusters::Clusters;
pub(crate) use io::out_of_the_way;
use millpond_core::SlotId;
use millpond_core::SlotPart;
use millpond_core::port::{LoadError, SaveError, Saved, Store, StoreUsage};
use millpond_sync::{Held, Rank, Ranked};
use page_sums::PageSums;
use pending::{Medium, Pending};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};
use rustix::io::Errno;
use segments::{INDEX_BITS, Index, Segments};
use std::num::NonZeroU32;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering::*};

/// The most files that a process may hold: its own, its parent's, and so on.
const GENERATIONS: usize = 8;
/// A place has the index of segments, if the block has one, in its highest bits, then the file's generation, then the
/// block's number.
const GENERATION_SHIFT: u32 = 36;
const INDEX_SHIFT: u32 = u64::BITS - INDEX_BITS;
const _: () = assert!(GENERATIONS <= 1 << (INDEX_SHIFT - GENERATION_SHIFT));
/// The most bytes in a file for which no limit is set.
const DEFAULT_MAX: u64 = 1 << 40;
/// The bytes of the longest extent of a slot, and of the room that the compressor needs behind its last block.
const WIRE: usize = MAX_SLOT + COMPRESSED_MAX - BLOCK;

/// The place for the file of a [`FileStore`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Location {
    /// The file is in this directory, without a name: it is gone with its last user, however that process ends.
    Directory(PathBuf),
    /// The file is at this path. It is created for its owner alone (mode 0600), must be empty if it exists, and
    /// stays; the store empties it when it is dropped.
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
    /// Whether everything that is written is encrypted (AES-256-XTS), by a key that is nowhere but in this store.
    pub encrypt: bool,
}

impl FileStoreConfig {
    /// Configures an unnamed file in `directory`, without a limit, not on tmpfs, not encrypted.
    pub fn in_directory(directory: impl Into<PathBuf>) -> Self {
        Self {
            location: Location::Directory(directory.into()),
            max_bytes: None,
            force_tmpfs: false,
            encrypt: false,
        }
    }
}

/// A store that keeps slots in a file.
///
/// ```
/// # use millpond_store::*;
/// # use millpond_core::{SlotId, port::{Saved, Store}};
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
    blocks: Ranked<BlockMap>,
    pending: Pending,
    clusters: Clusters,
    awake: Awake,
    page_sums: PageSums,
    segments: Segments,
    cipher: Cipher,
    max_blocks: u64,
    /// The directory for the files of forked children.
    directory: OwnedFd,
    /// The descriptors of all files, from the oldest ancestor's to this process's own, followed by -1.
    files: [AtomicI32; GENERATIONS],
    /// The index of this process's own file in `files`.
    own: AtomicUsize,
    /// Number of file blocks of all slots, in whichever file they are.
    stored: AtomicU64,
    /// The process that may empty the file at the end, if the file has a name.
    owner: Option<rustix::process::Pid>,
    path: PathBuf,
}

impl FileStore {
    /// The smallest limit: it holds one slot of the longest kind.
    pub const MIN_BYTES: u64 = 2 << 20;

    /// Makes an empty store in a new file.
    ///
    /// # Errors
    /// The file cannot be created, is not empty, or lies on tmpfs and that is not forced; the limit is below
    /// [`FileStore::MIN_BYTES`]; or the kernel gives no memory for tables. [`OpenError`] has all reasons.
    pub fn create(config: &FileStoreConfig) -> Result<Self, OpenError> {
        let max_bytes = config.max_bytes.unwrap_or(DEFAULT_MAX);
        if max_bytes < Self::MIN_BYTES {
            return Err(OpenError::LimitTooSmall {
                bytes: max_bytes,
                least: Self::MIN_BYTES,
            });
        }
        let max_blocks = (max_bytes / FILE_BLOCK as u64).min(1 << GENERATION_SHIFT);
        let memory = |errno| OpenError::Memory { errno };
        let table = SlotTable::new(BLOCK).map_err(memory)?;
        let scratches = ScratchPool::new(WIRE).map_err(memory)?;
        let blocks = BlockMap::new(max_blocks).map_err(memory)?;
        let blocks = Ranked::new(Rank::FileBlocks, blocks);
        let pending = Pending::new().map_err(memory)?;
        let clusters = Clusters::new().map_err(memory)?;
        let page_sums = PageSums::new(max_blocks).map_err(memory)?;
        let segments = Segments::new().map_err(memory)?;
        let random = |errno| OpenError::Random { errno };
        let sums = Checksums::new().map_err(random)?;
        let cipher = match config.encrypt {
            true => Cipher::random().map_err(random)?,
            false => Cipher::none(),
        };

        let (directory, file) = io::open(config)?;
        let named = matches!(config.location, Location::File(_));
        let files = [const { AtomicI32::new(-1) }; GENERATIONS];
        files[0].store(file.into_raw_fd(), Relaxed);
        Ok(Self {
            table,
            sums,
            scratches,
            blocks,
            pending,
            clusters,
            awake: Awake::new(),
            page_sums,
            segments,
            cipher,
            max_blocks,
            directory,
            files,
            own: AtomicUsize::new(0),
            stored: AtomicU64::new(0),
            owner: named.then(rustix::process::getpid),
            path: config.location.path().clone(),
        })
    }

    /// A description of the store in one line, for reports: where the file is, whether it is encrypted, and whether
    /// I/O passes by the page cache.
    #[must_use]
    pub fn describe(&self) -> String {
        let own = self.own.load(Acquire);
        let direct = self.file(own).is_some_and(io::is_direct);
        let kind = if self.owner.is_some() && own == 0 {
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
        format!("{kind} {} ({encrypted}{io})", self.path.display())
    }

    /// Uses the key of another store's checksums, so that one image serves both.
    ///
    /// # Panics
    /// When anything is stored already.
    pub(crate) fn share_checksums(&mut self, sums: &Checksums) {
        assert_eq!(
            self.table.usage().slots,
            0,
            "a store gets its key before its first slot"
        );
        self.sums = sums.clone();
    }

    /// Whether `part` holds exactly this image, as far as is known without reading. The answer is no for a part of a
    /// block that was compressed as a whole.
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

    fn file(&self, generation: usize) -> Option<BorrowedFd<'_>> {
        let fd = self.files.get(generation)?.load(Acquire);
        // SAFETY: a descriptor in `files` is ours, and is not closed before the store is dropped.
        (fd >= 0).then(|| unsafe { BorrowedFd::borrow_raw(fd) })
    }

    fn blocks(&self) -> Held<'_, BlockMap> {
        self.blocks.lock()
    }

    /// The file that this process writes, with all that belongs to it.
    fn medium(&self) -> Option<Medium<'_>> {
        let file = self.own.load(Acquire);
        let blocks = &self.blocks;
        let (clusters, cipher) = (&self.clusters, &self.cipher);
        self.file(file).map(|fd| Medium {
            fd,
            file,
            blocks,
            clusters,
            cipher,
        })
    }

    /// Gives blocks back, if they are in this process's own file.
    fn free(&self, file: usize, blocks: Range<u64>) {
        if !self.pending.release(file, &blocks) && file == self.own.load(Acquire) {
            self.blocks().free(blocks.start, blocks.end - blocks.start);
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
    let number = block.place & ((1 << GENERATION_SHIFT) - 1);
    let file = block.place >> GENERATION_SHIFT & ((1 << (INDEX_SHIFT - GENERATION_SHIFT)) - 1);
    (file as usize, number * FILE_BLOCK as u64)
}

/// The index of a block that is compressed in segments; `None` for other blocks.
fn index_of(block: &Block) -> Option<Index> {
    let index = NonZeroU32::new((block.place >> INDEX_SHIFT) as u32).map(Index);
    index.filter(|_| block.kind == Kind::Packed)
}

impl Store for FileStore {
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

    fn usage(&self) -> StoreUsage {
        let table = self.table.usage();
        let blocks = self.blocks().ram_bytes();
        let ram = blocks
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

    fn descriptors(&self, keep: &mut dyn FnMut(i32)) {
        for fd in &self.files {
            let fd = fd.load(Acquire);
            if fd >= 0 {
                keep(fd);
            }
        }
        keep(self.directory.as_raw_fd());
    }

    fn stay_awake(&self, on: bool) {
        self.awake.want(on);
    }

    fn give_room_back(&self) -> bool {
        self.punch()
    }

    fn after_fork_in_child(&self) -> Result<(), i32> {
        let generation = self.own.load(Acquire) + 1;
        let files = self
            .files
            .get(generation)
            .ok_or(Errno::MFILE.raw_os_error())?;
        let blocks = BlockMap::new(self.max_blocks).map_err(Errno::raw_os_error)?;
        let file = io::open_unnamed(self.directory.as_fd()).map_err(Errno::raw_os_error)?;
        self.page_sums
            .begin(generation)
            .map_err(Errno::raw_os_error)?;
        *self.blocks() = blocks;
        self.pending.disown();
        self.awake.forget();
        files.store(file.into_raw_fd(), Release);
        self.own.store(generation, Release);
        Ok(())
    }

    fn before_fork(&self, child: u64) {
        if let Some(medium) = self.medium() {
            self.pending.flush(&medium);
        }
        self.blocks().before_fork(child);
    }

    fn child_gone(&self, child: u64) {
        self.blocks().child_gone(child);
    }
}

impl Drop for FileStore {
    fn drop(&mut self) {
        if let (Some(owner), Some(file)) = (self.owner, self.file(0))
            && owner == rustix::process::getpid()
        {
            let _ = rustix::fs::ftruncate(file, 0);
        }
        for fd in &self.files {
            let fd = fd.load(Acquire);
            if fd >= 0 {
                // SAFETY: the descriptor is ours, and no one borrows from the store any more.
                unsafe { rustix::io::close(fd) };
            }
        }
    }
}

#[cfg(test)]
mod tests;
