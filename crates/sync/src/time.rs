//! The clock on which threads base decisions: the machine's, or one that counts the scheduler's steps.
//!
//! A schedule that depended on the machine's clock could not be replayed. So under shuttle time advances with the steps
//! of the scheduler, a tenth of a millisecond each: then a tick comes after a thousand steps, and a pause ends after
//! twenty.

#[cfg(not(feature = "shuttle"))]
pub use std::time::Instant;

#[cfg(feature = "shuttle")]
pub use stepped::Instant;

#[cfg(feature = "shuttle")]
mod stepped {
    use std::ops::{Add, Sub};
    use std::time::Duration;

    const STEP: Duration = Duration::from_micros(100);

    /// A moment, like [`std::time::Instant`]. Outside an execution the clock stands at the beginning.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
    pub struct Instant(Duration);

    impl Instant {
        /// The present moment.
        pub fn now() -> Self {
            let steps = shuttle::current::try_get_current_task()
                .map_or(0, |_| shuttle::current::context_switches());
            Self(STEP * steps as u32)
        }

        /// The time since this moment.
        pub fn elapsed(&self) -> Duration {
            Self::now() - *self
        }

        /// The time since `earlier`.
        pub fn duration_since(&self, earlier: Self) -> Duration {
            *self - earlier
        }

        /// The time since `earlier`; zero if `earlier` is later.
        pub fn saturating_duration_since(&self, earlier: Self) -> Duration {
            *self - earlier
        }
    }

    impl Sub for Instant {
        type Output = Duration;
        fn sub(self, earlier: Self) -> Duration {
            self.0.saturating_sub(earlier.0)
        }
    }

    impl Add<Duration> for Instant {
        type Output = Self;
        fn add(self, time: Duration) -> Self {
            Self(self.0 + time)
        }
    }
}
