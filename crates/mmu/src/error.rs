//! Errors in setting up memory. Operations on the fault path return the errors of the core's contract instead.

use millpond_core::{PageCount, PageRange};

/// Why an operation of [`RealMemory`](crate::RealMemory) failed. Nothing changed unless stated otherwise.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MmuError {
    /// The arena has no pages, is not a whole number of 2 MiB leaves, or is so large that its pages could not be
    /// numbered.
    #[error("an arena of {} pages cannot be used: it must be a multiple of 512 pages (2 MiB) and at most 16 TiB", .pages.0)]
    BadArena {
        /// The requested length.
        pages: PageCount,
    },
    /// The range extends outside the arena.
    #[error("pages {range} are outside the arena of {} pages", .arena.0)]
    OutsideArena {
        /// The requested range.
        range: PageRange,
        /// The arena's length.
        arena: PageCount,
    },
    /// Memory could not be placed on a node.
    #[error(
        "memory cannot be taken from node {node} ({errno}): see /sys/devices/system/node/online, and whether mbind is allowed here"
    )]
    Place {
        /// The kernel's number of the node.
        node: u32,
        /// The kernel's answer.
        errno: rustix::io::Errno,
    },
    /// There is no userfaultfd that can do what the delivery needs.
    #[error("userfaultfd is refused ({errno}): {way_out}")]
    NoUserfaultfd {
        /// The kernel's answer.
        errno: rustix::io::Errno,
        /// The advice to the user.
        way_out: &'static str,
    },
    /// The kernel's userfaultfd lacks a feature that the configuration needs.
    #[error("this kernel's userfaultfd has no {feature}: {way_out}")]
    MissingFeature {
        /// The feature's name.
        feature: &'static str,
        /// The advice to the user.
        way_out: &'static str,
    },
    /// Address space could not be reserved.
    #[error(
        "{bytes} bytes of address space for the {what} could not be reserved ({errno}): raise `ulimit -v`, \
             or set vm.overcommit_memory to 0 or 1, or ask for less"
    )]
    Reserve {
        /// The name of the mapping: arena or frame pool.
        what: &'static str,
        /// The requested length.
        bytes: usize,
        /// The kernel's answer.
        errno: rustix::io::Errno,
    },
    /// A range could not be registered with userfaultfd.
    #[error(
        "{bytes} bytes at {start:#x} could not be registered with userfaultfd ({errno}): \
             a mapping in that range belongs to something else"
    )]
    Register {
        /// The first address of the range.
        start: usize,
        /// The length of the range.
        bytes: usize,
        /// The kernel's answer.
        errno: rustix::io::Errno,
    },
    /// The protection of a range could not be changed.
    #[error(
        "the protection of pages {range} could not be changed ({errno}): \
             ENOMEM means too many mappings, raise vm.max_map_count"
    )]
    Protect {
        /// The range.
        range: PageRange,
        /// The kernel's answer.
        errno: rustix::io::Errno,
    },
    /// The pages of a range could not be moved by their page tables.
    #[error(
        "pages {range} could not be handed over ({errno}): EFAULT means that mappings in the range differ, ENOMEM too \
             many of them, raise vm.max_map_count; EINVAL that the kernel is older than Linux 5.13"
    )]
    HandOver {
        /// The range.
        range: PageRange,
        /// The kernel's answer.
        errno: rustix::io::Errno,
    },
    /// A required file or descriptor could not be opened.
    #[error("{what} could not be opened ({errno}): {way_out}")]
    Open {
        /// The name of the file or descriptor.
        what: &'static str,
        /// The kernel's answer.
        errno: rustix::io::Errno,
        /// The advice to the user.
        way_out: &'static str,
    },
    /// A sink is already attached.
    #[error("faults are delivered already: detach the sink that is attached first")]
    AlreadyAttached,
    /// This process cannot be prepared for direct delivery.
    #[error(
        "faults cannot be delivered directly: {why}; use `--delivery handler` if `millpond doctor` finds it possible"
    )]
    Direct {
        /// What the kernel refuses.
        why: String,
    },
    /// The table of arenas with in-thread delivery is full.
    #[error(
        "this process has {limit} arenas with in-thread delivery already: drop one, or use the handler thread"
    )]
    TooManyArenas {
        /// The table's length.
        limit: usize,
    },
    /// The SIGBUS handler could not be installed.
    #[error("the SIGBUS handler could not be installed (errno {errno})")]
    Signal {
        /// The C library's answer.
        errno: i32,
    },
    /// The handler thread could not be started.
    #[error(
        "the fault handler thread could not be started ({source}): raise `ulimit -u` or the cgroup's pids.max"
    )]
    Spawn {
        /// The standard library's answer.
        #[from]
        source: std::io::Error,
    },
}
