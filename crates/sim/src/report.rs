//! The report of a run: its log, its coverage, and its failure.
//!
//! Log entries are kept as values and turned into text only when they are read: a passing run pays a few nanoseconds
//! per entry. A failing run of twenty thousand events is unreadable in full, so a failure names its page if there is
//! one. [`Log::about`] keeps the entries that mention that page or a folio that held it, and the last few of all
//! entries.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write};

use millpond_core::{Command, Event, FolioId, Outcome, PageIndex, PageRange, Reply};

/// A rule that was broken, by the core or (under sabotage) by the simulated world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The description of what was broken.
    pub what: String,
    /// The page that the failure concerns, if any.
    pub page: Option<PageIndex>,
}

/// The result of every check.
pub type Check<T = ()> = Result<T, Failure>;

/// A failure about `page` as the error of the calling function.
macro_rules! breach {
    (at $page:expr, $($text:tt)*) => {
        return Err($crate::report::Failure { what: format!($($text)*), page: Some($page) })
    };
    ($($text:tt)*) => {
        return Err($crate::report::Failure { what: format!($($text)*), page: None })
    };
}
pub(crate) use breach;

/// One line of a run's log.
#[derive(Clone, Copy, Debug)]
pub enum Entry {
    /// An event went into the core, on behalf of an actor.
    Sent(usize, Event),
    /// The core's answer to the event just before.
    Answered(Reply),
    /// The core requested a command in its answer.
    Asked(Command),
    /// A command had its effect on the simulated world; its outcome, if it has one, is reported later.
    CarriedOut(Command, Option<Outcome>),
    /// An actor read a page.
    Read(usize, PageIndex),
    /// An actor wrote a line of a page.
    Wrote(usize, PageIndex, usize, u64),
    /// An actor touched a poisoned page.
    SawPoison(usize, PageIndex),
    /// The first range's contents belong to the second, the base, from now on; the first range and the third, the copy,
    /// inherit them.
    Snapshot(PageRange, PageRange, PageRange),
    /// The first range's contents belong to the second from now on.
    Remap(PageRange, PageRange),
    /// The simulated world changed on its own.
    World(&'static str, u64, PageRange),
}

/// The log of everything that happened in a run, in order.
#[derive(Clone, Debug, Default)]
pub struct Log {
    entries: Vec<(u64, Entry)>,
}

/// Feeds formatted text to an FNV-1a hash without building it.
struct Fnv(u64);

impl Write for Fnv {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        Ok(())
    }
}

/// The pages that a command mentions.
#[must_use]
pub fn command_range(command: &Command) -> Option<PageRange> {
    match *command {
        Command::Zero { at, .. }
        | Command::Load { at, .. }
        | Command::Fold { at, .. }
        | Command::Copy { at, .. }
        | Command::Read { at, .. }
        | Command::WriteBack { at, .. }
        | Command::Rescue { at, .. }
        | Command::TakeOut { at, .. }
        | Command::TakeOutIfBlank { at, .. }
        | Command::TakeOutLeaf { at, .. }
        | Command::ZeroInPlace { at, .. }
        | Command::Look { at, .. }
        | Command::Zap { at, .. }
        | Command::Wake { at }
        | Command::Poison { at, .. } => Some(at),
        Command::Save { .. } | Command::FreeFrame { .. } | Command::Release { .. } => None,
    }
}

/// The folio that a command names.
#[must_use]
pub fn command_folio(command: &Command) -> Option<FolioId> {
    match *command {
        Command::Zero { folio, .. }
        | Command::Load { folio, .. }
        | Command::Fold { folio, .. }
        | Command::Copy { folio, .. }
        | Command::Read { folio, .. }
        | Command::WriteBack { folio, .. }
        | Command::Rescue { folio, .. }
        | Command::TakeOut { folio, .. }
        | Command::TakeOutIfBlank { folio, .. }
        | Command::ZeroInPlace { folio, .. }
        | Command::Look { folio, .. }
        | Command::Save { folio, .. }
        | Command::Zap { folio, .. }
        | Command::Poison { folio, .. } => Some(folio),
        _ => None,
    }
}

/// The pages that an event mentions.
#[must_use]
pub fn event_range(event: &Event) -> Option<PageRange> {
    match *event {
        Event::Fault { page, .. } => Some(PageRange::new(page, millpond_core::PageCount(1))),
        Event::Discard { range }
        | Event::LazyFree { range, .. }
        | Event::Purge { range }
        | Event::GiveFreedBack { range }
        | Event::Pin { range }
        | Event::Unpin { range }
        | Event::Advise { range, .. }
        | Event::Protected { range }
        | Event::LeafTakenOut { at: range, .. }
        | Event::Adopt { at: range } => Some(range),
        _ => None,
    }
}

impl Log {
    /// Adds a line at `step`.
    pub fn push(&mut self, step: u64, entry: Entry) {
        self.entries.push((step, entry));
    }

    /// A hash over every line: equal histories have equal hashes.
    #[must_use]
    pub fn hash(&self) -> u64 {
        let mut fnv = Fnv(0xcbf2_9ce4_8422_2325);
        for line in &self.entries {
            write!(fnv, "{line:?}").expect("hashing cannot fail");
        }
        fnv.0
    }

    /// Every line of the log.
    pub fn lines(&self) -> impl Iterator<Item = String> + '_ {
        self.entries.iter().map(line)
    }

    /// `page`, and the pages from which its contents may have come through snapshots.
    fn kin(&self, page: PageIndex) -> BTreeSet<PageIndex> {
        let mut pages = BTreeSet::from([page]);
        for (_, entry) in self.entries.iter().rev() {
            if let Entry::Snapshot(source, base, copy) = *entry {
                let moved = |from, to| pages.iter().find_map(|&page| same_in(page, from, to));
                let from = moved(copy, source).or_else(|| moved(base, source));
                let own = from.or_else(|| moved(source, source));
                let below = own.and_then(|page| same_in(page, source, base));
                pages.extend(from.into_iter().chain(below));
            }
        }
        pages
    }

    /// The last `keep` lines about `page`, and the last `keep` lines of all.
    #[must_use]
    pub fn about(&self, page: Option<PageIndex>, keep: usize) -> String {
        let mut text = String::new();
        if let Some(page) = page {
            let pages = self.kin(page);
            let here = |at: &PageRange| pages.iter().any(|&page| at.contains(page));
            let mut folios = BTreeSet::new();
            let mut picked = Vec::new();
            for entry in &self.entries {
                if let Entry::Asked(command) = &entry.1
                    && let Some(folio) = command_folio(command)
                {
                    // Folio numbers are reused for other pages, so a folio is followed only while it holds this page.
                    match command_range(command) {
                        Some(at) if here(&at) => folios.insert(folio),
                        Some(_) => folios.remove(&folio),
                        None => false,
                    };
                }
                if pages.iter().any(|&page| speaks_of(&entry.1, page, &folios)) {
                    picked.push(entry);
                }
            }
            let from = picked.len().saturating_sub(keep);
            let _ = writeln!(text, "-- last {} lines about {page}", picked.len() - from);
            for entry in &picked[from..] {
                let _ = writeln!(text, "{}", line(entry));
            }
        }
        let from = self.entries.len().saturating_sub(keep);
        let _ = writeln!(text, "-- last {} lines", self.entries.len() - from);
        for entry in &self.entries[from..] {
            let _ = writeln!(text, "{}", line(entry));
        }
        text
    }
}

/// The page of `to` that lies where `page` lies in `from`, if `from` contains `page`.
fn same_in(page: PageIndex, from: PageRange, to: PageRange) -> Option<PageIndex> {
    from.contains(page)
        .then(|| to.start.plus(page.0 - from.start.0))
}

fn speaks_of(entry: &Entry, page: PageIndex, folios: &BTreeSet<FolioId>) -> bool {
    let command_does = |command: &Command| {
        command_range(command).is_some_and(|at| at.contains(page))
            || command_range(command).is_none()
                && command_folio(command).is_some_and(|f| folios.contains(&f))
    };
    match entry {
        Entry::Sent(_, Event::Completed { folio, .. }) => folios.contains(folio),
        Entry::Sent(_, event) => event_range(event).is_some_and(|range| range.contains(page)),
        Entry::Answered(
            Reply::Wait { page: p }
            | Reply::WaitForBase { page: p }
            | Reply::NeedsResident { page: p },
        ) => *p == page,
        Entry::Answered(_) => false,
        Entry::Asked(command) | Entry::CarriedOut(command, _) => command_does(command),
        Entry::Read(_, p) | Entry::Wrote(_, p, ..) | Entry::SawPoison(_, p) => *p == page,
        Entry::Snapshot(..) | Entry::Remap(..) => true,
        Entry::World(_, _, range) => range.contains(page),
    }
}

fn line((step, entry): &(u64, Entry)) -> String {
    match entry {
        Entry::Sent(by, event) => format!("{step:>7} a{by} > {event:?}"),
        Entry::Answered(reply) => format!("{step:>7}      = {reply:?}"),
        Entry::Asked(command) => format!("{step:>7}      + {command:?}"),
        Entry::CarriedOut(command, outcome) => {
            let outcome = outcome.map_or_else(|| "done".into(), |o| format!("{o:?}"));
            format!("{step:>7}    did {command:?}: {outcome}")
        }
        Entry::Read(by, page) => format!("{step:>7} a{by} read {page}"),
        Entry::Wrote(by, page, at, value) => {
            format!("{step:>7} a{by} wrote {page} line {at} = {value:#x}")
        }
        Entry::SawPoison(by, page) => format!("{step:>7} a{by} saw poison at {page}"),
        Entry::Snapshot(source, base, copy) => {
            format!("{step:>7}    snapshot of {source}: base {base}, copy {copy}")
        }
        Entry::Remap(from, to) => format!("{step:>7}    {from} moved to {to}"),
        Entry::World(what, value, range) => format!("{step:>7}    {what} {value} {range}"),
    }
}

/// How often each kind of event, reply, command, outcome, injected fault and answer was seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    /// Events, by variant.
    pub events: BTreeMap<&'static str, u64>,
    /// Replies, by variant.
    pub replies: BTreeMap<&'static str, u64>,
    /// Commands, by variant.
    pub commands: BTreeMap<&'static str, u64>,
    /// Outcomes reported to the core, by variant.
    pub outcomes: BTreeMap<&'static str, u64>,
    /// Faults of the simulated world, by kind.
    pub injected: BTreeMap<&'static str, u64>,
    /// Results of calls that the core does not answer alone.
    pub answers: BTreeMap<&'static str, u64>,
    /// Cases of snapshots, and of the bases that they leave.
    pub snapshots: BTreeMap<&'static str, u64>,
    /// Cases of remaps and resizes.
    pub remaps: BTreeMap<&'static str, u64>,
    /// Cases of groups.
    pub groups: BTreeMap<&'static str, u64>,
    /// Cases of files.
    pub files: BTreeMap<&'static str, u64>,
    /// The work of workingset detection.
    pub workingset: BTreeMap<&'static str, u64>,
}

impl Coverage {
    /// Adds one to a count.
    pub fn count(of: &mut BTreeMap<&'static str, u64>, name: &'static str) {
        *of.entry(name).or_default() += 1;
    }

    /// Adds another run's counts.
    pub fn add(&mut self, other: &Self) {
        let pairs = [
            (&mut self.events, &other.events),
            (&mut self.replies, &other.replies),
            (&mut self.commands, &other.commands),
            (&mut self.outcomes, &other.outcomes),
            (&mut self.injected, &other.injected),
            (&mut self.answers, &other.answers),
            (&mut self.snapshots, &other.snapshots),
            (&mut self.remaps, &other.remaps),
            (&mut self.groups, &other.groups),
            (&mut self.files, &other.files),
            (&mut self.workingset, &other.workingset),
        ];
        for (mine, theirs) in pairs {
            for (name, n) in theirs {
                *mine.entry(name).or_default() += n;
            }
        }
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut section = |title: &str, counts: &BTreeMap<&'static str, u64>| {
            write!(f, "  {title}:")?;
            for (name, n) in counts {
                write!(f, " {name}={n}")?;
            }
            writeln!(f)
        };
        section("events", &self.events)?;
        section("replies", &self.replies)?;
        section("commands", &self.commands)?;
        section("outcomes", &self.outcomes)?;
        section("injected", &self.injected)?;
        section("answers", &self.answers)?;
        section("snapshots", &self.snapshots)?;
        section("remaps", &self.remaps)?;
        section("groups", &self.groups)?;
        section("files", &self.files)?;
        section("workingset", &self.workingset)
    }
}
