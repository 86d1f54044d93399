//! aarch64.

pub mod frames;
pub mod gate;
mod stubs;
mod threads;
pub mod waits;

use crate::guard::real::Find;

pub(crate) use stubs::*;
pub use threads::{Unwound, on_given, this_thread, thread_pointer, tls_table};

/// There is no code for the gate yet, and so no direct delivery.
pub const HAS_GATE: bool = false;
/// No export is this processor's alone.
pub const FUNCTIONS: &[&dyn Find] = &[];
/// Newer processors never had these system calls.
pub const DUP2: &[i64] = &[];
pub const FORK: Option<i64> = None;
/// A child that is made by number is the kernel's: [`by_number`] does not look which children can be served.
pub const CHILDREN: &[i64] = &[];
/// Only x86-64 has the flag.
pub const MAP_32BIT: Option<i32> = None;
