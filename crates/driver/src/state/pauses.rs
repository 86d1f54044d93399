//! Pauses: a thread that holds the kernel's lock on the address space again and again lets others have it in between.
//!
//! Giving memory back is call after call, each of which takes that lock for reading, for as long as 8 MiB take: 0.8 ms.
//! A thread that wants the lock for writing (`mmap`, `munmap`) sleeps until the call ends, and is woken then. But
//! waking takes 40 to 80 µs, the next call begins after 10, and as no thread holds the lock at that moment the call
//! takes it without queueing. A trace of one such wait shows a thread that was woken and too late nine times, until the
//! kernel's own patience ends, which is two ticks of its clock: 8 ms (at 250 Hz) for each `mmap` and as much for each
//! `munmap`, however small the pieces.
//!
//! So after each stretch of work the thread sleeps for as long as another thread needs to wake up on a processor that
//! is busy with something less urgent: 70 µs were too few for that in one case of ten, 250 are enough. The longest that
//! another thread waits is then about a stretch. The pauses cost the thread that frees a tenth of its time, and no
//! processor's.

use millpond_sync::thread;
use millpond_sync::time::Instant;
use std::time::Duration;

/// Longest work without a pause, but for the call that is under way at its end.
const STRETCH: Duration = Duration::from_millis(2);
/// Length of the pause that is asked for: the kernel's slack of 50 µs comes on top.
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
