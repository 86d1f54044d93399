//! The driver's state: tables, queues and counts, each with the lock that guards it. Nothing here depends on the
//! driver.

pub(crate) mod children;
pub mod config;
pub(crate) mod file_room;
pub(crate) mod files;
pub(crate) mod governor;
pub(crate) mod growth;
pub mod latency;
pub(crate) mod lazy_batch;
pub mod named;
pub(crate) mod pauses;
pub(crate) mod prefetch;
pub mod queue;
pub(crate) mod ram_worth;
pub(crate) mod read_ahead;
pub(crate) mod reclaim_cpu;
pub(crate) mod recompress;
pub mod record;
pub(crate) mod refault_cost;
pub(crate) mod reuse;
pub mod shrink;
pub(crate) mod stall;
pub(crate) mod store_share;
pub(crate) mod watchdog;
pub(crate) mod writer;
