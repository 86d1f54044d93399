//! Waits for events elsewhere, up to a limit.

use std::time::{Duration, Instant};

/// Waits up to a minute until another thread or a server has made a condition hold.
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let limit = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < limit, "{what}: not within 60 seconds");
        std::thread::sleep(Duration::from_millis(10));
    }
}
