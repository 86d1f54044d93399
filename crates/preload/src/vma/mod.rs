//! The program's view of the space's addresses, and the lock around it.
//!
//! Every operation that changes a mapping takes the VMA lock, changes the areas and the space together, and releases
//! it. While the lock is held nothing touches managed memory (a page fault may need threads that are themselves about
//! to take a lock of the space), no signal handler runs ([`crate::signals`]), and the thread is on an unmanaged stack
//! ([`crate::stack_switch`]). The order of locks is: jemalloc's locks, then this one, then those of the space.

mod at_fork;
pub mod gap;
mod hints;
mod lock_account;
pub mod locked;
pub mod map;
mod pinned;
mod ranges;
mod sealed;
#[cfg(test)]
mod tests;
pub mod zones;

use crate::lock::RawLock;
use crate::raw;
use crate::signals::Blocked;
use crate::space::{self, Space};
use crate::stack_switch::on_safe_stack;
use core::cell::UnsafeCell;
use map::Map;
use millpond_sync::Rank;
use rustix::io::Errno;

/// Number of bytes in a page.
pub const PAGE: usize = 4096;
/// Number of bytes under one leaf of the space's tables.
pub const LEAF: usize = 2 << 20;

/// Number of bytes under one entry of the kernel's table above the leaves' tables.
pub const GIGABYTE: usize = 1 << 30;

/// A range of addresses, both ends page-aligned.
pub type Range = core::ops::Range<usize>;

/// How the child of a fork gets an area if not as a copy: Linux's `VM_DONTCOPY` and `VM_WIPEONFORK`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AtFork {
    /// The child gets nothing of the area.
    pub dont_copy: bool,
    /// The child gets zeros.
    pub wipe: bool,
}

/// The kind of an area.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The area is private anonymous memory under the budget.
    Managed {
        /// The protection as the program set it (`PROT_READ` and so on).
        prot: i32,
        /// Whether the space was told to open the pages, so that they may hold something. A reservation that was
        /// never accessible costs the space nothing.
        opened: bool,
        /// How the child of a fork gets the area.
        at_fork: AtFork,
    },
    /// The area is the kernel's: a file, shared or special mapping that the program placed here with `MAP_FIXED`.
    Foreign,
}

impl Kind {
    /// Returns the kind of managed memory that a child gets a copy of.
    pub fn managed(prot: i32, opened: bool) -> Self {
        Self::Managed {
            prot,
            opened,
            at_fork: AtFork::default(),
        }
    }
}

/// The state that the VMA lock guards.
pub struct Vmas {
    /// The areas of the space.
    pub map: Map,
    /// The emulated program break.
    pub heap: crate::brk::Heap,
    /// The ranges that stay in memory for good.
    pinned: ranges::Ranges,
    /// The ranges that the program locked (`locked.rs`).
    mlocked: ranges::Ranges,
    /// The account of locked bytes for the kernel (`lock_account.rs`).
    locked_bytes: lock_account::LockAccount,
    /// The ranges that the program sealed (`sealed.rs`).
    sealed: ranges::Ranges,
    /// The ranges that were moved here by their page tables, or marked ([`marked`]). The kernel's mapping there came
    /// from elsewhere or is of another kind, and never joins its neighbours, so it is replaced when the program gives
    /// back the addresses.
    pub moved: ranges::Ranges,
    /// The places in the space where System V shared memory segments were attached.
    pub attached: Vec<Range>,
    /// The history of addresses that the program named and did not get.
    pub hints: hints::Hints,
    /// The space that the areas lie in.
    pub space: &'static Space,
}

struct Guarded {
    lock: RawLock,
    vmas: UnsafeCell<Option<Vmas>>,
}

// SAFETY: the cell is only used with the lock held, or before there is a second thread.
unsafe impl Sync for Guarded {}

static VMAS: Guarded = Guarded {
    lock: RawLock::new(Rank::Vma),
    vmas: UnsafeCell::new(None),
};

/// Starts the account of `space`. Called once, from the constructor, while there is only one program thread.
pub fn begin(space: &'static Space) {
    let map = Map::new(space.base()..space.base() + space.len());
    let vmas = Vmas {
        map,
        heap: crate::brk::Heap::default(),
        pinned: ranges::Ranges::default(),
        mlocked: ranges::Ranges::default(),
        locked_bytes: lock_account::LockAccount::default(),
        sealed: ranges::Ranges::default(),
        moved: ranges::Ranges::default(),
        attached: Vec::new(),
        hints: hints::Hints::default(),
        space,
    };
    // SAFETY: no other thread calls into this module before the constructor has ended.
    unsafe { *VMAS.vmas.get() = Some(vmas) };
}

/// Runs `work` under the VMA lock, or returns `None` if there is no space. `work` must own everything it uses
/// (`move`): the caller's frame may lie in managed memory.
pub fn locked<R>(work: impl FnOnce(&mut Vmas) -> R) -> Option<R> {
    space::get()?;
    on_safe_stack(move || {
        let _blocked = Blocked::new();
        VMAS.lock.lock();
        // SAFETY: the lock is held.
        let vmas = unsafe { &mut *VMAS.vmas.get() };
        let result = vmas.as_mut().map(work);
        VMAS.lock.unlock();
        result
    })
}

/// Records that the program made the kernel mark these mappings, for example with a node to take memory from, and
/// that the mark stays with the addresses. Once the program has unmapped its memory, the addresses are used for
/// something else, so they are then remapped.
pub fn marked(addr: usize, len: usize) {
    let end = len
        .checked_next_multiple_of(PAGE)
        .and_then(|len| addr.checked_add(len));
    let Some(end) = end.filter(|&end| space::overlaps(addr, end - addr)) else {
        return;
    };
    let _ = locked(move |vmas| {
        let (_, inside, _) = vmas.split(&(addr..end));
        for piece in vmas.map.pieces(inside) {
            if matches!(piece.kind, Some(Kind::Managed { opened: true, .. })) {
                vmas.moved.add(piece.range);
            }
        }
    });
}

/// Returns whether nobody holds the lock ([`RawLock::is_free`]).
pub fn is_free() -> bool {
    VMAS.lock.is_free()
}

/// Takes the lock until [`unlock_after_fork`]. The caller has signals blocked.
pub fn lock_for_fork() {
    VMAS.lock.lock();
}

/// Runs `work` between [`lock_for_fork`] and [`unlock_after_fork`].
///
/// # Safety
/// The calling thread holds the lock.
pub unsafe fn held_for_fork<R: Default>(work: impl FnOnce(&mut Vmas) -> R) -> R {
    // SAFETY: the caller guarantees that the lock is held.
    let vmas = unsafe { &mut *VMAS.vmas.get() };
    vmas.as_mut().map(work).unwrap_or_default()
}

/// Ends what [`lock_for_fork`] began, in the parent and in the child.
pub fn unlock_after_fork() {
    VMAS.lock.unlock();
}

impl Vmas {
    /// Maps zeros with protection `prot` in `range`, which is free.
    pub fn place(&mut self, range: Range, prot: i32) -> Result<(), Errno> {
        let opened = prot != libc::PROT_NONE;
        if opened {
            self.space.open(range.start, range.len())?;
            if let Err(error) = self.set_protection(&range, prot, None) {
                let _ = self.close(range);
                return Err(error);
            }
        }
        self.map.insert(range, Kind::managed(prot, opened));
        Ok(())
    }

    /// Changes the protection of opened pages, which are opened readable and writable.
    pub fn set_protection(&self, range: &Range, prot: i32, key: Option<i32>) -> Result<(), Errno> {
        if prot == libc::PROT_READ | libc::PROT_WRITE && key.is_none() {
            return Ok(());
        }
        self.reprotect(range, prot, key)
    }

    /// Sets the protection of opened pages. The space is told before, so that no folio crosses the ends of the range
    /// while they become boundaries, and after.
    pub fn reprotect(&self, range: &Range, prot: i32, key: Option<i32>) -> Result<(), Errno> {
        let (start, len) = (range.start, range.len());
        self.space.protection_changed(start, len);
        let result = match self.space.protect(start, len, prot, key.is_some()) {
            Some(result) => result,
            // SAFETY: the range is the program's own memory, whose protection the program chooses.
            None => unsafe { raw::mprotect(start, len, prot, key) },
        };
        if result.is_ok() {
            self.space
                .access_changed(start, len, prot != libc::PROT_NONE);
        }
        self.space.protection_changed(start, len);
        result
    }

    /// Unmaps everything in `range`.
    pub fn clear(&mut self, range: Range) -> Result<(), Errno> {
        for piece in self.map.pieces(range) {
            let (start, len) = (piece.range.start, piece.range.len());
            match piece.kind {
                None => continue,
                Some(Kind::Managed { opened: false, .. }) => {}
                Some(Kind::Managed { .. }) => self.close(piece.range.clone())?,
                Some(Kind::Foreign) => self.space.restore(start, len)?,
            }
            self.map.remove(piece.range);
        }
        Ok(())
    }

    /// Returns the part of `range` inside the space, and the parts before and after it; each may be empty.
    pub fn split(&self, range: &Range) -> (Range, Range, Range) {
        let bounds = self.map.bounds();
        let low = range.start.clamp(bounds.start, bounds.end);
        let high = range.end.clamp(bounds.start, bounds.end);
        if low >= high {
            return (range.clone(), high..high, range.end..range.end);
        }
        (range.start..low, low..high, high..range.end)
    }
}
