//! The default manager: the one that `collect` uses.

use crate::manager::Manager;
use millpond_sync::{PerProcess, Rank};

static DEFAULT: PerProcess<Option<Manager>> = PerProcess::new(Rank::DefaultManager, || None);

impl Manager {
    /// Makes this manager the default of the process: the one that a [`PondVec`](crate::PondVec) is collected into. A
    /// default before it is replaced, and ends with its last clone and region. The last default lives as long as the
    /// process; a budget cannot be guessed, so without this call there is no default.
    ///
    /// ```
    /// use millpond::{Manager, PondVec};
    ///
    /// Manager::builder().ram(16 << 20).build()?.make_default();
    /// let squares: PondVec<u64> = (0..4_000_000).map(|n| n * n).collect();
    /// let even: PondVec<u64> = squares.iter().copied().filter(|n| n % 2 == 0).collect();
    /// assert_eq!((even.len(), even[1_000]), (2_000_000, 4_000_000));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn make_default(&self) {
        let replaced = DEFAULT.lock().replace(self.clone());
        // A manager may end here, with its threads, which takes locks of its own.
        drop(replaced);
    }

    /// The manager that was [made the default](Self::make_default) in this process. A forked child has none until it
    /// makes one the default.
    ///
    /// ```
    /// use millpond::Manager;
    ///
    /// assert!(Manager::get_default().is_none());
    /// Manager::builder().ram(16 << 20).build()?.make_default();
    /// assert_eq!(Manager::get_default().unwrap().stats().vm.nr_mapped, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn get_default() -> Option<Self> {
        DEFAULT.lock().clone()
    }
}
