//! What a kernel's side needs for one program: a memory cgroup, and a place to swap to. Made before each measurement and put back
//! after it, since the machine swaps to the first place that it has, whoever's turn it is.

use super::side::Side;
use crate::bench::cgroup::Hierarchy;
use crate::bench::guard::Guard;
use crate::bench::{BenchError, Skip, swap_file, zram};
use std::path::{Path, PathBuf};

const NAME: &str = "millpond-bench";
/// No limit at all: more than any machine has.
const UNLIMITED: u64 = 1 << 60;

/// The setting of one measurement.
#[derive(Clone, Debug, Default)]
pub struct Setting {
    /// The program's group.
    pub group: Option<PathBuf>,
    /// The device whose memory counts against the limit.
    pub zram_inside: Option<u32>,
}

/// Makes what `side` needs. Every side has a group, so that whatever a program leaves running can be ended with it; only the kernel's
/// sides have a limit there.
///
/// # Errors
/// [`BenchError::Skipped`] with the reason when this machine cannot do it.
pub fn set_up(
    guard: &mut Guard,
    side: Side,
    ram: u64,
    swap_bytes: u64,
    swap_directory: &Path,
) -> Result<Setting, BenchError> {
    let group = match make_group(guard, side, ram) {
        Ok(group) => group,
        // The other sides do without.
        Err(BenchError::Skipped(_)) if !needs_group(side) => return Ok(Setting::default()),
        Err(error) => return Err(error),
    };
    let mut setting = Setting {
        group: Some(group),
        zram_inside: None,
    };
    match side {
        Side::Unlimited | Side::Millpond => {}
        Side::KernelFile => {
            let path = swap_file::path_in(swap_directory)?;
            guard
                .record(|made| made.swap_file = Some(path.clone()))
                .map_err(BenchError::Record)?;
            swap_file::swap_on(&path, swap_bytes)?;
        }
        Side::KernelZram | Side::KernelZramInside => {
            let id = zram::add()?;
            guard
                .record(|made| made.zram = Some(id))
                .map_err(BenchError::Record)?;
            zram::swap_on(id, swap_bytes)?;
            setting.zram_inside = (side == Side::KernelZramInside).then_some(id);
        }
    }
    Ok(setting)
}

fn needs_group(side: Side) -> bool {
    !matches!(side, Side::Unlimited | Side::Millpond)
}

fn make_group(guard: &mut Guard, side: Side, ram: u64) -> Result<PathBuf, BenchError> {
    let hierarchy = Hierarchy::find()?;
    let group = hierarchy.path_of(NAME);
    let skip = |what: String| Skip(format!("{what} the cgroup {}", group.display()));
    if group.exists() {
        return Err(skip("remove, as it is not this benchmark's,".to_owned()).into());
    }
    guard
        .record(|made| made.cgroup = Some(group.clone()))
        .map_err(BenchError::Record)?;
    let limit = if needs_group(side) { ram } else { UNLIMITED };
    match hierarchy.create(&group, limit) {
        Ok(()) => Ok(group),
        Err(error) => Err(skip(format!("{error}: cannot make")).into()),
    }
}
