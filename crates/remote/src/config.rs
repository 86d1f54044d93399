//! The settings of a remote store, and why it may not open.

use crate::requests::{RemoteError, TimeLimits};
use crate::url::{RemoteUrl, UrlError};

/// Objects for which there is room in what was fetched ahead.
const AHEAD: usize = 3;

/// The settings of a [`RemoteStore`](crate::RemoteStore).
#[derive(Clone, Debug)]
pub struct RemoteConfig {
    /// Where the objects go.
    pub url: RemoteUrl,
    /// Bytes that the store in front has room for, beside RAM of which it says itself how much that may be
    /// ([`Tiers::ram_most`](millpond_core::port::Tiers::ram_most)). Slots leave it from seven eighths of all of that
    /// on.
    pub local_room: u64,
    /// Most bytes that all objects may take.
    pub max_bytes: Option<u64>,
    /// Bytes of an object. One that is being filled, and those that are being sent, are in RAM.
    pub object_bytes: usize,
    /// Objects that may be sent at once.
    pub sending: usize,
    /// Bytes that may be kept of what was fetched ahead. With none, nothing is fetched ahead.
    pub ahead_bytes: usize,
    /// Bytes of RAM that what is loaded goes to. Of so much it is known whether it has changed when it leaves; all else
    /// counts as changed.
    pub memory_bytes: u64,
    /// Limits of time.
    pub limits: TimeLimits,
}

impl RemoteConfig {
    /// The usual settings: objects of 4 MiB, two sent at once, 12 MiB fetched ahead, no limit of room.
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

    /// The settings for a budget of `ram` bytes. What is packed and sent is in RAM, so objects are small where the
    /// budget is: a thirty-second of it, and 512 KiB to 4 MiB.
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
    /// The URL names no store.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// The store does not take an object.
    #[error(
        "{url} takes no objects: {error}; check that it is there, and the credentials in the environment"
    )]
    Refused {
        /// The store.
        url: String,
        /// What it answered.
        error: RemoteError,
    },
    /// The system gives no memory, no random bytes or no thread.
    #[error(
        "the remote store cannot start ({0}): raise the limits on memory and threads (ulimit -v, ulimit -u)"
    )]
    System(#[from] std::io::Error),
}
