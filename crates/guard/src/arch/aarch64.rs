use crate::table::{AARCH64, Machine};

/// The architecture that this is compiled for.
pub static HERE: &Machine = &AARCH64;
