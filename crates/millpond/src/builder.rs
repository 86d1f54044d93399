//! Building a manager: budget, store, delivery.

use crate::child::Process;
use crate::error::{BuildError, MIN_RAM, StoreError};
use crate::manager::{Manager, Pond};
use crate::store_kind::{Opening, StoreKind};
use millpond_core::limits::MAX_NODES;
use millpond_core::{
    Commands, Config, ConfigError, Core, Event, LEAF_PAGES, Order, OrderPolicy, PAGE_SIZE,
    PageCount, PoolLayout, Store,
};
use millpond_driver::publish::Publisher;
use millpond_driver::state::record::Recording;
use millpond_driver::{Background, Charge, Driver, OnStoreFull, Parts};
use millpond_mmu::{
    Delivery, HUGE_WITHIN, Mask, MemoryConfig, RealMemory, TakeOutMethod, is_counted_strictly,
    online_nodes,
};
use std::sync::Arc;

/// The room in a file for each byte of address space, where the store's tables are promised memory: parts that are
/// written anew leave holes, and children have copies.
const FILE_ROOM: u64 = 16;

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
    tables_on_credit: bool,
    address_space: Option<u64>,
    bases: &'static [usize],
    reserved: Option<usize>,
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
            tables_on_credit: false,
            address_space: None,
            bases: &[],
            reserved: None,
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

    /// The store for pages that do not fit. The default is [`StoreKind::Auto`], so that the budget also holds for
    /// incompressible data. If no file can be created and the program named no store, the store is compressed RAM
    /// alone, and a message on standard error says so. If the program named a store that is not available, `build`
    /// fails.
    pub fn store(mut self, store: StoreKind) -> Self {
        self.store = Some(store);
        self
    }

    /// The thread that resolves faults: the faulting thread (the default), or a handler thread.
    pub fn delivery(mut self, delivery: Delivery) -> Self {
        self.delivery = delivery;
        self
    }

    /// How pages are captured on their way out. The default is the best method that the kernel offers.
    pub fn take_out(mut self, method: TakeOutMethod) -> Self {
        self.take_out = method;
        self
    }

    /// The kernel capabilities to do without. The default is those named by the environment variable `MILLPOND_MASK`,
    /// which is read when the manager is built.
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

    /// The first address of an arena that the process has already (`DormantMemory`).
    pub(crate) fn reserved(mut self, at: usize) -> Self {
        self.reserved = Some(at);
        self
    }

    /// Orders of the folios of regions that set no order of their own: 2^order pages are brought in and taken out
    /// together. The default is adaptive, up to the largest order: 2 MiB where memory is filled sequentially, single
    /// pages where it is touched at random.
    pub fn order(mut self, order: impl Into<OrderPolicy>) -> Self {
        self.order = order.into();
        self
    }

    /// Behaviour when the store is full.
    pub fn on_store_full(mut self, what: OnStoreFull) -> Self {
        self.on_store_full = what;
        self
    }

    /// Whether data that goes to a file is encrypted (AES-256-XTS). The key is generated for this manager and exists
    /// only in its memory: when the process ends, the rest of the file becomes unreadable. Encryption takes 3 µs for 4
    /// KiB each way. `millpond_store`'s `file/cipher.rs` says what it promises and what not. Compressed RAM is not
    /// encrypted.
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
    /// With a second thread, each call that moves pages interrupts the other thread's processor. One thread over 512
    /// MiB in 256 MiB, reading in order with folios of 64 KiB, took 1.5 µs a page without the reclaim thread, and 2.3
    /// µs with it. Random access with folios of 4 KiB took 5.5 µs without, and 9.0 µs with it. Filling an adaptive
    /// region with folios of 2 MiB took 1.57 µs a page without, and 1.22 µs with it. So by default the thread reclaims
    /// ahead while folios of 256 KiB and more come in for others of that size that leave and have to be written. With a
    /// handler thread it also reclaims ahead while the handler thread does not share a processor with the only thread
    /// that faults.
    pub fn background_reclaim(mut self, on: bool) -> Self {
        self.background = Some(on);
        self
    }

    /// The maximum number of lazily freed bytes that stay in RAM; beyond that the oldest are given back to the system.
    /// By default the only cap is the budget.
    pub fn lazyfree_max(mut self, bytes: u64) -> Self {
        self.lazyfree_max = Some(bytes);
        self
    }

    /// Limbo's minimum share of the budget, in 1/1024 (by default 32, and 16 with compressed RAM). Limbo grows where
    /// that is worth its faults. The share decides how long a folio that was taken out waits in RAM for a second touch.
    pub fn limbo_share(mut self, share: u16) -> Self {
        self.limbo_share = Some(share);
        self
    }

    /// Whether refaults decide which pages stay (on by default). Without this, the last observed use decides, and no
    /// figures tell what more memory would save. `millpond bench workingset --only overhead` uses this setting to
    /// measure the difference.
    pub fn workingset(mut self, on: bool) -> Self {
        self.workingset = on;
        self
    }

    /// Makes the manager act as if the machine had `nodes` memory nodes (NUMA), up to 16: for tests on a machine with
    /// one.
    ///
    /// Without this setting a manager asks the system which nodes there are. If there are several, regions go to them
    /// in turn. Each node has its own lists and frames, and the memory of its regions comes from that node as long as
    /// it has any (`mbind`). Where `mbind` is not allowed, as in some containers, the kernel chooses the node. A
    /// [`Space`](crate::space::Space) is one region for the whole program, and has one node. Fake nodes are assigned to
    /// the real ones in turn.
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

    /// Publishes the manager's counters to `millpond stat` under `name` while the manager lives. The manager's own
    /// thread writes them ten times a second to memory that root and this user's other processes can read; faults are
    /// not slowed down. All managers of a process together take one descriptor.
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

    pub(crate) fn tables_on_credit(mut self, on_credit: bool) -> Self {
        self.tables_on_credit = on_credit;
        self
    }

    pub(crate) fn recording(mut self, recording: Option<Recording>) -> Self {
        self.recording = recording;
        self
    }

    /// Reserves the address space, opens the store and starts the threads.
    ///
    /// # Errors
    /// An invalid setting, or a refusal by the system.
    pub fn build(self) -> Result<Manager, BuildError> {
        millpond_mmu::panics::hook();
        let process = Process::this();
        let (driver, order) = self.driver()?;
        let pond = Pond::start(driver, Some(process))?;
        Ok(Manager::new(Arc::new(pond), order))
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
        if !self.tables_on_credit {
            check_tables(&config, space)?;
        }
        let mut core = Core::new(config).map_err(|error| match error {
            ConfigError::BadArena { .. } => BuildError::BadAddressSpace { bytes: space },
            _ => BuildError::BudgetTooSmall { ram },
        })?;
        core.each_table(&mut millpond_mmu::decline_huge_pages);
        if self.charge != Charge::Process {
            core.fill_tables();
        }
        let mmu = RealMemory::new(MemoryConfig {
            arena,
            bases: self.bases,
            reserved: self.reserved,
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
            store: self.open_store(kind, ram, arena)?,
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
            pool: match is_counted_strictly() {
                true => PoolLayout::short(limit),
                false => usual.pool,
            },
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

    /// Opens the store. The lack of a writable disk is an error only if the program asked for a file.
    fn open_store(
        &self,
        kind: &StoreKind,
        ram: u64,
        arena: PageCount,
    ) -> Result<Box<dyn Store>, StoreError> {
        #[cfg(test)]
        if let Some(make) = self.test_store {
            return Ok(make());
        }
        let opening = Opening {
            ram,
            charge: self.charge,
            encrypt: self.encrypt,
            file_most: is_counted_strictly().then(|| arena.bytes() * FILE_ROOM),
        };
        match kind.open(opening) {
            Err(error) if self.store.is_none() => {
                eprintln!(
                    "millpond: memory beyond the budget goes to compressed RAM alone, and data that does not compress will \
                     exceed the budget: {error}; set TMPDIR to a directory on a disk"
                );
                StoreKind::compressed_ram().open(opening)
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
