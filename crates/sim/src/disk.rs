//! The simulated files, and their device.
//!
//! A page of a file has the contents that reads return, as in the page cache, and the contents that the device may
//! have. The two differ from a write until a sync: a crash leaves in each sector what was there at the last sync or
//! what any write since has put there. (A line of a simulated page stands for a sector: a device writes whole sectors.)
//!
//! ```text
//!   durable   a b c d      what the last sync has left
//!   later     A b c d      a write, of which a crash may leave nothing
//!             A B c d      the write after it
//!   cached    A B c d      what a read gives        after a crash: a or A, b or B, c, d
//! ```
//!
//! Reads come in pieces, and writes may fail after some of their sectors. A failed sync leaves each written page in one
//! of three states: on the device after all; or not on the device, but reads return the new contents; or not on the
//! device, and reads return the old contents. In none of them will the kernel write the page again on its own.
//!
//! *What was read.* A page that leaves memory is written if it differs from what was read there; the driver tells by
//! checksums, this simulation by a copy ([`Backing`](millpond_core::Backing)). The rules are the driver's: runs of
//! changed pages are written; if a run crosses an end of the file, or the medium fails, the affected pages are found
//! page by page; a page with a failed write counts as changed from then on, since its file holds a mixture; and after a
//! failed sync all pages count as changed.

use std::collections::BTreeMap;

use millpond_core::{PageCount, PageIndex, PageRange};

use crate::mmu::{BLANK, Content, GARBAGE, LINES};
use crate::rng::Rng;

/// Ways to break the driver's handling of files, or the device, to see that the checks notice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DiskSabotage {
    /// A read that is cut short counts as done.
    ShortRead,
    /// Pages beyond the end of a truncated file count as written.
    ForgetCut,
    /// What was read before a failed write still counts as the contents of the file.
    KeepAfterFailure,
    /// A failed sync does not make pages count as changed.
    KeepAfterSync,
    /// A sync skips pages that are on their way out of memory.
    SkipLeaving,
    /// A sector of the previously written page lands in another page.
    Misplace,
}

/// Why a request to the file failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The page lies beyond the end.
    Ended,
    /// The medium failed, or is full.
    Medium,
}

/// How often requests fail at present; chances are per mille.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mood {
    /// Writes find no room.
    pub full: bool,
    /// Writes that fail.
    pub errors: u32,
    /// Syncs that fail.
    pub sync_errors: u32,
}

#[derive(Clone, Debug)]
struct Page {
    cached: Content,
    durable: Content,
    later: Vec<Content>,
    /// The kernel has unwritten data of the page, for which the next sync waits.
    dirty: bool,
    /// What was read, or written, while the page has been in memory.
    read_as: Option<Content>,
    /// The page is in memory, and came there from the file.
    held: bool,
    /// Another program, or a failed sync, has changed the file while the page was in memory.
    changed_outside: bool,
}

const NEW: Page = Page {
    cached: BLANK,
    durable: BLANK,
    later: Vec::new(),
    dirty: false,
    read_as: None,
    held: false,
    changed_outside: false,
};

/// The files, each at the addresses of its region.
#[derive(Debug)]
pub struct Disk {
    pages: Vec<Page>,
    /// The end of each file, in lines from its first page on, by that page.
    ends: BTreeMap<PageIndex, (PageRange, u64)>,
    /// What is broken on purpose.
    pub sabotage: Option<DiskSabotage>,
    misplaced: Option<u64>,
}

impl Disk {
    /// No files, in an arena of `arena` pages.
    #[must_use]
    pub fn new(arena: PageCount) -> Self {
        Self {
            pages: vec![NEW; arena.0 as usize],
            ends: BTreeMap::new(),
            sabotage: None,
            misplaced: None,
        }
    }

    fn page(&mut self, page: PageIndex) -> &mut Page {
        &mut self.pages[page.0 as usize]
    }

    /// Makes a file of these contents, all of them on the device.
    pub fn begin(&mut self, range: PageRange, contents: &[Content]) {
        let lines = u64::from(range.len.0) * LINES as u64;
        self.ends
            .retain(|_, (other, _)| other.end() <= range.start || range.end() <= other.start);
        self.ends.insert(range.start, (range, lines));
        for (page, &content) in range.pages().zip(contents) {
            *self.page(page) = Page {
                cached: content,
                durable: content,
                ..NEW
            };
        }
    }

    /// The file that has `page`, and its end in lines.
    fn end_of(&self, page: PageIndex) -> Option<(PageRange, u64)> {
        let (_, &(range, end)) = self.ends.range(..=page).next_back()?;
        range.contains(page).then_some((range, end))
    }

    /// The lines of `page` that the file has.
    fn lines_of(&self, page: PageIndex) -> usize {
        let Some((range, end)) = self.end_of(page) else {
            return 0;
        };
        let first = u64::from(page.0 - range.start.0) * LINES as u64;
        end.saturating_sub(first).min(LINES as u64) as usize
    }

    /// What a read of `page` returns if the file has the page.
    #[must_use]
    pub fn content(&self, page: PageIndex) -> Content {
        self.pages[page.0 as usize].cached
    }

    /// Whether the file's contents of `page` have changed while the page was in memory, other than by its own writes.
    #[must_use]
    pub fn was_changed_outside(&self, page: PageIndex) -> bool {
        self.pages[page.0 as usize].changed_outside
    }

    /// Whether `page` is in memory as it came from the file, changed by the program or not.
    #[must_use]
    pub fn is_held(&self, page: PageIndex) -> bool {
        self.pages[page.0 as usize].held
    }

    /// Reads pages. They are in memory from then on. Beyond the end of the file are zeros in its last page, and nothing
    /// after that.
    ///
    /// # Errors
    /// A page lies beyond the end.
    pub fn read(&mut self, at: PageRange, rng: &mut Rng) -> Result<(Vec<Content>, bool), Fault> {
        let have: Vec<u64> = at
            .pages()
            .flat_map(|page| self.content(page)[..self.lines_of(page)].to_vec())
            .collect();
        let want = at.len.0 as usize * LINES;
        // The kernel returns as much as it likes, but nothing only at the end.
        let (mut done, mut calls) = (0, 0);
        loop {
            let more = match rng.chance(150) {
                true => rng.below((have.len() - done) as u32 + 1).max(1) as usize,
                false => have.len() - done,
            };
            let more = more.min(have.len() - done);
            done += more;
            calls += 1;
            let cut_short = self.sabotage == Some(DiskSabotage::ShortRead);
            if more == 0 || done == want || cut_short {
                break;
            }
        }
        let given = match self.sabotage {
            Some(DiskSabotage::ShortRead) => have.len(),
            _ => done,
        };
        if given.next_multiple_of(LINES) < want {
            return Err(Fault::Ended);
        }
        let mut contents = vec![BLANK; at.len.0 as usize];
        for (line, content) in contents.iter_mut().flatten().enumerate() {
            *content = match line {
                _ if line < done => have[line],
                _ if line < given => GARBAGE[0],
                _ => 0,
            };
        }
        for (page, &content) in at.pages().zip(&contents) {
            let page = self.page(page);
            (page.held, page.read_as) = (true, Some(content));
            page.changed_outside = false;
        }
        Ok((contents, calls > 1 && have.len() == want))
    }

    /// Whether `contents` are what was read for the pages `at`.
    #[must_use]
    pub fn is_as_read(&self, at: PageRange, contents: &[Content]) -> bool {
        let mut pages = at.pages().zip(contents);
        pages.all(|(page, content)| self.pages[page.0 as usize].read_as == Some(*content))
    }

    /// What was read in a line of `page`, which is in memory.
    #[must_use]
    pub fn line_as_read(&self, page: PageIndex, line: usize) -> Option<u64> {
        self.pages[page.0 as usize]
            .read_as
            .map(|content| content[line])
    }

    /// Records that pages have left memory, or never came there.
    pub fn left(&mut self, at: PageRange) {
        for page in at.pages() {
            let page = self.page(page);
            (page.held, page.read_as, page.changed_outside) = (false, None, false);
        }
    }

    /// Writes the changed ones among the pages `at`, and returns whether there were any.
    ///
    /// # Errors
    /// The pages that could not be written, with the reasons; all others were written.
    pub fn write_back(
        &mut self,
        at: PageRange,
        contents: &[Content],
        mood: Mood,
        rng: &mut Rng,
    ) -> Result<bool, Vec<(PageIndex, Fault)>> {
        let (mut any, mut failed) = (false, Vec::new());
        let all: Vec<_> = at.pages().zip(contents.iter().copied()).collect();
        let changed = |disk: &Self, (page, content): &(PageIndex, Content)| {
            disk.pages[page.0 as usize].read_as != Some(*content)
        };
        let mut from = 0;
        while from < all.len() {
            let run = all[from..].iter().take_while(|page| changed(self, page));
            let run = &all[from..from + run.count()];
            from += run.len() + 1;
            if run.is_empty() {
                continue;
            }
            any = true;
            if self.write(run, mood, rng).is_err() {
                // Writing each page separately shows which one it is.
                for page in run {
                    let written = self.write(std::slice::from_ref(page), mood, rng);
                    failed.extend(written.err().map(|why| (page.0, why)));
                }
            }
        }
        match failed.is_empty() {
            true => Ok(any),
            false => Err(failed),
        }
    }

    /// One write of neighbouring pages.
    fn write(
        &mut self,
        run: &[(PageIndex, Content)],
        mood: Mood,
        rng: &mut Rng,
    ) -> Result<(), Fault> {
        let last = run.last().expect("a run has a page").0;
        if self.lines_of(last) < LINES {
            if self.sabotage != Some(DiskSabotage::ForgetCut) {
                return Err(Fault::Ended);
            }
            for &(page, content) in run {
                let page = self.page(page);
                (page.read_as, page.changed_outside) = (Some(content), false);
            }
            return Ok(());
        }
        let lines = run.len() * LINES;
        let fails = mood.full || rng.chance(mood.errors);
        let done = match fails {
            true if rng.chance(500) => rng.below(lines as u32) as usize,
            true => 0,
            false => lines,
        };
        for (nth, &(page, content)) in run.iter().enumerate() {
            let mut cached = self.page(page).cached;
            let written = done.saturating_sub(nth * LINES).min(LINES);
            cached[..written].copy_from_slice(&content[..written]);
            self.put(page, cached, written);
            let keeps = self.sabotage == Some(DiskSabotage::KeepAfterFailure);
            let page = self.page(page);
            page.read_as = match fails {
                false => Some(content),
                true if keeps => page.read_as,
                true => None,
            };
            page.changed_outside &= fails;
        }
        match fails {
            true => Err(Fault::Medium),
            false => Ok(()),
        }
    }

    fn put(&mut self, page: PageIndex, mut cached: Content, written: usize) {
        if written == 0 {
            return;
        }
        if self.sabotage == Some(DiskSabotage::Misplace) {
            let before = self.misplaced.replace(cached[0]);
            cached[0] = before.filter(|_| page.0 % 7 == 3).unwrap_or(cached[0]);
        }
        let page = self.page(page);
        page.later.push(cached);
        page.cached = cached;
        page.dirty = true;
    }

    /// Makes the device store everything written to the file of `range`. Returns whether it did, and the pages, not in
    /// memory, whose written contents the device may lack.
    pub fn sync(&mut self, range: PageRange, mood: Mood, rng: &mut Rng) -> (bool, Vec<PageIndex>) {
        let fails = rng.chance(mood.sync_errors);
        let mut doubtful = Vec::new();
        let keeps = self.sabotage == Some(DiskSabotage::KeepAfterSync);
        for at in range.pages() {
            let page = self.page(at);
            if page.dirty {
                page.dirty = false;
                if fails && rng.chance(700) {
                    if rng.chance(500) {
                        page.cached = crash(page, rng);
                    }
                    if !page.held {
                        doubtful.push(at);
                    }
                } else {
                    page.durable = page.cached;
                    page.later.clear();
                }
            }
            if fails && !keeps {
                // Whatever happened to the page will be overwritten, since it counts as changed.
                (page.read_as, page.changed_outside) = (None, false);
            }
        }
        (!fails, doubtful)
    }

    /// Gives the file of `range` another end, in lines. Returns the pages, and the lines of each from which on they are
    /// zeros now.
    pub fn cut(&mut self, range: PageRange, end: u64) -> Vec<(PageIndex, usize)> {
        let Some(file) = self.ends.get_mut(&range.start) else {
            return Vec::new();
        };
        let shorter = end < file.1;
        file.1 = end;
        if !shorter {
            return Vec::new();
        }
        let cut: Vec<_> = range
            .pages()
            .map(|page| (page, self.lines_of(page)))
            .filter(|&(_, lines)| lines < LINES)
            .collect();
        for &(page, lines) in &cut {
            let page = self.page(page);
            let all = page.later.iter_mut();
            for content in all.chain([&mut page.cached, &mut page.durable]) {
                content[lines..].fill(0);
            }
            page.changed_outside |= page.held;
        }
        cut
    }

    /// What a crash leaves of a page.
    pub fn after_crash(&self, page: PageIndex, rng: &mut Rng) -> Content {
        crash(&self.pages[page.0 as usize], rng)
    }
}

fn crash(page: &Page, rng: &mut Rng) -> Content {
    let mut left = page.durable;
    for (line, left) in left.iter_mut().enumerate() {
        let which = rng.below(page.later.len() as u32 + 1) as usize;
        if let Some(write) = page.later.get(which) {
            *left = write[line];
        }
    }
    left
}
