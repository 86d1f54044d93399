//! Whether the store answers: available to everyone who asks, reported to the user, counted.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// How long the store is away before a line says so: most disturbances are shorter.
const TELL_AFTER: Duration = Duration::from_secs(3);

/// The state of the connection to the store.
pub(crate) struct Health {
    /// The object whose pages are waiting; `None` for a store for cold pages.
    object: Option<String>,
    begun: Instant,
    /// When the first failed attempt since the last answer happened, in milliseconds since `begun`, plus one.
    since: AtomicU64,
    told: AtomicBool,
    failures: AtomicU64,
}

impl Health {
    /// Makes the state for a store for cold pages.
    pub(crate) fn of_store() -> Self {
        Self::of(None)
    }

    /// Makes the state for the place of a mapped object.
    pub(crate) fn of_object(url: &str) -> Self {
        Self::of(Some(url.to_owned()))
    }

    fn of(object: Option<String>) -> Self {
        Self {
            object,
            begun: Instant::now(),
            since: AtomicU64::new(0),
            told: AtomicBool::new(false),
            failures: AtomicU64::new(0),
        }
    }

    /// Returns how long the store has been away, if it is.
    pub(crate) fn away_for(&self) -> Option<Duration> {
        let since = self.since.load(Relaxed).checked_sub(1)?;
        Some(
            self.begun
                .elapsed()
                .saturating_sub(Duration::from_millis(since)),
        )
    }

    /// Returns the number of failed attempts.
    pub(crate) fn failures(&self) -> u64 {
        self.failures.load(Relaxed)
    }

    /// Notes that an attempt failed.
    pub(crate) fn failed(&self, why: &str) {
        self.failures.fetch_add(1, Relaxed);
        let now = self.begun.elapsed().as_millis() as u64 + 1;
        let _ = self.since.compare_exchange(0, now, Relaxed, Relaxed);
        let away = self.away_for().unwrap_or_default();
        if away >= TELL_AFTER && !self.told.swap(true, Relaxed) {
            let seconds = away.as_secs();
            match &self.object {
                None => eprintln!(
                    "millpond: the remote store has not answered for {seconds} s ({why}): nothing new is sent there, and pages that are only there wait"
                ),
                Some(url) => eprintln!(
                    "millpond: the object {url} could not be read for {seconds} s ({why}): pages of it that are not in memory wait"
                ),
            }
        }
    }

    /// Notes that the store has answered.
    pub(crate) fn answered(&self) {
        let away = self.away_for();
        self.since.store(0, Relaxed);
        if self.told.swap(false, Relaxed) {
            let seconds = away.unwrap_or_default().as_secs();
            match &self.object {
                None => eprintln!("millpond: the remote store answers again after {seconds} s"),
                Some(url) => {
                    eprintln!("millpond: the object {url} can be read again after {seconds} s");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_away_from_a_failure_until_an_answer() {
        let health = Health::of_store();
        assert_eq!(health.away_for(), None);
        health.failed("refused");
        assert!(health.away_for().is_some());
        health.failed("refused");
        assert_eq!(health.failures(), 2);
        health.answered();
        assert_eq!(health.away_for(), None);
    }
}
