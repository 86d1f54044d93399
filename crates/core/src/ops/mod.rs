//! What the core does with each kind of event: one file an operation.

mod advise;
mod ahead;
mod charge;
pub(crate) mod clear_leaf;
mod complete;
mod deferred_split;
mod discard;
mod drop_behind;
mod fault;
mod file;
pub(crate) mod free;
mod group;
pub(crate) mod lazy_free;
pub(crate) mod leaf_out;
pub(crate) mod left_behind;
mod limbo;
mod merge;
mod pin;
pub(crate) mod reclaim;
mod refault;
mod remap;
mod snapshot;
mod split;
pub(crate) mod store_full;
pub(crate) mod stuck;
mod walk;
