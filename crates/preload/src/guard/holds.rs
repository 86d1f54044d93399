//! The holds of one call: ranges of the space that are brought in and stay until the call has returned.
//!
//! Most calls hold one range, so the first few need no allocation. Lists of strings (the arguments of a program) name
//! the same pages over and over, alternating between a word of the list and a string, so we remember the most recent
//! ranges.

use crate::space;
use crate::vma::{self, PAGE};
use arrayvec::ArrayVec;
use core::ffi::c_char;
use core::ops::Range;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use millpond_guard::call::Access;
use millpond_guard::touched::{self, Source};
use millpond_mmu::{Held, read, touch};

/// Number of ranges that need no allocation. The child of a `vfork` that becomes another program gives none back, so
/// there should be room for the strings of an ordinary environment.
const FEW: usize = 64;
/// Number of ranges that are remembered.
const RECENT: usize = 4;
/// The minimum number of bytes of a long buffer that one call may hold, whatever the budget, and the length of a
/// piece where more than that is seldom transferred at once.
pub const LEAST: usize = 256 << 10;
/// The minimum length of a piece if many calls wait at once. Writes that the standard makes atomic on a pipe are
/// shorter.
const SHORT: usize = 16 << 10;
const WORD: usize = size_of::<usize>();

static ALLOWED: AtomicUsize = AtomicUsize::new(LEAST);

/// Sets how much of a long buffer is held at once.
pub fn allow(bytes: u64) {
    ALLOWED.store((bytes as usize).max(LEAST) & !(PAGE - 1), Relaxed);
}

/// Returns the length of a piece of a call that may wait, for a pipe or a socket. Two hundred threads waiting in
/// `read` with 256 KiB each once took 92 MiB in a budget of 32, so a call may hold less the more is held already. All
/// such calls share an eighth of what a call on a file may hold. As each takes its part of that when it starts, a
/// hundred of them hold four times as much. Each holds at least [`SHORT`].
#[inline]
pub fn piece() -> usize {
    let share = ALLOWED.load(Relaxed) / 8 / (1 + Held::count());
    share.clamp(SHORT, LEAST) & !(PAGE - 1)
}

/// Returns the maximum number of bytes of a long buffer that are held at once.
pub fn allowed() -> usize {
    ALLOWED.load(Relaxed)
}

/// Returns whether a buffer is longer than a piece.
#[inline]
pub fn is_long(len: usize) -> bool {
    len > SHORT && len > piece()
}

/// Returns the pages that contain these bytes.
#[inline]
pub fn pages(start: usize, len: usize) -> Range<usize> {
    let end = start.saturating_add(len).saturating_add(PAGE - 1);
    start & !(PAGE - 1)..end & !(PAGE - 1)
}

/// The ranges that one call holds. They are held while the value lives, which must be on the caller's stack.
pub struct Holds {
    few: ArrayVec<Held, FEW>,
    more: Vec<Held>,
    /// The most recently added ranges, and the place of the next one.
    recent: [(usize, usize); RECENT],
    next: usize,
    /// Whether a range could not be held.
    failed: bool,
}

impl Holds {
    #[inline]
    pub fn new() -> Self {
        Self {
            few: ArrayVec::new_const(),
            more: Vec::new(),
            recent: [(0, 0); RECENT],
            next: 0,
            failed: false,
        }
    }

    /// Brings in the pages of a range and holds them. Memory outside the space is skipped, and so are pages that
    /// cannot be brought in: the kernel will notice by itself.
    #[inline]
    pub fn add(&mut self, start: usize, len: usize) {
        let end = start.saturating_add(len);
        let is_held = |range: &(usize, usize)| start >= range.0 && end <= range.1;
        if len == 0 || !space::overlaps(start, len) || self.recent.iter().any(is_held) {
            return;
        }
        let pages = pages(start, len);
        let frame = core::ptr::from_ref(self) as usize;
        let held = match self.more.last().or(self.few.last()) {
            Some(last) => last.further(pages.start, pages.end),
            None => Held::first(pages.start, pages.end, frame),
        };
        let Some(held) = held else {
            // Other calls occupy the whole table.
            match self.more.last_mut().or(self.few.last_mut()) {
                Some(last) => {
                    last.widen(pages.start, pages.end);
                    let _ = touch(start, end);
                }
                None => self.failed = true,
            }
            return;
        };
        self.recent[self.next] = (pages.start, pages.end);
        self.next = (self.next + 1) % RECENT;
        if let Err(full) = self.few.try_push(held) {
            self.more.push(full.element());
        }
        let _ = touch(start, end);
    }

    /// Holds a string up to its end.
    pub fn text(&mut self, at: *const c_char) {
        let mut at = at as usize;
        while space::contains(at) {
            let next = (at & !(PAGE - 1)) + PAGE;
            self.add(at, next - at);
            if ends_before(at, next) {
                return;
            }
            at = next;
        }
    }

    /// Holds a list of strings, which ends with a null, and the strings.
    pub fn texts(&mut self, list: *const *const c_char) {
        let mut at = list as usize;
        while at != 0 {
            self.add(at, WORD);
            let mut word = [0; WORD];
            if !read(at, &mut word) || word == [0; WORD] {
                return;
            }
            self.text(usize::from_ne_bytes(word) as *const c_char);
            at += WORD;
        }
    }

    /// Returns whether everything that was added is held.
    #[inline]
    pub fn are_complete(&self) -> bool {
        !self.failed
    }
}

/// Returns whether a string ends in this part of a page, or cannot be read.
fn ends_before(mut at: usize, end: usize) -> bool {
    let mut bytes = [0; 64];
    while at < end {
        let part = &mut bytes[..(end - at).min(64)];
        if !read(at, part) || part.contains(&0) {
            return true;
        }
        at += part.len();
    }
    false
}

/// Keeps memory in place for good: the kernel comes back to it after the call has returned, when nobody can help.
#[cold]
pub fn keep(start: usize, len: usize) {
    if len > 0 && space::overlaps(start, len) {
        let pages = pages(start, len);
        // If this fails, either the call fails when the kernel checks the memory, or nothing better can be done.
        let _ = vma::locked(move |vmas| vmas.pin(pages));
    }
}

impl Source for Holds {
    fn touch(&mut self, range: touched::Range) {
        // If the kernel keeps memory to read it later, it belongs to a pipe, which `crate::references` handles.
        if range.is_kept && range.access == Access::Writes {
            keep(range.start as usize, range.len as usize);
        }
        self.add(range.start as usize, range.len as usize);
    }

    fn read(&mut self, at: u64, into: &mut [u8]) -> bool {
        read(at as usize, into)
    }
}
