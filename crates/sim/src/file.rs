//! Regions backed by a file.
//!
//! A simulated file is an array of contents at the addresses of its region. It starts with initial contents, which the
//! oracle is told. Threads read and write there as anywhere. An operation that would transfer the file's bytes to
//! another region is only requested to check that it is refused.
//!
//! In addition to the rules for all memory, two rules must hold: only contents that the file does not hold are written,
//! and they go to the right place; and a page that is mapped directly from its file never counts as a refault.

use millpond_core::{
    Event, Frame, FreeMode, Kind, Outcome, PageCount, PageIndex, PageRange, Refusal, Reply, VmStat,
};

use crate::actor::{OPERATOR, Op};
use crate::disk::Fault;
use crate::mmu::{BLANK, Content, LINES, Slot};
use crate::report::{Check, Coverage, breach};
use crate::world::{SimRegion, World};

/// The cases of files that the fixed seeds must cover.
pub const SEEN: [&str; 23] = [
    "read",
    "read failed",
    "written back",
    "dropped clean",
    "write failed",
    "refault",
    "activate",
    "restore",
    "mapped straight, again",
    "both kinds reclaimed",
    "private, dropped as it was read",
    "private, to the store",
    "private, to a full store",
    "read in pieces",
    "read behind the end",
    "written behind the end",
    "asked for again",
    "cut",
    "left, and was changed outside",
    "synced",
    "the device failed",
    "lost by a sync that failed",
    "a folio that a sync came to was lost",
];

impl World {
    /// Draws the kind of a new region.
    pub(crate) fn draw_kind(&mut self) -> Kind {
        match self.profile.files {
            0 => Kind::Anonymous,
            files if self.rng.chance(files) => {
                self.rng
                    .pick(&[Kind::File, Kind::File, Kind::Direct, Kind::Private])
            }
            _ => Kind::Anonymous,
        }
    }

    /// Puts something into a new file.
    pub(crate) fn fill_file(&mut self, range: PageRange, kind: Kind) {
        if kind == Kind::Anonymous {
            return;
        }
        let mut contents = Vec::new();
        for page in range.pages() {
            let mut content = BLANK;
            if self.rng.chance(700) {
                self.stamp += 1;
                content[self.rng.below(LINES as u32) as usize] = self.stamp;
            }
            contents.push(content);
            self.file_left[page.0 as usize] = false;
            self.own[page.0 as usize] = false;
            self.oracle.begins_as(page, content);
            if kind != Kind::Private {
                self.durable.begins(page, content);
            }
        }
        self.disk.begin(range, &contents);
    }

    pub(crate) fn kind_at(&self, page: PageIndex) -> Kind {
        let region = self.regions.iter().find(|r| r.range.contains(page));
        region.map_or(Kind::Anonymous, |region| region.kind)
    }

    pub(crate) fn read_file(&mut self, at: PageRange, frame: Frame, fresh: bool) -> Check<Outcome> {
        if self.kind_at(at.start) == Kind::Anonymous {
            breach!(at at.start, "{at} is read from a file, but is no file's");
        }
        if at.len != frame.order().pages() {
            breach!(at at.start, "{at} is read into {frame}");
        }
        let contents = match self.rng.chance(self.store.weather.load_errors) {
            true => Err(Fault::Medium),
            false => self.disk.read(at, &mut self.rng),
        };
        let why = contents.as_ref().err().copied();
        if let Ok((_, true)) = contents {
            self.count_file("read in pieces");
        }
        let contents = contents.ok().map(|(contents, _)| contents);
        let frame_kept = !(why.is_some() && fresh && self.rng.chance(300));
        if frame_kept {
            self.mmu.fill(frame, fresh, contents)?;
        }
        if let Some(why) = why {
            return Ok(self.read_failed(at, why, frame_kept));
        }
        self.count_file("read");
        if self.kind_at(at.start) == Kind::Direct && self.file_left[at.start.0 as usize] {
            self.count_file("mapped straight, again");
        }
        let outcome = self.place(at, frame, false)?;
        if !matches!(outcome, Outcome::Installed { .. }) {
            self.disk.left(at);
        }
        Ok(outcome)
    }

    /// The answer to a failed read: if it was for several pages, each is then requested separately.
    fn read_failed(&mut self, at: PageRange, why: Fault, frame_kept: bool) -> Outcome {
        self.count_file(match why {
            Fault::Ended => "read behind the end",
            Fault::Medium => "read failed",
        });
        if at.len > PageCount(1) {
            return Outcome::InstallSplit { frame_kept };
        }
        self.oracle.load_failed(at);
        Outcome::LoadFailed { frame_kept }
    }

    pub(crate) fn write_file(&mut self, at: PageRange, frame: Frame) -> Check<Outcome> {
        if !matches!(self.kind_at(at.start), Kind::File | Kind::Direct) {
            breach!(at at.start, "{at} is written to a file, but is no file's");
        }
        let contents = self.mmu.frame(frame)?.to_vec();
        if at.len.0 as usize != contents.len() {
            breach!(at at.start, "{frame} is written to {at}");
        }
        let pages = at.start.0 as usize..at.end().0 as usize;
        self.file_left[pages].fill(true);
        let mood = self.mood();
        match self.disk.write_back(at, &contents, mood, &mut self.rng) {
            Ok(any) => {
                self.leave_file(at, &contents)?;
                self.count_file(if any { "written back" } else { "dropped clean" });
                Ok(if any {
                    Outcome::Stored
                } else {
                    Outcome::Unchanged
                })
            }
            Err(failed) => {
                let ended = failed.iter().any(|(_, why)| *why == Fault::Ended);
                self.count_file(if ended {
                    "written behind the end"
                } else {
                    "write failed"
                });
                Ok(Outcome::StoreFailed)
            }
        }
    }

    /// Lets pages leave memory whose contents their file has.
    ///
    /// # Errors
    /// The file has other contents, although only the region has written to it.
    pub(crate) fn leave_file(&mut self, at: PageRange, contents: &[Content]) -> Check {
        for (page, content) in at.pages().zip(contents) {
            let has = self.disk.content(page);
            if has == *content {
                continue;
            }
            if !self.disk.was_changed_outside(page) {
                breach!(at page, "{page} leaves as {content:x?}, but its file has {has:x?}");
            }
            self.count_file("left, and was changed outside");
            self.oracle.reads_as(page, has);
        }
        self.disk.left(at);
        Ok(())
    }

    /// Records that the store has these pages of a private region, whose contents the file no longer has.
    pub(crate) fn become_own(&mut self, at: PageRange) {
        self.own[at.start.0 as usize..at.end().0 as usize].fill(true);
        self.disk.left(at);
    }

    /// Records that the failure of the file to provide these pages has been forgotten.
    pub(crate) fn forget_failures(&mut self, at: PageRange) {
        for page in at.pages() {
            if self.mmu.page(page) == Slot::Poisoned && self.may_have_again(page) {
                self.oracle.asked_again(page);
            }
        }
    }

    /// Whether the contents to be saved still are those read from these pages of a file. Records what else happens to
    /// them.
    ///
    /// # Errors
    /// The pages do not belong to a private region.
    pub(crate) fn is_as_read(&mut self, read_from: PageRange, contents: &[Content]) -> Check<bool> {
        if self.kind_at(read_from.start) != Kind::Private {
            breach!(at read_from.start, "{read_from} is compared with a file, but is not private");
        }
        let same = self.disk.is_as_read(read_from, contents);
        self.count_file(match (same, self.store.weather.full) {
            (true, _) => "private, dropped as it was read",
            (false, false) => "private, to the store",
            (false, true) => "private, to a full store",
        });
        Ok(same)
    }

    /// Checks the counts of a fault at `page` for files.
    ///
    /// # Errors
    /// A fault counted a refault of a page that leaves no shadow, or a refault of the wrong kind.
    pub(crate) fn judge_file(&mut self, event: &Event, before: &VmStat) -> Check {
        let now = self.core.stats();
        let grew = |of: fn(&VmStat) -> u64| of(&now) > of(before);
        let seen = [
            ("refault", grew(|s| s.workingset_refault_file)),
            ("activate", grew(|s| s.workingset_activate_file)),
            ("restore", grew(|s| s.workingset_restore_file)),
            (
                "both kinds reclaimed",
                now.pgsteal_file > 0 && now.pgsteal_anon > 0,
            ),
        ];
        for (what, _) in seen.iter().filter(|(_, seen)| *seen) {
            self.count_file(what);
        }
        let Event::Fault { page, .. } = *event else {
            return Ok(());
        };
        let (kind, anon) = (
            self.kind_at(page),
            grew(|s| s.workingset_refault_anon) || grew(|s| s.workingset_activate_anon),
        );
        let file = grew(|s| s.workingset_refault_file);
        let wrong = match kind {
            Kind::Anonymous => file,
            Kind::File => anon,
            // It depends on whether the page has been written to.
            Kind::Private => false,
            Kind::Direct => file || anon,
        };
        if wrong {
            breach!(at page, "a fault at {page}, which is {kind:?}, is counted as a refault of another kind");
        }
        Ok(())
    }

    /// Replaces an operation that only anonymous memory supports, if the region is backed by a file.
    pub(crate) fn suit_kind(&mut self, region: SimRegion, op: Op) -> Op {
        match op {
            Op::Discard { range, .. } | Op::Mark { range } if region.kind != Kind::Anonymous => {
                Op::Access {
                    range,
                    next: range.start,
                    stride: 1,
                    left: 30,
                    writes: self.profile.writes,
                }
            }
            op => op,
        }
    }

    /// Makes requests that are refused for a file's pages.
    ///
    /// # Errors
    /// A request is not refused.
    pub(crate) fn ask_for_impossible_files(&mut self) -> Check {
        let is_file = |r: &&SimRegion| r.kind != Kind::Anonymous && !r.closing;
        let Some(region) = self.regions.iter().find(is_file).copied() else {
            return Ok(());
        };
        let range = region.range;
        let event = match self.rng.below(3) {
            0 => Event::LazyFree {
                range,
                mode: FreeMode::Exclusive,
            },
            1 => Event::Purge { range },
            _ => Event::Resize {
                region: region.id,
                pages: PageCount(range.len.0 + 1),
            },
        };
        Coverage::count(&mut self.coverage.injected, "impossible");
        match self.send(OPERATOR, event)? {
            Reply::Refused(Refusal::FileBacked) => Ok(()),
            other => breach!("{event:?} in a file's region is answered with {other:?}"),
        }
    }

    pub(crate) fn count_file(&mut self, what: &'static str) {
        Coverage::count(&mut self.coverage.files, what);
    }
}
