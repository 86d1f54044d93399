//! Instructions that may fault: a thread that faults there continues elsewhere.
//!
//! The kernel has to touch user memory under locks, and must not wait for it there. Its solution is the exception
//! table: an instruction that may fault has a place where execution continues when it does. The table here covers the
//! two routines of this backend that touch memory that may be absent, [`zero`](super::zero) and
//! [`copy_nofault`](super::copy_nofault). The SIGBUS handler consults it before anything else, and makes a thread
//! that faulted in one of them continue at the end that returns false.
//!
//! With handler delivery there is no signal, and some processors have no such routines (`arch`): there
//! [`Common::can_skip`] returns false.

use super::Common;
use crate::arch;
use crate::interrupted::{go_on_at, instruction};

impl Common {
    /// Whether a thread that faults in this arena can skip the fault.
    pub(super) fn can_skip(&self) -> bool {
        self.delivery.is_by_signal() && arch::SKIPS_FAULTS
    }
}

/// Makes a thread that faulted in one of the routines continue at its end. Returns false if it faulted elsewhere.
pub(crate) fn skip(context: &mut libc::ucontext_t) -> bool {
    let at = instruction(context);
    let mut lines = arch::lines().into_iter();
    let found = lines.find(|line| line.instructions.contains(&at));
    if let Some(line) = &found {
        go_on_at(context, line.end);
    }
    found.is_some()
}
