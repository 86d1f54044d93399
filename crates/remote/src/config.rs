//! The settings of a remote store, and why it may fail to open.

use crate::requests::{RemoteError, TimeLimits};
use crate::url::{RemoteUrl, UrlError};

/// The number of objects for which the bytes fetched ahead have room.
const AHEAD: usize = 3;

/// The settings of a [`RemoteStore`](crate::RemoteStore).
#[derive(Clone, Debug)]
pub struct RemoteConfig {
    /// Where the objects go.
    pub url: RemoteUrl,
    /// The number of bytes that the store in front has room for, excluding RAM, whose limit it reports itself
    /// ([`Tiers::ram_most`](millpond_core::port::Tiers::ram_most)). Slots leave it once seven eighths of the total
    /// are used.
    pub local_room: u64,
    /// The maximum number of bytes that all objects may take.
    pub max_bytes: Option<u64>,
    /// Bytes in an object. The one being filled, and those being sent, are in RAM.
    pub object_bytes: usize,
    /// The maximum number of objects being sent at the same time.
    pub sending: usize,
    /// The maximum number of bytes kept of what was fetched ahead. If 0, nothing is fetched ahead.
    pub ahead_bytes: usize,
    /// Bytes of RAM for loaded pages. For that many bytes we know whether they have changed when they leave;
    /// everything else counts as changed.
    pub memory_bytes: u64,
    /// Time limits.
    pub limits: TimeLimits,
}

impl RemoteConfig {
    /// Returns the default settings: objects of 4 MiB, two sent at the same time, 12 MiB fetched ahead, no limit on
    /// space.
    #[must_use]
    pub fn new(url: RemoteUrl, local_room: u64) -> Self {
        Self {
            url,
            local_room,
            max_bytes: None,
            object_bytes: 4 << 20,
            sending: 2,
            ahead_bytes: AHEAD * (4 << 20),
            memory_bytes: 0,
            limits: TimeLimits::default(),
        }
    }

    /// Returns the settings for a budget of `ram` bytes. What is being packed and sent is in RAM, so objects are
    /// small if the budget is: a thirty-second of it, and 512 KiB to 4 MiB.
    #[must_use]
    pub fn for_budget(url: RemoteUrl, local_room: u64, ram: u64) -> Self {
        let object_bytes = (ram / 32).clamp(512 << 10, 4 << 20) as usize;
        Self {
            object_bytes,
            ahead_bytes: AHEAD * object_bytes,
            memory_bytes: ram,
            ..Self::new(url, local_room)
        }
    }
}

/// Why a remote store could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RemoteOpenError {
    /// The URL does not name a store.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// The store does not accept an object.
    #[error(
        "{url} takes no objects: {error}; check that it is there, and the credentials in the environment"
    )]
    Refused {
        /// The store.
        url: String,
        /// Its answer.
        error: RemoteError,
    },
    /// The system refuses memory, random bytes or a thread.
    #[error(
        "the remote store cannot start ({0}): raise the limits on memory and threads (ulimit -v, ulimit -u)"
    )]
    System(#[from] std::io::Error),
}
