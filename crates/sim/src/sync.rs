//! Syncs of shared files, repeated requests for pages, and files truncated by others.
//!
//! A sync works as the driver's does (`Driver::sync_file`): one folio in memory after the other is pinned, copied, and
//! the copy written; finally it waits for the device. Threads write to the folio, and reclaim takes others out, between
//! any two of these steps. One sync of a region ends before the next begins.
//!
//! Occasionally the world examines what a crash would leave now ([`Durable`](crate::durable::Durable)), and continues.

use std::collections::BTreeSet;

use millpond_core::{Event, Kind, PageCount, PageIndex, PageRange, PageState, Refusal, Reply};

use crate::actor::{Blocked, Op, PATIENT_ROUNDS};
use crate::disk::{DiskSabotage, Mood};
use crate::mmu::{Content, LINES, Slot};
use crate::report::{Check, Entry, breach};
use crate::world::World;

/// How far a sync has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SyncStage {
    /// Another sync of the region may be under way.
    Begin,
    /// Next: find the next folio in memory, from this page on.
    Find(PageIndex),
    /// Next: pin the folio.
    Pin(PageRange),
    /// Next: copy the folio, which is pinned.
    Copy(PageRange),
    /// Next: write the copy.
    Write(PageRange),
    /// Next: unpin the folio.
    Unpin(PageRange),
    /// Next: wait for the device.
    Device,
}

/// The state of a sync.
#[derive(Debug, Default)]
pub struct Syncing {
    region: PageRange,
    copy: Vec<Content>,
    /// Pages that could not be written.
    failed: BTreeSet<PageIndex>,
}

impl World {
    pub(crate) fn mood(&self) -> Mood {
        let weather = self.store.weather;
        Mood {
            full: weather.full,
            errors: weather.save_errors,
            sync_errors: weather.sync_errors,
        }
    }

    /// Takes one step of a sync.
    ///
    /// # Errors
    /// A rule is broken.
    pub(crate) fn step_sync(&mut self, i: usize, range: PageRange, stage: SyncStage) -> Check {
        let stage = match stage {
            SyncStage::Begin => self.begin_sync(i, range)?,
            SyncStage::Find(from) => match self.next_in_memory(range, from) {
                Some(folio) => SyncStage::Pin(folio),
                None => SyncStage::Device,
            },
            // Pages of a folio that was split may never be resident all at once: the driver pins from the front.
            SyncStage::Pin(folio) if folio.len.0 > 1 && self.actors[i].rounds > PATIENT_ROUNDS => {
                self.actors[i].rounds = 0;
                SyncStage::Pin(PageRange::new(folio.start, PageCount(1)))
            }
            SyncStage::Pin(folio) => match self.ask(i, Event::Pin { range: folio })? {
                None => stage,
                Some(Reply::Done) => {
                    self.mmu.pin(folio)?;
                    SyncStage::Copy(folio)
                }
                // Its file could not provide one of its pages, which therefore has not changed either. The folio no
                // longer exists.
                Some(Reply::Refused(Refusal::Poisoned { page })) => {
                    self.oracle.saw_poison(page)?;
                    self.count_file("a folio that a sync came to was lost");
                    SyncStage::Find(folio.start.max(range.start))
                }
                Some(other) => breach!("a pin of {folio} is answered with {other:?}"),
            },
            SyncStage::Copy(folio) => {
                let copy = folio.pages().map(|page| match self.mmu.page(page) {
                    Slot::Mapped(content) => Ok(content),
                    _ => breach!(at page, "{page} is pinned and not mapped"),
                });
                self.syncs.entry(i).or_default().copy = copy.collect::<Check<_>>()?;
                SyncStage::Write(folio)
            }
            SyncStage::Write(folio) => {
                let mood = self.mood();
                let syncing = self.syncs.entry(i).or_default();
                let written = self
                    .disk
                    .write_back(folio, &syncing.copy, mood, &mut self.rng);
                let failed = written.err().into_iter().flatten();
                syncing.failed.extend(failed.map(|(page, _)| page));
                SyncStage::Unpin(folio)
            }
            SyncStage::Unpin(folio) => match self.ask(i, Event::Unpin { range: folio })? {
                None => stage,
                Some(Reply::Done) => {
                    self.mmu.unpin(folio);
                    self.actors[i].rounds = 0;
                    match folio.end() < range.end() {
                        true => SyncStage::Find(folio.end()),
                        false => SyncStage::Device,
                    }
                }
                Some(other) => breach!("an unpin of {folio} is answered with {other:?}"),
            },
            SyncStage::Device => return self.end_sync(i, range),
        };
        self.actors[i].op = Some(Op::Sync { range, stage });
        Ok(())
    }

    fn begin_sync(&mut self, i: usize, range: PageRange) -> Check<SyncStage> {
        let Some(region) = self.regions.iter().find(|r| r.range.covers(range)) else {
            breach!("actor {i} syncs {range}, which is in no region");
        };
        let region = region.range;
        if self.syncs.values().any(|other| other.region == region) {
            self.actors[i].blocked = Blocked::Until(self.step + 20);
            return Ok(SyncStage::Begin);
        }
        let syncing = Syncing {
            region,
            ..Syncing::default()
        };
        self.syncs.insert(i, syncing);
        self.durable.sync_begins(range);
        Ok(SyncStage::Find(range.start))
    }

    /// The first folio in memory that has a page of `range`, from `from` on.
    fn next_in_memory(&self, range: PageRange, from: PageIndex) -> Option<PageRange> {
        let skips = self.disk.sabotage == Some(DiskSabotage::SkipLeaving);
        let rest = range.tail(self.core.first_in_use(range.tail(from))?);
        let mut pages = rest
            .pages()
            .filter(|page| !(skips && self.core.page_state(*page) == PageState::InFlight));
        pages.find_map(|page| self.core.folio_at(page))
    }

    fn end_sync(&mut self, i: usize, range: PageRange) -> Check {
        let Some(syncing) = self.syncs.remove(&i) else {
            breach!("actor {i} ends a sync of {range} that has not begun");
        };
        let mood = self.mood();
        let (done, doubtful) = self.disk.sync(syncing.region, mood, &mut self.rng);
        for page in doubtful {
            // Pages that the kernel has forgotten to write may have their old contents.
            self.count_file("lost by a sync that failed");
            self.oracle.reads_as(page, self.disk.content(page));
            self.durable.is_doubtful(page);
        }
        match done {
            true => self.durable.sync_ends(range, &syncing.failed),
            false => self.count_file("the device failed"),
        }
        if done && syncing.failed.is_empty() {
            self.count_file("synced");
        }
        let note = Entry::World("synced", u64::from(done), range);
        self.log.push(self.step, note);
        self.finish(i);
        self.judge_crash()
    }

    /// Checks what a crash would leave of the shared files now.
    ///
    /// # Errors
    /// It would leave contents that the promises exclude.
    pub(crate) fn judge_crash(&mut self) -> Check {
        for page in self.durable.pages().collect::<Vec<_>>() {
            let left = self.disk.after_crash(page, &mut self.rng);
            self.durable.judge(page, left)?;
        }
        Ok(())
    }

    /// Truncates a file from outside, or restores its length.
    pub(crate) fn cut_some_file(&mut self) -> Check {
        let files: Vec<_> = self
            .regions
            .iter()
            .filter(|r| r.kind != Kind::Anonymous && !r.closing)
            .map(|r| r.range)
            .collect();
        if files.is_empty() {
            return Ok(());
        }
        let range = self.rng.pick(&files);
        let all = range.len.0 * LINES as u32;
        let end = match self.rng.chance(600) {
            true => all,
            false => self.rng.between(all / 2, all),
        };
        self.cut_file(range, u64::from(end));
        Ok(())
    }

    fn cut_file(&mut self, range: PageRange, end: u64) {
        let note = Entry::World("the file ends at line", end, range);
        self.log.push(self.step, note);
        for (page, from) in self.disk.cut(range, end) {
            self.count_file("cut");
            self.durable.was_cut(page, from);
            // A page in memory stays as it is, and so does what a private region has written to.
            if !self.disk.is_held(page) && !self.own[page.0 as usize] {
                self.oracle.reads_as(page, self.disk.content(page));
            }
        }
    }

    /// Restores the length of all files.
    pub(crate) fn mend_files(&mut self) {
        for range in self.regions.iter().map(|r| r.range).collect::<Vec<_>>() {
            self.cut_file(range, u64::from(range.len.0) * LINES as u64);
        }
    }

    /// Requests a page again that its file could not provide: forgets its poison, as the driver does before the fault
    /// (`Driver::forget_failure`).
    ///
    /// # Errors
    /// A rule is broken.
    pub(crate) fn step_again(&mut self, i: usize, page: PageIndex) -> Check {
        if self.core.page_state(page) != PageState::Poisoned {
            (self.actors[i].again, self.actors[i].fault) = (None, Some(page));
            return Ok(());
        }
        let range = PageRange::new(page, millpond_core::PageCount(1));
        match self.ask(i, Event::Discard { range })? {
            None => {}
            Some(Reply::Done | Reply::More { .. }) => {
                self.count_file("asked for again");
                self.settle(i);
            }
            Some(other) => breach!("a discard of {page} is answered with {other:?}"),
        }
        Ok(())
    }

    /// Whether a lost page may be readable from its file after all. If the store has lost a private page, the file does
    /// not have it.
    pub(crate) fn may_have_again(&self, page: PageIndex) -> bool {
        match self.kind_at(page) {
            Kind::Anonymous => false,
            Kind::Private => !self.own[page.0 as usize],
            _ => true,
        }
    }
}
