//! The threads that the background thread makes: the watchdog, and the workers that free.
//!
//! It makes them at its first tick, because most processes end before that. Then it stands in a descriptor table of its
//! own, and so do they ([`Driver::isolate`]). A thread that the background thread makes must therefore never be the one
//! that runs the program's exit handlers: what these write would go nowhere. The C library lets the last thread that it
//! counts run them, and it counts a new thread until that has begun. So a program whose first thread ends while others
//! remain has the threads made before that ([`Driver::make_others_now`]).

use crate::driver::Driver;
use millpond_mmu::report;
use millpond_sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use millpond_sync::thread;
use millpond_sync::time::Instant;
use std::sync::Arc;
use std::time::Duration;

/// Number of ticks at which the thread tries to make the other threads before it gives up.
const TRIES: u32 = 20;
/// Longest time for which a thread waits until the others are made.
const PATIENCE: Duration = Duration::from_secs(2);
/// Time between two looks of a thread that waits.
const LOOK: Duration = Duration::from_micros(50);

/// The maker of the threads that watch for long waits and that free.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Others {
    /// The thread that makes the background thread.
    ByMaker,
    /// The background thread, at its first tick.
    AtFirstTick,
}

/// The threads that the background thread has yet to make.
pub(crate) struct Unmade {
    /// Number of ticks at which it still tries. While a thread of the program executes another program, or tries to,
    /// the kernel makes no thread (`EAGAIN`).
    tries: AtomicU32,
    /// Whether the watchdog is there.
    is_watched: AtomicBool,
    /// Whether somebody waits for the threads.
    are_wanted: AtomicBool,
    /// Whether the thread is making threads, without its lock; see [`fork`](crate::fork).
    makes: AtomicBool,
}

impl Unmade {
    pub(crate) fn new() -> Self {
        Self {
            tries: AtomicU32::new(0),
            is_watched: AtomicBool::new(false),
            are_wanted: AtomicBool::new(false),
            makes: AtomicBool::new(false),
        }
    }

    /// Records what a new background thread has to make. In a child, the parent's may have been at any point.
    pub(crate) fn begin(&self, others: Others) {
        self.makes.store(false, SeqCst);
        self.are_wanted.store(false, SeqCst);
        self.is_watched.store(others == Others::ByMaker, SeqCst);
        let tries = match others {
            Others::ByMaker => 0,
            Others::AtFirstTick => TRIES,
        };
        self.tries.store(tries, SeqCst);
    }

    /// Whether the background thread is making threads.
    pub(crate) fn are_being_made(&self) -> bool {
        self.makes.load(SeqCst)
    }
}

impl Driver {
    /// Starts the watchdog and the workers, if they are still to be made and a tick or somebody who waits asks for it.
    /// If they cannot be made, the process continues without them: the freeing thread gives memory back itself, and
    /// long waits are not reported.
    pub(crate) fn start_others(self: &Arc<Self>, is_tick: bool) {
        let unmade = &self.others;
        let tries = unmade.tries.load(SeqCst);
        if tries == 0 || !(unmade.are_wanted.swap(false, SeqCst) || is_tick) {
            return;
        }
        unmade.makes.store(true, SeqCst);
        let made = self.start_unmade();
        unmade.makes.store(false, SeqCst);
        let tries = match made {
            Ok(()) => 0,
            Err(_) => tries - 1,
        };
        unmade.tries.store(tries, SeqCst);
        if let (0, Err(error)) = (tries, made) {
            report::line(format_args!(
                "no thread to free memory in the background, or to watch for long waits ({error}): raise `ulimit -u`"
            ));
        }
    }

    fn start_unmade(self: &Arc<Self>) -> std::io::Result<()> {
        if !self.others.is_watched.load(SeqCst) {
            self.start_watching()?;
            self.others.is_watched.store(true, SeqCst);
        }
        self.start_freeing()
    }

    /// Has the background thread make the threads that it has yet to make, and waits for that, though not for ever: a
    /// system without threads to give is asked again at each tick. The caller holds no lock that `malloc` takes.
    pub fn make_others_now(&self) {
        let begun = Instant::now();
        self.others.are_wanted.store(true, SeqCst);
        while self.others.tries.load(SeqCst) > 0 && begun.elapsed() < PATIENCE {
            self.kick();
            thread::sleep(LOOK);
        }
    }
}
