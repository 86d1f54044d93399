//! A model of what a page may read as after it was lazily freed, for the only thread that writes to it.
//!
//! A page carries a few words that grow with every write. A free that is never noticed leaves them. A drop takes all of
//! them at once, and after that they are zeros until the next write. So a read that differs from what was written must
//! be zeros from some word on to the end of the page (the drop came between two loads), and only if a free gave leave.
//! Words that were written while no free was under way stay, all of the page, until the next free begins.

use super::PAGE;
use std::sync::atomic::{AtomicU64, Ordering};

pub const WORDS: usize = 8;
pub type Words = [u64; WORDS];

/// Word `word` of page `page` of the memory at `base`. Its place in the page differs from page to page: in one page of
/// eight the first line has a part of it, in the others only a look at the whole page finds it.
pub fn word(base: usize, page: usize, word: usize) -> &'static AtomicU64 {
    let at = base + page * PAGE + word * (PAGE / WORDS) + page % 16 * 32;
    // SAFETY: the word is inside a region that outlives the threads of the test, and aligned; all threads use it as an
    // atomic.
    unsafe { &*(at as *const AtomicU64) }
}

/// The words in the order in which writers write them.
pub fn read(base: usize, page: usize) -> Words {
    std::array::from_fn(|i| word(base, page, i).load(Ordering::Acquire))
}

/// The lazy frees of a page.
#[derive(Default, Debug)]
pub struct Frees {
    begun: AtomicU64,
    ended: AtomicU64,
}

impl Frees {
    pub fn begin(&self) {
        self.begun.fetch_add(1, Ordering::SeqCst);
    }

    pub fn end(&self) {
        self.ended.fetch_add(1, Ordering::SeqCst);
    }

    /// Number of frees that have begun, and whether all of them have ended.
    fn look(&self) -> (u64, bool) {
        // The order matters: frees that had ended before the other number was read had begun by then.
        let ended = self.ended.load(Ordering::SeqCst);
        let begun = self.begun.load(Ordering::SeqCst);
        (begun, begun == ended)
    }
}

/// A page as its writer knows it.
#[derive(Clone, Default, Debug)]
pub struct PageModel {
    words: Words,
    /// The words are known to be kept until more frees than these have begun; `None` when a free may have come between.
    kept_since: Option<u64>,
    last: u64,
}

/// Result of a write.
#[derive(Debug)]
pub struct Written {
    /// Whether no free was under way: then the write is there until the next free begins. If not, a part of it may be
    /// gone.
    pub kept: bool,
    /// Whether the rest of the page was found to have been dropped.
    pub dropped: bool,
}

impl PageModel {
    /// A page that was not touched yet.
    pub fn untouched() -> Self {
        Self {
            kept_since: Some(0),
            ..Self::default()
        }
    }

    /// Notes that the page was discarded.
    pub fn discarded(&mut self) {
        self.words = [0; WORDS];
    }

    /// Reads the page, and says what is wrong. Answers true when the writer learned by this read that the page was
    /// dropped.
    pub fn check(&mut self, base: usize, page: usize, frees: &Frees) -> Result<bool, String> {
        let seen = read(base, page);
        let Some(first) = (0..WORDS).find(|&i| seen[i] != self.words[i]) else {
            return Ok(false);
        };
        let zeros_from_there = seen[first..].iter().all(|&word| word == 0);
        let may_be_gone = self.kept_since != Some(frees.look().0);
        if !may_be_gone || !zeros_from_there {
            return Err(format!(
                "page {page} is {seen:?}, known as {self:?} ({frees:?})"
            ));
        }
        self.words = [0; WORDS];
        Ok(true)
    }

    /// Writes to one word or to all, reads the page, and says what is wrong.
    pub fn write(
        &mut self,
        base: usize,
        page: usize,
        only: Option<usize>,
        frees: &Frees,
    ) -> Result<Written, String> {
        let (begun, quiet) = frees.look();
        let may_be_gone = self.kept_since != Some(begun);
        self.last += 1;
        let (mut kept, mut dropped) = (self.words, [0; WORDS]);
        for i in only.map_or(0..WORDS, |i| i..i + 1) {
            word(base, page, i).store(self.last, Ordering::Release);
            kept[i] = self.last;
            dropped[i] = self.last;
        }
        let seen = read(base, page);
        let is_kept = quiet && begun == frees.look().0;
        let right = if is_kept {
            // The page was dropped before the write, as a whole, or it never will be.
            seen == kept || (may_be_gone && seen == dropped)
        } else {
            // The page may have been dropped between any two stores or loads.
            (0..WORDS).all(|i| seen[i] == kept[i] || seen[i] == 0)
        };
        if !right {
            return Err(format!(
                "page {page} is {seen:?} after a write of {kept:?} (kept: {is_kept}), known as {self:?} ({frees:?})"
            ));
        }
        self.words = seen;
        self.kept_since = is_kept.then_some(begun);
        Ok(Written {
            kept: is_kept,
            dropped: seen != kept,
        })
    }
}
