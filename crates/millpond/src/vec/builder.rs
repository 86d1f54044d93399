//! Making a vector that differs from the manager's defaults.

use super::{LEAF, PondVec};
use crate::error::{CollectError, RegionError};
use crate::group::Group;
use crate::manager::Manager;
use crate::region_builder::RegionBuilder;
use millpond_core::{Order, OrderPolicy};
use std::marker::PhantomData;

/// A builder that collects the settings of a [`PondVec`]. See [`PondVec::builder`].
///
/// ```
/// use millpond::{GroupLimits, Manager, PondVec};
///
/// let manager = Manager::builder().ram(32 << 20).build()?;
/// let tables = manager.group(&manager.root(), "tables", GroupLimits::new().max(8 << 20))?;
/// let squares = PondVec::<u64>::builder().group(&tables).collect(&manager, (0..4_000_000).map(|n| n * n))?;
/// assert_eq!(squares[1_000_000], 1_000_000_000_000);
/// assert!(tables.stats()?.usage <= 8 << 20);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use = "call .build(manager) or .collect(manager, elements) for a vector"]
pub struct PondVecBuilder<T> {
    region: RegionBuilder,
    capacity: usize,
    elements: PhantomData<fn() -> T>,
}

impl<T> Default for PondVecBuilder<T> {
    fn default() -> Self {
        // A vector is filled from its start, so its folios may grow with it.
        let order = OrderPolicy::Adaptive { max: Order::MAX };
        Self {
            region: RegionBuilder::default().order(order),
            capacity: 0,
            elements: PhantomData,
        }
    }
}

impl<T> PondVecBuilder<T> {
    /// Orders of the vector's folios: adaptive, up to 2 MiB, unless told otherwise. For a vector that is then read at
    /// random, single pages are right from the start.
    pub fn order(mut self, order: impl Into<OrderPolicy>) -> Self {
        self.region = self.region.order(order);
        self
    }

    /// The group that the memory belongs to: the [root group](Manager::root) unless told otherwise.
    pub fn group(mut self, group: &Group) -> Self {
        self.region = self.region.group(group);
        self
    }

    /// Number of elements for which addresses are taken at once: as many as fit in 2 MiB unless told otherwise.
    pub fn capacity(mut self, elements: usize) -> Self {
        self.capacity = elements;
        self
    }

    /// Makes an empty vector.
    ///
    /// # Errors
    /// Too many elements, or no room in the address space; a group that was removed, or is another manager's.
    pub fn build(self, manager: &Manager) -> Result<PondVec<T>, RegionError> {
        let (count, size) = (self.capacity, size_of::<T>());
        let bytes = match count {
            0 => Some(LEAF.max(size)),
            _ => count.checked_mul(size).map(|bytes| bytes.max(1)),
        };
        let bytes = bytes.ok_or(RegionError::TooLong { count, size })?;
        let region = self.region.build(manager, bytes)?;
        // SAFETY: no elements are any region's.
        Ok(unsafe { PondVec::new(region, 0) })
    }

    /// Makes a vector of the elements.
    ///
    /// # Errors
    /// As [`build`](Self::build), and when there are no addresses for all elements.
    pub fn collect(
        self,
        manager: &Manager,
        elements: impl IntoIterator<Item = T>,
    ) -> Result<PondVec<T>, CollectError> {
        let elements = elements.into_iter();
        let capacity = self.capacity.max(elements.size_hint().0);
        let mut vec = self.capacity(capacity).build(manager)?;
        for element in elements {
            vec.push(element)?;
        }
        Ok(vec)
    }
}
