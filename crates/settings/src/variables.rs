//! The environment variables that Millpond reads and sets, one row for each.
//!
//! A row has a variable's purpose, its values, its default, and its readers. If the variable carries a setting of a
//! process, the row also has the functions that read and write it. [`Settings`] and the documentation
//! ([`pages`](crate::pages)) only know these variables.

use crate::settings::{Record, Settings};
use crate::store::StoreChoice;
use crate::word::{Switch, Word};
use millpond_mmu::Mask;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// The variable that names the preload library.
pub const PRELOAD: &str = "MILLPOND_PRELOAD";

/// An environment variable.
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// What it sets, in the words of `millpond help environment`.
    pub sets: &'static str,
    /// Its valid values, in the words of a message: `… is not a number of bytes`.
    pub values: &'static str,
    /// The behaviour if it is not set.
    pub default: &'static str,
    /// Who reads it.
    pub readers: &'static str,
    /// Who sets it.
    pub setter: Setter,
    /// The setting of a process that it carries, if any.
    pub setting: Option<Setting>,
}

/// Who sets a variable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Setter {
    /// The user.
    User,
    /// The user; `millpond run` adds to it for its program.
    Both,
    /// `millpond run`, for its program.
    Run,
}

impl fmt::Display for Setter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::User => "the user",
            Self::Both => "the user, `millpond run`",
            Self::Run => "`millpond run`",
        })
    }
}

/// The conversion between a setting and its variable.
pub struct Setting {
    /// Reads the value; returns `None` if it is invalid.
    pub(crate) read: fn(&mut Settings, &OsStr) -> Option<()>,
    /// The value that a run sets; `None` if it does not set the variable.
    pub(crate) write: fn(&Settings) -> Option<OsString>,
}

/// The users' and the run's variables, in the order in which the pages list them.
pub static TABLE: [Variable; 23] = [
    Variable {
        name: PRELOAD,
        sets: "The preload library to use instead of the one beside the command, in ../lib/millpond, or in the command \
               itself. Its path must not contain a space, colon or $.",
        values: "a path",
        default: "the installed library, or the command's own",
        ..of_user("the command")
    },
    Variable {
        name: "XDG_CACHE_HOME",
        sets: "The directory in which the command puts its own preload library, in millpond/, if none is installed. \
               Default: ~/.cache.",
        values: "a directory",
        default: "~/.cache",
        ..of_user("the command")
    },
    Variable {
        name: "MILLPOND_LIBRARY",
        sets: "The library that the Python package loads instead of its own.",
        values: "a path",
        default: "the package's own library",
        ..of_user("the Python package")
    },
    Variable {
        name: Mask::VARIABLE,
        sets: "Kernel capabilities to ignore, for tests: some of uffd,move,wp,poison,vectors,guards,scan.",
        values: "some of uffd,move,wp,poison,vectors,guards,scan",
        default: "none",
        setting: Some(Setting {
            read: |settings, value| put(&mut settings.mask, number(value)),
            write: |_| None,
        }),
        ..of_user("the preload library, a program's own manager, `doctor`")
    },
    Variable {
        name: "TMPDIR",
        sets: "The directory of the store's file. Default: /var/tmp.",
        values: "a directory",
        default: "/var/tmp",
        setting: Some(Setting {
            // As in other programs, an empty value counts as not set.
            read: |settings, value| {
                settings.temporary = (!value.is_empty()).then(|| value.into());
                Some(())
            },
            write: |_| None,
        }),
        ..of_user("the preload library, a program's own manager, the command")
    },
    Variable {
        name: "NO_COLOR",
        sets: "If set and not empty, `millpond top` and the report of a run use no colours.",
        values: "any text",
        default: "colours on a terminal",
        ..of_user("the command")
    },
    Variable {
        name: "COLUMNS",
        sets: "The width of help texts when there is no terminal.",
        values: "a number of characters",
        default: "100",
        ..of_user("the command")
    },
    Variable {
        name: "LD_PRELOAD",
        sets: "Libraries that are already preloaded stay, after Millpond's library.",
        values: "paths",
        default: "none",
        setter: Setter::Both,
        ..of_user("the dynamic linker, the command")
    },
    Variable {
        name: "GODEBUG",
        sets: "Millpond adds madvdontneed=0 unless madvdontneed is set already: Go's runtime returns memory by direct \
               system calls, which no library sees.",
        values: "settings of Go's runtime",
        default: "none",
        setter: Setter::Both,
        ..of_user("Go's runtime, the command")
    },
    Variable {
        name: "MILLPOND_RAM",
        sets: "--ram, in bytes",
        values: "a number of bytes",
        default: "no budget",
        ..of_run(Setting {
            read: |settings, value| put(&mut settings.ram, number(value).map(Some)),
            write: |settings| settings.ram.map(text),
        })
    },
    Variable {
        name: "MILLPOND_STORE",
        sets: "--store",
        values: "auto, zram, file or file:PATH",
        default: "auto",
        ..of_run(Setting {
            read: |settings, value| put(&mut settings.store, StoreChoice::from_os(value).ok()),
            write: |settings| Some(settings.store.to_os_string()),
        })
    },
    Variable {
        name: "MILLPOND_DELIVERY",
        sets: "--delivery",
        values: "auto, direct or handler",
        default: "auto",
        ..of_run(Setting {
            read: |settings, value| put(&mut settings.delivery, word(value)),
            write: |settings| Some(text(settings.delivery)),
        })
    },
    Variable {
        name: "MILLPOND_ENGAGE",
        sets: "--engage",
        values: "start or needed",
        default: "needed",
        ..of_run(Setting {
            read: |settings, value| put(&mut settings.engage, word(value)),
            write: |settings| Some(text(settings.engage)),
        })
    },
    Variable {
        name: "MILLPOND_ORDER",
        sets: "--order",
        values: "0 to 9, adaptive or adaptive:MAX",
        default: "adaptive",
        ..of_run(Setting {
            read: |settings, value| put(&mut settings.order, number(value)),
            write: |settings| Some(text(settings.order)),
        })
    },
    Variable {
        name: "MILLPOND_ON_STORE_FULL",
        sets: "--on-store-full",
        values: "exceed or abort",
        default: "exceed",
        ..of_run(Setting {
            read: |settings, value| put(&mut settings.on_store_full, word(value)),
            write: |settings| Some(text(settings.on_store_full)),
        })
    },
    Variable {
        name: "MILLPOND_LAZY_PURGE",
        sets: "--lazy-purge",
        values: "on or off",
        default: "on",
        ..of_run(Setting {
            read: |settings, value| put(&mut settings.lazy_purge, word(value)),
            write: |settings| Some(text(settings.lazy_purge)),
        })
    },
    Variable {
        name: "MILLPOND_TELL",
        sets: "--tell",
        values: "budget or machine",
        default: "budget",
        ..of_run(Setting {
            read: |settings, value| put(&mut settings.tell, word(value)),
            write: |settings| Some(text(settings.tell)),
        })
    },
    Variable {
        name: "MILLPOND_ENCRYPT",
        sets: "--encrypt",
        values: "on or off",
        default: "off",
        ..of_run(Setting {
            // A misspelt word is refused, so that no memory goes out unencrypted because of it.
            read: |settings, value| put(&mut settings.encrypt, word(value)),
            write: |settings| settings.encrypt.is_on().then(|| text(Switch::On)),
        })
    },
    Variable {
        name: "MILLPOND_FORCE_TMPFS",
        sets: "--force-tmpfs",
        values: "1",
        default: "off",
        ..of_run(Setting {
            read: |settings, value| put(&mut settings.force_tmpfs, Some(value == "1")),
            write: |settings| settings.force_tmpfs.then(|| "1".into()),
        })
    },
    Variable {
        name: "MILLPOND_FILE_MAX",
        sets: "--file-max, in bytes",
        values: "a number of bytes",
        default: "no limit",
        ..of_run(Setting {
            read: |settings, value| put(&mut settings.file_max, number(value).map(Some)),
            write: |settings| settings.file_max.map(text),
        })
    },
    Variable {
        name: "MILLPOND_RELAY",
        sets: "the path where the process hands over memory that leaves the machine",
        values: "a path",
        default: "none: memory stays on the machine",
        ..of_run(Setting {
            read: |settings, value| put(&mut settings.relay, Some(Some(value.into()))),
            write: |settings| path(settings.relay.as_ref()),
        })
    },
    Variable {
        name: "MILLPOND_BOARD",
        sets: "the path where the process publishes its figures",
        values: "a path",
        default: "none: nothing is published",
        ..of_run(Setting {
            read: |settings, value| put(&mut settings.board, Some(Some(value.into()))),
            write: |settings| path(settings.board.as_ref()),
        })
    },
    Variable {
        name: "MILLPOND_RECORD",
        sets: "set by `millpond record`: how many pages stay mapped, and the file for the tapes",
        values: "a number of pages, a colon and a file",
        default: "none: nothing is recorded",
        ..of_run(Setting {
            read: |settings, value| put(&mut settings.record, Record::from_os(value).map(Some)),
            write: |settings| settings.record.as_ref().map(Record::to_os_string),
        })
    },
];

/// The common part of the rows of variables that the user sets.
const fn of_user(readers: &'static str) -> Variable {
    Variable {
        name: "",
        sets: "",
        values: "",
        default: "",
        readers,
        setter: Setter::User,
        setting: None,
    }
}

/// The common part of the rows of variables that `millpond run` sets.
const fn of_run(setting: Setting) -> Variable {
    Variable {
        name: "",
        sets: "",
        values: "",
        default: "",
        readers: "the preload library",
        setter: Setter::Run,
        setting: Some(setting),
    }
}

/// Stores a value if it could be read.
fn put<T>(place: &mut T, value: Option<T>) -> Option<()> {
    *place = value?;
    Some(())
}

fn number<T: std::str::FromStr>(value: &OsStr) -> Option<T> {
    value.to_string_lossy().parse().ok()
}

fn word<W: Word>(value: &OsStr) -> Option<W> {
    W::of_word(value.to_str()?)
}

fn text(value: impl ToString) -> OsString {
    value.to_string().into()
}

fn path(path: Option<&PathBuf>) -> Option<OsString> {
    path.map(|path| path.into())
}

impl Record {
    /// Reads `WINDOW:PATH`.
    fn from_os(value: &OsStr) -> Option<Self> {
        let value = value.as_bytes();
        let colon = value.iter().position(|&byte| byte == b':')?;
        let window = std::str::from_utf8(&value[..colon]).ok()?.parse().ok()?;
        let tapes = OsStr::from_bytes(&value[colon + 1..]);
        (!tapes.is_empty()).then(|| Self {
            window,
            tapes: tapes.into(),
        })
    }

    fn to_os_string(&self) -> OsString {
        let mut value = OsString::from(format!("{}:", self.window));
        value.push(&self.tapes);
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::word::{DeliveryChoice, Engage, OnStoreFull, Tell, choices};

    fn row(name: &str) -> &'static Variable {
        TABLE.iter().find(|row| row.name == name).unwrap()
    }

    #[test]
    fn each_variable_has_one_complete_row() {
        for (at, row) in TABLE.iter().enumerate() {
            let Variable {
                name,
                sets,
                values,
                default,
                readers,
                ..
            } = row;
            assert!(
                TABLE[..at].iter().all(|before| before.name != *name),
                "{name}"
            );
            for text in [name, sets, values, default, readers] {
                assert!(!text.is_empty(), "{name}");
            }
        }
    }

    #[test]
    fn the_values_in_a_row_match_its_setting() {
        for (name, values) in [
            ("MILLPOND_DELIVERY", choices::<DeliveryChoice>()),
            ("MILLPOND_ENGAGE", choices::<Engage>()),
            ("MILLPOND_ON_STORE_FULL", choices::<OnStoreFull>()),
            ("MILLPOND_LAZY_PURGE", choices::<Switch>()),
            ("MILLPOND_ENCRYPT", choices::<Switch>()),
            ("MILLPOND_TELL", choices::<Tell>()),
        ] {
            assert_eq!(row(name).values, values, "{name}");
        }
        let bad = "mvoe".parse::<Mask>().unwrap_err().to_string();
        assert!(bad.ends_with(row(Mask::VARIABLE).values), "{bad}");
        assert!(
            row(Mask::VARIABLE)
                .sets
                .contains(row(Mask::VARIABLE).values)
        );
    }

    #[test]
    fn the_default_in_a_row_matches_its_setting() {
        for name in [
            "STORE",
            "DELIVERY",
            "ORDER",
            "ON_STORE_FULL",
            "LAZY_PURGE",
            "TELL",
            "ENCRYPT",
        ] {
            let row = row(&format!("MILLPOND_{name}"));
            let mut settings = Settings::default();
            let setting = row.setting.as_ref().unwrap();
            assert_eq!(
                (setting.read)(&mut settings, row.default.as_ref()),
                Some(()),
                "{name}"
            );
            assert_eq!(settings, Settings::default(), "{name}");
        }
    }
}
