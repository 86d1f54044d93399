//! The setting that one of the kernel's sides needs for a program: a memory cgroup, and a swap area. It is created
//! before each measurement and removed after it, because the machine swaps to the first area that it has, whichever
//! side's turn it is.

use crate::cgroup::UNLIMITED;
use crate::error::BenchError;
use crate::guard::Guard;
use crate::run::Side;
use crate::run::runner::Limits;
use crate::side::Contender;
use std::path::{Path, PathBuf};

/// The setting of one measurement.
#[derive(Clone, Debug, Default)]
pub struct Setting {
    /// The program's group.
    pub group: Option<PathBuf>,
    /// The device whose memory counts with the group's.
    pub zram: Option<u32>,
}

/// Creates the setting that `side` needs. Every side has a group, so that processes which a program leaves running
/// can be ended with it; only the kernel's sides have a limit there.
///
/// # Errors
/// [`BenchError::Skipped`] with the reason when this machine cannot do it.
pub fn set_up(
    guard: &mut Guard,
    side: Side,
    limits: Limits,
    swap_directory: &Path,
) -> Result<Setting, BenchError> {
    let limit = match side {
        Side::KernelEqual => limits.equal.unwrap_or(limits.ram),
        _ if side.is_kernel() => limits.ram,
        _ => UNLIMITED,
    };
    let group = match guard.make_group(limit) {
        Ok((_, group)) => group,
        // The other sides can run without the group.
        Err(BenchError::Skipped(_)) if !side.is_kernel() => return Ok(Setting::default()),
        Err(error) => return Err(error),
    };
    let zram = match side {
        Side::Unlimited | Side::Millpond => None,
        Side::KernelFile => {
            guard.make_swap_file(swap_directory, limits.swap_bytes)?;
            None
        }
        Side::KernelZram | Side::KernelEqual => Some(guard.make_zram(limits.swap_bytes)?),
    };
    Ok(Setting {
        group: Some(group),
        zram,
    })
}
