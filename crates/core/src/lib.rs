//! The decisions of Millpond: events in, commands out.
#![forbid(unsafe_code)]

pub mod addr;
mod balance;
pub mod check;
pub mod command;
pub mod config;
pub mod curve;
mod drop_behind;
mod duel;
pub mod event;
pub mod fold;
pub mod folio;
mod frames;
pub mod gather;
pub mod group;
mod leaf;
pub mod limits;
mod lru;
mod machine;
mod ops;
mod order;
mod places;
pub mod port;
pub mod pressure;
pub mod region;
pub mod shrink;
pub mod sparse;
mod stats;
pub mod swap;
pub mod volatile;
pub mod workingset;

pub use addr::*;
pub use check::PageState;
pub use command::{Command, Commands, CopyFrom};
pub use config::{Config, ConfigError, PoolLayout};
pub use event::*;
pub use fold::FoldPart;
pub use folio::FolioId;
pub use group::{GroupEvents, GroupId, GroupLimits, GroupStat, NodeId};
pub use machine::Core;
pub use order::{BadOrderPolicy, OrderPolicy};
pub use port::*;
pub use region::{Kind, RegionId};
pub use stats::VmStat;
pub use swap::SlotId;
pub use workingset::{Rule, ShadowLayout};
