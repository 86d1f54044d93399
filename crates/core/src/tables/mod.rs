//! The tables of the state, which decide nothing.

pub(crate) mod extent;
pub mod fold;
pub mod folio;
pub(crate) mod frames;
pub mod group;
pub(crate) mod leaf;
pub(crate) mod leaving;
pub(crate) mod lru;
pub(crate) mod places;
pub(crate) mod recount;
pub mod region;
pub mod sparse;
pub mod swap;
pub mod volatile;
