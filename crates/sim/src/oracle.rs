//! What every page must read as.
//!
//! The oracle sees only what a program sees: writes, reads, and when a discard was asked for and when it was said to be
//! done. It never looks at frames or slots, so nothing that the core believes can talk it into a wrong answer.
//!
//! Outside discards a page has exactly one right content. Under a discard the pages become zero at a moment that the
//! program cannot know, perhaps more than once (a discard that is answered with "more" starts over), so a page then has
//! a small set of *candidates*: what it holds when nothing was dropped yet, and what it holds when the last drop came
//! before the first, second, … of the writes since. Each candidate knows which of the running discards it has seen;
//! when a discard ends, the candidates that have not seen it go. A read removes the candidates that it contradicts. No
//! candidate left is a failure, and nothing weaker: old bytes after the end of a discard, a lost write, bytes of another
//! page are all that.
//!
//! A failed load makes the pages of its folio *losable*: the core may poison them, and only them. A poisoned page must stay an
//! error until a discard.

use millpond_core::{PageCount, PageIndex, PageRange};

use crate::mmu::{BLANK, Content};
use crate::report::{Check, breach};

/// One thing that a page may hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Candidate {
    content: Content,
    /// The running discards (by actor) that it has seen.
    seen: u32,
}

#[derive(Clone, Debug)]
struct Page {
    /// The usual case, without a heap: exactly this.
    only: Content,
    /// Used instead of `only` when not empty.
    candidates: Vec<Candidate>,
    losable: bool,
    lost: bool,
}

/// The expected contents of the arena.
#[derive(Debug)]
pub struct Oracle {
    pages: Vec<Page>,
    discards: Vec<(usize, PageRange)>,
}

impl Oracle {
    /// An arena that reads as zeros.
    #[must_use]
    pub fn new(arena: PageCount) -> Self {
        let blank = Page {
            only: BLANK,
            candidates: Vec::new(),
            losable: false,
            lost: false,
        };
        Self {
            pages: vec![blank; arena.0 as usize],
            discards: Vec::new(),
        }
    }

    fn running(&self, page: PageIndex) -> bool {
        self.discards.iter().any(|(_, range)| range.contains(page))
    }

    /// A write landed in a mapped page.
    pub fn write(&mut self, page: PageIndex, line: usize, value: u64) {
        let running = self.running(page);
        let p = &mut self.pages[page.0 as usize];
        if p.candidates.is_empty() {
            p.only[line] = value;
            return;
        }
        for candidate in &mut p.candidates {
            candidate.content[line] = value;
        }
        if running {
            p.candidates.push(Candidate {
                content: BLANK,
                seen: u32::MAX,
            });
        }
        tidy(p);
    }

    /// A read of a mapped page gave `seen`.
    ///
    /// # Errors
    /// The page cannot hold that.
    pub fn read(&mut self, page: PageIndex, seen: Content) -> Check {
        let running = self.running(page);
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
        if running {
            p.candidates.push(Candidate {
                content: BLANK,
                seen: u32::MAX,
            });
        }
        tidy(p);
        Ok(())
    }

    /// `actor` asks for a discard of `range`.
    pub fn discard_begins(&mut self, actor: usize, range: PageRange) {
        self.discards.push((actor, range));
        for page in range.pages() {
            let p = &mut self.pages[page.0 as usize];
            if p.candidates.is_empty() {
                p.candidates.push(Candidate {
                    content: p.only,
                    seen: u32::MAX,
                });
            }
            for candidate in &mut p.candidates {
                candidate.seen &= !(1 << actor);
            }
            p.candidates.push(Candidate {
                content: BLANK,
                seen: u32::MAX,
            });
            tidy(p);
        }
    }

    /// The discard of `actor` is over; when not `whole`, it was refused on its way and may have dropped nothing.
    ///
    /// # Errors
    /// A page cannot have been dropped: a read in between has shown old contents, and none after could have changed them.
    pub fn discard_ends(&mut self, actor: usize, range: PageRange, whole: bool) -> Check {
        self.discards.retain(|(a, _)| *a != actor);
        for page in range.pages() {
            let running = self.running(page);
            let p = &mut self.pages[page.0 as usize];
            if whole {
                p.candidates.retain(|c| c.seen & (1 << actor) != 0);
                p.lost = false;
                p.losable = false;
            }
            match p.candidates.as_slice() {
                [] => breach!(at page, "{page} was not dropped by the discard of {range}"),
                [only] if !running => {
                    p.only = only.content;
                    p.candidates.clear();
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// A load for `range` failed.
    pub fn load_failed(&mut self, range: PageRange) {
        for page in range.pages() {
            self.pages[page.0 as usize].losable = true;
        }
    }

    /// The core poisoned `range`.
    ///
    /// # Errors
    /// No load of one of its pages has failed.
    pub fn poisoned(&mut self, range: PageRange) -> Check {
        for page in range.pages() {
            let p = &mut self.pages[page.0 as usize];
            if !p.losable {
                breach!(at page, "{page} is poisoned, but none of its loads has failed");
            }
            p.lost = true;
        }
        Ok(())
    }

    /// A program was told that `page` is lost.
    ///
    /// # Errors
    /// It is not.
    pub fn saw_poison(&self, page: PageIndex) -> Check {
        if !self.pages[page.0 as usize].lost {
            breach!(at page, "{page} is reported as lost, but was never poisoned since its last discard");
        }
        Ok(())
    }

    /// Whether `page` is lost.
    #[must_use]
    pub fn is_lost(&self, page: PageIndex) -> bool {
        self.pages[page.0 as usize].lost
    }
}

/// Leaves no candidate twice, and none at all when there is only one that every discard is content with.
fn tidy(p: &mut Page) {
    let mut kept: Vec<Candidate> = Vec::with_capacity(p.candidates.len());
    for candidate in &p.candidates {
        if !kept.contains(candidate) {
            kept.push(*candidate);
        }
    }
    p.candidates = kept;
}

#[cfg(test)]
mod tests {
    use super::*;

    const P: PageIndex = PageIndex(5);
    const R: PageRange = PageRange::new(PageIndex(4), PageCount(2));

    #[test]
    fn a_lost_write_is_noticed() {
        let mut oracle = Oracle::new(PageCount(8));
        oracle.write(P, 1, 7);
        assert!(oracle.read(P, [0, 7, 0, 0]).is_ok());
        assert!(oracle.read(P, BLANK).is_err());
    }

    #[test]
    fn under_a_discard_old_and_zero_are_right_but_never_old_again() {
        let mut oracle = Oracle::new(PageCount(8));
        oracle.write(P, 0, 7);
        oracle.discard_begins(2, R);
        oracle.read(P, [7, 0, 0, 0]).unwrap();
        oracle.read(P, BLANK).unwrap();
        assert!(oracle.read(P, [7, 0, 0, 0]).is_err());
    }

    #[test]
    fn old_bytes_after_a_discard_are_noticed() {
        let mut oracle = Oracle::new(PageCount(8));
        oracle.write(P, 0, 7);
        oracle.discard_begins(2, R);
        oracle.discard_ends(2, R, true).unwrap();
        assert!(oracle.read(P, [7, 0, 0, 0]).is_err());
    }

    #[test]
    fn a_write_beside_a_discard_may_stay_or_go() {
        for after in [[0, 8, 0, 0], BLANK] {
            let mut oracle = Oracle::new(PageCount(8));
            oracle.write(P, 0, 7);
            oracle.discard_begins(2, R);
            oracle.write(P, 1, 8);
            oracle.discard_ends(2, R, true).unwrap();
            oracle.read(P, after).unwrap();
            oracle.read(P, after).unwrap();
        }
        let mut oracle = Oracle::new(PageCount(8));
        oracle.write(P, 0, 7);
        oracle.discard_begins(2, R);
        oracle.write(P, 1, 8);
        oracle.discard_ends(2, R, true).unwrap();
        assert!(
            oracle.read(P, [7, 8, 0, 0]).is_err(),
            "the first write was before the discard"
        );
    }

    #[test]
    fn only_failed_loads_excuse_poison() {
        let mut oracle = Oracle::new(PageCount(8));
        assert!(oracle.poisoned(R).is_err());
        oracle.load_failed(R);
        oracle.poisoned(R).unwrap();
        oracle.saw_poison(P).unwrap();
        oracle.discard_begins(1, R);
        oracle.discard_ends(1, R, true).unwrap();
        assert!(oracle.saw_poison(P).is_err());
        oracle.read(P, BLANK).unwrap();
    }
}
