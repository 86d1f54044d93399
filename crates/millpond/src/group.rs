//! Groups: budgets within the budget, for parts of a program that must not push each other out.

use crate::manager::{Manager, Pond};
use crate::region::Region;
use millpond_core::limits::{MAX_GROUP_DEPTH, MAX_GROUPS};
use millpond_core::{Event, GroupEvents, GroupId, PAGE_SIZE, PageCount, Refusal, Reply, VmStat};
use millpond_driver::error::{GroupError, MIN_GROUP_MAX_BYTES, MoveError};
use millpond_driver::pressure::Pressure;
use millpond_driver::signals::SignalsBlocked;
use millpond_sync::{Held, Rank, Ranked};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// How much RAM a group, with all groups below it, may have: the four marks of Linux's memory cgroups, in bytes.
///
/// max(min, low) ≤ high ≤ max must hold. They are rounded to pages: the upper ones down, the lower ones up.
///
/// ```
/// use millpond::GroupLimits;
/// let limits = GroupLimits::new().low(16 << 20).max(64 << 20);
/// assert_eq!(limits.high, None);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupLimits {
    /// Bytes that other groups do not take as long as any other memory can be taken.
    pub min: u64,
    /// Bytes that other groups do not take as long as any group has more than its own `low`.
    pub low: u64,
    /// Bytes beyond which the group's own faults reclaim in the group first.
    pub high: Option<u64>,
    /// Bytes that are never exceeded, except by regions moved into the group, and while the store accepts nothing. At
    /// least 4 MiB.
    pub max: Option<u64>,
    /// Most bytes that stay in RAM after they were lazily freed.
    pub lazyfree_max: Option<u64>,
}

impl GroupLimits {
    /// No limits and no protection.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets `min`.
    #[must_use]
    pub fn min(mut self, bytes: u64) -> Self {
        self.min = bytes;
        self
    }

    /// Sets `low`.
    #[must_use]
    pub fn low(mut self, bytes: u64) -> Self {
        self.low = bytes;
        self
    }

    /// Sets `high`.
    #[must_use]
    pub fn high(mut self, bytes: u64) -> Self {
        self.high = Some(bytes);
        self
    }

    /// Sets `max`.
    #[must_use]
    pub fn max(mut self, bytes: u64) -> Self {
        self.max = Some(bytes);
        self
    }

    /// Sets `lazyfree_max`.
    #[must_use]
    pub fn lazyfree_max(mut self, bytes: u64) -> Self {
        self.lazyfree_max = Some(bytes);
        self
    }

    fn to_core(self) -> Result<millpond_core::GroupLimits, GroupError> {
        let pages = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
        let up = |bytes: u64| PageCount(pages(bytes.div_ceil(PAGE_SIZE as u64)));
        let down = |bytes: Option<u64>| {
            let none = millpond_core::GroupLimits::NONE;
            bytes.map_or(none, |bytes| PageCount(pages(bytes / PAGE_SIZE as u64)))
        };
        let (max, high) = (down(self.max), down(self.high));
        let limits = millpond_core::GroupLimits {
            min: up(self.min),
            low: up(self.low),
            high: if self.high.is_none() { max } else { high },
            max,
            lazyfree_max: down(self.lazyfree_max),
        };
        if let Some(max) = self.max.filter(|max| *max < MIN_GROUP_MAX_BYTES) {
            return Err(GroupError::MaxTooSmall { max });
        }
        match limits.are_consistent() {
            true => Ok(limits),
            false => Err(GroupError::Limits {
                min: self.min,
                low: self.low,
                high: self.high,
                max: self.max,
            }),
        }
    }
}

/// Figures of a group with all groups below it.
///
/// ```
/// # let manager = millpond::Manager::builder().ram(16 << 20).build()?;
/// let group = manager.group(&manager.root(), "a", millpond::GroupLimits::new())?;
/// let mut region = millpond::Region::builder().group(&group).build(&manager, 4 << 20)?;
/// region.as_mut_slice()[..4096].fill(7);
/// let stats = group.stats()?;
/// assert_eq!((stats.usage, stats.resident, stats.stored), (4096, 4096, 0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupStats {
    /// Bytes charged to the group: mapped, and in limbo.
    pub usage: u64,
    /// Bytes that are mapped and in use, excluding lazily freed ones.
    pub resident: u64,
    /// Lazily freed bytes in RAM that are not known to have been used since.
    pub lazyfree: u64,
    /// Bytes in the store, before compression.
    pub stored: u64,
    /// Bytes that min and low currently protect from other groups, as far as the groups above allow.
    pub protected: (u64, u64),
    /// Counts of events that a limit caused.
    pub events: GroupEvents,
    /// Counters and gauges under Linux's names, as far as they belong to a group; the others are zero.
    pub vm: VmStat,
}

/// Names of the groups that exist, with the group above each.
#[derive(Debug)]
pub(crate) struct Names(Ranked<BTreeMap<GroupId, (GroupId, String)>>);

/// A part of a program with a budget of its own. Clones name the same group, which lives until it is
/// [removed](Group::remove) or its manager ends.
///
/// ```
/// use millpond::{GroupLimits, Manager, Region};
/// let manager = Manager::builder().ram(64 << 20).build()?;
/// let scans = manager.group(&manager.root(), "scans", GroupLimits::new().max(16 << 20))?;
/// let mut table = Region::builder().group(&scans).build(&manager, 48 << 20)?;
/// table.as_mut_slice().fill(7);
/// assert!(scans.stats()?.usage <= 16 << 20);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Group {
    pond: Arc<Pond>,
    id: GroupId,
}

impl Manager {
    /// The root of all groups. Its budget is the manager's.
    #[must_use]
    pub fn root(&self) -> Group {
        Group {
            pond: Arc::clone(self.pond()),
            id: GroupId::ROOT,
        }
    }

    /// Creates a group below `parent`, with a name that no other group there has.
    ///
    /// # Errors
    /// The name is taken or empty, the limits contradict each other, there are too many groups or too many levels, or
    /// `parent` was removed or belongs to another manager.
    pub fn group(
        &self,
        parent: &Group,
        name: &str,
        limits: GroupLimits,
    ) -> Result<Group, GroupError> {
        if !Arc::ptr_eq(self.pond(), &parent.pond) {
            return Err(GroupError::OtherManager);
        }
        if name.is_empty() || name.contains('/') {
            return Err(GroupError::BadName { name: name.into() });
        }
        let limits = limits.to_core()?;
        let pond = Arc::clone(self.pond());
        let driver = pond.driver();
        let mut names = pond.names.lock();
        let taken = |(above, taken): &(GroupId, String)| *above == parent.id && taken == name;
        if names.values().any(taken) {
            return Err(GroupError::NameTaken { name: name.into() });
        }
        let parent = parent.id;
        let id = match driver.tell(Event::CreateGroup { parent, limits }) {
            Reply::Group { group } => group,
            reply => return Err(refused(reply)),
        };
        driver.forget_stalls(id);
        names.insert(id, (parent, name.into()));
        drop(names);
        Ok(Group { pond, id })
    }
}

impl Default for Names {
    fn default() -> Self {
        Self(Ranked::new(Rank::GroupNames, BTreeMap::new()))
    }
}

impl Names {
    fn lock(&self) -> Held<'_, BTreeMap<GroupId, (GroupId, String)>> {
        self.0.lock()
    }
}

/// Turns the core's refusal into an error for the caller.
fn refused(reply: Reply) -> GroupError {
    match reply {
        Reply::Refused(Refusal::UnknownGroup) => GroupError::Removed,
        Reply::Refused(Refusal::GroupInUse) => GroupError::InUse,
        Reply::Refused(Refusal::TooDeep) => GroupError::TooDeep {
            most: MAX_GROUP_DEPTH,
        },
        Reply::Refused(Refusal::TooManyGroups) => GroupError::TooMany { most: MAX_GROUPS },
        reply => unreachable!("{reply:?} is no answer to this"),
    }
}

impl Group {
    pub(crate) fn id(&self) -> GroupId {
        self.id
    }

    /// The address of the group's manager, which identifies the manager.
    pub(crate) fn manager_address(&self) -> usize {
        Arc::as_ptr(&self.pond) as usize
    }

    pub(crate) fn is_of(&self, pond: &Arc<Pond>) -> bool {
        Arc::ptr_eq(&self.pond, pond)
    }

    /// The group's name, with those of the groups above it: `a/b`. Empty for the root, and after the group was
    /// removed.
    #[must_use]
    pub fn path(&self) -> String {
        let names = self.pond.names.lock();
        let (mut path, mut at) = (Vec::new(), self.id);
        while let Some((parent, name)) = names.get(&at) {
            path.push(name.as_str());
            at = *parent;
        }
        path.reverse();
        path.join("/")
    }

    /// Changes the group's limits. When this returns, the group is within its max, as far as that can be reached.
    ///
    /// # Errors
    /// The limits contradict each other, or the group was removed or is the root.
    pub fn set_limits(&self, limits: GroupLimits) -> Result<(), GroupError> {
        if self.id == GroupId::ROOT {
            return Err(GroupError::Root);
        }
        let (group, limits) = (self.id, limits.to_core()?);
        match self
            .pond
            .driver()
            .tell(Event::SetGroupLimits { group, limits })
        {
            Reply::Done => {}
            reply => return Err(refused(reply)),
        }
        self.pond.driver().shrink_to_max(group);
        Ok(())
    }

    /// Figures of the group. Checks lazily freed memory as [`Manager::stats`] does.
    ///
    /// # Errors
    /// The group was removed.
    pub fn stats(&self) -> Result<GroupStats, GroupError> {
        self.pond.driver().recount_lazyfree();
        let stat = self
            .pond
            .driver()
            .group_stat(self.id)
            .ok_or(GroupError::Removed)?;
        let vm = stat.vm;
        let bytes = |pages: u64| pages * PAGE_SIZE as u64;
        Ok(GroupStats {
            usage: stat.usage.bytes(),
            resident: bytes(vm.nr_mapped - vm.nr_lazyfree_mapped),
            lazyfree: bytes(vm.nr_lazyfree),
            stored: bytes(vm.nr_swapped),
            protected: (stat.protected.0.bytes(), stat.protected.1.bytes()),
            events: stat.events,
            vm,
        })
    }

    /// The share of the last seconds and minutes that was lost to waiting. Averages are updated every two seconds.
    #[must_use]
    pub fn pressure(&self) -> Pressure {
        let _quiet = SignalsBlocked::new();
        Pressure::new(self.pond.driver().pressure(self.id))
    }

    /// Removes the group. From now on its regions, with all their memory, belong to the group above.
    ///
    /// # Errors
    /// There are groups below it, it is the root, or it was removed before.
    pub fn remove(self) -> Result<(), GroupError> {
        if self.id == GroupId::ROOT {
            return Err(GroupError::Root);
        }
        let driver = self.pond.driver();
        let mut names = self.pond.names.lock();
        loop {
            match driver.tell(Event::RemoveGroup { group: self.id }) {
                Reply::Done => break,
                Reply::More { .. } => {}
                reply => return Err(refused(reply)),
            }
        }
        names.remove(&self.id);
        Ok(())
    }
}

impl Region {
    /// Moves the region into another group, with all its memory in RAM and in the store; snapshots of it stay where
    /// they are. When this returns, that group is within its max, as far as that can be reached.
    ///
    /// # Errors
    /// The group was removed or belongs to another manager, or another thread is moving the region.
    ///
    /// ```
    /// use millpond::{GroupLimits, Manager};
    /// let manager = Manager::builder().ram(64 << 20).build()?;
    /// let cold = manager.group(&manager.root(), "cold", GroupLimits::new().max(8 << 20))?;
    /// let mut region = manager.region(32 << 20)?;
    /// region.as_mut_slice().fill(7);
    /// region.move_to(&cold)?;
    /// assert!(cold.stats()?.usage <= 8 << 20);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn move_to(&self, group: &Group) -> Result<(), MoveError> {
        if !group.is_of(self.pond()) {
            return Err(MoveError::OtherManager);
        }
        self.driver().move_region(self.named(), group.id)
    }
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group")
            .field("path", &self.path())
            .finish_non_exhaustive()
    }
}
