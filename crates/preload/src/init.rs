//! The constructor: reads the settings, builds the manager, and starts the program's allocator.
//!
//! This is the first constructor of the process (see `build.rs`), and the first of this library (by its section's
//! number), before jemalloc's own. Until it has finished, allocations come from the internal allocator.

use crate::{
    clone, code, descriptors, dlopen, engage, exit, fork, guard, jemalloc, ksm, last_words, malloc,
    prctl, raw, record, report, rights, settings, space, syscall, tell, threads, unmanaged, vma,
};
use core::ffi::{c_char, c_int};
use core::sync::atomic::{AtomicU8, Ordering::*};
use millpond::space::SpaceOptions;
use millpond::{BuildError, StoreKind};
use millpond_mmu::{Delivery, MmuError, is_counted_strictly, serves_user_mode};
use millpond_settings::{DeliveryChoice, Settings, StoreChoice, Tell};
use std::path::Path;

/// Length of the address space to manage. Addresses cost nothing until used. Together with the addresses behind them
/// they still fit in 29 bits of a page's entry.
const SPACE: usize = 1792 << 30;
/// Maximum length of the space if its tables count towards a limit on data.
const SHORT_SPACE: usize = 256 << 30;
/// Bytes of the space for each byte of its tables, rounded down: a page takes 57 bytes, and 6 for the store.
const TABLE_SHARE: usize = 64;
/// Tables may take one part in this many of what the kernel can still promise: the child of a fork is promised as
/// much again, and so is what the program maps.
const PROMISED_SHARE: usize = 8;
/// The minimum useful length of a space.
const MIN_SPACE: usize = 64 << 20;
/// The candidate base addresses of the space. They are low so that the space covers the addresses that programs ask
/// for by number (`vma/zones.rs`). Below 1 GiB lies the executable of a program that is not position-independent,
/// followed by the kernel's heap.
const BASES: [usize; 4] = [1 << 30, 2 << 30, 4 << 30, 8 << 30];

/// The phase before anything has started.
const EARLY: u8 = 0;
/// The phase in which the manager starts its threads.
const STARTING: u8 = 1;
/// The phase in which the program allocates from the space.
const READY: u8 = 2;
/// The phase of a process without a budget: the program allocates as with an ordinary allocator.
const PASSIVE: u8 = 3;

static PHASE: AtomicU8 = AtomicU8::new(EARLY);

/// Returns whether the program's allocator is up.
#[inline]
pub fn is_ready() -> bool {
    PHASE.load(Relaxed) >= READY
}

/// Returns whether threads created now belong to the manager.
pub fn is_starting() -> bool {
    PHASE.load(Relaxed) == STARTING
}

/// Returns whether this process has no budget.
pub fn is_passive() -> bool {
    PHASE.load(Relaxed) == PASSIVE
}

/// Runs `work`, whose threads and allocations belong to the manager, in a process that has no other thread.
pub fn starting<R>(work: impl FnOnce() -> R) -> R {
    let before = PHASE.swap(STARTING, Relaxed);
    let result = work();
    PHASE.store(before, Relaxed);
    result
}

#[cfg_attr(not(test), used, unsafe(link_section = ".init_array.00099"))]
#[cfg_attr(test, allow(dead_code, reason = "a test program is no preloaded one"))]
static CONSTRUCTOR: extern "C" fn(c_int, *const *const c_char, *const *const c_char) = construct;

extern "C" fn construct(_: c_int, _: *const *const c_char, environment: *const *const c_char) {
    give_environment(environment);
    // This library has its own copy of the standard library, so every panic in it is ours.
    millpond_mmu::panics::hook_all();
    // SAFETY: the dynamic linker passes the environment block to constructors.
    let settings = unsafe { settings::read(environment) };
    rights::find();
    threads::find();
    last_words::find();
    clone::find();
    guard::find();
    tell::find();
    ksm::leave();
    code::find();
    malloc::find();
    let result = dlopen::find()
        .and(syscall::find())
        .and(prctl::find())
        .and(settings)
        .and_then(|settings| match settings.ram {
            Some(ram) => start(&settings, ram, environment),
            None => start_passive(
                "MILLPOND_RAM is not set; running without a budget (use `millpond run`)",
            ),
        });
    if let Err(error) = result {
        exit::fail(&format!("millpond: {error}"));
    }
}

/// Gives the C library its environment early; it sets the environment itself only in its own constructor, which runs
/// after this one. What we do here calls allocators that were preloaded before us, for the linker's blocks.
/// heaptrack's allocator starts with its first block and looks in the environment for the pipe that it writes to. It
/// found none, and the program that reads the pipe waited forever.
fn give_environment(block: *const *const c_char) {
    unsafe extern "C" {
        static mut environ: *const *const c_char;
    }
    // SAFETY: there is one thread, and the C library stores this same pointer a moment later.
    unsafe {
        if environ.is_null() {
            environ = block;
        }
    }
}

fn start_passive(why: &str) -> Result<(), String> {
    raw::complain(&format!("millpond: {why}\n"));
    jemalloc::start(processors(), None)?;
    PHASE.store(PASSIVE, Release);
    Ok(())
}

fn start(settings: &Settings, ram: u64, environment: *const *const c_char) -> Result<(), String> {
    let space = match starting(|| create_delivering(settings, ram)) {
        Ok(space) => space,
        Err(error) if unmanaged::is_below(settings, &error) => {
            // SAFETY: this is the block that the dynamic linker passed, in a process with one thread.
            unsafe { unmanaged::leave_library_out(environment.cast_mut()) };
            return start_passive(&unmanaged::explanation(&program_name(), &error));
        }
        Err(error) if is_of_the_machine(&error) => {
            return Err(format!(
                "{error}; `millpond doctor` says what this machine lacks"
            ));
        }
        Err(error) => return Err(error.to_string()),
    };
    rights::follow_program();
    space::set(space);
    if space::is_closed() {
        guard::signals::serve_sigsegv()?;
    }
    descriptors::learn(space);
    vma::begin(space);
    last_words::allow(ram);
    fork::register()?;
    exit::register();
    space::set_lazy(settings.lazy_purge.is_on());
    jemalloc::start(processors(), Some(ram))?;
    if let Some(record) = &settings.record {
        record::begin(&record.tapes, &program_name())?;
    }
    if let Some(board) = &settings.board {
        report::begin(board, &program_name());
    }
    if settings.tell == Tell::Budget {
        tell::begin(ram);
    }
    PHASE.store(READY, Release);
    Ok(())
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn program_name() -> String {
    let path = std::fs::read_link("/proc/self/exe").unwrap_or_default();
    path.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

/// The sizes of a space, computed once for all attempts to create it.
#[derive(Clone, Copy)]
pub struct Sizes {
    /// The budget.
    pub ram: u64,
    /// Whether the kernel promises no more memory than there is.
    is_counted: bool,
    /// The length of the space.
    pub space: usize,
}

impl Sizes {
    fn of(ram: u64) -> Self {
        let is_counted = is_counted_strictly();
        let space = space_len(is_counted);
        Self {
            ram,
            is_counted,
            space,
        }
    }
}

/// Returns the length of the space: as many addresses as a limit on them allows, less half for everything else,
/// because the space reserves up to a quarter more for itself. Its tables are one sixty-fourth of it. The kernel does
/// not count them until they are used (`raw::map_anonymous`), however little memory the machine has. Where it does
/// count them, as limited data or as promised memory, the space is shorter. Where it promises no more than there is,
/// the tables may take one eighth of what it can still promise: a machine of 1.5 GiB once had no room for the tables
/// of 256 GiB, and nothing could run; when tables got half of it, python3 had no room for its own 38 MiB.
fn space_len(is_counted: bool) -> usize {
    use rustix::process::{Resource, getrlimit};
    let limit = getrlimit(Resource::As).current;
    let share = limit.map_or(usize::MAX, |limit| {
        usize::try_from(limit / 5 * 2).unwrap_or(usize::MAX)
    });
    let by_tables = if is_counted {
        promised().map_or(SHORT_SPACE, |left| {
            (left / PROMISED_SHARE * TABLE_SHARE).clamp(MIN_SPACE, SHORT_SPACE)
        })
    } else if getrlimit(Resource::Data).current.is_some() {
        SHORT_SPACE
    } else {
        SPACE
    };
    share.clamp(MIN_SPACE, by_tables) & !(vma::LEAF - 1)
}

/// Returns the bytes that a kernel can still promise if it promises no more than there is.
fn promised() -> Option<usize> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let figure = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().strip_suffix(" kB")?.parse::<usize>().ok()
    };
    Some((figure("CommitLimit:")?.saturating_sub(figure("Committed_AS:")?)) << 10)
}

/// Creates the space with the requested delivery. By default that is direct delivery, which is faster and needs no
/// privilege, or a handler for the programs of [`is_for_a_handler`]. If one is refused, the other is tried.
fn create_delivering(settings: &Settings, ram: u64) -> Result<&'static space::Space, BuildError> {
    use DeliveryChoice::{Auto, Direct, Handler};
    let sizes = Sizes::of(ram);
    let by_handler = || create(settings, sizes, Delivery::Handler);
    let refusal = match settings.delivery {
        Handler => return by_handler(),
        Auto if is_for_a_handler(settings) => match by_handler() {
            Err(error @ BuildError::Memory(MmuError::NoUserfaultfd { .. })) => Some(error),
            made => return made,
        },
        Auto | Direct => None,
    };
    let waits = refusal.is_none() && engage::may_wait(settings);
    let prepared = guard::prepare(sizes.space);
    match prepared.and_then(|()| if waits { Ok(()) } else { guard::start(ram) }) {
        Ok(()) if waits => engage::begin(settings, sizes),
        Ok(()) => create_directly(settings, sizes),
        Err(_) if settings.delivery == Auto && refusal.is_none() => by_handler(),
        // If a handler is refused as well, advice on how to get one is more useful.
        Err(why) => Err(refusal.unwrap_or(BuildError::Memory(MmuError::Direct { why }))),
    }
}

/// Returns whether a handler is the better choice: the program is linked with a library for rings, which direct
/// delivery refuses, or the kernel (before 5.11, or masked) would have to watch memory by protections. It never is
/// for a program with its own allocator: in the child of a fork the C library calls that allocator for the thread
/// that is to serve faults, and the allocator would touch memory that nobody serves yet.
fn is_for_a_handler(settings: &Settings) -> bool {
    !malloc::is_anothers() && (guard::calls::rings_are_linked() || !serves_user_mode(settings.mask))
}

/// Creates the space with direct delivery, for which the guard has been started.
fn create_directly(settings: &Settings, sizes: Sizes) -> Result<&'static space::Space, BuildError> {
    let space = create(settings, sizes, Delivery::Direct)?;
    match space.base() == guard::START {
        true => Ok(space),
        false => Err(is_taken()),
    }
}

/// The error where the space does not lie where the filter looks for it.
pub fn is_taken() -> BuildError {
    BuildError::Memory(MmuError::Direct {
        why: format!("the addresses from {:#x} on are taken", guard::START),
    })
}

fn create(
    settings: &Settings,
    sizes: Sizes,
    delivery: Delivery,
) -> Result<&'static space::Space, BuildError> {
    with_store(settings, sizes, delivery, |options| {
        space::Space::create(options.clone())
    })
}

/// Does `make` with the options for these settings. Where the store cannot be opened, and the user has not insisted on
/// its place, other stores are tried.
///
/// # Errors
/// Those of `make`.
pub fn with_store<T>(
    settings: &Settings,
    sizes: Sizes,
    delivery: Delivery,
    make: impl Fn(&SpaceOptions) -> Result<T, BuildError>,
) -> Result<T, BuildError> {
    let usual = settings.temporary.as_deref().filter(|path| path.is_dir());
    let options = options(settings, sizes, usual, delivery);
    let (made, options) = match make(&options) {
        // The user has not said that the store belongs with temporary files, whose directory is often RAM or somebody
        // else's.
        Err(BuildError::Store(_)) if usual.is_some() => {
            let options = self::options(settings, sizes, None, delivery);
            (make(&options), options)
        }
        made => (made, options),
    };
    match made {
        // A container without a writable disk is no reason not to start: compressed RAM needs none.
        Err(BuildError::Store(error)) if settings.store == StoreChoice::Auto => {
            raw::complain(&format!(
                "millpond: no file for what compressed RAM does not hold: {error}\n"
            ));
            let store = of_run(settings, StoreKind::compressed_ram());
            make(&SpaceOptions { store, ..options })
        }
        made => made,
    }
}

/// Returns the options of the space. A store's file is in the directory `usual` unless the user has named another
/// place.
fn options(
    settings: &Settings,
    sizes: Sizes,
    usual: Option<&Path>,
    delivery: Delivery,
) -> SpaceOptions {
    SpaceOptions {
        ram: sizes.ram,
        store: store(settings, usual),
        on_store_full: settings.on_store_full,
        encrypt: settings.encrypt.is_on(),
        order: settings.order,
        delivery,
        address_space: sizes.space as u64,
        bases: match delivery {
            Delivery::Direct => &[guard::START],
            _ if sizes.space < vma::zones::LEAST => &[],
            _ => &BASES,
        },
        on_tick: Some(report::tick),
        recording: settings
            .record
            .as_ref()
            .map(|record| record::recording(record.window)),
        mask: settings.mask,
        tables_on_credit: !sizes.is_counted,
    }
}

fn store(settings: &Settings, usual: Option<&Path>) -> StoreKind {
    let usual = usual.map(Path::to_owned);
    let store = match &settings.store {
        StoreChoice::Auto => StoreKind::Auto { directory: usual },
        StoreChoice::Zram => StoreKind::compressed_ram(),
        StoreChoice::File(_) => StoreKind::File {
            path: settings.store.directory().map(Path::to_owned).or(usual),
            max_bytes: settings.file_max,
            force_tmpfs: settings.force_tmpfs,
        },
    };
    of_run(settings, store)
}

/// Returns the store with its file limit, followed by whatever store the supervisor keeps for this run, if any.
fn of_run(settings: &Settings, front: StoreKind) -> StoreKind {
    StoreKind::OfRun {
        front: Box::new(front),
        relay: settings.relay.clone(),
        file_bytes: settings.file_max,
    }
}

/// Returns whether a start failed because of the machine or the user's permissions. If so, `millpond doctor` can tell
/// more.
fn is_of_the_machine(error: &BuildError) -> bool {
    use millpond_mmu::MmuError::{Direct, MissingFeature, NoUserfaultfd};
    matches!(
        error,
        BuildError::Memory(NoUserfaultfd { .. } | MissingFeature { .. } | Direct { .. })
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Covers failures that were once followed by a hint about the machine: a missing directory and a limit on
    /// addresses.
    #[test]
    fn a_failed_start_names_the_doctor_where_the_machine_lacks_something() {
        let lacking = millpond_mmu::MmuError::MissingFeature {
            feature: "write protection",
            way_out: "use Linux 5.7 or later",
        };
        assert!(is_of_the_machine(&BuildError::Memory(lacking)));
        let too_many = millpond_mmu::MmuError::Reserve {
            what: "arena",
            bytes: 1 << 40,
            errno: rustix::io::Errno::NOMEM,
        };
        assert!(!is_of_the_machine(&BuildError::Memory(too_many)));
        assert!(!is_of_the_machine(&BuildError::NoBudget));
    }
}
