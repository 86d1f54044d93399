//! What a page may read as after it was lazily freed, for the thread that is the only one to write to it.
//!
//! A page carries a few words that grow with every write. A free that is never noticed leaves them; a drop takes all of
//! them at once, and after that they are zeros until the next write. So a read that is not what was written must be
//! zeros from some word on to the end of the page (the drop came between two loads), and only if a free gave leave.
//! What was written while no free was under way stays, all of the page, until the next free begins.

use super::PAGE;
use std::sync::atomic::{AtomicU64, Ordering};

pub const WORDS: usize = 8;
pub type Words = [u64; WORDS];

/// Word `word` of page `page` of the memory at `base`. Where in the page it lies differs from page to page: in one of
/// eight the first line has a part of it, in the others only a look at the whole page finds it.
pub fn word(base: usize, page: usize, word: usize) -> &'static AtomicU64 {
    let at = base + page * PAGE + word * (PAGE / WORDS) + page % 16 * 32;
    // SAFETY: inside a region that outlives the threads of the test, and aligned; everyone uses it as an atomic.
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

    /// How many have begun, and whether all of them have ended.
    fn look(&self) -> (u64, bool) {
        // In this order: what had ended before the other number was read had begun by then.
        let ended = self.ended.load(Ordering::SeqCst);
        let begun = self.begun.load(Ordering::SeqCst);
        (begun, begun == ended)
    }
}

/// What its writer knows of a page.
#[derive(Clone, Default, Debug)]
pub struct PageModel {
    words: Words,
    /// The words are known to be kept until more frees than these have begun; `None` when a free may have come between.
    kept_since: Option<u64>,
    last: u64,
}

/// What a write came to.
#[derive(Debug)]
pub struct Written {
    /// No free was under way: it is there until the next one begins. If not, a part of it may be gone.
    pub kept: bool,
    /// The rest of the page was found to have been dropped.
    pub dropped: bool,
}

impl PageModel {
    /// A page that nobody has touched.
    pub fn untouched() -> Self {
        Self {
            kept_since: Some(0),
            ..Self::default()
        }
    }

    /// The page was discarded.
    pub fn discarded(&mut self) {
        self.words = [0; WORDS];
    }

    /// Reads the page, and says what is wrong. True when this is how the writer learned that the page was dropped.
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
            // It was dropped before the write, as a whole, or it never will be.
            seen == kept || (may_be_gone && seen == dropped)
        } else {
            // It may have been dropped between any two stores or loads.
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
