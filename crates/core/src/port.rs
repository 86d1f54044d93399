//! The interfaces to the outside world: an MMU that maps frames, and a store that keeps bytes.
//!
//! Both are called with no core lock held, from several threads at once. Neither may call the program's allocator on
//! the fault path, or touch managed memory except by the operations below.

use crate::addr::{Frame, PageRange};
use crate::command::CopyFrom;
use crate::leaf_pages::LeafPages;
use std::ops::Range;

mod store;

pub use store::*;

/// How a frame came to be mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Placed {
    /// The frame's pages were moved: its place in the pool is now a hole.
    Moved,
    /// The frame's bytes were copied: it still has its pages.
    Copied,
}

/// Why a range could not be mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InstallError {
    /// The range crosses different mappings: install it page by page. None of it is mapped now.
    Split,
    /// The range is not (or no longer) part of the arena's mapping.
    Gone,
}

/// Why a range could not be filled and mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FillOrInstallError {
    /// The bytes could not be obtained: there is nothing to map.
    Fill(LoadError),
    /// The range could not be mapped.
    Install(InstallError),
}

/// How [`Mmu::fill_and_install`] ended. After an error nothing is mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FilledAndInstalled {
    /// Success, or what failed.
    pub outcome: Result<(), FillOrInstallError>,
    /// Whether the frame is populated now.
    pub populated: bool,
}

impl FilledAndInstalled {
    /// The result of filling the frame itself, and of `install`, which follows.
    pub fn through_frame(
        filled: Result<(), LoadError>,
        install: impl FnOnce() -> Result<Placed, InstallError>,
    ) -> Self {
        let outcome = match filled {
            Ok(()) => install().map_err(FillOrInstallError::Install),
            Err(error) => Err(FillOrInstallError::Fill(error)),
        };
        Self {
            populated: outcome != Ok(Placed::Moved),
            outcome: outcome.map(|_| ()),
        }
    }

    /// The result of an install that did not use the frame, which is still a hole unless the install failed.
    #[must_use]
    pub const fn past_frame(outcome: Result<(), FillOrInstallError>) -> Self {
        Self {
            populated: matches!(outcome, Err(FillOrInstallError::Install(_))),
            outcome,
        }
    }
}

/// Why a range could not be taken out. All of the range is still mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TakeOutError {
    /// The kernel holds one of the pages for I/O: the range may go later.
    Busy,
    /// The mapping forbids it: it is locked, has different protections, or is not writable and the backend has no other
    /// method.
    Immovable,
}

/// Memory that can be mapped, taken out, and filled while no thread sees it.
///
/// A range is always one naturally aligned folio (2^order pages) unless stated otherwise. Orders of ranges and frames
/// in one call agree. The caller holds the folio in flight, so no two calls concern the same folio or frame at once;
/// implementations may check that and panic.
pub trait Mmu: Send + Sync {
    /// Maps zeros at `at`, from `frame` (which is populated, and is zeroed) or from new pages, and wakes waiters.
    ///
    /// # Errors
    /// Nothing is mapped; `frame`, when given, is still populated.
    fn install_zero(&self, at: PageRange, frame: Option<Frame>) -> Result<Placed, InstallError>;

    /// [`Mmu::install_zero`] of several folios, for backends that do this more cheaply together. `results` receives one
    /// answer for each.
    fn install_zero_all(
        &self,
        work: &[(PageRange, Option<Frame>)],
        results: &mut [Result<Placed, InstallError>],
    ) {
        for (result, (at, frame)) in results.iter_mut().zip(work) {
            *result = self.install_zero(*at, *frame);
        }
    }

    /// Fills `frame` with `fill`, and first gives it pages if `fresh`. The slice is the whole frame.
    ///
    /// # Errors
    /// The error of `fill`. The frame is populated in either case.
    fn fill(
        &self,
        frame: Frame,
        fresh: bool,
        fill: &mut dyn FnMut(&mut [u8]) -> Result<(), LoadError>,
    ) -> Result<(), LoadError>;

    /// Maps the contents of the populated `frame` at `at`, and wakes waiters.
    ///
    /// # Errors
    /// Nothing is mapped; the frame is still populated.
    fn install(&self, frame: Frame, at: PageRange) -> Result<Placed, InstallError>;

    /// [`Mmu::fill`] and [`Mmu::install`] in one. If the frame is `fresh`, the slice that `fill` gets need not be the
    /// frame, which then remains a hole.
    fn fill_and_install(
        &self,
        frame: Frame,
        fresh: bool,
        at: PageRange,
        fill: &mut dyn FnMut(&mut [u8]) -> Result<(), LoadError>,
    ) -> FilledAndInstalled {
        FilledAndInstalled::through_frame(self.fill(frame, fresh, fill), || self.install(frame, at))
    }

    /// Maps a copy of `from` at `at`. `frame`, if any, is populated, and may be used for the copy or stay unchanged.
    /// The bytes at `from` stay in place.
    ///
    /// # Errors
    /// Nothing is mapped; the frame is still populated.
    fn copy(
        &self,
        at: PageRange,
        from: CopyFrom,
        frame: Option<Frame>,
    ) -> Result<Placed, InstallError>;

    /// Captures the contents of `at` into the hole `frame` and unmaps it, atomically against the program's
    /// writes: each write lands in the frame, or faults.
    ///
    /// # Errors
    /// All of `at` is mapped as before and the frame is a hole.
    fn take_out(&self, at: PageRange, frame: Frame) -> Result<(), TakeOutError>;

    /// [`Mmu::take_out`] of several folios, for backends that do this more cheaply together. `results` receives one
    /// answer for each.
    fn take_out_all(&self, work: &[(PageRange, Frame)], results: &mut [Result<(), TakeOutError>]) {
        for (result, (at, frame)) in results.iter_mut().zip(work) {
            *result = self.take_out(*at, *frame);
        }
    }

    /// Captures `pages` of the leaf `at` by its table. Each page goes to the place, counted from `frame`, that
    /// corresponds to its place in the leaf, in a block of order 0. Nothing else is mapped in `at`, every place of the
    /// block is a hole, and nobody else uses the leaf or the block during the call. The call is as atomic as
    /// [`Mmu::take_out`], and its cost does not depend on the number of pages.
    /// # Errors
    /// All of `at` is mapped as before and the places are holes. The leaf, the block or the process may not allow it.
    fn take_out_leaf(
        &self,
        at: PageRange,
        frame: Frame,
        pages: &LeafPages,
    ) -> Result<(), TakeOutError>;

    /// Zeroes the mapped, writable pages of `at` in place. The program does not use them during the call.
    fn zero_in_place(&self, at: PageRange);

    /// Whether every byte of the mapped pages of `at` is zero. With `glance` a check of some of them suffices. The
    /// program may write there during the call: then the answer holds for the time before or after the write.
    fn is_blank(&self, at: PageRange, glance: bool) -> bool;

    /// Shows the contents of the populated `frame` to `see`.
    fn read_frame(&self, frame: Frame, see: &mut dyn FnMut(&[u8]));

    /// Drops the mapped pages of the ranges (any length; poison too): the ranges are empty afterwards.
    fn zap(&self, ranges: &[PageRange]);

    /// Gives the pages of populated frames back to the kernel: the frames are holes afterwards.
    fn free_frames(&self, frames: &[Frame]);

    /// Lets threads that wait in the range (any length) try again.
    fn wake(&self, at: PageRange);

    /// Makes every later touch of the range (any length) an error that the program sees.
    fn poison(&self, at: PageRange);
}

/// Why pages of a file could not be read or written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileFault {
    /// The file ends before one of the pages: it has become shorter.
    Ended,
    /// The system refused, with this errno.
    Io(i32),
    /// The file is another version than the one that was mapped: its bytes must not be mixed with those that were read
    /// before.
    Changed,
}

/// A page that could not be written to its file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WriteFault {
    /// The page's number in its region.
    pub page: u32,
    /// Why it could not be written.
    pub why: FileFault,
}

/// The table in which the calling thread finds its descriptors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Descriptors {
    /// The program's.
    OfProgram,
    /// The thread's own, which lacks the descriptors that the program opened after the thread began.
    OfThread,
}

/// A file, or an object elsewhere, whose pages are those of a region ([`Kind::File`](crate::Kind::File),
/// [`Kind::Private`](crate::Kind::Private)), in the same order.
///
/// The default methods are those for memory and a file that are only read: nothing ever changes, and nothing is
/// written.
///
/// Pages are counted from the region's first. Calls about different pages may run at the same time, and come from
/// threads that serve a fault: none may call the program's allocator or touch managed memory.
pub trait Backing: Send + Sync {
    /// Fills `out`, whole pages, with the contents of the pages from `first` on. Bytes behind the file's end in its
    /// last page read as zeros.
    ///
    /// # Errors
    /// One of the pages could not be read. `out` may hold anything then.
    fn read(&self, first: u32, out: &mut [u8], table: Descriptors) -> Result<(), FileFault>;

    /// Like [`read`](Self::read), for pages of `out` that are also contiguous in physical memory, so that a device can
    /// write to them as one piece.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    fn read_in_one_piece(
        &self,
        first: u32,
        out: &mut [u8],
        table: Descriptors,
    ) -> Result<(), FileFault> {
        self.read(first, out, table)
    }

    /// Whether `bytes`, whole pages, are known to equal what was read for the pages from `first` on. If this is not
    /// known they count as changed.
    fn is_as_read(&self, _first: u32, _bytes: &[u8]) -> bool {
        true
    }

    /// Forgets what was read for `pages`: they have left memory.
    fn forget(&self, _pages: Range<u32>) {}

    /// Writes the changes in `bytes`, whole pages from `first` on, to the file; from then on they count as read.
    /// Returns whether anything had changed. A file that is never written has no changes.
    ///
    /// # Errors
    /// The first page that could not be written, and why. All others are written. A page that was not written still
    /// counts as changed, and if the file may hold a part of it, the page counts as changed whatever is in memory
    /// later.
    fn write_back(
        &self,
        _first: u32,
        _bytes: &[u8],
        _table: Descriptors,
    ) -> Result<bool, WriteFault> {
        Ok(false)
    }

    /// Whether writes to the memory go to the file: whether [`write_back`](Self::write_back) may write.
    fn is_written(&self) -> bool {
        false
    }

    /// Waits until the device has stored the written data.
    ///
    /// # Errors
    /// The device may not have the data: all pages in memory count as changed from here on.
    fn sync(&self) -> Result<(), FileFault> {
        Ok(())
    }

    /// Maximum RAM that this takes in addition to the pages themselves. If several share something, each counts its
    /// part, which changes with their number.
    fn ram_bytes(&self) -> u64;
}
