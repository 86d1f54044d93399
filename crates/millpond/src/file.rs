//! A region over a file: data used in place, within the budget.

use crate::error::{AdviseError, PinError, RangeError, RegionError};
use crate::file_error::{FileError, GrowFileError, MapFileError};
use crate::group::Group;
use crate::manager::Manager;
use crate::region::{Advice, PinGuard, Region, RegionStats};
use millpond_core::{FileFault, Kind, PAGE_SIZE};
use millpond_driver::error::MoveError;
use millpond_driver::file::SyncError;
use millpond_store::{Access, DataFile, MappedFile};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;
use std::fmt;
use std::fs::File;
use std::ops::{Bound, Range, RangeBounds};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes that are copied under one pin.
const PIECE: usize = 64 << 10;

/// What happens to the bytes of a region over a file when they leave memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mode {
    /// The file is only read. The memory must not be written to: anything written nevertheless is lost when its page
    /// leaves memory, and never reaches the file.
    ReadOnly,
    /// The file is only read, and changes to the memory are private: they go to the store when memory is short. All of
    /// them are lost when the region ends.
    Private,
    /// Changes to the memory go to the file: in the background within seconds, when memory is short, by
    /// [`FileRegion::sync`], and when the region ends. A range that ends beyond the end of the file makes the file
    /// longer.
    Shared,
}

/// A file to map: the path of one, or an open one.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum FileSource<'a> {
    /// The path of a file, which is opened for the region.
    Path(&'a Path),
    /// An open file. The region duplicates its descriptor, so this one may be closed.
    Open(BorrowedFd<'a>),
}

macro_rules! from_path {
    ($($path:ty),*) => {$(
        impl<'a> From<&'a $path> for FileSource<'a> {
            fn from(path: &'a $path) -> Self {
                Self::Path(path.as_ref())
            }
        }
    )*};
}

from_path!(Path, PathBuf, str, String);

impl<'a> From<&'a File> for FileSource<'a> {
    fn from(file: &'a File) -> Self {
        Self::Open(file.as_fd())
    }
}

impl<'a> From<BorrowedFd<'a>> for FileSource<'a> {
    fn from(fd: BorrowedFd<'a>) -> Self {
        Self::Open(fd)
    }
}

/// The bytes of a range of a file, as memory under the manager's budget. See [`Manager::map_file`]. With the feature
/// `remote` they may belong to a remote object (`Manager::map_object`), which counts as a file here.
///
/// They are read from the file when they are touched, and ahead of the touches in a stream, and leave memory without
/// being kept anywhere else. If a page cannot be read (the file has become shorter, the medium fails), a touch of that
/// page raises SIGBUS, and the calls here that need it return an error; all other pages remain usable, and a later
/// touch or call tries again.
///
/// The rules for the memory of a [`Region`] apply here, too: with in-thread delivery it must be [pinned](Self::pin) for
/// system calls, and threads that touch it must leave SIGBUS unblocked.
pub struct FileRegion {
    region: Region,
    /// The file and its offset of the first byte, where it can be made longer.
    grows: Option<Grows>,
    /// Bytes of the first page that come before the range.
    skip: usize,
    mode: Mode,
    /// The object that the bytes belong to, if they are not a file's. It comes last, so that no thread that serves a
    /// fault ends it.
    #[cfg(feature = "remote")]
    object: Option<Arc<millpond_remote::MappedObject>>,
}

/// What a shared region needs to be mapped again, longer.
struct Grows {
    manager: Manager,
    file: Arc<DataFile>,
    start: u64,
}

impl Manager {
    /// Maps `range` of a file (byte offsets, which need not be aligned).
    ///
    /// # Safety
    /// As long as the region lives, nobody else may change the bytes of the range in the file: references to them would
    /// see them change. If the file nevertheless becomes shorter, touches of the missing part raise SIGBUS.
    ///
    /// # Errors
    /// The file cannot be opened, is not a regular file, does not contain the whole range and cannot be made longer, or
    /// the manager has no addresses left.
    ///
    /// ```
    /// use millpond::{Manager, Mode};
    ///
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("numbers");
    /// std::fs::write(&path, [7; 100_000])?;
    /// let manager = Manager::builder().ram(16 << 20).build()?;
    /// // SAFETY: nobody changes the file.
    /// let file = unsafe { manager.map_file(&path, 10.., Mode::ReadOnly)? };
    /// assert_eq!(file.len(), 99_990);
    /// assert!(file.as_slice().iter().all(|&byte| byte == 7));
    /// assert_eq!(manager.stats().store.slots, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub unsafe fn map_file<'a>(
        &self,
        source: impl Into<FileSource<'a>>,
        range: impl RangeBounds<u64>,
        mode: Mode,
    ) -> Result<FileRegion, MapFileError> {
        let access = match mode {
            Mode::ReadOnly | Mode::Private => Access::Read,
            Mode::Shared => Access::Write,
        };
        let file = match source.into() {
            FileSource::Path(path) => DataFile::open(path, access)?,
            FileSource::Open(fd) => DataFile::duplicate(fd, access)?,
        };
        let len = file.len().map_err(MapFileError::Length)?;
        let range = bytes_of(&range, len)?;
        self.map_opened(Arc::new(file), range, len, mode)
    }

    /// Maps a range of an open file of `len` bytes.
    fn map_opened(
        &self,
        file: Arc<DataFile>,
        range: Range<u64>,
        len: u64,
        mode: Mode,
    ) -> Result<FileRegion, MapFileError> {
        let (start, end) = (range.start, range.end);
        if mode == Mode::Shared {
            let grown = file.grow(end);
            grown.map_err(|errno| MapFileError::Grow { end, errno })?;
        } else if end > len {
            return Err(MapFileError::Beyond { start, end, len });
        }
        let skip = (start % PAGE_SIZE as u64) as usize;
        let bytes = usize::try_from(end - start)
            .ok()
            .and_then(|n| n.checked_add(skip));
        let bytes = bytes.ok_or(RegionError::TooLong {
            count: usize::MAX,
            size: 1,
        })?;
        let most = (self.pond().driver().most_ram() / PAGE_SIZE as u64) as usize;
        let grows = (mode == Mode::Shared).then(|| Grows {
            manager: self.clone(),
            file: Arc::clone(&file),
            start,
        });
        let (kind, backing) = match mode {
            Mode::ReadOnly => (Kind::File, Ok(MappedFile::read_only(file, &range))),
            Mode::Private => (Kind::Private, MappedFile::written(file, &range, most)),
            Mode::Shared => (Kind::File, MappedFile::shared(file, &range, most)),
        };
        let backing = backing.map_err(MapFileError::Table)?;
        let region = self.file_region(bytes, kind, Arc::new(backing))?;
        let mut mapped = FileRegion::over(region, mode);
        (mapped.grows, mapped.skip) = (grows, skip);
        Ok(mapped)
    }
}

/// The offsets that `range` stands for in a file of `len` bytes.
fn bytes_of(range: &impl RangeBounds<u64>, len: u64) -> Result<Range<u64>, MapFileError> {
    let start = match range.start_bound() {
        Bound::Included(&start) => start,
        Bound::Excluded(&before) => before.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(&last) => last.saturating_add(1),
        Bound::Excluded(&end) => end,
        Bound::Unbounded => len,
    };
    match start < end {
        true => Ok(start..end),
        false => Err(MapFileError::Empty { start, end }),
    }
}

impl FileRegion {
    /// All bytes of a region whose pages belong to a file.
    pub(crate) fn over(region: Region, mode: Mode) -> Self {
        Self {
            region,
            grows: None,
            skip: 0,
            mode,
            #[cfg(feature = "remote")]
            object: None,
        }
    }

    /// A region over an object.
    #[cfg(feature = "remote")]
    pub(crate) fn of_object(region: Region, object: Arc<millpond_remote::MappedObject>) -> Self {
        let mut mapped = Self::over(region, Mode::ReadOnly);
        mapped.object = Some(object);
        mapped
    }

    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.region.len() - self.skip
    }

    /// Always false: a region has at least one byte.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        false
    }

    /// How the file was mapped.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Address of the first byte. It has the same place in its page of 4,096 bytes as in the file, and does not change
    /// while the region lives.
    #[must_use]
    pub fn as_ptr(&self) -> *const u8 {
        // SAFETY: the region has `skip` bytes before the first one of the range.
        unsafe { self.region.as_ptr().add(self.skip) }
    }

    /// The bytes.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        &self.region.as_slice()[self.skip..]
    }

    /// The bytes, for writing; `None` if the file was mapped to be [only read](Mode::ReadOnly).
    ///
    /// ```
    /// # use millpond::{Manager, Mode};
    /// # let manager = Manager::builder().ram(16 << 20).build()?;
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("x");
    /// std::fs::write(&path, "a line\n")?;
    /// // SAFETY: nobody changes the file.
    /// let mut region = unsafe { manager.map_file(&path, .., Mode::Private)? };
    /// region.as_mut_slice().unwrap()[0] = b'A';
    /// assert_eq!(region.as_slice(), b"A line\n");
    /// assert_eq!(std::fs::read(&path)?, b"a line\n");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn as_mut_slice(&mut self) -> Option<&mut [u8]> {
        match self.mode {
            Mode::ReadOnly => None,
            Mode::Private | Mode::Shared => Some(&mut self.region.as_mut_slice()[self.skip..]),
        }
    }

    /// Brings the pages that `range` touches into memory, as far as the budget holds them at once.
    ///
    /// # Errors
    /// A bad range, or the first page that cannot be read.
    ///
    /// ```
    /// # use millpond::{FileError, Manager, Mode};
    /// # let manager = Manager::builder().ram(16 << 20).build()?;
    /// # let file = tempfile::tempfile()?;
    /// file.set_len(20_000)?;
    /// // SAFETY: nobody looks at the bytes that are cut off.
    /// let region = unsafe { manager.map_file(&file, .., Mode::ReadOnly)? };
    /// file.set_len(5_000)?;
    /// assert_eq!(region.populate(0..20_000), Err(FileError::Ended { offset: 8192 }));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn populate(&self, range: Range<usize>) -> Result<(), FileError> {
        let range = self.inner(&range)?;
        self.region
            .populate(range)
            .map_err(|error| self.range_error(error))
    }

    /// Requests the pages that `range` touches, and returns at once, as [`Region::prefetch`] does. A page that cannot
    /// be read is skipped.
    ///
    /// # Errors
    /// A bad range, or the thread could not be started.
    pub fn prefetch(&self, range: Range<usize>) -> Result<(), FileError> {
        Ok(self.region.prefetch(self.inner(&range)?)?)
    }

    /// Gives a hint about the pages that `range` touches, as [`Region::advise`] does.
    ///
    /// # Errors
    /// A bad range, or, for [`Advice::WillNeed`], a page that cannot be read.
    pub fn advise(&self, range: Range<usize>, advice: Advice) -> Result<(), FileError> {
        let advised = self.region.advise(self.inner(&range)?, advice);
        advised.map_err(|error| match error {
            AdviseError::Range(error) => self.range_error(error),
            other => other.into(),
        })
    }

    /// Brings the pages that `range` touches into memory and keeps them there while the guard lives, as
    /// [`Region::pin`] does.
    ///
    /// # Errors
    /// A bad range, more than the budget can hold in addition to everything else, or a page that cannot be read.
    pub fn pin(&self, range: Range<usize>) -> Result<PinGuard<'_>, FileError> {
        let range = self.inner(&range)?;
        let mut result = self.region.pin(range.clone());
        if let Err(PinError::Range(RangeError::Lost { offset })) = result {
            // The page could not be had before. Bringing it in tries again, where a pin does not.
            let page = offset.max(range.start)..(offset + PAGE_SIZE).min(range.end);
            result = match self.region.populate(page) {
                Ok(()) => self.region.pin(range),
                Err(error) => Err(error.into()),
            };
        }
        result.map_err(|error| match error {
            PinError::Range(error) => self.range_error(error),
            PinError::TooOften { offset } => PinError::TooOften {
                offset: self.outer(offset),
            }
            .into(),
            other => other.into(),
        })
    }

    /// Copies the bytes from `offset` on into `out`, reading those that are not in memory from the file.
    ///
    /// # Errors
    /// The bytes are not all in the region, or the first page that cannot be read; `out` may hold a part then.
    ///
    /// ```
    /// # use millpond::{Manager, Mode};
    /// # let manager = Manager::builder().ram(16 << 20).build()?;
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("x");
    /// std::fs::write(&path, "a line\n")?;
    /// // SAFETY: nobody changes the file.
    /// let region = unsafe { manager.map_file(&path, .., Mode::ReadOnly)? };
    /// let mut word = [0; 4];
    /// region.read_at(2, &mut word)?;
    /// assert_eq!(&word, b"line");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn read_at(&self, offset: usize, out: &mut [u8]) -> Result<(), FileError> {
        self.expect_inside(offset, out.len())?;
        for (n, piece) in out.chunks_mut(PIECE).enumerate() {
            let at = offset + n * PIECE;
            if self.region.try_read(at + self.skip, piece) {
                continue;
            }
            // What is pinned cannot leave before it is copied, so the copy raises no signal.
            let pinned = self.pin(at..at + piece.len())?;
            piece.copy_from_slice(&self.as_slice()[at..at + piece.len()]);
            drop(pinned);
        }
        Ok(())
    }

    /// Copies the bytes from `offset` on into `out` if all of them are mapped now, as [`Region::try_read`] does, and
    /// returns false if one is missing.
    ///
    /// # Errors
    /// The bytes are not all in the region, or one is missing because it could not be read recently.
    ///
    /// ```
    /// # use millpond::{Manager, Mode};
    /// # let manager = Manager::builder().ram(16 << 20).build()?;
    /// # let file = tempfile::tempfile()?;
    /// file.set_len(8192)?;
    /// // SAFETY: nobody looks at the bytes that are cut off.
    /// let region = unsafe { manager.map_file(&file, .., Mode::ReadOnly)? };
    /// let mut out = [0; 8];
    /// assert_eq!(region.try_read(4096, &mut out), Ok(false)); // never touched
    /// region.populate(0..8192)?;
    /// assert_eq!(region.try_read(4096, &mut out), Ok(true));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn try_read(&self, offset: usize, out: &mut [u8]) -> Result<bool, FileError> {
        self.expect_inside(offset, out.len())?;
        let at = offset + self.skip;
        if self.region.try_read(at, out) {
            return Ok(true);
        }
        let pages = self.region.pages(&(at..at + out.len()));
        match self.region.driver().first_failed(pages) {
            Some(page) => Err(self.lost(self.region.offset(page))),
            None => Ok(false),
        }
    }

    /// Writes the changed pages that `range` touches to the file, and returns when the device has them. For a region
    /// that is not [shared](Mode::Shared) there is nothing to do.
    ///
    /// # Errors
    /// A bad range, or the first page that could not be written: it stays in memory, and the next sync and reclaim try
    /// again. All other pages are written. If the device may not have the written data ([`FileError::Sync`]), the next
    /// sync writes all pages in memory again; pages that have left memory since the previous sync may be lost. This
    /// error is returned once, by a sync that has no other error to return.
    ///
    /// ```
    /// # use millpond::{Manager, Mode};
    /// # let manager = Manager::builder().ram(16 << 20).build()?;
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("x");
    /// std::fs::write(&path, "a line\n")?;
    /// // SAFETY: nobody changes the file but the region.
    /// let mut region = unsafe { manager.map_file(&path, 0..10, Mode::Shared)? };
    /// region.as_mut_slice().unwrap()[7..].copy_from_slice(b"abc");
    /// region.sync(0..10)?;
    /// assert_eq!(std::fs::read(&path)?, b"a line\nabc");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn sync(&self, range: Range<usize>) -> Result<(), FileError> {
        let pages = self.region.pages(&self.inner(&range)?);
        if self.mode != Mode::Shared {
            return Ok(());
        }
        let driver = self.region.driver();
        driver.sync_file(pages).map_err(|failure| match failure {
            SyncError::Write(page, why) => {
                let offset = self.outer(self.region.offset(page));
                match why {
                    FileFault::Ended => FileError::Ended { offset },
                    FileFault::Io(errno) => FileError::Write {
                        offset,
                        errno: Errno::from_raw_os_error(errno),
                    },
                    FileFault::Changed => FileError::Changed { offset },
                }
            }
            SyncError::Device(FileFault::Io(errno)) => {
                FileError::Sync(Errno::from_raw_os_error(errno))
            }
            SyncError::Device(FileFault::Ended | FileFault::Changed) => FileError::Sync(Errno::IO),
            SyncError::Pin(refusal) => match self.region.not_pinned(pages, refusal.into()) {
                PinError::Range(error) => self.range_error(error),
                other => other.into(),
            },
        })
    }

    /// Makes a [shared](Mode::Shared) region `len` bytes long, and extends its file if necessary. The new part reads as
    /// the file does there: as zeros where the file was shorter.
    ///
    /// All changes are synced first, and afterwards the region has other addresses, and belongs to no group. A region
    /// is never made shorter.
    ///
    /// # Errors
    /// The region is not shared, something could not be synced, the file could not be made longer, or there are no
    /// addresses. In these cases the region stays as it is.
    ///
    /// ```
    /// # use millpond::{Manager, Mode};
    /// # let manager = Manager::builder().ram(16 << 20).build()?;
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("x");
    /// std::fs::write(&path, "a line\n")?;
    /// // SAFETY: nobody changes the file but the region.
    /// let mut region = unsafe { manager.map_file(&path, .., Mode::Shared)? };
    /// region.grow(15)?;
    /// region.as_mut_slice().unwrap()[7..].copy_from_slice(b"another\n");
    /// drop(region);
    /// assert_eq!(std::fs::read_to_string(&path)?, "a line\nanother\n");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn grow(&mut self, len: usize) -> Result<(), GrowFileError> {
        let Some(grows) = &self.grows else {
            return Err(GrowFileError::NotShared);
        };
        if len <= self.len() {
            return Ok(());
        }
        self.sync(0..self.len())?;
        let has = grows.file.len().map_err(MapFileError::Length)?;
        let end = grows.start.checked_add(len as u64);
        let end = end.ok_or(RegionError::TooLong {
            count: len,
            size: 1,
        });
        let range = grows.start..end.map_err(MapFileError::Region)?;
        let file = Arc::clone(&grows.file);
        // Both regions have the same bytes now, and nobody writes to the old one while it is borrowed here.
        *self = grows.manager.map_opened(file, range, has, self.mode)?;
        Ok(())
    }

    /// The driver, for tests that do what a thread of its own does.
    #[cfg(test)]
    pub(crate) fn driver_for_tests(&self) -> &millpond_driver::Driver {
        self.region.driver()
    }

    /// Bytes of the region by location. Bytes in none of these locations are only in the file.
    #[must_use]
    pub fn stats(&self) -> RegionStats {
        self.region.stats()
    }

    /// Moves the region into another group, as [`Region::move_to`] does.
    ///
    /// # Errors
    /// As [`Region::move_to`].
    pub fn move_to(&self, group: &Group) -> Result<(), MoveError> {
        self.region.move_to(group)
    }

    /// The range of the inner region that corresponds to a range of this one.
    fn inner(&self, range: &Range<usize>) -> Result<Range<usize>, RangeError> {
        let (start, end, len) = (range.start, range.end, self.len());
        match start < end && end <= len {
            true => Ok(start + self.skip..end + self.skip),
            false => Err(RangeError::Bad { start, end, len }),
        }
    }

    fn expect_inside(&self, offset: usize, bytes: usize) -> Result<(), RangeError> {
        match offset <= self.len() && bytes <= self.len() - offset {
            true => Ok(()),
            false => Err(RangeError::Bad {
                start: offset,
                end: offset.saturating_add(bytes),
                len: self.len(),
            }),
        }
    }

    /// The offset here of a page of the inner region. The first page may begin before the range.
    fn outer(&self, offset: usize) -> usize {
        offset.saturating_sub(self.skip)
    }

    /// The error for a page that could not be read, which begins at `offset` of the inner region.
    fn lost(&self, offset: usize) -> FileError {
        let page = self.region.pages(&(offset..offset + 1)).start;
        let outer = self.outer(offset);
        match self.region.driver().file_fault(page) {
            Some(FileFault::Ended) => FileError::Ended { offset: outer },
            Some(FileFault::Io(errno)) => FileError::Read {
                offset: outer,
                errno: Errno::from_raw_os_error(errno),
            },
            Some(FileFault::Changed) => FileError::Changed { offset: outer },
            None => RangeError::Lost { offset: outer }.into(),
        }
    }

    fn range_error(&self, error: RangeError) -> FileError {
        match error {
            RangeError::Lost { offset } => self.lost(offset),
            RangeError::Pinned { offset } => RangeError::Pinned {
                offset: self.outer(offset),
            }
            .into(),
            other => other.into(),
        }
    }
}

impl Drop for FileRegion {
    /// Writes the changes to a shared region's file, as a [sync](FileRegion::sync) does. Changes that cannot be written
    /// are lost, with a message on standard error: sync first to find out.
    fn drop(&mut self) {
        let is_ours = self.region.pond().is_ours();
        #[cfg(feature = "remote")]
        match &self.object {
            // What is read ahead of a stream is not waited for.
            Some(object) if is_ours => object.end(),
            // The thread that reads it does not exist in this process.
            Some(_) => std::mem::forget(self.object.take()),
            None => {}
        }
        if self.mode != Mode::Shared || !is_ours {
            return;
        }
        let pages = self.region.pages(&(0..self.region.len()));
        let synced = self.sync(0..self.len());
        self.region.driver().end_write_back(pages);
        if let Err(error) = synced {
            millpond_mmu::report::line(format_args!(
                "a mapped file ends, and not all that was written to it is in the file: {error}"
            ));
        }
    }
}

impl fmt::Debug for FileRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileRegion")
            .field("start", &self.as_ptr())
            .field("len", &self.len())
            .field("mode", &self.mode)
            .finish_non_exhaustive()
    }
}
