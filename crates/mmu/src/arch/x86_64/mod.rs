//! x86-64.

mod call;
pub(crate) mod frame;
mod routines;
pub(crate) mod touch;

pub(crate) use call::{call, call_at};
pub(crate) use routines::{copy_nofault, lines, zero, zero_if_mapped};

/// The frame of a fault contains the processor's error code.
pub(crate) const TELLS_ACCESSES: bool = true;
pub(crate) const SKIPS_FAULTS: bool = true;
pub(crate) const MOVES_TABLES: bool = true;
