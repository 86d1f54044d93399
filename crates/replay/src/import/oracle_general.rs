//! The records of libCacheSim's `oracleGeneral` traces. A record has 24 bytes, little endian and packed: the time
//! (u32), the object (u64), its size (u32) and the position of its next access (i64). Objects count as one page each,
//! whatever their size.

use super::Access;
use super::input::Input;
use super::numbers::next_record;
use crate::error::TraceError;

const RECORD: usize = 24;

/// A reader of `oracleGeneral` records.
#[derive(Debug)]
pub struct OracleGeneral<'a> {
    input: Input<'a>,
    failed: bool,
}

impl<'a> OracleGeneral<'a> {
    /// A reader of the accesses of `input`.
    #[must_use]
    pub fn new(input: Input<'a>) -> Self {
        Self {
            input,
            failed: false,
        }
    }

    fn access(&mut self) -> Result<Option<Access>, TraceError> {
        let record = next_record::<RECORD>(&mut self.input, "a record of 24 bytes")?;
        Ok(record.map(|record| {
            let object = record[4..12].try_into().expect("eight bytes");
            Access::read(u64::from_le_bytes(object))
        }))
    }
}

impl Iterator for OracleGeneral<'_> {
    type Item = Result<Access, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let access = self.access();
        self.failed = access.is_err();
        access.transpose()
    }
}
