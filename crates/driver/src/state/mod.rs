//! The driver's state: tables, queues and counts, each with the lock that guards it. Nothing here knows the driver.

pub(crate) mod children;
pub mod config;
pub(crate) mod freed;
pub(crate) mod governor;
pub(crate) mod kept;
pub mod latency;
pub mod named;
pub(crate) mod place;
pub(crate) mod prefetch;
pub mod queue;
pub mod record;
pub(crate) mod refault_cost;
pub mod shrink;
pub(crate) mod stall;
pub(crate) mod store_share;
pub(crate) mod turns;
pub(crate) mod watchdog;
