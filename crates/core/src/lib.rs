//! The core of Millpond, which makes its decisions: events go in, commands come out.
#![forbid(unsafe_code)]

pub mod addr;
pub mod check;
pub mod command;
pub mod config;
pub mod event;
pub mod gather;
mod ids;
mod leaf_pages;
pub mod limits;
mod machine;
mod ops;
pub mod policy;
pub mod port;
mod stats;
pub mod tables;

pub use addr::*;
pub use check::{PageState, Standing};
pub use command::{Command, Commands, CopyFrom};
pub use config::{Config, ConfigError, PoolLayout};
pub use event::*;
pub use ids::{FolioId, GroupId, Kind, NodeId, RegionId, Rule, SlotId};
pub use leaf_pages::LeafPages;
pub use machine::Core;
pub use policy::order::{BadOrderPolicy, OrderPolicy};
pub use policy::shadow::ShadowLayout;
pub use port::*;
pub use stats::{Excess, VmStat};
pub use tables::fold::FoldPart;
pub use tables::group::{GroupEvents, GroupLimits, GroupStat};
