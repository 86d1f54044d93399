//! The medium for memory that does not fit into the budget, on both sides: compressed RAM, or a file.
//!
//! zram's memory is in no cgroup, so Millpond's compressed RAM is outside its budget as well: both sides may hold as
//! many uncompressed bytes as the budget allows. A file takes hardly any memory on either side; the memory that
//! Millpond's store needs for its file is inside the budget.

use millpond::StoreKind;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::path::Path;

/// The medium to which memory is swapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Medium {
    /// Compressed RAM: Millpond's store in RAM, and zram for the kernel
    #[default]
    Zram,
    /// A file: Millpond's store in a file, and a swap file for the kernel
    File,
}

const DIRECTORY: &str = "/var/tmp";

impl Medium {
    /// Whether Millpond's store is outside its budget.
    #[must_use]
    pub fn is_outside_budget(self) -> bool {
        self == Self::Zram
    }

    /// The name of the kernel's counterpart, for a table.
    #[must_use]
    pub fn kernel_name(self) -> &'static str {
        match self {
            Self::Zram => "kernel zram swap",
            Self::File => "kernel file swap",
        }
    }
}

/// The place for memory that does not fit into the budget.
#[derive(Clone, Debug, Serialize, Deserialize, clap::Args)]
pub struct Backing {
    /// Where both sides keep the memory that does not fit into the budget
    #[arg(long = "store", value_enum, default_value_t)]
    pub medium: Medium,
    /// The directory in which both sides create their files
    #[arg(long, value_name = "DIRECTORY", default_value = DIRECTORY)]
    directory: OsString,
    /// Encrypt the file of Millpond's store
    #[arg(long)]
    encrypt: bool,
}

impl Default for Backing {
    fn default() -> Self {
        Self {
            medium: Medium::default(),
            directory: DIRECTORY.into(),
            encrypt: false,
        }
    }
}

impl Backing {
    /// Millpond's store in this place.
    #[must_use]
    pub fn store(&self) -> StoreKind {
        match self.medium {
            Medium::Zram => StoreKind::compressed_ram(),
            Medium::File => StoreKind::File {
                path: Some(self.directory().to_owned()),
                max_bytes: None,
                force_tmpfs: false,
            },
        }
    }

    /// Whether Millpond's store is encrypted: only a file can be.
    #[must_use]
    pub fn encrypts(&self) -> bool {
        self.encrypt && self.medium == Medium::File
    }

    /// The directory in which files are created.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.as_ref()
    }
}
