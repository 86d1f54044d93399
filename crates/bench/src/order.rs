//! Orders of folios, in options and reports.

use millpond::OrderPolicy;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// A fixed order (a number in JSON) or an adaptive order (a string).
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

impl<'de> Deserialize<'de> for BenchOrder {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Form {
            Fixed(u8),
            Adaptive(String),
        }
        let text = match Form::deserialize(deserializer)? {
            Form::Fixed(order) => order.to_string(),
            Form::Adaptive(text) => text,
        };
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_round_trip_through_text_and_json() {
        for text in ["0", "9", "adaptive", "adaptive:4"] {
            let order: BenchOrder = text.parse().unwrap();
            let json = serde_json::to_string(&order).unwrap();
            assert_eq!(serde_json::from_str::<BenchOrder>(&json).unwrap(), order);
        }
        assert!(serde_json::from_str::<BenchOrder>("10").is_err());
    }
}
