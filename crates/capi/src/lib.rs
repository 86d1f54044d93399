//! Millpond for C: thin functions over the [`millpond`] crate, as `include/millpond.h` declares and describes them.
//!
//! # Handles
//! A handle is a box. The program that got it frees it, once, and uses it before that only: that is the header's
//! contract, and all that is left to trust. A borrow keeps a caller of the Rust library from misuse; for a caller here
//! a lock in the region's handle does the same: calls that need the region for themselves (`grow`, `discard`) wait for
//! those that do not. A pin shares its region's handle, so that a region that is freed first ends with its last pin.
//!
//! # Failures
//! A call returns a status (`status.rs`), and the message of the last failure waits in the thread (`millpond_error`).
//! Null, a range that overflows, an unknown word, and a structure that is too small are refused like everything else.
//! Nothing here panics by intention; a panic ends the process, as it may not cross into C.
//!
//! # Structures
//! A caller's structure begins with its size. The structure of a program that was built with an older header is shorter
//! than ours: fields that it lacks are read as zero, or not written (`sized.rs`).
//!
//! # Forked children
//! A forked child's calls are refused before any lock is taken, since a lock may have been held when the child was
//! made. When the child frees handles, the crate underneath leaves their memory alone.

mod file;
mod group;
#[cfg(test)]
mod layout;
mod pond;
mod region;
mod shrinker;
mod sized;
mod stats;
mod status;
mod store;
