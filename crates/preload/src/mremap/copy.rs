//! Moves contents by copying if page tables cannot be moved: to a place that is aligned differently within its 2 MiB
//! or lies (partly) outside the space, or if pages are pinned.
//!
//! *Threads that touch the area meanwhile* must lose nothing, but a write to a page that has already been copied
//! would be lost. So nothing is copied where the program can reach it. The contents step aside by their page tables,
//! to addresses that the program does not know, are copied there, and go to their new place by page tables again:
//!
//! ```text
//! from ──tables──▶ aside, like from ──copy──▶ aside, like to ──tables──▶ to
//! ```
//!
//! A touch of the old place finds the page until the first step and raises SIGSEGV from then on (or finds zeros, with
//! `MREMAP_DONTUNMAP`). A touch of the new place raises SIGSEGV until the last step and finds the page from then on.
//! Two cases have no such protection. A new place outside the space is written to directly, so a touch there may read
//! zeros before the call returns. And an area with pinned pages, such as a thread's stack, may lose a write that is
//! made during the call.
//!
//! One mebibyte is copied at a time, and its source is discarded at once: the move needs no more memory than the area
//! had. Zero pages are not written at the new place, so a sparse area stays sparse.
//!
//! Copying touches managed memory, so the VMA lock cannot be held meanwhile. A fork in the middle would show the
//! child an area partly in neither place, so moves and forks exclude each other with a separate lock
//! ([`lock_for_fork`](super::lock_for_fork)).

use crate::vma::{Kind, PAGE, Range, Vmas, locked};
use crate::{exit, raw, space};
use libc::{MAP_ANONYMOUS, MAP_FIXED, MAP_PRIVATE, PROT_READ, PROT_WRITE};
use millpond::space::Aside;
use rustix::io::Errno;

/// Number of bytes copied before their source is discarded.
const CHUNK: usize = 1 << 20;
const READ_WRITE: i32 = PROT_READ | PROT_WRITE;

/// The contents to be moved, and their destination.
#[derive(Clone)]
pub struct Carry {
    pub from: Range,
    pub to: Range,
    /// The kind of the new place.
    pub kind: Kind,
    pub keep_source: bool,
    /// The parts of `from` that the program had locked. They are not locked during the move.
    pub locked: Vec<Range>,
}

/// Contents being moved.
pub struct Underway {
    carry: Carry,
    /// Where the contents are while they are copied, if they have stepped aside.
    source: Option<Aside>,
    /// Where they are copied to, if that is not their final place.
    target: Option<Aside>,
    /// Whether the kernel was told to keep the area in memory.
    is_locked: bool,
}

fn range_of(aside: &Aside) -> Range {
    aside.start..aside.start + aside.len
}

impl Underway {
    fn source(&self) -> Range {
        (self.source.as_ref()).map_or_else(|| self.carry.from.clone(), range_of)
    }

    /// Copies the contents. The VMA lock is not held meanwhile.
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
                // SAFETY: both pages are mapped, the source is readable and the target writable, and they do not
                // overlap.
                unsafe { copy_page((from + page) as *const u64, (to + page) as *mut u64) };
            }
            if let Some(space) = space {
                // If the space refuses, the source is dropped later along with the whole area.
                let _ = space.discard(from, chunk);
            }
            done += chunk;
        }
    }
}

/// Ends the process because contents that have stepped aside cannot be put anywhere.
fn lost(error: Errno) -> ! {
    let text = format!(
        "millpond: an area that mremap has taken out cannot be put back ({error}): stopped, to lose nothing silently"
    );
    exit::fail(&text)
}

/// # Safety
/// Both addresses are pages, which do not overlap; the first is readable, the second writable.
unsafe fn copy_page(from: *const u64, to: *mut u64) {
    const WORDS: usize = PAGE / 8;
    // SAFETY: the word is inside the source page.
    let is_zero = (0..WORDS).all(|n| unsafe { from.add(n).read_volatile() } == 0);
    if !is_zero {
        // SAFETY: the caller guarantees what this call needs.
        unsafe { to.copy_from_nonoverlapping(from, WORDS) };
    }
}

impl Vmas {
    /// Moves a reservation, which holds nothing, or prepares to copy contents.
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
            // The place is reserved so that no other mapping gets it meanwhile.
            Some(aside) => self
                .prepare_target(to, false)
                .and_then(|()| self.space.open(aside.start, aside.len)),
            None => self.prepare_target(to, true),
        };
        let prepared = prepared.and_then(|()| self.step_aside(&mut underway));
        if let Err(error) = prepared {
            // The new place is unmapped, the state in which the kernel leaves it.
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

    /// Moves the contents out of the program's reach, if that is possible.
    fn step_aside(&mut self, underway: &mut Underway) -> Result<(), Errno> {
        let Carry {
            from, keep_source, ..
        } = underway.carry.clone();
        let Some(aside) = self.space.lend_aside(from.len(), from.start) else {
            return Ok(());
        };
        match (self.space).remap(from.start, from.len(), aside.start, keep_source) {
            Ok(()) => {}
            // The process can have no more mappings, or the store failed: nothing has changed.
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

    /// Maps zeros where `MREMAP_FIXED` wants the contents, inside and outside the space.
    fn prepare_target(&mut self, target: Range, opened: bool) -> Result<(), Errno> {
        let (before, inside, after) = self.split(&target);
        let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
        for outside in [before, after] {
            if !outside.is_empty() {
                // SAFETY: the program wants the mapping here replaced.
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

    /// Finishes the move after the contents have been copied.
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
            // An area that cannot be locked still exists.
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

    /// Gives the new place its protection if the contents were copied to it directly.
    fn dress(&mut self, to: &Range, kind: Kind) -> Result<(), Errno> {
        let Kind::Managed { prot, .. } = kind else {
            return Ok(());
        };
        let (before, inside, after) = self.split(to);
        for outside in [before, after] {
            if !outside.is_empty() && prot != READ_WRITE {
                // SAFETY: `prepare_target` mapped it for this.
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

    /// Moves the copy to its final place.
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
