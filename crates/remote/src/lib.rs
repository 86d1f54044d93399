//! The last place for cold pages: objects in a store that other people operate.
//!
//! [`RemoteStore`] is another [`Store`](millpond_core::port::Store) with a [`Remote`] one behind it. What the store
//! in front has no room for is packed into objects ([`mod@format`]), sealed, and sent through OpenDAL by a separate
//! thread: to S3 and compatible services, to Redis and compatible services, or to a directory. [`clean()`] removes
//! what killed runs have left.
//!
//! [`ObjectReader`] reads objects that others put there, as the pages of regions.
//!
//! `docs/remote.md` says what both cost and promise.

mod ahead;
mod clean;
mod client;
mod config;
pub mod format;
mod health;
mod lease;
mod neighbours;
mod network;
mod object;
mod objects;
mod packer;
mod requests;
mod seats;
#[cfg(test)]
mod sim;
mod tier;
mod url;

pub use clean::{CleanError, Cleaned, LeftRun, RemovedRun, clean, clean_dry_run};
pub use config::{RemoteConfig, RemoteOpenError};
pub use object::{MappedObject, ObjectConfig, ObjectError, ObjectReader};
pub use requests::{RemoteError, TimeLimits};
pub use tier::{PATIENCE, Remote, RemoteStats, RemoteStore};
pub use url::{RemoteUrl, UrlError};
