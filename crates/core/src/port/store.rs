//! What the driver needs of a store: the bytes of slots, upkeep, and care for forks.
//!
//! [`Store`] is the sum of three traits, so that a caller names only what it uses: faults and evictions need [`Slots`],
//! the housekeeping thread needs [`Upkeep`], and a fork needs [`Forks`]. A method with a default body is one for which
//! most stores have nothing to do. A store that wraps another must pass those calls on as well: a call that the default
//! body answers never reaches the store inside.

use crate::event::SlotPart;
use crate::ids::SlotId;
use std::ops::Add;

/// How [`Slots::save`] ended well.
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

/// The usage of a store that has two places.
impl Add for StoreUsage {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            slots: self.slots + other.slots,
            logical_bytes: self.logical_bytes + other.logical_bytes,
            stored_bytes: self.stored_bytes + other.stored_bytes,
            ram_bytes: self.ram_bytes + other.ram_bytes,
            same_filled: self.same_filled + other.same_filled,
            incompressible: self.incompressible + other.incompressible,
        }
    }
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
    /// Most bytes of RAM that it may take ([`Upkeep::limit_ram`]).
    pub ram_most: u64,
    /// Whether RAM use is so far above that limit that [`Upkeep::trim_ram`] moves some of it on.
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

/// What [`Upkeep::recompress`] left to do.
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

/// What [`Upkeep::recompress`] has done since the store was made.
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

/// A store: where the bytes go that the budget has no room for.
///
/// Whatever implements the three traits is one.
pub trait Store: Slots + Upkeep + Forks {}

impl<T: Slots + Upkeep + Forks> Store for T {}

/// Keeps the bytes of folios under slot numbers that the core chooses: what a fault and an eviction need of a store.
///
/// Slot numbers are dense and small; the core never uses one for two things at once. Calls about different slots
/// may run at the same time. Each slot carries a checksum of its contents, checked at load.
pub trait Slots: Send + Sync {
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

    /// [`Slots::load`] of several parts, for stores that save by doing it together.
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

    /// The page of [`Slots::expect`] will be loaded soon, said a moment later: now the store may prefetch the bytes
    /// themselves.
    fn expect_bytes(&self, _page: SlotPart) {}

    /// Says that nobody will load these pages again, while other pages of the slot are still needed: the store may
    /// use their room for something else. A load of them fails from now on, or gives anything.
    fn forget(&self, _part: SlotPart) {}

    /// Forgets `slot`. It is no error when the slot holds nothing.
    fn release(&self, slot: SlotId);
}

/// What a store tells of itself, and the background work that keeps it in shape: limits, moves between places,
/// compaction.
///
/// Calls may run beside all calls of [`Slots`]. The housekeeping thread works inside the gate, for which a fork waits,
/// so each call does one small piece of work.
pub trait Upkeep: Send + Sync {
    /// The contents of the store now, in numbers.
    fn usage(&self) -> StoreUsage;

    /// How the two places are used and how many loads each has had, if the store has two.
    fn tiers(&self) -> Option<Tiers> {
        None
    }

    /// The part of the store that lies beyond the machine.
    fn beyond(&self) -> Beyond {
        Beyond::default()
    }

    /// Sets the limit for RAM: bytes that are saved from now on should leave no more than `bytes` in RAM. What exceeds
    /// it goes to the other place if the store has one, and is refused if it has none. Bytes that are held already stay
    /// until [`Upkeep::trim_ram`].
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

    /// Keeps a part of what nobody wanted for a while more densely, if RAM is short or `worth_it`, beside all other
    /// calls: what a thread does in half a millisecond or so.
    fn recompress(&self, _worth_it: bool) -> Recompress {
        Recompress::Idle
    }

    /// What [`Upkeep::recompress`] has done so far.
    fn recompressed(&self) -> Recompressed {
        Recompressed::default()
    }

    /// Says whether a thread that loads should rather stay awake than sleep while a device works, because a single
    /// thread needs what is loaded. A processor that sleeps meanwhile has to be woken, and where a handler loads, the
    /// thread that waits for it is moved to another processor that is idle.
    fn stay_awake(&self, _on: bool) {}

    /// Says that the calling thread is one of Millpond's own that saves in the background: the store may still be
    /// writing what this thread saves when it has answered, as long as that can be loaded meanwhile and a write that
    /// fails loses nothing. Of several threads that say so, the last one counts.
    fn write_behind(&self) {}
}

/// What a store does when the process forks, in the order of the calls.
pub trait Forks: Send + Sync {
    /// Names the descriptors that saving and loading need, so that threads with a descriptor table of their own keep
    /// them.
    fn descriptors(&self, _keep: &mut dyn FnMut(i32)) {}

    /// Says that a child is about to be forked, while the store is quiet, whether or not [`Forks::before_fork`]
    /// follows.
    fn expect_child(&self) {}

    /// Prepares the store in the parent, while it is quiet, just before a fork: what is saved now stays readable for
    /// the child until [`Forks::child_gone`] with the same number.
    fn before_fork(&self, child: u64);

    /// Prepares the store in the one thread of a new child process, before any other call there. The child may read
    /// what the parent saved before, and must not write where the parent does.
    ///
    /// # Errors
    /// The child cannot have a store of its own, with this errno.
    fn after_fork_in_child(&self) -> Result<(), i32>;

    /// The child `child` has exited or runs another program: what was kept for it may go.
    fn child_gone(&self, child: u64);
}
