//! `mremap`: an area shrinks and grows in place if possible; otherwise it is moved.
//!
//! We move page tables ([`Space::remap`](crate::space::Space::remap)), the space's and the kernel's, however much of
//! the area is in the store. That requires source and target to be aligned alike within their 2 MiB, which a target
//! that we choose is. If the area is to grow, we choose a target with room after it, so that the next growth need not
//! move it. Only if `MREMAP_FIXED` names a place with a different alignment are the contents copied, out of the
//! program's reach ([`copy`]).
//!
//! *Threads that touch the area meanwhile* find the page before the move, or get SIGSEGV after it (zeros, with
//! `MREMAP_DONTUNMAP`), as with the kernel. `millpond_mmu`'s `hand_over.rs` explains how.
//!
//! *Errors* are the kernel's, in its order (tests/c/mremap_table.c compares them). The kernel itself checks for
//! errors in the arguments alone. `MREMAP_FIXED` can move several areas at once without a change of length if the
//! kernel can do that (Linux 6.17), which we ask it once.

mod copy;
mod foreign;

use crate::lock::RawLock;
use crate::signals::Blocked;
use crate::vma::{self, Kind, PAGE, Range, Vmas};
use crate::{engage, fork, raw, space};
use copy::{Carry, Underway};
use core::ffi::{c_int, c_void};
use libc::{MREMAP_DONTUNMAP, MREMAP_FIXED, MREMAP_MAYMOVE};
use millpond_sync::Rank;
use rustix::io::Errno;
use std::sync::OnceLock;

/// The maximum room that a growing area gets after it.
const MOST_ROOM: usize = 1 << 30;

/// No area is longer than this or ends above it. Whether the kernel treats a request for more as a bad argument or a
/// lack of memory depends on its version.
const LONGEST: usize = 1 << 48;

static MOVING: RawLock = RawLock::new(Rank::Moving);

/// Waits for moves in progress and keeps new ones out until [`unlock_after_fork`]. The caller has signals blocked.
pub fn lock_for_fork() {
    MOVING.lock();
}

/// Returns whether no move is in progress ([`RawLock::is_free`]).
pub fn is_free() -> bool {
    MOVING.is_free()
}

/// Ends what [`lock_for_fork`] began, in the parent and in the child.
pub fn unlock_after_fork() {
    MOVING.unlock();
}

#[derive(Clone, Copy)]
struct Request {
    old: usize,
    old_len: usize,
    new_len: usize,
    flags: i32,
    new: usize,
}

/// The work that remains once the VMA lock has been released.
enum Next {
    Done(usize),
    /// Contents have to be copied; the number is the request's own result.
    Copy(Vec<Underway>, usize),
}

impl Request {
    fn has(self, flag: i32) -> bool {
        self.flags & flag != 0
    }

    fn to_kernel(self) -> Result<usize, Errno> {
        // SAFETY: the program asked for it; no managed page of the space is concerned.
        unsafe { raw::mremap(self.old, self.old_len, self.new_len, self.flags, self.new) }
    }

    /// Returns the request with lengths in whole pages, or `None` if the kernel refuses such arguments whatever is
    /// mapped.
    fn normal(self) -> Option<Self> {
        let old_len = self.old_len.checked_next_multiple_of(PAGE)?;
        let new_len = self.new_len.checked_next_multiple_of(PAGE)?;
        let old_end = self.old.checked_add(old_len)?;
        let known = MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP;
        let moves = self.has(MREMAP_FIXED) || self.has(MREMAP_DONTUNMAP);
        let good = self.flags & !known == 0
            && self.old.is_multiple_of(PAGE)
            && new_len > 0
            && new_len <= LONGEST
            && (!moves || self.has(MREMAP_MAYMOVE))
            && (!self.has(MREMAP_DONTUNMAP) || old_len == new_len);
        let target = self.new..self.new.checked_add(new_len)?;
        let apart = target.end <= self.old || target.start >= old_end;
        let good_target = !self.has(MREMAP_FIXED)
            || self.new.is_multiple_of(PAGE) && apart && target.end <= LONGEST;
        (good && good_target).then_some(Self {
            old_len,
            new_len,
            ..self
        })
    }

    fn old_range(self) -> Range {
        self.old..self.old + self.old_len
    }

    fn new_range(self) -> Range {
        self.new..self.new + self.new_len
    }

    /// Returns whether the request leaves the area in place if possible.
    fn stays(self) -> bool {
        !self.has(MREMAP_FIXED) && !self.has(MREMAP_DONTUNMAP)
    }

    /// Returns the request for a part of the old range, to the corresponding part of the new one.
    fn part(self, range: &Range) -> Self {
        Self {
            old: range.start,
            old_len: range.len(),
            new_len: range.len(),
            new: self.new + (range.start - self.old),
            ..self
        }
    }
}

fn remap(request: Request) -> Result<usize, Errno> {
    let Some(normal) = request.normal() else {
        // The kernel may have emptied the target before it finds the error.
        let emptied = request.has(MREMAP_FIXED) && space::overlaps(request.new, request.new_len);
        return if emptied {
            Err(Errno::INVAL)
        } else {
            request.to_kernel()
        };
    };
    let into_space = normal.has(MREMAP_FIXED) && space::overlaps(normal.new, normal.new_len);
    let from_space = space::overlaps(normal.old, normal.old_len.max(1));
    if !into_space && !from_space {
        return request.to_kernel();
    }
    let _growing = engage::before_growth(normal.new_len.saturating_sub(normal.old_len));
    if normal.has(MREMAP_FIXED) && normal.new % vma::LEAF != normal.old % vma::LEAF {
        // Contents that cannot move by their tables are copied beside the space, of which a dormant one has nothing.
        engage::before_lasting();
    }
    // A fork handler of the program may move memory in a new child. The kernel notifies a thread of ours of that.
    fork::finish_child();
    engage::wait_for_threads();
    let _blocked = Blocked::new();
    MOVING.lock();
    let result = remap_alone(normal, from_space);
    MOVING.unlock();
    result
}

fn remap_alone(request: Request, from_space: bool) -> Result<usize, Errno> {
    let next = vma::locked(move |vmas| {
        vmas.unless_remap_meets_seal(request)?;
        if from_space {
            vmas.remap(request)
        } else {
            vmas.remap_foreign(request).map(Next::Done)
        }
    });
    match next.unwrap_or(Err(Errno::FAULT))? {
        Next::Done(place) => Ok(place),
        Next::Copy(carries, place) => {
            for underway in carries {
                underway.copy();
                vma::locked(move |vmas| vmas.arrived(underway)).unwrap_or(Ok(()))?;
            }
            Ok(place)
        }
    }
}

/// Returns whether the kernel moves several mappings at once.
fn kernel_moves_several() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(|| {
        let Ok(place) = raw::map_anonymous(4 * PAGE) else {
            return false;
        };
        let flags = MREMAP_MAYMOVE | MREMAP_FIXED;
        // SAFETY: these are four pages of our own. The second becomes a separate mapping, and the first two replace
        // the others.
        unsafe {
            let several = raw::mprotect(place + PAGE, PAGE, libc::PROT_READ, None)
                .and_then(|()| raw::mremap(place, 2 * PAGE, 2 * PAGE, flags, place + 2 * PAGE));
            let _ = raw::munmap(place, 4 * PAGE);
            several.is_ok()
        }
    })
}

impl Vmas {
    fn remap(&mut self, request: Request) -> Result<Next, Errno> {
        let old = request.old_range();
        let kept = old.start..old.end.min(old.start + request.new_len);
        let (before, inside, after) = self.split(&(old.start..old.end.max(old.start + PAGE)));
        if !before.is_empty() || !after.is_empty() {
            return Err(Errno::FAULT);
        }
        let first = self.map.first_piece(inside);
        match first.kind {
            None => Err(Errno::FAULT),
            Some(Kind::Foreign) if first.range.end >= old.end => {
                self.remap_foreign(request).map(Next::Done)
            }
            // Only shared mappings can be mapped a second time.
            Some(Kind::Managed { .. }) if request.old_len == 0 => Err(Errno::INVAL),
            Some(_) if request.stays() && request.new_len <= request.old_len => {
                if request.new_len < request.old_len {
                    self.clear(old.start + request.new_len..old.end)?;
                }
                Ok(Next::Done(old.start))
            }
            // The part that is not kept may be of any kind.
            Some(kind)
                if first.range.end >= kept.end
                    && request.new_len < request.old_len
                    && !self.is_several(kind, &kept) =>
            {
                self.clear(kept.end..old.end)?;
                self.remap(Request {
                    old_len: request.new_len,
                    ..request
                })
            }
            Some(kind) if first.range.end >= old.end && !self.is_several(kind, &old) => {
                self.remap_managed(request, kind)
            }
            _ if request.has(MREMAP_FIXED)
                && request.old_len == request.new_len
                && kernel_moves_several() =>
            {
                self.remap_several(request)
            }
            _ => Err(Errno::FAULT),
        }
    }

    /// Checks seals: the first page may not move if it is sealed, a sealed part may not be removed, and a sealed
    /// target may not be replaced.
    fn unless_remap_meets_seal(&self, request: Request) -> Result<(), Errno> {
        let old = request.old_range();
        let first = old.start..old.end.min(old.start + PAGE);
        let gone = old.start.saturating_add(request.new_len).min(old.end)..old.end;
        self.unless_sealed(&first)?;
        self.unless_sealed(&gone)?;
        match request.has(MREMAP_FIXED) {
            true => self.unless_sealed(&request.new_range()),
            false => Ok(()),
        }
    }

    /// Moves one area after another. Holes stay holes, and mappings at the places of holes also stay.
    fn remap_several(&mut self, request: Request) -> Result<Next, Errno> {
        let mut copies = Vec::new();
        for piece in self.map.pieces(request.old_range()) {
            let part = request.part(&piece.range);
            match piece.kind {
                None => {}
                Some(Kind::Foreign) => {
                    self.remap_foreign(part)?;
                }
                Some(kind) => {
                    if let Next::Copy(more, _) = self.remap_managed(part, kind)? {
                        copies.extend(more);
                    }
                }
            }
        }
        Ok(Next::Copy(copies, request.new))
    }

    fn remap_managed(&mut self, request: Request, kind: Kind) -> Result<Next, Errno> {
        if !matches!(kind, Kind::Managed { .. }) {
            return Err(Errno::FAULT);
        }
        let old = request.old_range();
        if request.stays() && self.grow_in_place(request, kind)? {
            return Ok(Next::Done(old.start));
        }
        if !request.has(MREMAP_MAYMOVE) {
            return Err(Errno::NOMEM);
        }
        let target = if request.has(MREMAP_FIXED) {
            request.new_range()
        } else {
            let room = (request.new_len - request.old_len)
                .checked_add(request.old_len.min(MOST_ROOM))
                .filter(|_| request.stays());
            let start = room
                .and_then(|room| {
                    self.map
                        .find_like(request.old_len.checked_add(room)?, old.start)
                })
                .or_else(|| self.map.find_like(request.new_len, old.start))
                .ok_or(Errno::NOMEM)?;
            start..start + request.new_len
        };
        let locked = self.unlock_managed(&old);
        self.carry(Carry {
            locked,
            from: old,
            to: target,
            kind,
            keep_source: request.has(MREMAP_DONTUNMAP),
        })
    }

    /// Moves page tables, or prepares to copy contents. Parts that were locked are locked again at the new place or,
    /// on failure, at the old one.
    fn carry(&mut self, carry: Carry) -> Result<Next, Errno> {
        let Carry {
            from, to, locked, ..
        } = carry.clone();
        let is_opened = matches!(carry.kind, Kind::Managed { opened: true, .. });
        let tried = match is_opened.then(|| self.move_tables(&carry)) {
            Some(Ok(true)) => {
                self.lock_again(&locked, &from, &to);
                return Ok(Next::Done(to.start));
            }
            Some(Err(error)) => Err(error),
            _ => self.prepare_copy(carry),
        };
        if tried.is_err() {
            self.lock_again(&locked, &from, &from);
        }
        Ok(Next::Copy(tried?.into_iter().collect(), to.start))
    }

    /// Returns whether the kernel sees several areas where we see one, because part of it is locked or sealed.
    fn is_several(&self, kind: Kind, range: &Range) -> bool {
        let is_partly_locked =
            matches!(kind, Kind::Managed { opened: true, .. }) && self.is_partly_locked(range);
        // A range that starts with a seal was refused earlier.
        is_partly_locked || self.first_sealed(range).is_some()
    }

    /// Grows an area in place, if nothing is in the way. Returns whether it grew.
    fn grow_in_place(&mut self, request: Request, kind: Kind) -> Result<bool, Errno> {
        let old = request.old_range();
        let end = old.start.checked_add(request.new_len).ok_or(Errno::NOMEM)?;
        let added = old.end..end;
        if !self.map.is_free(&added) {
            return Ok(false);
        }
        self.extend(added, kind, &old)?;
        Ok(true)
    }

    /// Maps a free range like the adjacent area `old`, and locks it if `old` is locked.
    fn extend(&mut self, range: Range, kind: Kind, old: &Range) -> Result<(), Errno> {
        let Kind::Managed { prot, opened, .. } = kind else {
            return Err(Errno::FAULT);
        };
        self.place_as(range.clone(), prot, opened)?;
        self.map.insert(range.clone(), kind);
        if opened && let Err(error) = self.lock_like(range.clone(), old.end - PAGE..old.end) {
            let _ = self.clear(range);
            return Err(error);
        }
        Ok(())
    }

    /// Maps zeros in a free range. Unlike [`Vmas::place`], this may open pages even without access.
    fn place_as(&mut self, range: Range, prot: i32, opened: bool) -> Result<(), Errno> {
        if opened && prot == libc::PROT_NONE {
            // The space learns of the protection afterwards.
            self.place(range.clone(), libc::PROT_READ | libc::PROT_WRITE)?;
            self.reprotect(&range, prot, None)?;
            self.map.insert(range, Kind::managed(prot, true));
            return Ok(());
        }
        if opened {
            return self.place(range, prot);
        }
        self.map.insert(range, Kind::managed(prot, false));
        Ok(())
    }

    /// Moves the page tables of an opened area. Returns false if that is not possible; in that case nothing has
    /// changed, except that nothing is mapped at the target.
    fn move_tables(&mut self, carry: &Carry) -> Result<bool, Errno> {
        let Carry { from, to, .. } = carry;
        let (before, inside, after) = self.split(to);
        if !before.is_empty() || !after.is_empty() || from.start % vma::LEAF != to.start % vma::LEAF
        {
            return Ok(false);
        }
        self.clear(inside)?;
        let moved = to.start..to.start + from.len();
        if moved.end < to.end {
            self.extend(moved.end..to.end, carry.kind, from)?;
        }
        match self
            .space
            .remap(from.start, from.len(), to.start, carry.keep_source)
        {
            Ok(()) => {}
            // If the process can have no more mappings, a copy would fail too, since it needs as many. If the store
            // failed, a copy would discover that through SIGBUS.
            Err(error @ (Errno::NOMEM | Errno::IO)) => {
                self.clear(moved.end..to.end)?;
                return Err(error);
            }
            Err(_) => {
                self.clear(moved.end..to.end)?;
                return Ok(false);
            }
        }
        self.moved.add(moved.clone());
        self.map.insert(moved, carry.kind);
        if !carry.keep_source {
            self.moved.remove(from);
            self.map.remove(from.clone());
        }
        Ok(true)
    }
}

exports! {
    /// The last argument is present only if the flags ask for it.
    [mremap: Mappings]
    unsafe extern "C" fn mremap(
        old: *mut c_void,
        old_len: usize,
        new_len: usize,
        flags: c_int,
        new: *mut c_void,
    ) -> *mut c_void {
        let new = if flags & MREMAP_FIXED == 0 {
            0
        } else {
            new as usize
        };
        crate::c_answer(remap(Request {
            old: old as usize,
            old_len,
            new_len,
            flags,
            new,
        })) as *mut c_void
    }
}
