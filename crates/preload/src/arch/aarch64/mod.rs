//! aarch64.

pub mod frames;
pub mod gate;
mod stubs;
mod threads;
pub mod waits;

use crate::guard::real::Find;

pub(crate) use stubs::*;
pub use threads::{Unwound, on_given, this_thread, thread_pointer, tls_table};

/// There is no gate code yet, so there is no direct delivery.
pub const HAS_GATE: bool = false;
/// No export is specific to this processor.
pub const FUNCTIONS: &[&dyn Find] = &[];
/// Newer processors never had these system calls.
pub const DUP2: &[i64] = &[];
pub const FORK: Option<i64> = None;
pub const REPEATED: &[i64] = &[];
/// The kernel makes children that are requested by number: [`by_number`] does not check which of them can be served.
pub const CHILDREN: &[i64] = &[];
/// Only x86-64 has this flag.
pub const MAP_32BIT: Option<i32> = None;
