//! Millpond for C: thin functions over the [`millpond`] crate, as `include/millpond.h` declares and describes them.
//!
//! # Handles
//! A handle is a box. The program that received it frees it exactly once, and does not use it afterwards: that is the
//! header's contract, and the only thing that we have to trust. In Rust, a borrow protects users of the library from
//! misuse; here, a lock in the region's handle does the same: calls that need the region exclusively (`grow`,
//! `discard`) wait for those that do not. A pin shares its region's handle, so a region that is freed first ends with
//! its last pin.
//!
//! # Failures
//! A call returns a status (`status.rs`), and the message of the last failure is kept in the thread
//! (`millpond_error`). Null, a range that overflows, an unknown word, and a structure that is too small are refused
//! like any other wrong argument. Nothing here panics intentionally; a panic ends the process, because it must not
//! cross into C.
//!
//! # Structures
//! A caller's structure begins with its size. The structure of a program built with an older header is shorter than
//! ours: the fields that it lacks are read as zero, or not written (`sized.rs`).
//!
//! # Forked children
//! A forked child's calls are refused before any lock is taken, because a lock may have been held when the child was
//! created. When the child frees handles, the underlying crate leaves their memory alone.

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
