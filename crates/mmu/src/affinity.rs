//! Chooses the processor that a service thread runs on: either a single one, or any of those it was originally
//! allowed.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The processors on which the thread that made this value may run. The value works only for that thread.
///
/// ```
/// use millpond_mmu::Affinity;
///
/// let mut affinity = Affinity::of_this_thread();
/// assert_eq!(affinity.pinned(), None);
/// affinity.pin(u32::MAX); // No such processor: nothing changes.
/// assert_eq!(affinity.pinned(), None);
/// ```
#[derive(Debug)]
pub struct Affinity {
    allowed: Option<CpuSet>,
    pinned: Option<u32>,
}

impl Affinity {
    /// Returns the affinity of the calling thread, which may now run on the processors it is allowed at this moment.
    #[must_use]
    pub fn of_this_thread() -> Self {
        Self {
            allowed: sched_getaffinity(None).ok(),
            pinned: None,
        }
    }

    /// Whether the kernel said where the thread may run, so that a pin can be undone.
    #[must_use]
    pub fn can_leave(&self) -> bool {
        self.allowed.is_some()
    }

    /// The processor that the thread is pinned to, if any.
    #[must_use]
    pub fn pinned(&self) -> Option<u32> {
        self.pinned
    }

    /// Pins the thread to `cpu`. If the kernel refuses, the thread may again run wherever it was originally allowed.
    pub fn pin(&mut self, cpu: u32) {
        if self.pinned == Some(cpu) || cpu as usize >= CpuSet::MAX_CPU {
            return;
        }
        let mut only = CpuSet::new();
        only.set(cpu as usize);
        if sched_setaffinity(None, &only).is_ok() {
            self.pinned = Some(cpu);
        } else {
            self.unpin();
        }
    }

    /// Lets the thread run wherever it was originally allowed.
    pub fn unpin(&mut self) {
        self.pinned = None;
        if let Some(allowed) = &self.allowed {
            let _ = sched_setaffinity(None, allowed);
        }
    }
}
