//! Orders of folios, as options and in reports.

use millpond::OrderPolicy;
use serde::{Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// A fixed order (a number in JSON) or an adaptive order (a text).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BenchOrder(pub OrderPolicy);

impl FromStr for BenchOrder {
    type Err = millpond::BadOrderPolicy;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}

impl fmt::Display for BenchOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for BenchOrder {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            OrderPolicy::Fixed(order) => serializer.serialize_u8(order.get()),
            OrderPolicy::Adaptive { .. } => serializer.collect_str(self),
        }
    }
}
