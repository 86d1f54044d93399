//! Building a region that differs from the manager's defaults.

use crate::error::RegionError;
use crate::group::Group;
use crate::manager::Manager;
use crate::region::Region;
use millpond_core::{GroupId, OrderPolicy};
use millpond_driver::error::MoveError;

/// A builder that collects the settings of a [`Region`]. See [`Region::builder`].
///
/// ```
/// use millpond::{Manager, Order, OrderPolicy, Region};
///
/// let manager = Manager::builder().ram(16 << 20).build()?;
/// // Read and written here and there: one page a fault.
/// let index = Region::builder().order(OrderPolicy::Fixed(Order::ZERO)).build(&manager, 64 << 20)?;
/// // Both patterns: one page for what is scattered, up to 64 KiB for what is touched in order.
/// let max = Order::new(4).expect("at most 9");
/// let rows = Region::builder().order(OrderPolicy::Adaptive { max }).build(&manager, 64 << 20)?;
///
/// assert_eq!(index.as_slice()[20_000], 0);
/// assert_eq!(index.stats().resident, 4096);
/// assert!(rows.as_slice().iter().step_by(4096).take(512).all(|&byte| byte == 0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use = "call .build(manager, len) for a region"]
pub struct RegionBuilder {
    order: Option<OrderPolicy>,
    /// The number of the group, with the address of its manager.
    group: Option<(GroupId, usize)>,
}

impl RegionBuilder {
    /// Orders of the region's folios: 2^order pages are brought in and taken out together. An [`Order`](crate::Order)
    /// makes them fixed. The default is the manager's own orders.
    pub fn order(mut self, order: impl Into<OrderPolicy>) -> Self {
        self.order = Some(order.into());
        self
    }

    /// The group that the memory belongs to; by default the [root group](Manager::root).
    pub fn group(mut self, group: &Group) -> Self {
        self.group = Some((group.id(), group.manager_address()));
        self
    }

    /// Takes `len` bytes of zeros, rounded up to pages, from `manager`'s address space.
    ///
    /// # Errors
    /// No bytes, too many, or no room in the address space; a group that was removed, or that belongs to another
    /// manager.
    pub fn build(self, manager: &Manager, len: usize) -> Result<Region, RegionError> {
        let region = match self.order {
            Some(order) => manager.region_with(len, order),
            None => manager.region(len),
        }?;
        if let Some((id, address)) = self.group {
            if address != manager.root().manager_address() {
                return Err(MoveError::OtherManager.into());
            }
            region.driver().move_region(region.named(), id)?;
        }
        Ok(region)
    }
}
