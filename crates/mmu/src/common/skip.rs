//! Instructions that may fault: a thread that faults there goes on elsewhere.
//!
//! The kernel has to touch user memory under locks, and may not wait for it there. Its answer is the exception table:
//! an instruction that may fault has a place to go on at when it does. The table here is of the two routines of this
//! backend that touch memory which may not be there, [`zero`](super::zero) and [`copy_nofault`](super::copy_nofault).
//! The SIGBUS handler looks there before anything else, and sends a thread that faulted in one of them to the end that
//! answers false.
//!
//! With handler delivery no signal comes, and some processors have no such routines (`arch`): there
//! [`Common::can_skip`] says no.

use super::Common;
use crate::arch;
use crate::interrupted::{go_on_at, instruction};

impl Common {
    /// Whether a thread that faults in this arena can be sent on.
    pub(super) fn can_skip(&self) -> bool {
        self.delivery.is_by_signal() && arch::SKIPS_FAULTS
    }
}

/// Sends a thread that faulted in one of the routines to its end. The answer is false when it faulted elsewhere.
pub(crate) fn skip(context: &mut libc::ucontext_t) -> bool {
    let at = instruction(context);
    let mut lines = arch::lines().into_iter();
    let found = lines.find(|line| line.instructions.contains(&at));
    if let Some(line) = &found {
        go_on_at(context, line.end);
    }
    found.is_some()
}
