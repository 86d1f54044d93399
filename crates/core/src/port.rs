//! The outside world as the core's driver sees it: an MMU that maps frames, and a store that keeps bytes.
//!
//! Both are called with no core lock held, from several threads at once. Neither may call the program's allocator on
//! the fault path, nor touch managed memory except by the operations below.

use crate::addr::{Frame, PageRange};
use crate::command::CopyFrom;
use crate::event::SlotPart;
use crate::ids::SlotId;
use crate::leaf_pages::LeafPages;
use std::ops::Range;

/// How a frame came to be mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Placed {
    /// The frame's pages were moved: its place in the pool is a hole now.
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
    /// The end of a fill of the frame itself, and of `install`, which follows it.
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

    /// The end of an install that did without the frame, which is the hole that it was unless the install failed.
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
    /// The mapping forbids it: it is locked, of differing protections, or not writable where the backend has no other
    /// way.
    Immovable,
}

/// Memory that can be mapped, taken out and filled out of sight.
///
/// A range is always one naturally aligned folio (2^order pages) unless said otherwise. Orders of ranges and frames
/// in one call agree. The caller holds the folio in flight, so no two calls concern the same folio or frame at once;
/// implementations may check that and panic.
pub trait Mmu: Send + Sync {
    /// Maps zeros at `at`, from `frame` (which is populated, and is zeroed) or from new pages, and wakes waiters.
    ///
    /// # Errors
    /// Nothing is mapped; `frame`, when given, is still populated.
    fn install_zero(&self, at: PageRange, frame: Option<Frame>) -> Result<Placed, InstallError>;

    /// [`Mmu::install_zero`] of several folios, for backends that save by doing it together. `results` takes one
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

    /// Fills `frame` by `fill`, giving it pages first when `fresh`. The slice is the whole frame.
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

    /// [`Mmu::fill`] and [`Mmu::install`] in one. If the frame is `fresh`, the slice that is given to `fill` need not
    /// be the frame: then the frame is still the hole that it was.
    fn fill_and_install(
        &self,
        frame: Frame,
        fresh: bool,
        at: PageRange,
        fill: &mut dyn FnMut(&mut [u8]) -> Result<(), LoadError>,
    ) -> FilledAndInstalled {
        FilledAndInstalled::through_frame(self.fill(frame, fresh, fill), || self.install(frame, at))
    }

    /// Maps a copy of `from` at `at`. `frame`, if any, is populated and may be used for it, or is left as it is. The
    /// bytes at `from` stay where they are.
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

    /// [`Mmu::take_out`] of several folios, for backends that save by doing it together. `results` takes one answer
    /// for each.
    fn take_out_all(&self, work: &[(PageRange, Frame)], results: &mut [Result<(), TakeOutError>]) {
        for (result, (at, frame)) in results.iter_mut().zip(work) {
            *result = self.take_out(*at, *frame);
        }
    }

    /// Captures `pages` of the leaf `at` by its table. Each page goes into the place that it has in the leaf, counted
    /// from `frame` on, in a block of order 0. Nothing else is mapped in `at`, every place of the block is a hole,
    /// and nobody else uses the leaf or the block meanwhile. The call is as atomic as [`Mmu::take_out`], and its
    /// price does not depend on how many pages there are.
    /// # Errors
    /// All of `at` is mapped as before and the places are holes. The leaf, the block or the process may not allow it.
    fn take_out_leaf(
        &self,
        at: PageRange,
        frame: Frame,
        pages: &LeafPages,
    ) -> Result<(), TakeOutError>;

    /// Zeroes the mapped, writable pages of `at` in place. The program does not use them meanwhile.
    fn zero_in_place(&self, at: PageRange);

    /// Whether every byte of the mapped pages of `at` is zero. With `glance` a look at some of them will do. The
    /// program may write there meanwhile: then the answer holds for the time before or after the write.
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

/// How [`Store::save`] ended well.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Saved {
    /// The bytes are kept under the new slot.
    Stored,
    /// The bytes are those that `previous` already holds; the new slot holds nothing.
    Unchanged,
    /// The bytes are all zeros; the new slot holds nothing.
    AllZero,
}

/// Why a save failed. The new slot holds nothing; `previous` is as it was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SaveError {
    /// The store has no room.
    Full,
    /// The medium failed, with this errno (0 when there is none).
    Io(i32),
}

/// Why a load failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LoadError {
    /// The bytes read are not the bytes written: the checksum differs.
    Corrupt,
    /// The medium failed, with this errno (0 when there is none).
    Io(i32),
    /// The slot holds nothing, or less than asked for: the caller has a bug.
    Missing,
}

/// The contents of a store now, in numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StoreUsage {
    /// Slots that hold something (same-filled ones too).
    pub slots: u64,
    /// Bytes that were saved, before compression.
    pub logical_bytes: u64,
    /// Bytes that the saved bytes take now: in RAM and on a device together.
    pub stored_bytes: u64,
    /// RAM that the store has from the system now: arena, tables, free space inside.
    pub ram_bytes: u64,
    /// Slots that take no space because every word of them is the same.
    pub same_filled: u64,
    /// Slots kept uncompressed because compression did not pay.
    pub incompressible: u64,
}

/// One of the places of a store that has two.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tier {
    /// Loads from this place since the store was made.
    pub loads: u64,
    /// Nanoseconds that these loads took.
    pub nanos: u64,
}

/// A store in RAM with another place behind it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tiers {
    /// The place in RAM.
    pub ram: Tier,
    /// The place behind it.
    pub behind: Tier,
    /// Bytes of RAM that the place in RAM takes.
    pub ram_bytes: u64,
    /// Most bytes of RAM that it may take ([`Store::limit_ram`]).
    pub ram_most: u64,
    /// Whether RAM use is so far above that limit that [`Store::trim_ram`] moves some of it on.
    pub moves: bool,
}

/// The part of a store that lies beyond the machine, in numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Beyond {
    /// Bytes that were saved and are there alone, before compression.
    pub bytes: u64,
    /// Loads from there.
    pub loads: u64,
    /// Loads from there that failed.
    pub lost_loads: u64,
    /// How long nothing has answered there, in milliseconds; zero while it answers.
    pub away_ms: u64,
}

/// What [`Store::recompress`] left to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Recompress {
    /// There is more of it in this round.
    More,
    /// A round over everything that is kept is over, or there is no room for more of it. The next call begins another
    /// round, in which what was not used since this one counts as unwanted.
    RoundOver,
    /// There is nothing to gain now.
    Idle,
}

/// What [`Store::recompress`] has done since the store was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Recompressed {
    /// Bytes that are kept more densely since, before any compression.
    pub bytes: u64,
    /// Bytes of RAM that this saved, without what became of them later.
    pub saved: u64,
    /// Bytes that were tried and left as they were, before any compression.
    pub left: u64,
}

/// A part of a slot that is wanted, and where it goes.
#[derive(Debug)]
pub struct Load<'a> {
    /// The slot.
    pub slot: SlotId,
    /// The first page of it.
    pub first_page: u16,
    /// The place for the bytes, whose length says how many pages are wanted.
    pub out: &'a mut [u8],
}

/// Keeps the bytes of folios under slot numbers that the core chooses.
///
/// Slot numbers are dense and small; the core never uses one for two things at once. Calls about different slots
/// may run at the same time. Each slot carries a checksum of its contents, checked at load.
pub trait Store: Send + Sync {
    /// Keeps `data` (a power-of-two number of pages, up to 2 MiB) as `slot`, unless it is all zeros or equal to
    /// `previous` (all of a slot, or a part of it). `previous` keeps its contents in every case. A store that could
    /// only compare by reading `previous` back may take the bytes for new.
    ///
    /// # Errors
    /// Nothing is kept as `slot` then.
    fn save(
        &self,
        slot: SlotId,
        previous: Option<SlotPart>,
        data: &[u8],
    ) -> Result<Saved, SaveError>;

    /// Reads `out.len()` bytes of `slot`, from page `first_page` of it.
    ///
    /// # Errors
    /// `out` may hold anything then.
    fn load(&self, slot: SlotId, first_page: u16, out: &mut [u8]) -> Result<(), LoadError>;

    /// [`Store::load`] of several parts, for stores that save by doing it together.
    ///
    /// # Errors
    /// The error of one of them. All that is to be filled may hold anything then.
    fn load_all(&self, loads: &mut [Load<'_>]) -> Result<(), LoadError> {
        for load in loads {
            self.load(load.slot, load.first_page, load.out)?;
        }
        Ok(())
    }

    /// A page will be loaded soon: the store may prefetch the records that say where its bytes are. The page need not
    /// be there, nor be loaded after all. The call comes with locks held: it must not wait for anything.
    fn expect(&self, _page: SlotPart) {}

    /// The page of [`Store::expect`] will be loaded soon, said a moment later: now the store may prefetch the bytes
    /// themselves.
    fn expect_bytes(&self, _page: SlotPart) {}

    /// Says that nobody will load these pages again, while other pages of the slot are still needed: the store may
    /// use their room for something else. A load of them fails from now on, or gives anything.
    fn forget(&self, _part: SlotPart) {}

    /// Forgets `slot`. It is no error when the slot holds nothing.
    fn release(&self, slot: SlotId);

    /// The contents of the store now, in numbers.
    fn usage(&self) -> StoreUsage;

    /// Sets the limit for RAM: bytes that are saved from now on should leave no more than `bytes` in RAM. What exceeds
    /// it goes to the other place if the store has one, and is refused if it has none. Bytes that are held already stay
    /// until [`Store::trim_ram`].
    fn limit_ram(&self, _bytes: u64) {}

    /// Moves a part of the bytes in RAM beyond that limit to the other place, beside all other calls. Returns whether
    /// there is more to move.
    fn trim_ram(&self) -> bool {
        false
    }

    /// Gives a part of the room on a device back that was not needed for a while, beside all other calls. Returns
    /// whether there is more to give back now. A thread that has time calls this once a second, until the answer is no.
    fn give_room_back(&self) -> bool {
        false
    }

    /// Moves a part of what was saved long ago beyond the machine, if the store has such a place and is nearly full
    /// here, beside all other calls. Returns whether there is more to move now.
    fn move_away(&self) -> bool {
        false
    }

    /// The part of the store that lies beyond the machine.
    fn beyond(&self) -> Beyond {
        Beyond::default()
    }

    /// Keeps a part of what nobody wanted for a while more densely, if RAM is short or `worth_it`, beside all other
    /// calls: what a thread does in half a millisecond or so.
    fn recompress(&self, _worth_it: bool) -> Recompress {
        Recompress::Idle
    }

    /// What [`Store::recompress`] has done so far.
    fn recompressed(&self) -> Recompressed {
        Recompressed::default()
    }

    /// How the two places are used and how many loads each has had, if the store has two.
    fn tiers(&self) -> Option<Tiers> {
        None
    }

    /// Says whether a thread that loads should rather stay awake than sleep while a device works, because a single
    /// thread needs what is loaded. A processor that sleeps meanwhile has to be woken, and where a handler loads, the
    /// thread that waits for it is moved to another processor that is idle.
    fn stay_awake(&self, _on: bool) {}

    /// Says that the calling thread is one of Millpond's own that saves in the background: the store may still be
    /// writing what this thread saves when it has answered, as long as that can be loaded meanwhile and a write that
    /// fails loses nothing. Of several threads that say so, the last one counts.
    fn write_behind(&self) {}

    /// Names the descriptors that saving and loading need, so that threads with a descriptor table of their own keep
    /// them.
    fn descriptors(&self, _keep: &mut dyn FnMut(i32)) {}

    /// Prepares the store in the one thread of a new child process, before any other call there. The child may read
    /// what the parent saved before, and must not write where the parent does.
    ///
    /// # Errors
    /// The child cannot have a store of its own, with this errno.
    fn after_fork_in_child(&self) -> Result<(), i32>;

    /// Says that a child is about to be forked, while the store is quiet, whether or not [`Store::before_fork`]
    /// follows.
    fn expect_child(&self) {}

    /// Prepares the store in the parent, while it is quiet, just before a fork: what is saved now stays readable for
    /// the child until [`Store::child_gone`] with the same number.
    fn before_fork(&self, child: u64);

    /// The child `child` has exited or runs another program: what was kept for it may go.
    fn child_gone(&self, child: u64);
}

/// Why pages of a file could not be read or written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileFault {
    /// The file ends before one of the pages: it has become shorter.
    Ended,
    /// The system refused, with this errno.
    Io(i32),
    /// It is another version than the one that was mapped: its bytes must not stand beside those that were read before.
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
    /// The thread's own, which has none of the descriptors that the program opened after the thread began.
    OfThread,
}

/// A file, or an object elsewhere, whose pages are those of a region ([`Kind::File`](crate::Kind::File),
/// [`Kind::Private`](crate::Kind::Private)), in the same order.
///
/// The answers that a method has of its own are those of what is only read, memory and file: nothing ever changes, and
/// nothing is written.
///
/// Pages are counted from the region's first. Calls about different pages may run at the same time, and come from
/// threads that serve a fault: none may call the program's allocator or touch managed memory.
pub trait Backing: Send + Sync {
    /// Fills `out`, whole pages, with the contents of the pages from `first` on. What lies behind the file's end in
    /// its last page reads as zeros.
    ///
    /// # Errors
    /// One of the pages could not be read. `out` may hold anything then.
    fn read(&self, first: u32, out: &mut [u8], table: Descriptors) -> Result<(), FileFault>;

    /// As [`read`](Self::read), where the pages of `out` are neighbours in the machine's memory too, so that a device
    /// writes to them as to one piece.
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

    /// Whether `bytes`, whole pages, are known to be what was read for the pages from `first` on. They count as changed
    /// where that is not known.
    fn is_as_read(&self, _first: u32, _bytes: &[u8]) -> bool {
        true
    }

    /// Forgets what was read for `pages`: they have left memory.
    fn forget(&self, _pages: Range<u32>) {}

    /// Writes what has changed of `bytes`, whole pages from `first` on, to the file; from then on they count as read.
    /// The answer is whether anything had changed. A file that is never written has no changes.
    ///
    /// # Errors
    /// The first page that could not be written, and why. All others are written. What was not still counts as changed,
    /// and where the file may hold a part of it, it does so whatever is in memory later.
    fn write_back(
        &self,
        _first: u32,
        _bytes: &[u8],
        _table: Descriptors,
    ) -> Result<bool, WriteFault> {
        Ok(false)
    }

    /// Whether what is written to the memory goes to the file: whether [`write_back`](Self::write_back) may write.
    fn is_written(&self) -> bool {
        false
    }

    /// Waits until the device has what was written.
    ///
    /// # Errors
    /// It may not have it: all pages in memory count as changed from here on.
    fn sync(&self) -> Result<(), FileFault> {
        Ok(())
    }

    /// The most RAM that is taken for this beside the pages themselves. Of what several share each has its part, which
    /// changes with their number.
    fn ram_bytes(&self) -> u64;
}
