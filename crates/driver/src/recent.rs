//! The last events and commands, in builds that check themselves.
//!
//! A core that finds itself inconsistent reports what does not fit, but not how that came about: the event that it
//! could not accept is only the last of a history. So debug builds keep the last events and commands of all managers in
//! one ring, and write them before the message about the inconsistency.
//!
//! The ring is static: the panic occurs with the core's lock held, so nothing that this lock guards could be read then.
//! The ring's own lock is only ever tried, and never held while the core works or memory is touched: a thread that
//! finds it taken continues, and its entry is missing. In the child of a fork the lock may stay taken, and then the
//! ring records nothing there.

use millpond_core::{Commands, Core, Event, Reply};
use std::ops::{Deref, DerefMut};

/// The core, and a witness of the events that are sent to it.
#[derive(Debug)]
pub struct Witnessed {
    core: Core,
    #[cfg(debug_assertions)]
    number: u32,
}

impl Witnessed {
    pub fn new(core: Core) -> Self {
        Self {
            core,
            #[cfg(debug_assertions)]
            number: ring::new_core(),
        }
    }

    /// See [`Core::handle`].
    #[inline]
    pub fn handle(&mut self, event: Event, out: &mut Commands) -> Reply {
        #[cfg(debug_assertions)]
        let held = {
            ring::keep(self.number, ring::What::Told(event));
            out.len()
        };
        let reply = self.core.handle(event, out);
        #[cfg(debug_assertions)]
        {
            ring::keep(self.number, ring::What::Answered(reply));
            for command in out.iter().skip(held) {
                ring::keep(self.number, ring::What::Asked(command));
            }
        }
        reply
    }

    /// Ends the process if [`Core::check`] has found the state inconsistent.
    #[cfg(debug_assertions)]
    pub fn judge(&self, found: Result<(), String>) {
        if let Err(what) = found {
            ring::tell();
            millpond_mmu::report::stop(format_args!("a bug in Millpond: {what}: stopped"));
        }
    }
}

impl Deref for Witnessed {
    type Target = Core;
    #[inline]
    fn deref(&self) -> &Core {
        &self.core
    }
}

impl DerefMut for Witnessed {
    #[inline]
    fn deref_mut(&mut self) -> &mut Core {
        &mut self.core
    }
}

#[cfg(debug_assertions)]
mod ring {
    use millpond_core::limits::RECENT;
    use millpond_core::{Command, Event, Reply};
    use millpond_mmu::{panics, report};
    use millpond_sync::witness::Mark;
    use millpond_sync::{Rank, if_free};
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::{Mutex, MutexGuard};

    /// One thing that happened.
    #[expect(dead_code, reason = "what is in it is printed")]
    #[derive(Clone, Copy, Debug)]
    pub enum What {
        Told(Event),
        Answered(Reply),
        Asked(Command),
    }

    struct Ring {
        entries: [Option<(u32, What)>; RECENT],
        /// Place of the next entry, which is also that of the oldest.
        next: usize,
    }

    static RING: Mutex<Ring> = Mutex::new(Ring {
        entries: [None; RECENT],
        next: 0,
    });
    static CORES: AtomicU32 = AtomicU32::new(0);

    /// Gives a new core its number.
    pub fn new_core() -> u32 {
        panics::tell_before(tell);
        CORES.fetch_add(1, Ordering::Relaxed)
    }

    /// The ring and the mark of its lock, if no thread has it.
    fn take() -> Option<(MutexGuard<'static, Ring>, Mark)> {
        let ring = if_free(RING.try_lock())?;
        Some((ring, Mark::tried(Rank::Recent)))
    }

    pub fn keep(core: u32, what: What) {
        if let Some((mut ring, _mark)) = take() {
            let next = ring.next;
            ring.entries[next] = Some((core, what));
            ring.next = (next + 1) % RECENT;
        }
    }

    /// Writes the entries, the oldest first.
    pub fn tell() {
        let Some((ring, _mark)) = take() else { return };
        let (later, earlier) = ring.entries.split_at(ring.next);
        for (core, what) in earlier.iter().chain(later).flatten() {
            report::line(format_args!("core {core}: {what:?}"));
        }
    }
}
