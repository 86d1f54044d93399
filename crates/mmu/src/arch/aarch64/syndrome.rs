//! The record of the exception syndrome register (`ESR_EL1`) in a signal's frame: its class says whether an
//! instruction was fetched, and one bit whether memory was written.

use crate::interrupted::Access;

/// `ESR_MAGIC`.
const MARK: u32 = 0x4553_5201;
/// The size of a record's mark and length in bytes. The length includes it.
const HEAD: usize = 8;

/// Finds the exception syndrome among the records of a frame.
pub(crate) fn find(records: &[u8]) -> Option<u64> {
    let word = |at: usize| -> Option<u32> {
        let bytes = records.get(at..at.checked_add(4)?)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?))
    };
    let mut at = 0;
    loop {
        let (mark, len) = (word(at)?, word(at + 4)? as usize);
        if mark == MARK {
            let (low, high) = (word(at + HEAD)?, word(at + HEAD + 4)?);
            return Some(u64::from(high) << 32 | u64::from(low));
        }
        // A mark of 0 ends the records.
        if mark == 0 || len < HEAD {
            return None;
        }
        at = at.checked_add(len)?;
    }
}

/// Returns what the thread was about to do.
pub(crate) fn access(syndrome: u64) -> Access {
    /// An instruction could not be fetched at the program's level.
    const FETCH: u64 = 0x20;
    /// The bit for a write to memory, or for cache maintenance, which counts as a write.
    const WRITE: u64 = 1 << 6;
    const MAINTENANCE: u64 = 1 << 8;
    match syndrome >> 26 & 0x3f {
        FETCH => Access::Run,
        _ if syndrome & (WRITE | MAINTENANCE) == WRITE => Access::Write,
        _ => Access::Read,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(mark: u32, body: &[u8]) -> Vec<u8> {
        let mut record = mark.to_le_bytes().to_vec();
        record.extend((8 + body.len() as u32).to_le_bytes());
        record.extend(body);
        record
    }

    #[test]
    fn the_syndrome_is_found_behind_other_records() {
        const FPSIMD: u32 = 0x4650_8001;
        let syndrome = record(0x4553_5201, &0x9200_004f_u64.to_le_bytes());
        let mut records = record(FPSIMD, &[0; 520]);
        records.extend(&syndrome);
        records.extend([0; 8]);
        assert_eq!(find(&records), Some(0x9200_004f));
        let without = [record(FPSIMD, &[0; 520]), vec![0; 8]].concat();
        assert_eq!(find(&without), None);
    }

    /// A frame is only trusted up to its end.
    #[test]
    fn records_that_end_early_or_are_empty_name_no_syndrome() {
        let whole = record(0x4553_5201, &[7; 8]);
        for len in 0..whole.len() {
            assert_eq!(find(&whole[..len]), None, "{len} bytes");
        }
        assert_eq!(find(&record(9, &[])[..]), None);
        assert_eq!(find(&[9, 0, 0, 0, 0, 0, 0, 0]), None);
        assert_eq!(find(&[9, 0, 0, 0, 255, 255, 255, 255]), None);
    }

    #[test]
    fn the_syndrome_distinguishes_reads_writes_and_fetches() {
        assert_eq!(access(0x9200_0007), Access::Read);
        assert_eq!(access(0x9200_0047), Access::Write);
        assert_eq!(access(0x9200_0147), Access::Read);
        assert_eq!(access(0x8200_0007), Access::Run);
    }
}
