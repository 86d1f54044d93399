//! A stream passes: the folios behind it are put at the old end of their lists. [`streams`](crate::policy::streams)
//! explains why, and when.

use crate::addr::{LEAF_PAGES, Order, PageCount, PageIndex};
use crate::ids::{FolioId, Kind, ListName};
use crate::limits::{FAULT_LOADS, PASSING_RUN, READ_AHEAD_SHARE, READ_AHEAD_WINDOWS};
use crate::machine::Core;
use crate::policy::order::{Step, Way};
use crate::policy::shadow::Shadow;
use crate::tables::folio::State;
use crate::tables::leaf::Entry;
use crate::tables::lru::Lruvec;

impl Lruvec {
    /// Whether the page `at` belongs to a stream that is longer than memory, so that the folios behind it should be
    /// dropped. The page has come back as a part of a folio of `order`, for a fault that asked for this `step`, after
    /// `distance` uses.
    pub(crate) fn stream_passes(
        &mut self,
        at: PageIndex,
        order: Order,
        step: Step,
        shadow: Shadow,
        distance: u32,
    ) -> bool {
        let room = self.pages();
        let (longer, streams) = (
            self.workingset.pages_in(distance) >= u64::from(room),
            &mut self.workingset.streams,
        );
        if longer {
            return is_stream(step) && streams.passed(at, step.window.pages().0, room);
        }
        // An inactive page at this distance would have stayed in memory.
        if !shadow.workingset {
            streams.missed(order.pages().0, room);
        }
        false
    }

    /// Whether the page `at`, which as far as is known has never been in memory, belongs to a stream whose folios
    /// should be dropped behind it: a stream over a file that memory cannot hold.
    pub(crate) fn stream_passes_file(&mut self, at: PageIndex, step: Step) -> bool {
        let room = self.pages();
        let streams = &mut self.workingset.streams;
        is_stream(step) && streams.passed(at, step.window.pages().0, room)
    }
}

/// Whether a step is one of a run that may be a stream longer than memory.
fn is_stream(step: Step) -> bool {
    step.run >= PASSING_RUN && step.window > Order::ZERO
}

impl Core {
    /// Most pages that the driver reads ahead of a stream over a file with its own faults, in addition to the window of
    /// the program's last fault.
    #[must_use]
    pub fn read_ahead_most(&self) -> PageCount {
        PageCount((READ_AHEAD_WINDOWS * LEAF_PAGES).min(self.limit / READ_AHEAD_SHARE))
    }

    /// Puts folios that a stream has passed at the old end. The stream has reached `page`, which is in memory now, by
    /// this step.
    pub(crate) fn drop_behind(&mut self, page: PageIndex, step: Step) {
        let region = self.regions.of(page).expect("a fault is in a region");
        let (range, kind) = (region.range, region.kind);
        let lag = match (kind, step.way) {
            // This is a fault of the driver, which reads ahead: the program has yet to use the pages between.
            (Kind::File | Kind::Private, Way::Up) => {
                self.read_ahead_most().0 + step.window.pages().0
            }
            _ => 0,
        };
        let Some(mut at) = page.0.checked_sub(lag).map(PageIndex) else {
            return;
        };
        for _ in 0..=FAULT_LOADS {
            let Some(Entry::Folio(id)) = range.contains(at).then(|| self.leaves.get(at)) else {
                break;
            };
            let folio = self.at(id);
            if !folio.contains(page) {
                self.pass(id);
            }
            let next = match step.way {
                Way::Up => folio.start.0.checked_sub(1),
                Way::Down => Some(folio.end().0),
                Way::Unknown => None,
            };
            let Some(next) = next else {
                break;
            };
            at = PageIndex(next);
        }
    }

    /// Puts a folio that is behind the stream at the old end.
    fn pass(&mut self, id: FolioId) {
        let folio = *self.folios.get(id);
        let listed = match folio.list {
            ListName::Inactive => folio.state == State::Resident,
            ListName::Limbo => folio.state == State::Limbo,
            _ => false,
        };
        if !listed || folio.is_referenced() || folio.lazy_part.pages > 0 || self.is_coldest(id) {
            return;
        }
        let pages = u64::from(folio.order.pages().0);
        self.count(folio.group, |stat| stat.drop_behind += pages);
        let list = self.unlist(id);
        self.make_coldest(id);
        self.list_old(id, list);
    }
}
