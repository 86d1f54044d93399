//! The sides: who serves the faults of the program.

use crate::part::Contender;
use serde::Serialize;
use std::fmt;

/// A side.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// The program by itself
    Plain,
    /// `millpond run --delivery handler`
    Handler,
    /// `millpond run --delivery direct`
    Direct,
}

impl Contender for Side {
    fn is_kernel(self) -> bool {
        self == Self::Plain
    }
}

/// The name that the side has in arguments.
impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Plain => "plain",
            Self::Handler => "handler",
            Self::Direct => "direct",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;

    #[test]
    fn sides_are_written_as_they_are_read() {
        for &side in Side::value_variants() {
            let text = side.to_string();
            assert_eq!(Side::from_str(&text, false), Ok(side));
            assert_eq!(serde_json::json!(side), text);
        }
    }
}
