//! Pauses: a thread that repeatedly takes the kernel's lock on the address space lets others take it in between.
//!
//! Memory is given back call after call, and each call holds that lock for reading, for as long as 8 MiB take: 0.8 ms.
//! A thread that needs the lock for writing (`mmap`, `munmap`) sleeps until the call ends, and is then woken. But
//! waking takes 40 to 80 µs, the next call begins after 10, and as no thread holds the lock at that moment, the call
//! takes it without queueing. A trace of one such wait shows a thread that was woken nine times and came too late each
//! time, until the kernel's own patience ended, which is two ticks of its clock: 8 ms (at 250 Hz) for each `mmap` and
//! as much for each `munmap`, however small the pieces.
//!
//! So after each stretch of work the thread sleeps for as long as another thread needs to wake up on a processor that
//! is busy with less urgent work: 70 µs were too short in one case of ten, 250 are enough. Another thread then waits
//! for about one stretch at most. The pauses cost the freeing thread a tenth of its time, but no processor time.

use millpond_sync::thread;
use millpond_sync::time::Instant;
use std::time::Duration;

/// Longest work without a pause, not counting the call in progress at its end.
const STRETCH: Duration = Duration::from_millis(2);
/// Requested length of a pause: the kernel's slack of 50 µs comes on top.
const PAUSE: Duration = Duration::from_micros(200);

/// The work of one thread; see the [module](self).
pub struct Pauses {
    since: Instant,
}

impl Pauses {
    /// Begins the work.
    pub fn new() -> Self {
        Self {
            since: Instant::now(),
        }
    }

    /// Pauses between two calls, if it is time for a pause.
    pub fn pause_if_due(&mut self) {
        if self.since.elapsed() >= STRETCH {
            thread::sleep(PAUSE);
            self.since = Instant::now();
        }
    }
}
