use crate::table::{Machine, X86_64};

/// The architecture that this is compiled for.
pub static HERE: &Machine = &X86_64;
