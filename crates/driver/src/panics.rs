//! The marks of `millpond_mmu::panics`, which distinguish our panics from the program's, for threads that the driver
//! starts.
//!
//! Under shuttle the scheduler reports failures by panics, and all threads of an execution run on one kernel thread, so
//! a mark would apply to all of them.

#[cfg(not(feature = "shuttle"))]
pub use millpond_mmu::panics::{Ours, Outside};

#[cfg(feature = "shuttle")]
mod unmarked {
    /// No mark.
    pub struct Ours;
    /// Removes no mark.
    pub struct Outside;

    impl Ours {
        pub fn enter() -> Self {
            Self
        }
    }

    impl Outside {
        pub fn enter() -> Self {
            Self
        }
    }
}

#[cfg(feature = "shuttle")]
pub use unmarked::{Ours, Outside};
