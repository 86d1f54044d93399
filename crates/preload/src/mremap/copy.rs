//! Carrying contents by copying, where tables cannot be moved: to a place that lies otherwise in its 2 MiB or (partly)
//! outside the space, or when pages are pinned.
//!
//! *Threads that touch the area meanwhile* must lose nothing, and a write to a page that has been copied already would
//! be lost. So nothing is copied where the program can reach it. The contents step aside by their tables, to addresses
//! that nobody knows, are copied there, and go to their new place by tables again:
//!
//! ```text
//! from ──tables──▶ aside, like from ──copy──▶ aside, like to ──tables──▶ to
//! ```
//!
//! A touch of the old place finds the page until the first step and is SIGSEGV from then on (zeros, with
//! `MREMAP_DONTUNMAP`); one of the new place is SIGSEGV until the last step and finds the page from then on. Two things
//! have no such protection: a new place outside of the space is written to directly, so that a touch there may read
//! zeros before the call returns; and of an area with pinned pages, which is a thread's stack, a write during the call
//! may be lost.
//!
//! A mebibyte at a time, and what has been copied is discarded at once: the move needs no more memory than it had.
//! Pages that are zero are not written at the new place, so a sparse area stays sparse.
//!
//! Copying touches managed memory, so the VMA lock cannot be held meanwhile. A fork in the middle would show the child
//! an area of which a part is in neither place, so moves and forks exclude each other by a lock of their own
//! ([`lock_for_fork`](super::lock_for_fork)).

use crate::vma::{Kind, PAGE, Range, Vmas, locked};
use crate::{exit, raw, space};
use libc::{MAP_ANONYMOUS, MAP_FIXED, MAP_PRIVATE, PROT_READ, PROT_WRITE};
use millpond::space::Aside;
use rustix::io::Errno;

/// Bytes that are copied before their source is discarded.
const CHUNK: usize = 1 << 20;
const READ_WRITE: i32 = PROT_READ | PROT_WRITE;

/// What is to be carried.
#[derive(Clone)]
pub struct Carry {
    pub from: Range,
    pub to: Range,
    /// What the new place becomes.
    pub kind: Kind,
    pub keep_source: bool,
    /// The parts of `from` that the program had locked. They are not while this is under way.
    pub locked: Vec<Range>,
}

/// Contents on their way.
pub struct Underway {
    carry: Carry,
    /// Where the contents are while they are copied, if not where they were.
    source: Option<Aside>,
    /// Where they are copied to, if not where they belong.
    target: Option<Aside>,
    /// The kernel was told to keep the area in memory.
    is_locked: bool,
}

fn range_of(aside: &Aside) -> Range {
    aside.start..aside.start + aside.len
}

impl Underway {
    fn source(&self) -> Range {
        (self.source.as_ref()).map_or_else(|| self.carry.from.clone(), range_of)
    }

    /// Copies. The VMA lock is not held.
    pub fn copy(&self) {
        let space = space::get();
        let (source, len) = (self.source(), self.carry.from.len());
        let target = self
            .target
            .as_ref()
            .map_or(self.carry.to.start, |aside| aside.start);
        let mut done = 0;
        while done < len {
            let chunk = CHUNK.min(len - done);
            let (from, to) = (source.start + done, target + done);
            for page in (0..chunk).step_by(PAGE) {
                // SAFETY: both pages are mapped, the source readable and the target writable, and they are apart.
                unsafe { copy_page((from + page) as *const u64, (to + page) as *mut u64) };
            }
            if let Some(space) = space {
                // A refusal leaves the source to be dropped with the whole area.
                let _ = space.discard(from, chunk);
            }
            done += chunk;
        }
    }
}

/// What has stepped aside cannot go on.
fn lost(error: Errno) -> ! {
    let text = format!(
        "millpond: an area that mremap has taken out cannot be put back ({error}): stopped, to lose nothing silently"
    );
    exit::fail(&text)
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

impl Vmas {
    /// Carries a reservation, which holds nothing; or prepares that contents are copied.
    pub fn prepare_copy(&mut self, carry: Carry) -> Result<Option<Underway>, Errno> {
        let Kind::Managed { prot, opened, .. } = carry.kind else {
            return Ok(None);
        };
        let mut underway = Underway {
            source: None,
            target: None,
            is_locked: false,
            carry,
        };
        if !opened {
            self.prepare_target(underway.carry.to.clone(), false)?;
            self.arrived(underway)?;
            return Ok(None);
        }
        let to = underway.carry.to.clone();
        let (before, _, after) = self.split(&to);
        if before.is_empty() && after.is_empty() {
            underway.target = self.space.lend_aside(to.len(), to.start);
        }
        let prepared = match &underway.target {
            // Nobody else is given the place meanwhile.
            Some(aside) => self
                .prepare_target(to, false)
                .and_then(|()| self.space.open(aside.start, aside.len)),
            None => self.prepare_target(to, true),
        };
        let prepared = prepared.and_then(|()| self.step_aside(&mut underway));
        if let Err(error) = prepared {
            // The new place is unmapped, as the kernel leaves it.
            let (_, inside, _) = self.split(&underway.carry.to);
            self.clear(inside)?;
            if let Some(aside) = underway.target {
                self.space.return_aside(aside);
            }
            return Err(error);
        }
        if prot & PROT_READ == 0
            && let Err(error) = self.reprotect(&underway.source(), READ_WRITE, None)
        {
            lost(error);
        }
        Ok(Some(underway))
    }

    /// Takes the contents out of reach, if that can be.
    fn step_aside(&mut self, underway: &mut Underway) -> Result<(), Errno> {
        let Carry {
            from, keep_source, ..
        } = underway.carry.clone();
        let Some(aside) = self.space.lend_aside(from.len(), from.start) else {
            return Ok(());
        };
        match (self.space).remap(from.start, from.len(), aside.start, keep_source) {
            Ok(()) => {}
            // Out of mappings, or of store: nothing has changed.
            Err(error) => {
                self.space.return_aside(aside);
                return match error {
                    Errno::NOMEM | Errno::IO => Err(error),
                    _ => Ok(()),
                };
            }
        }
        underway.is_locked = locked::unlock(&range_of(&aside));
        underway.source = Some(aside);
        if !keep_source {
            self.moved.remove(&from);
            self.map.remove(from);
        }
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
        let prot = if opened { READ_WRITE } else { libc::PROT_NONE };
        self.place_as(inside, prot, opened)
    }

    /// The contents have been copied.
    pub fn arrived(&mut self, underway: Underway) -> Result<(), Errno> {
        let Underway {
            carry,
            source,
            target,
            is_locked,
        } = underway;
        let Carry {
            from,
            to,
            kind,
            keep_source,
            locked: parts,
        } = carry;
        let Kind::Managed { prot, .. } = kind else {
            return Ok(());
        };
        match target {
            Some(aside) => self.come_out(aside, &to, kind),
            None => self.dress(&to, kind)?,
        }
        if is_locked {
            // What cannot be locked is there all the same.
            let _ = locked::lock(&to);
        }
        self.lock_again(&parts, &from, &to);
        if let Some(aside) = source {
            self.space.return_aside(aside);
            return Ok(());
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

    /// Gives the new place, which the contents were copied to directly, its protection.
    fn dress(&mut self, to: &Range, kind: Kind) -> Result<(), Errno> {
        let Kind::Managed { prot, .. } = kind else {
            return Ok(());
        };
        let (before, inside, after) = self.split(to);
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
        Ok(())
    }

    /// Moves the copy to where it belongs.
    fn come_out(&mut self, aside: Aside, to: &Range, kind: Kind) {
        let Kind::Managed { prot, .. } = kind else {
            return;
        };
        let range = range_of(&aside);
        let moved = self
            .set_protection(&range, prot, None)
            .and_then(|()| self.space.remap(range.start, range.len(), to.start, false));
        if let Err(error) = moved {
            lost(error);
        }
        self.moved.add(to.clone());
        self.map.insert(to.clone(), kind);
        self.space.return_aside(aside);
    }
}
