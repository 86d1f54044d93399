//! Traces in the formats of other programs, one file for each format. All are read in one pass and in bounded memory.

mod input;
mod lackey;
mod lines;
mod numbers;
mod oracle_general;
mod plain;

pub use input::Input;
pub use lackey::Lackey;
pub use numbers::{Deltas, Words};
pub use oracle_general::OracleGeneral;
pub use plain::Plain;

use crate::error::TraceError;
use crate::format::{MAGIC, Reader};
use std::path::Path;
use std::str::FromStr;

/// One access of a trace.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Access {
    /// Number of the page, or of another cached unit.
    pub page: u64,
    /// Whether the access wrote. False if the trace does not say.
    pub write: bool,
}

impl Access {
    /// An access that is not known to write.
    #[must_use]
    pub fn read(page: u64) -> Self {
        Self { page, write: false }
    }

    /// An access from a value whose lowest bit says whether it writes, and whose other bits are the page.
    #[must_use]
    pub fn with_write_bit(value: u64) -> Self {
        Self {
            page: value >> 1,
            write: value & 1 != 0,
        }
    }
}

/// The format of a trace. A file in any format may be compressed by zstd as a whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// Millpond's own ([`crate::format`]).
    Millpond,
    /// The output of `valgrind --tool=lackey --trace-mem=yes` ([`Lackey`]).
    Lackey,
    /// The records of libCacheSim ([`OracleGeneral`]).
    OracleGeneral,
    /// Text with a number on each line ([`Plain`]).
    Plain,
    /// LEB128 of zigzag deltas ([`Deltas`]).
    Deltas,
    /// Words of 64 bits, little endian ([`Words`]).
    Words,
}

/// Facts about a trace that it does not contain, so the user has to supply them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Reading {
    /// For plain numbers, deltas and words: bit 0 says whether the access writes, and is not part of the page's number.
    pub write_bit: bool,
    /// For lackey: instructions are accesses too.
    pub instructions: bool,
}

/// The accesses of a trace that is being read.
pub type Accesses<'a> = Box<dyn Iterator<Item = Result<Access, TraceError>> + 'a>;

impl Format {
    /// The names of the formats, for messages.
    pub const NAMES: &str = "millpond, lackey, oracleGeneral, plain, vz or u64";

    /// Guesses a file's format from its first bytes and its name; `None` if neither identifies it.
    pub(crate) fn guess(path: &Path, input: &mut Input<'_>) -> Result<Option<Self>, TraceError> {
        const LOOK: usize = 4096;
        let head = input.ahead(LOOK)?;
        if head.starts_with(MAGIC) {
            return Ok(Some(Self::Millpond));
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let name = name.strip_suffix(".zst").unwrap_or(&name);
        if name.contains("oracleGeneral") {
            return Ok(Some(Self::OracleGeneral));
        }
        match name.rsplit_once('.').map(|(_, extension)| extension) {
            Some("vz") => return Ok(Some(Self::Deltas)),
            Some("u64") => return Ok(Some(Self::Words)),
            Some("lackey") => return Ok(Some(Self::Lackey)),
            _ => {}
        }
        Ok(if lackey::looks_like(head) {
            Some(Self::Lackey)
        } else if plain::looks_like(head) {
            Some(Self::Plain)
        } else {
            None
        })
    }

    /// The accesses of `input`, and whether they say if they write.
    ///
    /// # Errors
    /// When the beginning is not as it should be.
    pub fn read(
        self,
        input: Input<'_>,
        reading: Reading,
    ) -> Result<(Accesses<'_>, bool), TraceError> {
        let numbers = move |value| match reading.write_bit {
            true => Access::with_write_bit(value),
            false => Access::read(value),
        };
        Ok(match self {
            Self::Millpond => {
                let reader = Reader::new(input)?;
                let has_writes = reader.header().has_writes;
                (Box::new(reader), has_writes)
            }
            Self::Lackey => (Box::new(Lackey::new(input, reading.instructions)), true),
            Self::OracleGeneral => (Box::new(OracleGeneral::new(input)), false),
            Self::Plain => {
                let values = Plain::new(input);
                let accesses = values.map(move |value| value.map(numbers));
                (Box::new(accesses), reading.write_bit)
            }
            Self::Deltas => {
                let values = Deltas::new(input);
                let accesses = values.map(move |value| value.map(numbers));
                (Box::new(accesses), reading.write_bit)
            }
            Self::Words => {
                let values = Words::new(input);
                let accesses = values.map(move |value| value.map(numbers));
                (Box::new(accesses), reading.write_bit)
            }
        })
    }
}

impl FromStr for Format {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "millpond" => Ok(Self::Millpond),
            "lackey" => Ok(Self::Lackey),
            "oracleGeneral" | "oraclegeneral" => Ok(Self::OracleGeneral),
            "plain" => Ok(Self::Plain),
            "vz" => Ok(Self::Deltas),
            "u64" => Ok(Self::Words),
            _ => Err(format!(
                "{name:?} is no format of traces; use {}",
                Self::NAMES
            )),
        }
    }
}
