//! The kinds of stores, and how each is opened for a budget.

use crate::error::StoreError;
use crate::relay;
use millpond_core::Store;
use millpond_driver::Charge;
use millpond_store::{
    CompressedRam, CompressedRamConfig, FileArea, FileStore, FileStoreConfig, Location, Null,
    OpenError, Spill,
};
use std::path::{Path, PathBuf};

/// The store: where pages go that do not fit in the budget.
///
/// ```
/// use millpond::{Manager, StoreKind};
/// // What does not fit is compressed; nothing is written to a disk.
/// let manager = Manager::builder().ram(16 << 20).store(StoreKind::compressed_ram()).build()?;
/// manager.region(64 << 20)?.as_mut_slice().fill(7);
/// assert!(manager.stats().store.stored_bytes < 16 << 20);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreKind {
    /// Compressed RAM, then an unnamed file in `directory` (`$TMPDIR` or `/var/tmp`). At first compressed RAM may take
    /// half of the budget that the rest of the program leaves. Later it may take from a sixty-fourth of that to nearly
    /// all of it, depending on how much the program gains. If the store is outside the budget, compressed RAM may take
    /// as much as three eighths of the budget.
    Auto {
        /// Directory in which the file is created.
        directory: Option<PathBuf>,
    },
    /// Compressed RAM, at most `max_bytes` of it.
    CompressedRam {
        /// Most bytes of compressed data; when `None`, three quarters of the budget, or no limit if the store is
        /// outside it.
        max_bytes: Option<u64>,
    },
    /// A file: `path` names a directory for an unnamed file, or a new file. While only one thread faults, that thread
    /// polls for its reads of the file instead of sleeping, for at most 200 µs each. This keeps its processor busy.
    File {
        /// Directory or file; `$TMPDIR` or `/var/tmp` when `None`.
        path: Option<PathBuf>,
        /// Most bytes that the file may take.
        max_bytes: Option<u64>,
        /// Accept a path on tmpfs, which is RAM that the budget does not see.
        force_tmpfs: bool,
    },
    /// Several files, like a machine's swap areas: a small fast disk before a large slow one, or two disks at once.
    /// Pages go to the file with the highest priority that has room and works; files of equal priority take turns, 8
    /// MiB each. There may be at most four.
    ///
    /// ```no_run
    /// use millpond::{Manager, StoreFile, StoreKind};
    /// let file = |path: &str, max_bytes, priority| StoreFile { path: path.into(), max_bytes, priority };
    /// let store = StoreKind::Files {
    ///     files: vec![file("/nvme", Some(32 << 30), 10), file("/disk", None, 0)],
    ///     force_tmpfs: false,
    /// };
    /// let manager = Manager::builder().ram(4 << 30).store(store).build()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    Files {
        /// The files.
        files: Vec<StoreFile>,
        /// Accept paths on tmpfs, which is RAM that the budget does not see.
        force_tmpfs: bool,
    },
    /// Compressed RAM, then a file, then objects in S3, in Redis, or in a directory: for memory that does not fit on
    /// the machine. `docs/remote.md` describes the cost. Everything sent is compressed, encrypted and authenticated
    /// with a key that exists only in this process's memory. Two threads pack and send. While the store is unreachable,
    /// the reader of a page that is only there waits for three minutes; then the page is lost. A forked child cannot
    /// use this store. The program's global allocator must not use managed memory, because these threads allocate.
    ///
    /// ```no_run
    /// use millpond::{Manager, StoreKind};
    /// let store = StoreKind::Remote {
    ///     url: "s3://cold-pages/team?region=eu-central-1".parse()?,
    ///     directory: None,
    ///     file_bytes: 8 << 30,
    ///     max_bytes: Some(256 << 30),
    /// };
    /// let manager = Manager::builder().ram(4 << 30).store(store).build()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[cfg(feature = "remote")]
    Remote {
        /// Where the objects go.
        url: millpond_remote::RemoteUrl,
        /// Directory in which the file is made, as for [`StoreKind::Auto`].
        directory: Option<PathBuf>,
        /// Most bytes that the file may take: at least 4 MiB, or 0 for no file, if there is no disk.
        file_bytes: u64,
        /// Most bytes that the objects may take.
        max_bytes: Option<u64>,
    },
    /// The store of a process under `millpond run`: a local store, whose file may be limited, and behind it the remote
    /// store that the supervisor of the run keeps for all its processes, if there is one. If the supervisor cannot be
    /// reached, the local store is used alone, and a message says so.
    #[doc(hidden)]
    OfRun {
        /// The store in front.
        front: Box<StoreKind>,
        /// The path that the supervisor has named.
        relay: Option<PathBuf>,
        /// Most bytes that the file of [`StoreKind::Auto`] in front may take: at least 4 MiB, or 0 for no file.
        file_bytes: Option<u64>,
    },
    /// No store: only pages of zeros and pages that were never touched can leave memory.
    None,
}

/// One of the files of [`StoreKind::Files`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreFile {
    /// A directory for an unnamed file, or a new file.
    pub path: PathBuf,
    /// Most bytes that the file may take.
    pub max_bytes: Option<u64>,
    /// The file of the highest priority is used first.
    pub priority: i16,
}

impl StoreFile {
    fn area(&self) -> FileArea {
        FileArea {
            location: location(self.path.clone()),
            max_bytes: self.max_bytes,
            priority: self.priority,
        }
    }
}

/// The place that a path names: a path that is not a directory names a new file.
fn location(path: PathBuf) -> Location {
    match path.is_dir() {
        true => Location::Directory(path),
        false => Location::File(path),
    }
}

impl StoreKind {
    /// Compressed RAM without a limit of its own.
    #[must_use]
    pub fn compressed_ram() -> Self {
        Self::CompressedRam { max_bytes: None }
    }

    /// An unnamed file in the directory for temporary files that survive a reboot.
    #[must_use]
    pub fn file() -> Self {
        Self::File {
            path: None,
            max_bytes: None,
            force_tmpfs: false,
        }
    }

    /// Cost of a major fault, in sixteenths of a rescue from limbo (4 to 6 µs). A major fault takes 6 µs from
    /// compressed RAM and 60 to 100 µs from a file. Where compressed RAM has a file behind it, most pages are found in
    /// compressed RAM.
    pub(crate) fn refault_cost(&self) -> u32 {
        match self {
            Self::None | Self::CompressedRam { .. } | Self::Auto { .. } => 20,
            #[cfg(feature = "remote")]
            Self::Remote { .. } => 20,
            Self::OfRun { front, .. } => front.refault_cost(),
            Self::File { .. } | Self::Files { .. } => 256,
        }
    }

    /// Limbo's minimum share of the budget if the program sets none, in 1/1024. It is half of the `usual` share if a
    /// rescue costs hardly less than a major fault. Random reads of memory that was just filled by leaves took 4.70 µs
    /// with the usual share and take 4.54 µs with half of it. Over 15 traces in 10 to 90 % of their footprint, major
    /// faults and rescues cost 0.2537 rescues an access with the usual share and 0.2515 with half of it, with as many
    /// major faults.
    pub(crate) fn limbo_share(&self, usual: u16) -> u16 {
        match self {
            Self::None | Self::CompressedRam { .. } | Self::Auto { .. } => usual / 2,
            #[cfg(feature = "remote")]
            Self::Remote { .. } => usual / 2,
            Self::OfRun { front, .. } => front.limbo_share(usual),
            Self::File { .. } | Self::Files { .. } => usual,
        }
    }

    pub(crate) fn open(&self, opening: Opening) -> Result<Box<dyn Store>, StoreError> {
        let Opening {
            ram,
            charge,
            encrypt,
            file_most,
        } = opening;
        Ok(match self {
            Self::None => Box::new(Null),
            Self::CompressedRam { max_bytes } => {
                // Data that does not compress would take from the budget as many pages as the frames that it came
                // from, and gain nothing: at three quarters of the budget the store is full.
                let room = (charge != Charge::Frames).then_some(ram / 4 * 3);
                let max_bytes = max_bytes.or(room);
                Box::new(CompressedRam::new(CompressedRamConfig { max_bytes })?)
            }
            Self::File {
                path,
                max_bytes,
                force_tmpfs,
            } => {
                // `$TMPDIR` always names a directory: if that does not exist, a file of its name is not what was asked
                // for.
                let none = || Location::Directory(temporary_directory());
                let location = path.clone().map_or_else(none, location);
                let config = FileStoreConfig {
                    max_bytes: max_bytes.or(file_most),
                    force_tmpfs: *force_tmpfs,
                    encrypt,
                    ..FileStoreConfig::at(location)
                };
                Box::new(FileStore::create(&config)?)
            }
            Self::Files { files, force_tmpfs } => {
                let mut areas = files.iter().map(StoreFile::area);
                let first = areas.next().ok_or(OpenError::NoFiles)?;
                let config = FileStoreConfig {
                    max_bytes: first.max_bytes.or(file_most),
                    priority: first.priority,
                    more: areas.collect(),
                    force_tmpfs: *force_tmpfs,
                    encrypt,
                    ..FileStoreConfig::at(first.location)
                };
                Box::new(FileStore::create(&config)?)
            }
            #[cfg(feature = "remote")]
            Self::Remote {
                url,
                directory,
                file_bytes,
                max_bytes,
            } => {
                let (front, room) = opening.front(directory.as_deref(), Some(*file_bytes))?;
                let config = millpond_remote::RemoteConfig {
                    max_bytes: *max_bytes,
                    ..millpond_remote::RemoteConfig::for_budget(url.clone(), room, ram)
                };
                Box::new(millpond_remote::Remote::behind(front, config)?)
            }
            Self::OfRun {
                front,
                relay,
                file_bytes,
            } => opening.of_run(front, relay.as_deref(), *file_bytes)?,
            Self::Auto { directory } => opening.front(directory.as_deref(), None)?.0,
        })
    }
}

/// The requirements for a store.
#[derive(Clone, Copy)]
pub(crate) struct Opening {
    /// The budget, in bytes.
    pub(crate) ram: u64,
    /// What the budget covers.
    pub(crate) charge: Charge,
    /// Whether data that goes to a file is encrypted.
    pub(crate) encrypt: bool,
    /// The maximum size of a file for which the user has set no limit; `None` leaves it to the store. The store's
    /// tables have a bit for each block that a file may have.
    pub(crate) file_most: Option<u64>,
}

impl Opening {
    /// Opens compressed RAM with another tier behind it: a file in `directory` of up to `file_bytes`, or, with 0,
    /// whatever the caller puts there. Also returns its capacity in bytes, excluding RAM, whose limit the store itself
    /// reports.
    fn front(
        self,
        directory: Option<&Path>,
        file_bytes: Option<u64>,
    ) -> Result<(Box<dyn Store>, u64), StoreError> {
        let has_file = file_bytes != Some(0);
        // With a file behind it, the governor says how much of this it may take, if it is inside the budget.
        let most = match self.charge {
            Charge::Frames => self.ram / 8 * 3,
            _ if has_file => self.ram,
            _ => self.ram / 2,
        };
        let most = most.max(CompressedRam::MIN_BYTES);
        let front = CompressedRam::new(CompressedRamConfig {
            max_bytes: Some(most),
        });
        if !has_file {
            return Ok((Box::new(front?), most));
        }
        let directory = directory.map_or_else(temporary_directory, Path::to_path_buf);
        let back = FileStore::create(&FileStoreConfig {
            encrypt: self.encrypt,
            max_bytes: file_bytes.or(self.file_most),
            ..FileStoreConfig::in_directory(directory)
        })?;
        let spill = Spill::new(front?, back);
        Ok((Box::new(spill), file_bytes.unwrap_or(u64::MAX)))
    }

    /// Opens [`StoreKind::OfRun`].
    fn of_run(
        self,
        front: &StoreKind,
        relay: Option<&Path>,
        file_bytes: Option<u64>,
    ) -> Result<Box<dyn Store>, StoreError> {
        let relay = relay.and_then(relay::open);
        let (front, room) = match (front, &relay) {
            (StoreKind::Auto { .. }, None) if file_bytes == Some(0) => {
                return StoreKind::compressed_ram().open(self);
            }
            (StoreKind::Auto { directory }, _) => self.front(directory.as_deref(), file_bytes)?,
            (StoreKind::CompressedRam { .. }, Some(_)) => self.front(None, Some(0))?,
            (StoreKind::File { max_bytes, .. }, _) => {
                (front.open(self)?, max_bytes.unwrap_or(u64::MAX))
            }
            (front, _) => (front.open(self)?, u64::MAX),
        };
        match relay {
            None => Ok(front),
            Some(relay) => relay::behind(front, relay, room),
        }
    }
}

/// The directory for the store's file: `$TMPDIR`, or else `/var/tmp`, because `/tmp` is often RAM.
fn temporary_directory() -> PathBuf {
    std::env::var_os("TMPDIR").map_or_else(|| Path::new("/var/tmp").into(), PathBuf::from)
}

/// Half of the free space where a store's file would be created: in `directory`, or in `$TMPDIR` or `/var/tmp`. With
/// another tier behind it, a file need not fill the disk. `None` if the system does not report the free space.
///
/// ```
/// let free = millpond::half_of_free(Some("/var/tmp".as_ref())).unwrap();
/// assert!(free > 0 && millpond::half_of_free(Some("/nowhere".as_ref())).is_none());
/// ```
#[must_use]
pub fn half_of_free(directory: Option<&Path>) -> Option<u64> {
    let directory = directory.map_or_else(temporary_directory, Path::to_path_buf);
    let free = rustix::fs::statvfs(&directory).ok()?;
    Some(free.f_bavail.saturating_mul(free.f_frsize) / 2)
}
