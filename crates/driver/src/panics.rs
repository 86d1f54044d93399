//! The marks of `millpond_mmu::panics`, by which a panic of Millpond is told from one of the program, for threads that
//! the driver starts.
//!
//! Under shuttle a panic is what the scheduler reports, and all threads of an execution are one of the kernel's, so
//! that a mark would be on all of them.

#[cfg(not(feature = "shuttle"))]
pub use millpond_mmu::panics::{Ours, Outside};

#[cfg(feature = "shuttle")]
mod unmarked {
    /// No mark.
    pub struct Ours;
    /// Takes no mark off.
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
