//! The kernel's side: plain anonymous memory in a memory cgroup, swapped by the kernel to zram with lz4, or to a file.
//!
//! The group holds only the program's pages: zram's memory belongs to no group. Therefore Millpond's side also runs
//! with its store outside the budget. Huge pages are off for the region, because the kernel swaps in units of 4 KiB
//! here, and a budget full of huge pages would measure how they are split.

use crate::backing::{Backing, Medium};
use crate::cgroup;
use crate::error::BenchError;
use crate::guard::Guard;
use crate::mapping::{Mapping, Pages};
use crate::phases::{self, Counted, Manner, Phases, Work};
use crate::side::Contender;
use serde::Serialize;
use std::io;
use std::path::{Path, PathBuf};

/// The setting in which the kernel's side ran.
#[derive(Clone, Debug, Serialize)]
pub struct Setting {
    /// Version of the cgroup hierarchy.
    pub cgroup_version: u8,
    /// How eagerly the kernel swaps, 0 to 200.
    pub swappiness: Option<u32>,
    /// zram's compression algorithm.
    pub compression: Option<&'static str>,
    /// The size of the swap device.
    pub zram_bytes: Option<u64>,
    /// The size of the swap file.
    pub file_bytes: Option<u64>,
}

/// The kernel's side, ready to measure.
pub struct KernelSwap {
    group: PathBuf,
    /// The setting in which it runs.
    pub setting: Setting,
}

impl KernelSwap {
    /// Creates the cgroup and the swap device or file, and records them in `guard`.
    ///
    /// # Errors
    /// [`BenchError::Skipped`] with the reason when this machine cannot do it.
    pub fn set_up(guard: &mut Guard, work: &Work, backing: &Backing) -> Result<Self, BenchError> {
        let (hierarchy, group) = guard.make_group(work.ram)?;
        // There is room for every page twice, so that the measurement never includes a full device.
        let bytes = 2 * work.pages * crate::data::PAGE as u64;
        let mut setting = Setting {
            cgroup_version: hierarchy.version,
            swappiness: hierarchy.swappiness(&group),
            compression: None,
            zram_bytes: None,
            file_bytes: None,
        };
        match backing.medium {
            Medium::Zram => {
                guard.make_zram(bytes)?;
                (setting.compression, setting.zram_bytes) = (Some("lz4"), Some(bytes));
            }
            Medium::File => {
                guard.make_swap_file(backing.directory(), bytes)?;
                setting.file_bytes = Some(bytes);
            }
        }
        Ok(Self { group, setting })
    }

    /// The cgroup's directory.
    #[must_use]
    pub fn group(&self) -> &Path {
        &self.group
    }

    /// The cgroup's directory, if the memory of `side` belongs in the cgroup.
    #[must_use]
    pub fn group_of(kernel: Option<&Self>, side: impl Contender) -> Option<PathBuf> {
        let kernel = kernel.filter(|_| side.is_kernel())?;
        Some(kernel.group.clone())
    }
}

/// Does the job of the measured process, which enters the group before it touches the region.
///
/// # Errors
/// When the process cannot enter the group or map the region.
pub fn work(group: &Path, work: &Work, manner: Manner) -> io::Result<Phases> {
    cgroup::enter(group)?;
    let mut memory = Mapping::new(work.len()?, Pages::Small)?;
    Ok(phases::run(memory.bytes_mut(), work, manner, || Counted {
        major_faults: phases::usage().major_faults,
        brought_in: None,
    }))
}
