//! The sides: who brings the data to the service and back.

use crate::part::Contender;
use crate::remote::Name;
use serde::Serialize;
use std::fmt;

/// A side.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub enum Side {
    /// A region of memory that neither the budget nor a file holds
    Millpond,
    /// The service's client, with objects of the same size
    Client,
    /// Redis's own client
    RedisClient,
}

impl Side {
    /// Whether the side can talk to a service.
    pub fn is_of(self, name: Name) -> bool {
        self != Self::RedisClient || name == Name::Redis
    }
}

impl Contender for Side {
    /// Whether Millpond is compared with this side.
    fn is_kernel(self) -> bool {
        self != Self::Millpond
    }
}

/// The name that the side has in arguments.
impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Millpond => "millpond",
            Self::Client => "client",
            Self::RedisClient => "redis_client",
        })
    }
}
