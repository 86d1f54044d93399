//! The sides of a part: whose memory a measured process uses, or how it uses it.

use clap::ValueEnum;

/// A side that is compared with others.
pub trait Contender: Copy + PartialEq {
    /// Whether the kernel manages the memory.
    fn is_kernel(self) -> bool {
        false
    }

    /// Whether the side is compared with `other`. By default each of our sides is compared with each of the kernel's.
    fn is_against(self, other: Self) -> bool {
        !self.is_kernel() && other.is_kernel()
    }
}

/// The name of a value in options and in JSON.
pub fn name(value: &impl ValueEnum) -> String {
    let value = value.to_possible_value();
    value.map_or_else(String::new, |value| value.get_name().to_owned())
}

/// Declares the sides of a part. Each has one name in options, JSON and tables: the variant's, in snake case. The
/// list after the sides names those with which the others are compared.
macro_rules! sides {
    (
        $(#[$about:meta])*
        pub enum $name:ident { $($(#[$doc:meta])* $side:ident,)+ }
        $(against [$($against:ident),*])?
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize, clap::ValueEnum)]
        #[serde(rename_all = "snake_case")]
        #[value(rename_all = "snake_case")]
        pub enum $name { $($(#[$doc])* $side,)+ }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(&$crate::side::name(self))
            }
        }

        $(impl $crate::side::Contender for $name {
            fn is_kernel(self) -> bool {
                let against: &[Self] = &[$(Self::$against),*];
                against.contains(&self)
            }
        })?
    };
}
pub(crate) use sides;

/// Implements serde for a type by its text form, through `Display` and `FromStr`.
macro_rules! by_text {
    ($name:ty) => {
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <String as serde::Deserialize>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}
pub(crate) use by_text;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workingset::groups::Company;
    use crate::workingset::overhead::Detection;
    use crate::{file, fits, free, remap, run, start, threads, workingset};
    use serde::Serialize;
    use serde::de::DeserializeOwned;
    use std::fmt::{Debug, Display};

    fn written_as_read<S>(against: &[&str])
    where
        S: Contender + ValueEnum + Display + Debug + Serialize + DeserializeOwned,
    {
        for &side in S::value_variants() {
            let text = side.to_string();
            assert_eq!(S::from_str(&text, false), Ok(side));
            assert_eq!(serde_json::json!(side), text);
            assert_eq!(
                serde_json::from_value::<S>(text.clone().into()).ok(),
                Some(side)
            );
            assert_eq!(side.is_kernel(), against.contains(&text.as_str()), "{text}");
        }
    }

    #[test]
    fn side_names_round_trip_through_text() {
        written_as_read::<file::Side>(&["kernel", "kernel_advised", "device"]);
        written_as_read::<fits::Side>(&["plain"]);
        written_as_read::<free::Side>(&["kernel", "kernel_huge"]);
        written_as_read::<free::unmap::Side>(&["kernel"]);
        written_as_read::<remap::vec::Side>(&["system"]);
        written_as_read::<run::Side>(&["kernel_file", "kernel_zram", "kernel_equal"]);
        written_as_read::<start::Side>(&["kernel"]);
        written_as_read::<workingset::Side>(&["kernel"]);
        written_as_read::<Company>(&[]);
        written_as_read::<Detection>(&[]);
        for &who in threads::Who::value_variants() {
            assert_eq!(threads::Who::from_str(&who.to_string(), false), Ok(who));
            assert_eq!(serde_json::json!(who), who.to_string());
        }
    }
}
