//! Histories that belong to another group.
//!
//! The history that a page has left behind is evaluated against the lists of its group. When the page changes groups
//! while it is not in memory, the lists that saw it are no longer those of its group, whatever its name, until the page
//! has come in and left again. If the core counts a fault as a refault before that, the fault was judged by the lists
//! of another group.

use millpond_core::{Command, Event, GroupId, PageIndex, PageRange, PageState, Reply, VmStat};

use crate::report::{Check, breach};
use crate::world::World;

/// The owner of each page before an event that may change it.
pub type Owners = Vec<(PageIndex, GroupId)>;

impl World {
    /// The owner of each page, if the event may change it.
    pub(crate) fn owners_before(&self, event: &Event) -> Owners {
        if !matches!(event, Event::MoveRegion { .. } | Event::RemoveGroup { .. }) {
            return Owners::new();
        }
        let ranges = self.regions.iter().map(|region| region.range);
        let pages = ranges.flat_map(PageRange::pages);
        pages.map(|page| (page, self.core.group_at(page))).collect()
    }

    /// Updates which histories belong to which group, after an event.
    ///
    /// # Errors
    /// A page was judged by lists other than its group's.
    pub(crate) fn follow_owners(
        &mut self,
        event: &Event,
        reply: Reply,
        (owners, before): (&Owners, &VmStat),
        given: &[Command],
    ) -> Check {
        match *event {
            Event::Remap { from, to } if reply == Reply::Done => self.follow_remap(from, to),
            Event::MoveRegion { .. } | Event::RemoveGroup { .. } => self.follow_groups(owners),
            Event::Merge { .. } | Event::Snapshot { .. } | Event::DropRegion { .. } => {
                // A page that comes from a base, or starts anew, may have any history.
                self.foreign.fill(false);
            }
            Event::Fault { page, .. } => return self.judge_refault(page, before, given),
            _ => {}
        }
        Ok(())
    }

    fn follow_groups(&mut self, owners: &Owners) {
        for &(page, before) in owners {
            let gone = matches!(
                self.core.page_state(page),
                PageState::Swapped | PageState::Empty
            );
            if gone && self.core.group_at(page) != before {
                self.foreign[page.0 as usize] = true;
            }
        }
    }

    fn follow_remap(&mut self, from: PageRange, to: PageRange) {
        let moved = self.core.group_at(from.start) != self.core.group_at(to.start);
        for (page, target) in from.pages().zip(to.pages()) {
            let was = std::mem::take(&mut self.foreign[page.0 as usize]);
            let gone = matches!(
                self.core.page_state(target),
                PageState::Swapped | PageState::Empty
            );
            self.foreign[target.0 as usize] = gone && (was || moved);
        }
    }

    fn judge_refault(&mut self, page: PageIndex, before: &VmStat, given: &[Command]) -> Check {
        let brought = given.iter().filter_map(|command| match command {
            Command::Load { at, .. } | Command::Fold { at, .. } | Command::Read { at, .. } => {
                Some((*at, true))
            }
            Command::Zero { at, .. } | Command::Copy { at, .. } => Some((*at, false)),
            _ => None,
        });
        let (mut wanted, mut stored) = (false, false);
        let was_foreign = self.foreign[page.0 as usize];
        for (at, loaded) in brought {
            if at.contains(page) {
                (wanted, stored) = (true, loaded);
            }
            self.foreign[at.start.0 as usize..at.end().0 as usize].fill(false);
        }
        if !wanted || !was_foreign {
            return Ok(());
        }
        let refaults = |stat: &VmStat| stat.workingset_refault_anon + stat.workingset_refault_file;
        if refaults(&self.core.stats()) > refaults(before) {
            breach!(at page, "{page} is judged by lists that are not those of {:?}", self.core.group_at(page));
        }
        if stored {
            self.count_group("left its history behind");
        }
        Ok(())
    }
}
