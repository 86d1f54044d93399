//! The way from a process under `millpond run` to the store beyond the machine, which the supervisor of the run keeps.
//!
//! It is there with the feature `relay`. Without that a process whose supervisor names a relay says so, and keeps its
//! memory on this machine.

use crate::error::StoreError;
use millpond_core::Store;
use millpond_mmu::report;
use std::fmt;
use std::path::Path;

#[cfg(feature = "relay")]
pub(crate) use millpond_relay::Relay;

/// A relay, which cannot be reached without the feature `relay`.
#[cfg(not(feature = "relay"))]
pub(crate) enum Relay {}

/// Opens the relay that the supervisor has named. If it cannot be reached, a line says so.
#[cfg(feature = "relay")]
pub(crate) fn open(path: &Path) -> Option<Relay> {
    Relay::open(path).inspect_err(|error| say(error)).ok()
}

/// Says that the relay cannot be reached.
#[cfg(not(feature = "relay"))]
pub(crate) fn open(path: &Path) -> Option<Relay> {
    let path = path.display();
    say(&format_args!(
        "this library was built without the feature `remote`, and has no way to the relay {path}"
    ));
    None
}

fn say(why: &dyn fmt::Display) {
    report::line(format_args!(
        "{why}: this process's memory stays on this machine"
    ));
}

/// Puts what the supervisor keeps behind `front`, which has room for `room` bytes beside its RAM.
#[cfg(feature = "relay")]
pub(crate) fn behind(
    front: Box<dyn Store>,
    relay: Relay,
    room: u64,
) -> Result<Box<dyn Store>, StoreError> {
    let relayed = millpond_relay::Supervisor::behind(front, relay, room);
    let relayed = relayed.map_err(|errno| millpond_store::OpenError::Memory { errno })?;
    Ok(Box::new(relayed))
}

/// There is no relay.
#[cfg(not(feature = "relay"))]
pub(crate) fn behind(
    _front: Box<dyn Store>,
    relay: Relay,
    _room: u64,
) -> Result<Box<dyn Store>, StoreError> {
    match relay {}
}
