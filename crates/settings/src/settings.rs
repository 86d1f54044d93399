//! All settings of a run, and how they pass through the environment.

use crate::store::StoreChoice;
use crate::variables::{TABLE, Variable};
use crate::word::{DeliveryChoice, Engage, OnStoreFull, Switch, Tell};
use millpond_core::{Order, OrderPolicy};
use millpond_mmu::Mask;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// All settings of a run.
///
/// ```
/// use millpond_settings::{Settings, Tell};
/// let asked = Settings { ram: Some(64 << 20), tell: Tell::Machine, ..Settings::default() };
/// let variables = asked.variables();
/// assert!(variables.contains(&("MILLPOND_RAM", "67108864".into())));
///
/// let block = variables.iter().map(|(name, value)| format!("{name}={}", value.to_string_lossy()));
/// let block: Vec<String> = block.collect();
/// assert_eq!(Settings::read(block.iter().map(|one| one.as_bytes())), Ok(asked));
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// The budget in bytes; `None` means that nothing is managed.
    pub ram: Option<u64>,
    /// The place for evicted bytes.
    pub store: StoreChoice,
    /// Which thread serves a fault.
    pub delivery: DeliveryChoice,
    /// When a process begins to be managed.
    pub engage: Engage,
    /// The orders of folios.
    pub order: OrderPolicy,
    /// The reaction to a full store.
    pub on_store_full: OnStoreFull,
    /// Whether memory that the program frees is kept until it is needed.
    pub lazy_purge: Switch,
    /// The amount of memory that is reported to the program.
    pub tell: Tell,
    /// Whether bytes that go to a file are encrypted.
    pub encrypt: Switch,
    /// Whether the store's file may be on a tmpfs.
    pub force_tmpfs: bool,
    /// The maximum size of the store's file in bytes.
    pub file_max: Option<u64>,
    /// The path of the relay to the store beyond the machine, if there is one.
    pub relay: Option<PathBuf>,
    /// The path of the report board.
    pub board: Option<PathBuf>,
    /// The settings of the recording, if a trace is recorded.
    pub record: Option<Record>,
    /// The kernel capabilities to ignore.
    pub mask: Mask,
    /// The directory of temporary files, `TMPDIR`.
    pub temporary: Option<PathBuf>,
}

/// The settings of a recording of the pages that the program touches.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// The number of pages that stay mapped.
    pub window: u32,
    /// The file of the tapes, to which the touched pages are written.
    pub tapes: PathBuf,
}

impl Default for Settings {
    /// The size of folios adapts to the program's accesses. Programs fill and read long stretches, and also access
    /// single pages: with a fixed 16 KiB, six programs in a quarter of their memory took 1.2 to 2.2 times as long.
    fn default() -> Self {
        Self {
            ram: None,
            store: StoreChoice::Auto,
            delivery: DeliveryChoice::Auto,
            engage: Engage::Needed,
            order: OrderPolicy::Adaptive { max: Order::MAX },
            on_store_full: OnStoreFull::Exceed,
            lazy_purge: Switch::On,
            tell: Tell::Budget,
            encrypt: Switch::Off,
            force_tmpfs: false,
            file_max: None,
            relay: None,
            board: None,
            record: None,
            mask: Mask::default(),
            temporary: None,
        }
    }
}

impl Settings {
    /// Reads the settings from `variables`, each of the form `NAME=value`. Variables that are not settings are
    /// ignored.
    ///
    /// # Errors
    /// The first variable with an invalid value.
    pub fn read<'a>(variables: impl Iterator<Item = &'a [u8]>) -> Result<Self, BadVariable> {
        let mut settings = Self::default();
        for variable in variables {
            let Some(equals) = variable.iter().position(|&byte| byte == b'=') else {
                continue;
            };
            let (name, value) = (
                &variable[..equals],
                OsStr::from_bytes(&variable[equals + 1..]),
            );
            let row = TABLE.iter().find(|row| row.name.as_bytes() == name);
            let Some((row, setting)) = row.and_then(|row| Some((row, row.setting.as_ref()?)))
            else {
                continue;
            };
            if (setting.read)(&mut settings, value).is_none() {
                return Err(BadVariable {
                    name: row.name,
                    value: value.to_string_lossy().into_owned(),
                    wanted: row.values,
                });
            }
        }
        Ok(settings)
    }

    /// The variables that a run sets for its program. A setting that is off or absent has no variable.
    #[must_use]
    pub fn variables(&self) -> Vec<(&'static str, OsString)> {
        let set = |row: &Variable| {
            let value = (row.setting.as_ref()?.write)(self)?;
            Some((row.name, value))
        };
        TABLE.iter().filter_map(set).collect()
    }
}

/// A variable with an invalid value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BadVariable {
    name: &'static str,
    value: String,
    wanted: &'static str,
}

impl fmt::Display for BadVariable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            name,
            value,
            wanted,
        } = self;
        write!(f, "{name}={value} is not {wanted}; use `millpond run`")
    }
}

impl std::error::Error for BadVariable {}

#[cfg(test)]
#[path = "settings_tests.rs"]
mod tests;
