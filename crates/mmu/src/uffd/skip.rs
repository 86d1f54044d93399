//! Instructions that may fault: a thread that faults there goes on elsewhere.
//!
//! The kernel has to touch user memory under locks, and may not wait for it there. Its answer is the exception table:
//! an instruction that may fault has a place to go on at when it does. The table here is of the two routines of this
//! backend that touch memory which may not be there, [`zero`](super::zero) and [`copy_nofault`](super::copy_nofault).
//! The SIGBUS handler looks there before anything else, and sends a thread that faulted in one of them to the end that
//! answers false.
//!
//! With handler delivery no signal comes, and other processors have other registers: there [`Uffd::can_skip`] says
//! no.

use super::Uffd;
#[cfg(target_arch = "x86_64")]
use super::{copy_nofault, zero};
#[cfg(target_arch = "x86_64")]
use crate::interrupted::{go_on_at, instruction};

/// The addresses of instructions that may fault, and the place where a thread that faults there goes on.
#[cfg(target_arch = "x86_64")]
pub(super) struct Line {
    pub(super) stores: std::ops::Range<usize>,
    pub(super) end: usize,
}

impl Uffd {
    /// Whether a thread that faults in this arena can be sent on.
    pub(super) fn can_skip(&self) -> bool {
        self.delivery().is_by_signal() && cfg!(target_arch = "x86_64")
    }
}

/// Sends a thread that faulted in one of the routines to its end. The answer is false when it faulted elsewhere.
#[cfg(target_arch = "x86_64")]
pub(crate) fn skip(context: &mut libc::ucontext_t) -> bool {
    let at = instruction(context);
    let lines = [zero::line(), copy_nofault::line()];
    let found = lines.into_iter().find(|line| line.stores.contains(&at));
    if let Some(line) = &found {
        go_on_at(context, line.end);
    }
    found.is_some()
}

/// Other processors have no such routines.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn skip(_context: &mut libc::ucontext_t) -> bool {
    false
}
