//! What backs the memory that does not fit, on both sides: compressed RAM, or a file.
//!
//! zram's memory is in no cgroup, so Millpond's compressed RAM is outside its budget as well: both sides may hold as
//! many uncompressed bytes as the budget says. A file takes no memory worth mentioning on either side; the memory that
//! Millpond's store takes for its file is inside the budget.

use millpond::StoreKind;
use serde::Serialize;
use std::ffi::OsString;
use std::path::PathBuf;

/// The medium that is swapped to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, clap::ValueEnum)]
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

    /// The name of the kernel's way, for a table.
    #[must_use]
    pub fn kernel_name(self) -> &'static str {
        match self {
            Self::Zram => "kernel zram swap",
            Self::File => "kernel file swap",
        }
    }
}

/// Where what does not fit goes.
#[derive(Clone, Debug, clap::Args)]
pub struct Backing {
    /// Where both sides keep the memory that does not fit into the budget
    #[arg(long = "store", value_enum, default_value_t)]
    pub medium: Medium,
    /// The directory in which the files of both sides are made
    #[arg(long, value_name = "DIRECTORY", default_value = DIRECTORY)]
    pub directory: PathBuf,
    /// Encrypt the file of Millpond's store
    #[arg(long)]
    pub encrypt: bool,
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
    /// Millpond's store there.
    #[must_use]
    pub fn store(&self) -> StoreKind {
        match self.medium {
            Medium::Zram => StoreKind::compressed_ram(),
            Medium::File => StoreKind::File {
                path: Some(self.directory.clone()),
                max_bytes: None,
                force_tmpfs: false,
            },
        }
    }

    /// These settings as arguments of the measured process.
    #[must_use]
    pub fn to_arguments(&self) -> Vec<OsString> {
        match self.medium {
            Medium::Zram => Vec::new(),
            Medium::File => {
                let mut arguments = vec![
                    "--store=file".into(),
                    "--directory".into(),
                    self.directory.clone().into(),
                ];
                arguments.extend(self.encrypt.then(|| "--encrypt".into()));
                arguments
            }
        }
    }
}
