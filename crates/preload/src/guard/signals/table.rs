//! The program's actions.
//!
//! The kernel has our handlers, so the program's actions are kept here. Signal handlers read the table while a thread
//! writes it, perhaps the very thread that they interrupt. So there are two records for each signal, and a number
//! whose lowest bit selects the valid one. A writer fills the other one and then increments the number. A reader
//! copies a record and checks that the number is still the same; it never waits for a writer.
//!
//! *Handlers for one signal only* (`SA_RESETHAND`) are spent by a handler, which cannot wait for a writer either. So
//! it does not change the record: it marks the record of this number as spent, and readers see the default action
//! instead.
//!
//! *Writers* exclude one another with a word. A thread that holds it runs no handler of the program meanwhile; a new
//! child frees it, since another thread of the parent may have held it.

use crate::raw;
use crate::signals::Blocked;
use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};

/// An action in the kernel's layout.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Action {
    pub handler: usize,
    pub flags: usize,
    pub restorer: usize,
    pub mask: usize,
}

const WORDS: usize = size_of::<Action>() / size_of::<usize>();

/// The record of one signal.
pub struct Record {
    /// Counts the changes. The lowest bit selects the valid copy.
    number: AtomicUsize,
    copies: [[AtomicUsize; WORDS]; 2],
    /// The number, plus one, of a record whose handler has had its only call.
    spent: AtomicUsize,
}

impl Record {
    const fn new() -> Self {
        Self {
            number: AtomicUsize::new(0),
            copies: [const { [const { AtomicUsize::new(0) }; WORDS] }; 2],
            spent: AtomicUsize::new(0),
        }
    }

    /// Returns the record of a signal's action if the program may change it, which excludes the signals that the C
    /// library reserves, SIGKILL and SIGSTOP.
    pub fn of(signal: c_int) -> Option<&'static Self> {
        let is_fixed = matches!(signal, 0 | 32 | 33 | libc::SIGKILL | libc::SIGSTOP);
        usize::try_from(signal)
            .ok()
            .filter(|_| !is_fixed)
            .and_then(|at| ALL.get(at))
    }

    /// Returns the action as the program would read it.
    pub fn get(&self) -> Action {
        self.read().1
    }

    fn read(&self) -> (usize, Action) {
        loop {
            let number = self.number.load(Acquire);
            let [handler, flags, restorer, mask] = self.copies[number & 1]
                .each_ref()
                .map(|word| word.load(Acquire));
            let is_spent = self.spent.load(Acquire) == number + 1;
            if self.number.load(Acquire) == number {
                let handler = if is_spent { libc::SIG_DFL } else { handler };
                let action = Action {
                    handler,
                    flags,
                    restorer,
                    mask,
                };
                return (number, action);
            }
        }
    }

    /// Returns the action for a signal that has just arrived. A handler for one signal only is spent by this.
    pub fn take(&self) -> Action {
        let (number, mut action) = self.read();
        if action.flags & libc::SA_RESETHAND as usize != 0 && action.handler != libc::SIG_DFL {
            let before = self.spent.load(Acquire);
            let is_first = before != number + 1
                && self
                    .spent
                    .compare_exchange(before, number + 1, AcqRel, Acquire)
                    .is_ok();
            if !is_first {
                action.handler = libc::SIG_DFL;
            }
        }
        action
    }

    /// Sets the action.
    pub fn set(&self, _writer: &Writer, action: &Action) {
        let number = self.number.load(Relaxed) + 1;
        let words = [action.handler, action.flags, action.restorer, action.mask];
        for (place, word) in self.copies[number & 1].iter().zip(words) {
            place.store(word, Release);
        }
        self.number.store(number, Release);
    }
}

/// The highest signal number.
pub const LAST: c_int = 64;

static ALL: [Record; LAST as usize + 1] = [const { Record::new() }; LAST as usize + 1];

static IS_WRITING: AtomicBool = AtomicBool::new(false);

/// The right to change actions.
pub struct Writer(#[expect(dead_code, reason = "it is dropped last")] Blocked);

impl Writer {
    pub fn begin() -> Self {
        let blocked = Blocked::new();
        while IS_WRITING.swap(true, Acquire) {
            // SAFETY: the call changes nothing.
            let _ = unsafe { raw::syscall(libc::SYS_sched_yield, [0; 6]) };
        }
        Self(blocked)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        IS_WRITING.store(false, Release);
    }
}

/// Lets writers write again in a new child.
pub fn after_fork_in_child() {
    IS_WRITING.store(false, Release);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn action(n: usize) -> Action {
        Action {
            handler: 10 * n,
            flags: 20 * n,
            restorer: 30 * n,
            mask: 40 * n,
        }
    }

    #[test]
    fn a_reader_sees_whole_actions_while_writers_change_them() {
        static RECORD: Record = Record::new();
        std::thread::scope(|scope| {
            for first in 0..2 {
                scope.spawn(move || {
                    for n in (first..20_000).step_by(2) {
                        RECORD.set(&Writer::begin(), &action(n));
                    }
                });
            }
            scope.spawn(|| {
                for _ in 0..100_000 {
                    let seen = RECORD.get();
                    assert_eq!(seen, action(seen.handler / 10));
                }
            });
        });
    }

    #[test]
    fn a_one_shot_handler_is_taken_once_until_it_is_set_again() {
        static RECORD: Record = Record::new();
        let once = Action {
            handler: 4096,
            flags: libc::SA_RESETHAND as usize,
            ..Action::default()
        };
        for _ in 0..2 {
            RECORD.set(&Writer::begin(), &once);
            assert_eq!(RECORD.get(), once);
            assert_eq!(RECORD.take(), once);
            let spent = Action {
                handler: libc::SIG_DFL,
                ..once
            };
            assert_eq!(RECORD.get(), spent);
            assert_eq!(RECORD.take(), spent);
        }
    }
}
