//! The memory of each side.

use crate::error::Failure;
use crate::lazyfree::kernel::Anonymous;
use crate::lazyfree::memory::{Memory, Side};
use crate::lazyfree::ours::Managed;
use crate::part::Contender;

/// Opens memory of `bytes` bytes for `side`; Millpond's has all of it within its budget.
///
/// # Errors
/// When there is no such memory.
pub fn open(side: Side, bytes: u64) -> Result<Box<dyn Memory>, Failure> {
    Ok(if side.is_kernel() {
        Box::new(Anonymous::map(side, usize::try_from(bytes)?)?)
    } else {
        Box::new(Managed::within_budget(side, bytes)?)
    })
}
