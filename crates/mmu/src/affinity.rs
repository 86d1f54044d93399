//! The choice of the processor that a service thread runs on: one that it goes to, or any that it was allowed in the
//! beginning.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The processors on which the thread that made this value may run. It works for that thread alone.
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
    /// The affinity of the calling thread: where it may run now.
    #[must_use]
    pub fn of_this_thread() -> Self {
        Self {
            allowed: sched_getaffinity(None).ok(),
            pinned: None,
        }
    }

    /// Whether the kernel said where the thread may run, so that the thread can leave a processor again.
    #[must_use]
    pub fn can_leave(&self) -> bool {
        self.allowed.is_some()
    }

    /// The processor that the thread went to, if any.
    #[must_use]
    pub fn pinned(&self) -> Option<u32> {
        self.pinned
    }

    /// Moves the thread to `cpu`, or back to where it was allowed to run when the kernel refuses that.
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

    /// Moves the thread back to where it was allowed to run.
    pub fn unpin(&mut self) {
        self.pinned = None;
        if let Some(allowed) = &self.allowed {
            let _ = sched_setaffinity(None, allowed);
        }
    }
}
