//! Building a manager: budget, store, delivery.

use crate::error::{BuildError, MIN_RAM, StoreError};
use crate::manager::{Manager, Pond};
use millpond_core::limits::MAX_NODES;
use millpond_core::{
    Commands, Config, ConfigError, Core, Event, LEAF_PAGES, Order, OrderPolicy, PAGE_SIZE,
    PageCount, Store,
};
use millpond_driver::publish::Publisher;
use millpond_driver::state::record::Recording;
use millpond_driver::{Background, Charge, Driver, OnStoreFull, Parts};
use millpond_mmu::report;
use millpond_mmu::{Delivery, HUGE_WITHIN, Mask, TakeOutMethod, Uffd, UffdConfig, online_nodes};
use millpond_relay::{Relay, Relayed};
use millpond_store::{
    CompressedRam, CompressedRamConfig, FileArea, FileStore, FileStoreConfig, Location, Null,
    OpenError, Spill,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;

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
    /// a half of the part of the budget that the rest of the program leaves. Later it may take from a sixty-fourth of
    /// that part to nearly all of it, by how much the program gains. Where the store is outside the budget, compressed
    /// RAM is as much as three eighths of the budget.
    Auto {
        /// Directory in which the file is made.
        directory: Option<PathBuf>,
    },
    /// Compressed RAM, at most `max_bytes` of it.
    CompressedRam {
        /// Most bytes of compressed data; when `None`, three quarters of the budget, or no limit if the store is
        /// outside it.
        max_bytes: Option<u64>,
    },
    /// A file: `path` names a directory for an unnamed file, or a new file. While a single thread faults, that thread
    /// waits awake for its reads of the file, for 200 µs each at most. Its processor is busy meanwhile.
    File {
        /// Directory or file; `$TMPDIR` or `/var/tmp` when `None`.
        path: Option<PathBuf>,
        /// Most bytes that the file may take.
        max_bytes: Option<u64>,
        /// Accept a path on tmpfs, which is RAM that the budget does not see.
        force_tmpfs: bool,
    },
    /// Several files, as a machine has several swap areas: a small fast disk before a large slow one, or two disks at
    /// once. Pages go to the file of the highest priority that has room and works; those of one priority take turns, by
    /// 8 MiB. There are four at most.
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
    /// Compressed RAM, then a file, then objects in S3, in Redis, or in a directory: for memory that the machine has no
    /// place for. `docs/remote.md` says what it costs. What is sent is compressed, encrypted and authenticated by a key
    /// that is nowhere but in this process's memory. Two threads pack and send; while the store is away, a page that
    /// is only there makes its reader wait for three minutes, and is lost then. A program that forks keeps this store
    /// to itself. The program's global allocator must not be one over managed memory, because these threads allocate.
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
        /// Most bytes that the file may take: at least 4 MiB, or none for no file, where there is no disk.
        file_bytes: u64,
        /// Most bytes that the objects may take.
        max_bytes: Option<u64>,
    },
    /// Another store, and behind it the one beyond the machine that the supervisor of this run keeps for all its
    /// processes: what `millpond run --store auto,URL` has its programs use. Where the supervisor cannot be reached, it
    /// is the other store alone, and a line says so.
    #[doc(hidden)]
    Relayed {
        /// The store in front.
        front: Box<StoreKind>,
        /// The path that the supervisor has named.
        relay: PathBuf,
        /// Most bytes that the file in front may take: at least 4 MiB, or none for no file.
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

/// The place that a path names: a path that is no directory names a new file.
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

    /// The same store, whose file takes no more than `bytes`.
    fn with_file_bytes(&self, bytes: Option<u64>) -> Self {
        match self.clone() {
            Self::File {
                path, force_tmpfs, ..
            } => Self::File {
                path,
                max_bytes: bytes,
                force_tmpfs,
            },
            other => other,
        }
    }

    /// Cost of a major fault, in sixteenths of a rescue from limbo (4 to 6 µs). A major fault takes 6 µs from
    /// compressed RAM and 60 to 100 µs from a file. Where compressed RAM has a file behind it, most pages are found in
    /// compressed RAM.
    fn refault_cost(&self) -> u32 {
        match self {
            Self::None | Self::CompressedRam { .. } | Self::Auto { .. } => 20,
            #[cfg(feature = "remote")]
            Self::Remote { .. } => 20,
            Self::Relayed { front, .. } => front.refault_cost(),
            Self::File { .. } | Self::Files { .. } => 256,
        }
    }

    /// Limbo's least share of the budget where the program asks for none, in 1/1024. It is half of the `usual` share
    /// where a rescue hardly costs less than a major fault. Random reads of memory that was just filled by leaves took
    /// 4.70 µs with the usual share and take 4.54 µs with half of it. Over 15 traces in 10 to 90 % of their footprint,
    /// major faults and rescues cost 0.2537 rescues an access with the usual share and 0.2515 with half of it, with as
    /// many major faults.
    fn limbo_share(&self, usual: u16) -> u16 {
        match self {
            Self::None | Self::CompressedRam { .. } | Self::Auto { .. } => usual / 2,
            #[cfg(feature = "remote")]
            Self::Remote { .. } => usual / 2,
            Self::Relayed { front, .. } => front.limbo_share(usual),
            Self::File { .. } | Self::Files { .. } => usual,
        }
    }

    fn open(&self, ram: u64, charge: Charge, encrypt: bool) -> Result<Box<dyn Store>, StoreError> {
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
                    max_bytes: *max_bytes,
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
                    max_bytes: first.max_bytes,
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
                let file = (directory.as_deref(), *file_bytes);
                open_remote(url, file, *max_bytes, ram, charge, encrypt)?
            }
            Self::Relayed {
                front,
                relay,
                file_bytes,
            } => open_relayed(front, relay, *file_bytes, ram, charge, encrypt)?,
            Self::Auto { directory } => {
                let most = most_before_another(ram, charge);
                Box::new(open_spill(most, directory.as_deref(), None, encrypt)?)
            }
        })
    }
}

/// The most bytes of compressed RAM that has another place behind it. Inside the budget the governor says how much of
/// these bytes it may take.
fn most_before_another(ram: u64, charge: Charge) -> u64 {
    match charge {
        Charge::Frames => ram / 8 * 3,
        _ => ram,
    }
}

/// Opens compressed RAM of up to `most` bytes, and a file behind it of up to `file_bytes`.
fn open_spill(
    most: u64,
    directory: Option<&Path>,
    file_bytes: Option<u64>,
    encrypt: bool,
) -> Result<Spill, StoreError> {
    let directory = directory.map_or_else(temporary_directory, Path::to_path_buf);
    let back = FileStore::create(&FileStoreConfig {
        encrypt,
        max_bytes: file_bytes,
        ..FileStoreConfig::in_directory(directory)
    })?;
    Ok(Spill::new(open_before_another(most)?, back))
}

/// Opens compressed RAM of up to `most` bytes that has another place behind it.
fn open_before_another(most: u64) -> Result<CompressedRam, StoreError> {
    let max_bytes = Some(most.max(CompressedRam::MIN_BYTES));
    Ok(CompressedRam::new(CompressedRamConfig { max_bytes })?)
}

/// Opens the store in front, with a file of up to `file_bytes`, and the way to the supervisor behind it.
fn open_relayed(
    front: &StoreKind,
    relay: &Path,
    file_bytes: Option<u64>,
    ram: u64,
    charge: Charge,
    encrypt: bool,
) -> Result<Box<dyn Store>, StoreError> {
    let relay = match Relay::open(relay) {
        Ok(relay) => relay,
        Err(error) => {
            report::line(format_args!(
                "{error}: this process's memory stays on this machine"
            ));
            return front.open(ram, charge, encrypt);
        }
    };
    let (front, room): (Box<dyn Store>, u64) = match (front, file_bytes) {
        (StoreKind::Auto { directory }, bytes) if bytes != Some(0) => {
            let most = most_before_another(ram, charge);
            let spill = open_spill(most, directory.as_deref(), bytes, encrypt)?;
            (Box::new(spill), bytes.unwrap_or(u64::MAX))
        }
        (StoreKind::Auto { .. } | StoreKind::CompressedRam { .. }, _) => {
            let most = (ram / 2).max(CompressedRam::MIN_BYTES);
            (Box::new(open_before_another(most)?), most)
        }
        (StoreKind::File { .. }, bytes) => {
            let limited = front.with_file_bytes(bytes);
            (
                limited.open(ram, charge, encrypt)?,
                bytes.unwrap_or(u64::MAX),
            )
        }
        (other, _) => (other.open(ram, charge, encrypt)?, u64::MAX),
    };
    let relayed = Relayed::new(front, relay, room).map_err(|errno| OpenError::Memory { errno })?;
    Ok(Box::new(relayed))
}

/// Opens compressed RAM, the file if there is to be one, and the remote store behind them. What is packed and sent is
/// in RAM, so objects are small where the budget is.
#[cfg(feature = "remote")]
fn open_remote(
    url: &millpond_remote::RemoteUrl,
    (directory, file_bytes): (Option<&Path>, u64),
    max_bytes: Option<u64>,
    ram: u64,
    charge: Charge,
    encrypt: bool,
) -> Result<Box<dyn Store>, StoreError> {
    let (local, local_room): (Box<dyn Store>, u64) = if file_bytes == 0 {
        let most = match charge {
            Charge::Frames => most_before_another(ram, charge),
            _ => ram / 2,
        };
        let front = open_before_another(most)?;
        (Box::new(front), most.max(CompressedRam::MIN_BYTES))
    } else {
        let most = most_before_another(ram, charge);
        let local = open_spill(most, directory, Some(file_bytes), encrypt)?;
        (Box::new(local), file_bytes)
    };
    let object_bytes = (ram / 32).clamp(512 << 10, 4 << 20) as usize;
    let config = millpond_remote::RemoteConfig {
        max_bytes,
        object_bytes,
        ahead_bytes: object_bytes,
        ..millpond_remote::RemoteConfig::new(url.clone(), local_room)
    };
    Ok(Box::new(millpond_remote::RemoteStore::open(local, config)?))
}

/// The directory for the store's file: `$TMPDIR`, or `/var/tmp`, because `/tmp` is often RAM.
fn temporary_directory() -> PathBuf {
    std::env::var_os("TMPDIR").map_or_else(|| Path::new("/var/tmp").into(), PathBuf::from)
}

/// A builder that collects the settings of a [`Manager`]. See [`Manager::builder`].
///
/// ```
/// use millpond::{Manager, Order, StoreKind};
/// let manager = Manager::builder()
///     .ram(64 << 20)
///     .store(StoreKind::Auto { directory: Some(std::env::temp_dir()) })
///     .order(Order::ZERO)
///     .build()?;
/// assert_eq!(manager.stats().ram, 64 << 20);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "call .build() for a manager"]
pub struct ManagerBuilder {
    ram: Option<u64>,
    /// `None` where the program asked for no store: then it is [`Auto`](StoreKind::Auto), which may do without its
    /// file.
    store: Option<StoreKind>,
    delivery: Delivery,
    take_out: TakeOutMethod,
    mask: Option<Mask>,
    address_space: Option<u64>,
    bases: &'static [usize],
    order: OrderPolicy,
    on_store_full: OnStoreFull,
    encrypt: bool,
    charge: Charge,
    background: Option<bool>,
    limbo_share: Option<u16>,
    workingset: bool,
    lazyfree_max: Option<u64>,
    on_tick: Option<fn()>,
    publish: Option<String>,
    recording: Option<Recording>,
    fake_nodes: Option<u8>,
    /// A test's own store.
    #[cfg(test)]
    pub(crate) test_store: Option<fn() -> Box<dyn Store>>,
}

impl Default for ManagerBuilder {
    fn default() -> Self {
        Self {
            ram: None,
            store: None,
            delivery: Delivery::InThread,
            take_out: TakeOutMethod::Auto,
            mask: None,
            address_space: None,
            bases: &[],
            order: OrderPolicy::Adaptive { max: Order::MAX },
            on_store_full: OnStoreFull::Exceed,
            encrypt: false,
            charge: Charge::FramesAndStore,
            background: None,
            limbo_share: None,
            workingset: true,
            lazyfree_max: None,
            on_tick: None,
            publish: None,
            recording: None,
            fake_nodes: None,
            #[cfg(test)]
            test_store: None,
        }
    }
}

impl ManagerBuilder {
    /// The budget, in bytes: at least 16 MiB. All the memory that the manager has counts: mapped pages, frames,
    /// tables, and the store's RAM (but see [`store_outside_budget`](Self::store_outside_budget)).
    pub fn ram(mut self, bytes: u64) -> Self {
        self.ram = Some(bytes);
        self
    }

    /// The store for pages that do not fit. It is [`StoreKind::Auto`] unless the program asks for another, so that the
    /// budget holds for data that does not compress too. If no file can be made and the program asked for no store,
    /// the store is compressed RAM alone, and one line on standard error says so. If the program asked for a store
    /// that cannot be had, `build` fails.
    pub fn store(mut self, store: StoreKind) -> Self {
        self.store = Some(store);
        self
    }

    /// The thread that resolves faults: the faulting thread (the default), or a handler thread.
    pub fn delivery(mut self, delivery: Delivery) -> Self {
        self.delivery = delivery;
        self
    }

    /// How pages are captured on their way out: by the best way that the kernel has, unless told otherwise.
    pub fn take_out(mut self, method: TakeOutMethod) -> Self {
        self.take_out = method;
        self
    }

    /// The capabilities of the kernel's to do without. Default: those that the environment variable `MILLPOND_MASK`
    /// names, which is read when the manager is built.
    pub fn mask(mut self, mask: Mask) -> Self {
        self.mask = Some(mask);
        self
    }

    /// Addresses to reserve for regions, in bytes. The default is 16 times the budget and at least 64 GiB.
    /// Unused addresses cost nothing; tables for them cost 44 bytes of address space for each 4 KiB.
    pub fn address_space(mut self, bytes: u64) -> Self {
        self.address_space = Some(bytes);
        self
    }

    /// Addresses at which the address space should begin, in order of preference.
    pub(crate) fn bases(mut self, bases: &'static [usize]) -> Self {
        self.bases = bases;
        self
    }

    /// Orders of the folios of regions that ask for no order of their own: 2^order pages are brought in and taken out
    /// together. The default is adaptive, up to the largest order: 2 MiB where memory is filled in order, single pages
    /// where it is touched at random.
    pub fn order(mut self, order: impl Into<OrderPolicy>) -> Self {
        self.order = order.into();
        self
    }

    /// Behaviour when the store takes nothing more.
    pub fn on_store_full(mut self, what: OnStoreFull) -> Self {
        self.on_store_full = what;
        self
    }

    /// Whether data that goes to a file is encrypted (AES-256-XTS). The key is drawn for this manager and is nowhere
    /// but in its memory: when the process ends, what is left of the file becomes unreadable. Encryption takes 3 µs
    /// for 4 KiB each way. `millpond_store`'s `file/cipher.rs` says what it promises and what not. Compressed RAM is
    /// not encrypted.
    ///
    /// ```
    /// # use millpond::{Manager, StoreKind};
    /// let manager = Manager::builder().ram(16 << 20).store(StoreKind::file()).encrypt(true).build()?;
    /// let mut secrets = manager.region(64 << 20)?;
    /// secrets.as_mut_slice().fill(7);
    /// assert!(secrets.as_slice().iter().all(|&byte| byte == 7));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn encrypt(mut self, encrypt: bool) -> Self {
        self.encrypt = encrypt;
        self
    }

    /// Whether the store's RAM is outside the budget, as zram's is outside the memory cgroup of the processes that
    /// swap to it.
    pub fn store_outside_budget(mut self, outside: bool) -> Self {
        self.charge = if outside {
            Charge::Frames
        } else {
            Charge::FramesAndStore
        };
        self
    }

    /// Lets the budget cover all resident memory of the process, managed or not.
    pub fn cover_process(mut self) -> Self {
        self.charge = Charge::Process;
        self
    }

    /// Whether a thread reclaims ahead of need. Without that thread every faulting thread reclaims for itself.
    ///
    /// A second thread means that each call that moves pages interrupts the other thread's processor. One thread over
    /// 512 MiB in 256 MiB took 1.5 µs a page in order by folios of 64 KiB without the reclaim thread, and 2.3 µs with
    /// it. It took 5.5 µs an access at random by folios of 4 KiB without, and 9.0 µs with it. To fill an adaptive
    /// region by folios of 2 MiB it took 1.57 µs a page without, and 1.22 µs with it. So by default the thread
    /// reclaims ahead while folios of 256 KiB and more come in for others of that size that leave and have to be
    /// written. With a handler thread it also reclaims ahead while the handler thread does not share a processor with
    /// the only thread that faults.
    pub fn background_reclaim(mut self, on: bool) -> Self {
        self.background = Some(on);
        self
    }

    /// Most bytes that stay in RAM after they were lazily freed; beyond that the oldest are given back to the system.
    /// By default the only cap is the budget.
    pub fn lazyfree_max(mut self, bytes: u64) -> Self {
        self.lazyfree_max = Some(bytes);
        self
    }

    /// Limbo's least share of the budget, in 1/1024 (32 unless said otherwise, and 16 with compressed RAM). Limbo
    /// grows where that is worth its faults. The share decides how long a folio that was taken out waits in RAM for a
    /// second touch.
    pub fn limbo_share(mut self, share: u16) -> Self {
        self.limbo_share = Some(share);
        self
    }

    /// Whether refaults decide which pages stay (on unless said otherwise). Without this, memory is given by last use,
    /// as far as that is seen, and no figures tell what more memory would spare.
    /// `millpond bench workingset --only overhead` measures the difference by this setting.
    pub fn workingset(mut self, on: bool) -> Self {
        self.workingset = on;
        self
    }

    /// Makes the manager act as if the machine had `nodes` memory nodes (NUMA), up to 16: for tests on a machine with
    /// one.
    ///
    /// Without this setting a manager asks the system which nodes there are. Where there are several, regions go to
    /// them in turn. Each node has lists and frames of its own, and the memory of its regions is taken from that node
    /// as long as it has any (`mbind`). Where `mbind` is not allowed, as in some containers, the kernel chooses the
    /// node. A [`Space`](crate::space::Space) is one region for the whole program, and has one node. Fake nodes are
    /// put on the real ones in turn.
    ///
    /// ```
    /// let manager = millpond::Manager::builder().ram(16 << 20).fake_nodes(2).build()?;
    /// let regions = [manager.region(1 << 20)?, manager.region(1 << 20)?];
    /// assert_eq!(regions.map(|region| region.node()), [0, 1]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn fake_nodes(mut self, nodes: u8) -> Self {
        self.fake_nodes = Some(nodes);
        self
    }

    /// The kernel's number of each memory node. The list is empty where memory is not placed.
    fn nodes(&self) -> Result<Vec<u32>, BuildError> {
        if self.fake_nodes.is_none() && self.charge == Charge::Process {
            return Ok(Vec::new());
        }
        let real = online_nodes();
        match self.fake_nodes {
            Some(nodes) if !(1..=MAX_NODES).contains(&nodes) => Err(BuildError::BadNodes { nodes }),
            Some(nodes) => Ok(real
                .iter()
                .copied()
                .cycle()
                .take(usize::from(nodes))
                .collect()),
            None if real.len() == 1 => Ok(Vec::new()),
            None => Ok(real.into_iter().take(usize::from(MAX_NODES)).collect()),
        }
    }

    /// Lets `millpond stat` see the manager's counters under `name` while the manager lives. The manager's own thread
    /// writes them ten times a second to memory that this user's other processes and root can read; faults do not pay
    /// for it. It takes one descriptor of the process for all its managers.
    ///
    /// ```
    /// let builder = millpond::Manager::builder().ram(16 << 20).publish("index");
    /// let manager = builder.build()?;
    /// // `millpond stat` lists this process, and `millpond stat PID 1` says what happens each second.
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn publish(mut self, name: impl Into<String>) -> Self {
        self.publish = Some(name.into());
        self
    }

    pub(crate) fn on_tick(mut self, on_tick: Option<fn()>) -> Self {
        self.on_tick = on_tick;
        self
    }

    pub(crate) fn recording(mut self, recording: Option<Recording>) -> Self {
        self.recording = recording;
        self
    }

    /// Reserves the address space, opens the store and starts the threads.
    ///
    /// # Errors
    /// The setting that is wrong, or what the system refused.
    pub fn build(self) -> Result<Manager, BuildError> {
        millpond_mmu::panics::hook();
        let (driver, order) = self.driver()?;
        Ok(Manager::new(Arc::new(Pond::start(driver, false)?), order))
    }

    pub(crate) fn driver(&self) -> Result<(Arc<Driver>, OrderPolicy), BuildError> {
        let ram = self.ram.ok_or(BuildError::NoBudget)?;
        if ram < MIN_RAM {
            return Err(BuildError::BudgetTooSmall { ram });
        }
        let limit = PageCount::from_bytes_ceil(ram).ok_or(BuildError::BudgetTooLarge { ram })?;
        let space = self
            .address_space
            .unwrap_or_else(|| ram.saturating_mul(16).max(64 << 30));
        let arena = whole_leaves(space).ok_or(BuildError::BadAddressSpace { bytes: space })?;
        let usual_store = StoreKind::Auto { directory: None };
        let kind = self.store.as_ref().unwrap_or(&usual_store);
        let nodes = self.nodes()?;
        let config = self.config(arena, limit, kind, nodes.len());
        check_tables(&config, space)?;
        let mut core = Core::new(config).map_err(|error| match error {
            ConfigError::BadArena { .. } => BuildError::BadAddressSpace { bytes: space },
            _ => BuildError::BudgetTooSmall { ram },
        })?;
        if self.charge != Charge::Process {
            core.fill_tables();
        }
        let mmu = Uffd::new(UffdConfig {
            arena,
            bases: self.bases,
            pool: config.pool.on_nodes(config.nodes),
            delivery: self.delivery,
            take_out: self.take_out,
            huge_within: HUGE_WITHIN,
            mask: self.mask.unwrap_or_else(Mask::from_environment),
        })?;
        // Any program does not say which pages the kernel works on (`mmu/src/uffd/leaf.rs`).
        let on = self.delivery == Delivery::InThread;
        core.handle(Event::TakeLeaves { on }, &mut Commands::new());
        for (part, &node) in nodes.iter().enumerate() {
            // If the kernel refuses to place the pool, memory is used as it comes.
            let _ = mmu.place_pool(part as u8, config.nodes, node);
        }
        let parts = Parts {
            mmu,
            nodes,
            store: self.open_store(kind, ram)?,
            delivery: self.delivery,
            ram,
            charge: self.charge,
            on_store_full: self.on_store_full,
            background: self.background(),
            lazyfree_max: config.lazyfree_max,
            on_tick: self.on_tick,
            publisher: self
                .publish
                .as_deref()
                .map(Publisher::new)
                .transpose()
                .map_err(BuildError::Publish)?,
            recording: self.recording,
        };
        Ok((Arc::new(Driver::new(core, parts)), self.order))
    }

    /// The core's settings for so much memory.
    fn config(&self, arena: PageCount, limit: PageCount, kind: &StoreKind, nodes: usize) -> Config {
        let usual = Config::new(arena, limit);
        let pages =
            |bytes: u64| PageCount((bytes / PAGE_SIZE as u64).try_into().unwrap_or(u32::MAX));
        Config {
            records: records(arena, limit),
            lazyfree_max: self.lazyfree_max.map_or(usual.lazyfree_max, pages),
            limbo_share: self
                .limbo_share
                .unwrap_or_else(|| kind.limbo_share(usual.limbo_share)),
            refault_cost: kind.refault_cost(),
            workingset: self.workingset,
            nodes: nodes.max(1) as u8,
            ..usual
        }
    }

    fn background(&self) -> Background {
        match (self.background, self.delivery) {
            (Some(false), _) => Background::Never,
            (Some(true), _) => Background::Always,
            (None, Delivery::Handler) => Background::Apart,
            (None, Delivery::InThread | Delivery::Direct) => Background::Large,
        }
    }

    /// Opens the store. A machine without a disk to write to is no reason to fail, unless the program asked for a
    /// file.
    fn open_store(&self, kind: &StoreKind, ram: u64) -> Result<Box<dyn Store>, StoreError> {
        #[cfg(test)]
        if let Some(make) = self.test_store {
            return Ok(make());
        }
        match kind.open(ram, self.charge, self.encrypt) {
            Err(error) if self.store.is_none() => {
                eprintln!(
                    "millpond: memory beyond the budget goes to compressed RAM alone, and data that does not compress will \
                     exceed the budget: {error}; set TMPDIR to a directory on a disk"
                );
                StoreKind::compressed_ram().open(ram, self.charge, self.encrypt)
            }
            opened => opened,
        }
    }
}

fn whole_leaves(bytes: u64) -> Option<PageCount> {
    let leaf = u64::from(LEAF_PAGES) * PAGE_SIZE as u64;
    PageCount::from_bytes_ceil(bytes.div_ceil(leaf).checked_mul(leaf)?)
}

/// Folio records for all folios that can be in memory at once: the machine's RAM in single pages, as the budget may
/// have to be exceeded.
fn records(arena: PageCount, limit: PageCount) -> u32 {
    let pages = PageCount::from_bytes_ceil(machine_ram()).map_or(u32::MAX, |pages| pages.0);
    pages.min(arena.0).max(limit.0)
}

fn machine_ram() -> u64 {
    let machine = rustix::system::sysinfo();
    machine.totalram as u64 * u64::from(machine.mem_unit)
}

/// Refuses tables that are larger than the machine's RAM. The kernel gives address space for tables on credit, but no
/// more than there is RAM; an allocation that it refuses would end the program.
fn check_tables(config: &Config, bytes: u64) -> Result<(), BuildError> {
    let (tables, machine) = (config.table_bytes(), machine_ram());
    if tables > machine {
        return Err(BuildError::TablesTooLarge {
            bytes,
            tables,
            machine,
        });
    }
    Ok(())
}
