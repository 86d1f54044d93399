//! Caches of the program that give way when memory is short. The driver does the rest ([`millpond_driver::shrink`]).

use crate::group::Group;
use crate::manager::{Manager, Pond};
use millpond_driver::error::GroupError;
use millpond_driver::state::shrink::{Registered, ShrinkerStats};
use std::sync::Arc;

/// Keeps a shrinker registered while it lives. See [`Manager::register_shrinker`].
///
/// ```
/// # let manager = millpond::Manager::builder().ram(16 << 20).build()?;
/// let guard = manager.register_shrinker(&manager.root(), || 0, |_| 0)?;
/// assert_eq!(guard.stats().freed, 0);
/// drop(guard); // neither function is called any more
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "the shrinker is gone when the guard is dropped"]
pub struct ShrinkerGuard {
    registered: Arc<Registered>,
    pond: Arc<Pond>,
}

impl Manager {
    /// Lets a cache of the program shrink when memory of `group` is short. `count` returns how many objects could be
    /// given up. `scan` examines a given number of them, gives up those that it can, and returns how many it gave up.
    ///
    /// A dedicated thread calls both, never one that faults, so they may take locks that threads hold while they touch
    /// managed memory. They must not wait for the guard's drop, which waits for them.
    ///
    /// # Errors
    /// The group was removed or belongs to another manager, or no thread could be started.
    ///
    /// ```
    /// use std::sync::{Arc, Mutex};
    /// let manager = millpond::Manager::builder().ram(16 << 20).build()?;
    /// let cache = Arc::new(Mutex::new(vec![[0u8; 64]; 100_000]));
    /// let (counted, scanned) = (Arc::clone(&cache), Arc::clone(&cache));
    /// let guard = manager.register_shrinker(
    ///     &manager.root(),
    ///     move || counted.lock().unwrap().len(),
    ///     move |objects| {
    ///         let mut cache = scanned.lock().unwrap();
    ///         let keep = cache.len().saturating_sub(objects);
    ///         let freed = cache.len() - keep;
    ///         cache.truncate(keep);
    ///         freed
    ///     },
    /// )?;
    /// manager.region(64 << 20)?.as_mut_slice().fill(7);
    /// while guard.stats().freed == 0 {
    ///     std::thread::yield_now();
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn register_shrinker(
        &self,
        group: &Group,
        count: impl Fn() -> usize + Send + 'static,
        scan: impl Fn(usize) -> usize + Send + 'static,
    ) -> Result<ShrinkerGuard, GroupError> {
        if !group.is_of(self.pond()) {
            return Err(GroupError::OtherManager);
        }
        let driver = self.pond().driver();
        Ok(ShrinkerGuard {
            registered: driver.add_shrinker(group.id(), count, scan)?,
            pond: Arc::clone(self.pond()),
        })
    }
}

impl ShrinkerGuard {
    /// Figures of the requests to the shrinker so far.
    #[must_use]
    pub fn stats(&self) -> ShrinkerStats {
        self.registered.stats()
    }
}

impl Drop for ShrinkerGuard {
    fn drop(&mut self) {
        if self.pond.is_ours() {
            self.pond.driver().forget_shrinker(&self.registered);
        }
    }
}

impl std::fmt::Debug for ShrinkerGuard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ShrinkerGuard")
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}
