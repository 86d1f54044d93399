//! Groups: the calls that the facade needs.

use crate::driver::Driver;
use crate::error::MoveError;
use crate::memory::Memory;
use crate::reclaim::InVain;
use crate::signals::SignalsBlocked;
use crate::state::named::Named;
use millpond_core::{Event, GroupId, GroupStat, PageCount, Refusal, Reply};

impl<M: Memory> Driver<M> {
    /// Figures of a group; `None` if there is no such group.
    pub fn group_stat(&self, group: GroupId) -> Option<GroupStat> {
        let _quiet = SignalsBlocked::new();
        let _inside = self.gate.enter();
        self.lock().group_stat(group)
    }

    /// The group that a region belongs to.
    pub fn group_of(&self, (_, range): Named) -> GroupId {
        let _quiet = SignalsBlocked::new();
        let _inside = self.gate.enter();
        self.lock().group_at(range.start)
    }

    /// Reclaims until a group has no more than its max, or nothing can be reclaimed there now.
    pub fn shrink_to_max(&self, group: GroupId) {
        let _quiet = SignalsBlocked::new();
        let beyond = |stat: GroupStat| stat.usage.0.saturating_sub(stat.limits.max.0);
        let mut vain = InVain::new(&self.lock());
        loop {
            let _inside = self.gate.enter();
            let core = self.lock();
            let over = core.group_stat(group).map_or(0, beyond);
            if over == 0 || vain.gives_up(&core) {
                return;
            }
            drop(core);
            if !self.batch_in(group, PageCount(over)) {
                return;
            }
        }
    }

    /// Moves a region, with all that it holds, into another group.
    pub fn move_region(&self, (region, range): Named, group: GroupId) -> Result<(), MoveError> {
        let mut from = range.start;
        loop {
            let event = Event::MoveRegion {
                region,
                group,
                from,
            };
            match self.tell(event) {
                Reply::Done => break,
                Reply::More { from: next } => from = next,
                Reply::Refused(Refusal::UnknownGroup) => return Err(MoveError::Removed),
                Reply::Refused(Refusal::Busy) => return Err(MoveError::Busy),
                reply => unreachable!("{reply:?} is no answer to a region's move"),
            }
        }
        let above: Vec<_> = {
            let _quiet = SignalsBlocked::new();
            let _inside = self.gate.enter();
            self.lock().group_path(group).collect()
        };
        above
            .into_iter()
            .for_each(|group| self.shrink_to_max(group));
        Ok(())
    }
}
