//! Waiting for what happens elsewhere, with an end.

use std::time::{Duration, Instant};

/// Waits until something holds that another thread or a server does, for a minute at most.
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let limit = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < limit, "{what}: not within 60 seconds");
        std::thread::sleep(Duration::from_millis(10));
    }
}
