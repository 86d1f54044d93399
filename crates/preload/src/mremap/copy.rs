//! Carrying contents by copying, where tables cannot be moved: to a place that lies otherwise in its 2 MiB or (partly) outside the
//! space, or when pages are pinned.
//!
//! A mebibyte at a time, and what has been copied is discarded at once: the move needs no more memory than it had. Pages that
//! are zero are not written at the new place, so a sparse area stays sparse.
//!
//! Copying touches managed memory, so the VMA lock cannot be held meanwhile; new and old area are both mapped then, and
//! nobody else has a business in either before the call returns. A fork in the middle would show the child an area of
//! which a part is in neither place, so moves and forks exclude each other by a lock of their own
//! ([`lock_for_fork`](super::lock_for_fork)).

use crate::vma::{Kind, PAGE, Range, Vmas};
use crate::{raw, space};
use libc::{MAP_ANONYMOUS, MAP_FIXED, MAP_PRIVATE, PROT_READ, PROT_WRITE};
use rustix::io::Errno;

/// Bytes that are copied before their source is discarded.
const CHUNK: usize = 1 << 20;
const READ_WRITE: i32 = PROT_READ | PROT_WRITE;

/// Contents on their way.
#[derive(Clone)]
pub struct Carry {
    pub from: Range,
    pub to: Range,
    /// What the new place becomes.
    pub kind: Kind,
    pub keep_source: bool,
}

pub fn copy(carry: &Carry) {
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

impl Vmas {
    /// Maps source and target so that the contents can be copied.
    pub fn prepare_copy(&mut self, carry: &Carry) -> Result<(), Errno> {
        let Kind::Managed { prot, opened, .. } = carry.kind else {
            return Ok(());
        };
        self.prepare_target(carry.to.clone(), opened)?;
        if opened && prot & PROT_READ == 0 {
            self.reprotect(&carry.from, READ_WRITE, None)?;
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

    /// The contents are at their new place.
    pub fn arrived(&mut self, carry: Carry) -> Result<(), Errno> {
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
}
