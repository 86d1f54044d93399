//! The oracle: the expected contents of every page.
//!
//! The oracle sees only what a program sees: writes, reads, and when an operation was requested and when it was
//! reported as done. It never looks at frames or slots, so a wrong belief of the core cannot mislead it.
//!
//! Usually a page has exactly one right content. Three things make it a small set of *candidates*:
//!
//! - Under a *discard* the pages become zero at a moment that the program cannot know, perhaps more than once (a
//!   discard that is answered with "more" starts over). So a page may hold what it would hold if nothing was dropped
//!   yet, or what it would hold if the last drop came before the first, second, … of the writes since. Each candidate
//!   knows which of the running discards it has seen; when a discard ends, the candidates that have not seen it are
//!   removed.
//! - Under a *lazy free* the pages also become zero at an unknown moment, but nothing has to have been dropped when the
//!   call ends. From then on the page is *freed*: it may become zero at any moment until it is written to. A write
//!   keeps the existing candidates, and allows no new one to arise: written contents are never lost. A lazy free that
//!   promises zeros counts as a discard here.
//! - While a range is *volatile* it may be purged at any moment, and writes during that time may be lost. When the
//!   range is reported as having survived, the purged candidates are removed; when it is reported as purged, a discard
//!   has come first.
//!
//! A read removes the candidates that it contradicts, so a page that has shown zeros does not show old bytes again. A
//! page with no candidate left is a failure; nothing else is. Old bytes after the end of a discard, a lost write, and
//! bytes of another page all leave no candidate.
//!
//! A failed load makes the pages of its folio *losable*: the core may poison them, and only them. A poisoned page must
//! stay an error until a discard or a lazy free.

use millpond_core::{PageCount, PageIndex, PageRange};

use crate::mmu::{BLANK, Content};
use crate::report::{Check, breach};

#[cfg(test)]
mod tests;

/// One thing that a page may hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Candidate {
    content: Content,
    /// The running discards (by actor) that the candidate has seen.
    seen: u32,
    /// The purge of the volatile range has happened.
    purged: bool,
}

/// Zeros, because of something that is not a purge.
const DROPPED: Candidate = Candidate {
    content: BLANK,
    seen: u32::MAX,
    purged: false,
};
/// Zeros, because of a purge.
const PURGED: Candidate = Candidate {
    purged: true,
    ..DROPPED
};

#[derive(Clone, Debug)]
struct Page {
    /// The usual case, without a heap: the page holds exactly this.
    only: Content,
    /// The possible contents, used instead of `only` if not empty. They are never empty while the page may become zero
    /// on its own.
    candidates: Vec<Candidate>,
    /// The page was lazily freed, and has not been written to since.
    freed: bool,
    losable: bool,
    lost: bool,
    /// A load failed, or the load's page was poisoned, while an operation was running that makes a lost page zeros: the
    /// failure may have come after its effect.
    lost_anew: bool,
    /// The number of the latest end of a call that ended the page's loss.
    found_at: u64,
}

/// The causes that may make a page zero now.
#[derive(Clone, Copy, Debug)]
struct Threats {
    /// A discard or a lazy free runs.
    running: bool,
    /// The page is volatile.
    volatile: bool,
}

/// The expected contents of the arena.
#[derive(Debug)]
pub struct Oracle {
    pages: Vec<Page>,
    discards: Vec<(usize, PageRange)>,
    frees: Vec<(usize, PageRange)>,
    volatile: Vec<PageRange>,
    /// Number of ended calls that may have ended a loss.
    ends: u64,
}

impl Oracle {
    /// An arena that reads as zeros.
    #[must_use]
    pub fn new(arena: PageCount) -> Self {
        Self {
            pages: vec![Page::blank(); arena.0 as usize],
            discards: Vec::new(),
            frees: Vec::new(),
            volatile: Vec::new(),
            ends: 0,
        }
    }

    /// Sets the `content` of a page of a new region.
    pub fn begins_as(&mut self, page: PageIndex, content: Content) {
        let blank = Page::blank();
        self.pages[page.0 as usize] = Page {
            only: content,
            ..blank
        };
    }

    /// Records that the file has `content` for a page from now on, which is not in memory.
    pub fn reads_as(&mut self, page: PageIndex, content: Content) {
        let page = &mut self.pages[page.0 as usize];
        (page.only, page.candidates) = (content, Vec::new());
    }

    /// Records that the failure of the file to provide `page` has been forgotten.
    pub fn asked_again(&mut self, page: PageIndex) {
        let page = &mut self.pages[page.0 as usize];
        (page.lost, page.losable) = (false, false);
    }

    fn threats(&self, page: PageIndex) -> Threats {
        let mut running = self.discards.iter().chain(&self.frees);
        Threats {
            running: running.any(|(_, range)| range.contains(page)),
            volatile: self.volatile.iter().any(|range| range.contains(page)),
        }
    }

    /// Records that a write reached a mapped page.
    pub fn write(&mut self, page: PageIndex, line: usize, value: u64) {
        let threats = self.threats(page);
        let p = &mut self.pages[page.0 as usize];
        p.freed = false;
        if p.candidates.is_empty() {
            p.only[line] = value;
            return;
        }
        for candidate in &mut p.candidates {
            candidate.content[line] = value;
        }
        p.settle(threats);
    }

    /// Records that a read of a mapped page returned `seen`.
    ///
    /// # Errors
    /// The page cannot hold `seen`.
    pub fn read(&mut self, page: PageIndex, seen: Content) -> Check {
        let threats = self.threats(page);
        let p = &mut self.pages[page.0 as usize];
        if p.candidates.is_empty() {
            if p.only != seen {
                breach!(at page, "{page} reads {seen:x?}, must be {:x?}", p.only);
            }
            return Ok(());
        }
        let could: Vec<_> = p.candidates.iter().map(|c| c.content).collect();
        p.candidates.retain(|c| c.content == seen);
        if p.candidates.is_empty() {
            breach!(at page, "{page} reads {seen:x?}, must be one of {could:x?}");
        }
        p.settle(threats);
        Ok(())
    }

    /// Records that `actor` requests a discard of `range`. A call of several ranges is recorded once for each of them.
    pub fn discard_begins(&mut self, actor: usize, range: PageRange) {
        self.discards.push((actor, range));
        for page in range.pages() {
            let threats = self.threats(page);
            let p = &mut self.pages[page.0 as usize];
            p.several();
            for candidate in &mut p.candidates {
                candidate.seen &= !(1 << actor);
            }
            p.settle(threats);
        }
    }

    /// Records that the discard of `actor` is over. If it is not `whole`, it was refused on its way and may have
    /// dropped nothing.
    ///
    /// # Errors
    /// A page cannot have been dropped: a read in between has shown old contents, and no later event could have changed
    /// them.
    pub fn discard_ends(&mut self, actor: usize, whole: bool) -> Check {
        self.ends += 1;
        for range in take_of(&mut self.discards, actor) {
            for page in range.pages() {
                let threats = self.threats(page);
                let p = &mut self.pages[page.0 as usize];
                if whole {
                    p.several();
                    p.candidates.retain(|c| c.seen & (1 << actor) != 0);
                    p.found_again(threats, self.ends);
                    if p.candidates.is_empty() {
                        breach!(at page, "{page} was not dropped by the discard of {range}");
                    }
                }
                p.settle(threats);
            }
        }
        Ok(())
    }

    /// Records that `actor` lazily frees `range`. A call of several ranges is recorded once for each of them.
    pub fn free_begins(&mut self, actor: usize, range: PageRange) {
        self.frees.push((actor, range));
        for page in range.pages() {
            let threats = self.threats(page);
            let p = &mut self.pages[page.0 as usize];
            p.several();
            p.settle(threats);
        }
    }

    /// Records that the lazy free of `actor` is over, all of it or (if not `whole`) perhaps only a part.
    pub fn free_ends(&mut self, actor: usize, whole: bool) {
        self.ends += 1;
        let ranges = take_of(&mut self.frees, actor);
        for (nth, range) in ranges.iter().enumerate() {
            // Ranges of one call may overlap, and an effect on a page ends only once.
            let before = &ranges[..nth];
            let once = |page: &PageIndex| !before.iter().any(|other| other.contains(*page));
            for page in range.pages().filter(once) {
                let threats = self.threats(page);
                let p = &mut self.pages[page.0 as usize];
                p.several();
                p.freed = true;
                if whole {
                    p.found_again(threats, self.ends);
                }
                p.settle(threats);
            }
        }
    }

    /// Records that `range` is volatile from now on. It overlaps no other volatile range.
    pub fn volatile_begins(&mut self, range: PageRange) {
        self.volatile.push(range);
        for page in range.pages() {
            let threats = self.threats(page);
            let p = &mut self.pages[page.0 as usize];
            p.several();
            p.settle(threats);
        }
    }

    /// Records that `range` is no longer volatile; if it `survived`, nothing was purged.
    ///
    /// # Errors
    /// A page of a range that survived was purged nonetheless: a read has shown it.
    pub fn volatile_ends(&mut self, range: PageRange, survived: bool) -> Check {
        self.volatile.retain(|other| *other != range);
        for page in range.pages() {
            let threats = self.threats(page);
            let p = &mut self.pages[page.0 as usize];
            p.several();
            if survived {
                p.candidates.retain(|c| !c.purged);
                if p.candidates.is_empty() {
                    breach!(at page, "{range} is said to have survived, but {page} was purged");
                }
            }
            p.settle(threats);
        }
        Ok(())
    }

    /// Makes `copy` hold what `source` holds, and separates them: what is known about each page is known about its
    /// copy. Among volatile ranges that is true only for those that were not purged; the contents of the others may be
    /// there or not.
    ///
    /// # Errors
    /// Something that changes a page of `source` or `copy` is under way.
    pub fn snapshot(
        &mut self,
        source: PageRange,
        copy: PageRange,
        unpurged: &[PageRange],
    ) -> Check {
        for (page, onto) in source.pages().zip(copy.pages()) {
            if self.threats(page).running || self.threats(onto).running {
                breach!(at page, "a snapshot of {source} to {copy} is taken beside a discard or a lazy free");
            }
            let mut known = self.pages[page.0 as usize].clone();
            if unpurged.iter().any(|range| range.contains(page)) {
                known.candidates.retain(|c| !c.purged);
                if known.candidates.is_empty() {
                    breach!(at page, "{page} was purged, and its range not");
                }
            }
            known.settle(self.threats(onto));
            self.pages[onto.0 as usize] = known;
        }
        Ok(())
    }

    /// Moves what is known about `from` to `to`, including volatile ranges, and leaves zeros in `from`.
    ///
    /// # Errors
    /// Something that changes a page of `from` or `to` is under way, or a volatile range is only partly in `from`.
    pub fn relocate(&mut self, from: PageRange, to: PageRange) -> Check {
        for (page, onto) in from.pages().zip(to.pages()) {
            if self.threats(page).running || self.threats(onto).running {
                breach!(at page, "{from} moves to {to} beside a discard or a lazy free");
            }
            if self.threats(onto).volatile {
                breach!(at page, "{from} moves to {to}, where something is volatile");
            }
            let known = std::mem::replace(&mut self.pages[page.0 as usize], Page::blank());
            self.pages[onto.0 as usize] = known;
        }
        for range in &mut self.volatile {
            if from.covers(*range) {
                range.start = to.start.plus(range.start.0 - from.start.0);
            } else if range.start < from.end() && from.start < range.end() {
                breach!(at from.start, "{from} moves to {to}, but not all of {range}, which is volatile");
            }
        }
        Ok(())
    }

    /// Whether `page` may be zeros, as far as is known.
    #[must_use]
    pub fn may_be_zeros(&self, page: PageIndex) -> bool {
        let p = &self.pages[page.0 as usize];
        match p.candidates.as_slice() {
            [] => p.only == BLANK,
            several => several.iter().any(|c| c.content == BLANK),
        }
    }

    /// Records that a load for `range` failed.
    pub fn load_failed(&mut self, range: PageRange) {
        for page in range.pages() {
            let running = self.threats(page).running;
            let p = &mut self.pages[page.0 as usize];
            p.losable = true;
            p.lost_anew |= running;
        }
    }

    /// Records that the core poisoned `range`.
    ///
    /// # Errors
    /// No load of a page of `range` has failed.
    pub fn poisoned(&mut self, range: PageRange) -> Check {
        for page in range.pages() {
            let running = self.threats(page).running;
            let p = &mut self.pages[page.0 as usize];
            if !p.losable {
                breach!(at page, "{page} is poisoned, but none of its loads has failed");
            }
            p.lost = true;
            p.lost_anew |= running;
        }
        Ok(())
    }

    /// Records that a program was told that `page` is lost.
    ///
    /// # Errors
    /// `page` is not lost.
    pub fn saw_poison(&self, page: PageIndex) -> Check {
        if !self.pages[page.0 as usize].lost {
            breach!(at page, "{page} is reported as lost, but was never poisoned since it was last freed");
        }
        Ok(())
    }

    /// The moment, for [`saw_poison_since`](Self::saw_poison_since).
    #[must_use]
    pub fn now(&self) -> u64 {
        self.ends
    }

    /// Records that a program was told that `page` is lost by a call that began at the moment `since`. The loss may
    /// have ended before the call returned.
    ///
    /// # Errors
    /// `page` was not lost at any time since then.
    pub fn saw_poison_since(&self, page: PageIndex, since: u64) -> Check {
        match self.pages[page.0 as usize].found_at > since {
            true => Ok(()),
            false => self.saw_poison(page),
        }
    }

    /// Whether `page` is lost.
    #[must_use]
    pub fn is_lost(&self, page: PageIndex) -> bool {
        self.pages[page.0 as usize].lost
    }
}

impl Page {
    /// A page that can only hold zeros.
    fn blank() -> Self {
        Self {
            only: BLANK,
            candidates: Vec::new(),
            freed: false,
            losable: false,
            lost: false,
            lost_anew: false,
            found_at: 0,
        }
    }

    /// Turns the only content of the page into a candidate.
    fn several(&mut self) {
        if self.candidates.is_empty() {
            self.candidates.push(Candidate {
                content: self.only,
                ..DROPPED
            });
        }
    }

    /// Records the end of an operation that ends the loss of a page.
    fn found_again(&mut self, threats: Threats, end: u64) {
        if self.lost {
            self.found_at = end;
        }
        if !self.lost_anew {
            self.lost = false;
            self.losable = false;
        }
        self.lost_anew &= threats.running;
    }

    /// Adds the contents that the page may take on its own. Removes duplicate candidates, and keeps none at all if
    /// there is only one and nothing threatens it.
    fn settle(&mut self, threats: Threats) {
        let dropped = threats.running || self.freed;
        self.candidates.extend(dropped.then_some(DROPPED));
        self.candidates.extend(threats.volatile.then_some(PURGED));
        for candidate in &mut self.candidates {
            candidate.purged &= threats.volatile;
            candidate.seen |= if threats.running { 0 } else { u32::MAX };
        }
        let mut kept: Vec<Candidate> = Vec::with_capacity(self.candidates.len());
        for candidate in &self.candidates {
            if !kept.contains(candidate) {
                kept.push(*candidate);
            }
        }
        self.candidates = kept;
        if let [one] = self.candidates[..]
            && !threats.running
            && !threats.volatile
        {
            self.only = one.content;
            // If the page is lazily freed, its only candidate is zeros, and becoming zero does not change that.
            self.freed = false;
            self.candidates = Vec::new();
        }
    }
}

/// Takes out the ranges that belong to `actor`.
fn take_of(running: &mut Vec<(usize, PageRange)>, actor: usize) -> Vec<PageRange> {
    let mine = running.iter().filter(|(a, _)| *a == actor);
    let ranges = mine.map(|(_, range)| *range).collect();
    running.retain(|(a, _)| *a != actor);
    ranges
}
