//! Millpond for C: thin functions over the [`millpond`] crate, as `include/millpond.h` declares and describes them.
//!
//! # Handles
//! A handle is a box. Whoever got it frees it, once, and uses it before that only: the header's contract, and all that
//! is left to trust. What a caller of the Rust library is kept from by a borrow, a caller here is kept from by a lock
//! in the region's handle: calls that need the region for themselves (`grow`, `discard`) wait for those that do not. A
//! pin shares its region's handle, so that a region that is freed first ends with its last pin.
//!
//! # Failures
//! A call returns a status (`status.rs`), and the message of what failed waits in the thread
//! (`millpond_error`). Null, a range that overflows, a word that is none, and a structure that is too small are
//! refused like everything else. Nothing here panics by intention; a panic ends the process, as it may not cross into
//! C.
//!
//! # Structures
//! A caller's structure begins with its size. An older program's is shorter than ours: what it does not have is zero,
//! or not written (`sized.rs`).
//!
//! # Forked children
//! A child's calls are refused before any lock is taken, since a lock may have been held when the child was made; what
//! it frees the crate underneath leaves alone.

mod group;
#[cfg(test)]
mod layout;
mod pond;
mod region;
mod shrinker;
mod sized;
mod stats;
mod status;
