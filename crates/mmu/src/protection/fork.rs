//! Forking memory that is watched through protections: the child inherits the protections, and they are correct. It
//! only needs access to its own closed pages.

use millpond_core::PageRange;

use super::ProtectedMemory;
use crate::error::MmuError;

impl ProtectedMemory {
    /// Implements [`RealMemory::before_fork_using`](crate::RealMemory::before_fork_using).
    pub(crate) fn before_fork(&self, ranges: &[PageRange]) {
        self.protection.before_fork(ranges);
        self.common.inherit(true, None);
    }

    /// Implements [`RealMemory::after_fork_in_parent`](crate::RealMemory::after_fork_in_parent).
    pub(crate) fn after_fork_in_parent(&self) {
        self.common.inherit(false, None);
        self.protection.after_fork_in_parent();
    }

    /// Implements [`RealMemory::after_fork_in_child`](crate::RealMemory::after_fork_in_child).
    pub(crate) fn after_fork_in_child(&self) -> Result<(), MmuError> {
        self.common.forget_others_in_child();
        let opened = self.protection.after_fork_in_child();
        opened.map_err(|errno| MmuError::Open {
            what: "/proc/self/mem",
            errno,
            way_out: "let this process write its own files in /proc",
        })?;
        self.common.open_again_in_child()?;
        self.common.attach_again_in_child(&self.watch())?;
        self.common.inherit(false, None);
        Ok(())
    }
}
