//! Makes sure that free memory is backed by the host.
//!
//! In a virtual machine the host may have taken back the guest's free memory. A guest that reports its free pages
//! loses them after two seconds, and the next process that touches them pays for new ones: 10 µs per page, compared
//! with 0.2 to 1 µs for the kernel's own part. The side whose turn comes after a pause would pay for all of it. So
//! before each measured process, on every side, as much memory as a process takes is touched and given back.

use crate::data::PAGE;
use crate::mapping::{Mapping, Pages};
use crate::memory;

/// The memory that a measured process may take before its figures depend on the host: 1 GiB, and what a store keeps
/// of it.
pub const BYTES: usize = 3 << 29;

/// Makes the host back `bytes` of free memory. A machine without spare memory is measured as it is.
pub fn up(bytes: usize) {
    if memory::room_for(2 * bytes as u64).is_err() {
        return;
    }
    if let Ok(mut mapping) = Mapping::new(bytes, Pages::Huge) {
        for page in mapping.bytes_mut().chunks_mut(PAGE) {
            page[0] = 1;
        }
    }
}
