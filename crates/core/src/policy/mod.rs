//! The mechanisms that decide: from the past they compute a number or a choice.

pub(crate) mod balance;
pub(crate) mod copied;
pub mod curve;
pub(crate) mod demand;
pub(crate) mod duel;
pub(crate) mod first_fill;
pub(crate) mod limbo_share;
pub(crate) mod order;
pub mod pressure;
pub(crate) mod sample;
pub(crate) mod shadow;
pub mod shrink;
pub(crate) mod store_room;
pub(crate) mod streams;
pub(crate) mod whole_leaf;
pub mod workingset;
