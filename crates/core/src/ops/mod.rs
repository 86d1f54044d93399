//! The core's work for each kind of event, one file per operation.

mod advise;
mod ahead;
mod charge;
mod complete;
mod deferred_split;
mod discard;
mod drop_behind;
mod evict_leaf;
mod fault;
mod file;
mod free;
mod gather_copied;
mod group;
mod lazy_free;
mod leaf_out;
mod limbo;
mod merge;
mod pin;
mod reclaim;
mod refault;
mod remap;
mod snapshot;
mod split;
mod store_full;
mod stuck;
mod walk;
