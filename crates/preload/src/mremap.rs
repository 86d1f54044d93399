//! `mremap`: shrink and grow where the area is, else carry its contents to a new place.
//!
//! The kernel moves page tables; here most pages may be in the store, so the contents are carried by copying, a
//! mebibyte at a time, and what has been copied is discarded at once: the move needs no more memory than it had.
//! Pages that are zero are not written at the new place, so a sparse area stays sparse.
//!
//! Copying touches managed memory, so the VMA lock cannot be held meanwhile; new and old area are both mapped then, and
//! nobody else has a business in either before the call returns. A fork in the middle would show the child an area of
//! which a part is in neither place, so moves and forks exclude each other by a lock of their own.

use crate::lock::RawLock;
use crate::signals::Blocked;
use crate::vma::{self, Kind, PAGE, Range, Vmas};
use crate::{raw, space};
use core::ffi::{c_int, c_void};
use libc::{
    MAP_ANONYMOUS, MAP_FIXED, MAP_PRIVATE, MREMAP_DONTUNMAP, MREMAP_FIXED, MREMAP_MAYMOVE,
    PROT_READ, PROT_WRITE,
};
use rustix::io::Errno;

/// Bytes that are copied before their source is discarded.
const CHUNK: usize = 1 << 20;
const READ_WRITE: i32 = PROT_READ | PROT_WRITE;

static MOVING: RawLock = RawLock::new();

/// Waits for moves under way and keeps new ones out until [`unlock_after_fork`]. Signals are blocked by the caller.
pub fn lock_for_fork() {
    MOVING.lock();
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

/// What is left to do when the VMA lock has been let go.
enum Next {
    Done(usize),
    Carry(Carry),
}

/// Contents on their way.
#[derive(Clone)]
struct Carry {
    from: Range,
    to: Range,
    /// What the new place becomes.
    kind: Kind,
    keep_source: bool,
}

impl Request {
    fn has(self, flag: i32) -> bool {
        self.flags & flag != 0
    }

    fn to_kernel(self) -> Result<usize, Errno> {
        // SAFETY: the program asked for it; no managed page of the space is concerned.
        unsafe { raw::mremap(self.old, self.old_len, self.new_len, self.flags, self.new) }
    }

    /// With lengths in whole pages; `None` when the kernel would answer EINVAL.
    fn normal(self) -> Option<Self> {
        let old_len = self.old_len.checked_next_multiple_of(PAGE)?;
        let new_len = self.new_len.checked_next_multiple_of(PAGE)?;
        let old_end = self.old.checked_add(old_len)?;
        let known = MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP;
        let moves = self.has(MREMAP_FIXED) || self.has(MREMAP_DONTUNMAP);
        let good = self.flags & !known == 0
            && self.old.is_multiple_of(PAGE)
            && new_len > 0
            && (!moves || self.has(MREMAP_MAYMOVE))
            && (!self.has(MREMAP_DONTUNMAP) || old_len == new_len);
        let target = self.new..self.new.checked_add(new_len)?;
        let apart = target.end <= self.old || target.start >= old_end;
        let good_target = !self.has(MREMAP_FIXED) || self.new.is_multiple_of(PAGE) && apart;
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
}

fn remap(request: Request) -> Result<usize, Errno> {
    let Some(normal) = request.normal() else {
        return request.to_kernel();
    };
    let into_space = normal.has(MREMAP_FIXED) && space::overlaps(normal.new, normal.new_len);
    let from_space = space::overlaps(normal.old, normal.old_len.max(1));
    if !into_space && !from_space {
        return request.to_kernel();
    }
    let _blocked = Blocked::new();
    MOVING.lock();
    let result = remap_alone(normal, from_space);
    MOVING.unlock();
    result
}

fn remap_alone(request: Request, from_space: bool) -> Result<usize, Errno> {
    let next = vma::locked(move |vmas| {
        if from_space {
            vmas.remap(request)
        } else {
            vmas.remap_foreign(request)
        }
    });
    match next.unwrap_or(Err(Errno::FAULT))? {
        Next::Done(place) => Ok(place),
        Next::Carry(carry) => {
            copy(&carry);
            let place = carry.to.start;
            vma::locked(move |vmas| vmas.arrived(carry)).unwrap_or(Ok(()))?;
            Ok(place)
        }
    }
}

impl Vmas {
    fn remap(&mut self, request: Request) -> Result<Next, Errno> {
        if request.old_len == 0 {
            // Only shared mappings can be had twice.
            return Err(Errno::INVAL);
        }
        let (before, inside, after) = self.split(&request.old_range());
        if !before.is_empty() || !after.is_empty() {
            return Err(Errno::FAULT);
        }
        match self.map.pieces(inside).as_slice() {
            [piece] => match piece.kind {
                Some(kind @ Kind::Managed { .. }) => self.remap_managed(request, kind),
                Some(Kind::Foreign) => self.remap_foreign(request),
                None => Err(Errno::FAULT),
            },
            _ => Err(Errno::FAULT),
        }
    }

    fn remap_managed(&mut self, request: Request, kind: Kind) -> Result<Next, Errno> {
        let Kind::Managed { prot, opened, .. } = kind else {
            return Err(Errno::FAULT);
        };
        let old = request.old_range();
        let stays = !request.has(MREMAP_FIXED) && !request.has(MREMAP_DONTUNMAP);
        let end = old.start.checked_add(request.new_len).ok_or(Errno::NOMEM)?;
        if stays && request.new_len <= request.old_len {
            if end < old.end {
                self.clear(end..old.end)?;
            }
            return Ok(Next::Done(old.start));
        }
        if stays && self.map.is_free(&(old.end..end)) {
            self.extend(old.end..end, prot, opened)?;
            self.map.insert(old.end..end, kind);
            return Ok(Next::Done(old.start));
        }
        if !request.has(MREMAP_MAYMOVE) {
            return Err(Errno::NOMEM);
        }
        let kept = request.old_len.min(request.new_len);
        let target = if request.has(MREMAP_FIXED) {
            let target = request.new_range();
            self.prepare_target(target.clone(), opened)?;
            target
        } else {
            let start = self.map.find(request.new_len, PAGE).ok_or(Errno::NOMEM)?;
            let target = start..start + request.new_len;
            self.extend(target.clone(), READ_WRITE, opened)?;
            target
        };
        if opened && prot & PROT_READ == 0 {
            self.reprotect(&old, READ_WRITE, None)?;
        }
        let carry = Carry {
            from: old.start..old.start + kept,
            to: target,
            kind,
            keep_source: request.has(MREMAP_DONTUNMAP),
        };
        if kept < request.old_len {
            self.clear(old.start + kept..old.end)?;
        }
        if opened {
            return Ok(Next::Carry(carry));
        }
        let place = carry.to.start;
        self.arrived(carry)?;
        Ok(Next::Done(place))
    }

    /// Maps a free range like an area that it continues or replaces.
    fn extend(&mut self, range: Range, prot: i32, opened: bool) -> Result<(), Errno> {
        if opened && prot == libc::PROT_NONE {
            // Opened pages without access; the space learns of the protection afterwards.
            self.place(range.clone(), READ_WRITE)?;
            self.reprotect(&range, prot, None)?;
        } else if opened {
            return self.place(range, prot);
        }
        self.map.insert(range, Kind::managed(prot, opened));
        Ok(())
    }

    /// Puts zeros where `MREMAP_FIXED` wants the contents, in and outside the space.
    fn prepare_target(&mut self, target: Range, opened: bool) -> Result<(), Errno> {
        let (before, inside, after) = self.split(&target);
        let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
        for outside in [before, after] {
            if !outside.is_empty() {
                // SAFETY: the program wants what is mapped here replaced.
                unsafe { raw::mmap(outside.start, outside.len(), READ_WRITE, flags, -1, 0) }?;
            }
        }
        if inside.is_empty() {
            return Ok(());
        }
        self.clear(inside.clone())?;
        self.extend(
            inside,
            if opened { READ_WRITE } else { libc::PROT_NONE },
            opened,
        )
    }

    /// The contents are at their new place.
    fn arrived(&mut self, carry: Carry) -> Result<(), Errno> {
        let Carry {
            from,
            to,
            kind,
            keep_source,
        } = carry;
        let Kind::Managed { prot, .. } = kind else {
            return Ok(());
        };
        let (before, inside, after) = self.split(&to);
        for outside in [before, after] {
            if !outside.is_empty() && prot != READ_WRITE {
                // SAFETY: mapped by `prepare_target` for this.
                unsafe { raw::mprotect(outside.start, outside.len(), prot, None) }?;
            }
        }
        for piece in self.map.pieces(inside) {
            if let Some(Kind::Managed { opened, .. }) = piece.kind {
                if opened {
                    self.set_protection(&piece.range, prot, None)?;
                }
                self.map.insert(piece.range, kind);
            }
        }
        if !keep_source {
            return self.clear(from);
        }
        for piece in self.map.pieces(from) {
            if let Some(Kind::Managed { opened: true, .. }) = piece.kind {
                self.discard(piece.range.clone(), READ_WRITE)?;
                if prot & PROT_READ == 0 {
                    self.set_protection(&piece.range, prot, None)?;
                }
            }
        }
        Ok(())
    }

    /// Moves a mapping of the kernel's out of the space, into it, or within it.
    fn remap_foreign(&mut self, request: Request) -> Result<Next, Errno> {
        let (_, old_inside, _) = self.split(&request.old_range());
        let place = if request.has(MREMAP_FIXED) {
            let (_, inside, _) = self.split(&request.new_range());
            if !inside.is_empty() {
                self.clear(inside.clone())?;
            }
            match request.to_kernel() {
                Ok(place) if inside.is_empty() => place,
                Ok(place) => {
                    self.map.insert(inside, Kind::Foreign);
                    place
                }
                Err(error) => {
                    if !inside.is_empty() {
                        self.space.restore(inside.start, inside.len())?;
                    }
                    return Err(error);
                }
            }
        } else {
            request.to_kernel()?
        };
        let gone = if place != request.old {
            old_inside
        } else {
            let end = (place + request.new_len).clamp(old_inside.start, old_inside.end);
            end..old_inside.end
        };
        if !gone.is_empty() && !request.has(MREMAP_DONTUNMAP) {
            self.space.restore(gone.start, gone.len())?;
            self.map.remove(gone);
        }
        Ok(Next::Done(place))
    }
}

fn copy(carry: &Carry) {
    let space = space::get();
    let mut done = 0;
    while done < carry.from.len() {
        let chunk = CHUNK.min(carry.from.len() - done);
        let (from, to) = (carry.from.start + done, carry.to.start + done);
        for page in (0..chunk).step_by(PAGE) {
            // SAFETY: both pages are mapped, the source readable and the target writable, and they are apart; the
            // program promises not to use either before the call returns.
            unsafe { copy_page((from + page) as *const u64, (to + page) as *mut u64) };
        }
        if let Some(space) = space {
            // A refusal leaves the source to be dropped with the whole area.
            let _ = space.discard(from, chunk);
        }
        done += chunk;
    }
}

/// # Safety
/// Both are pages, apart, readable and writable.
unsafe fn copy_page(from: *const u64, to: *mut u64) {
    const WORDS: usize = PAGE / 8;
    // SAFETY: inside the source page.
    let is_zero = (0..WORDS).all(|n| unsafe { from.add(n).read_volatile() } == 0);
    if !is_zero {
        // SAFETY: as the caller promised.
        unsafe { to.copy_from_nonoverlapping(from, WORDS) };
    }
}

/// As `mremap` of the C library, where the last argument is optional.
///
/// # Safety
/// As there.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn mremap(
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
    match remap(Request {
        old: old as usize,
        old_len,
        new_len,
        flags,
        new,
    }) {
        Ok(place) => place as *mut c_void,
        Err(error) => {
            raw::set_errno(error);
            libc::MAP_FAILED
        }
    }
}
