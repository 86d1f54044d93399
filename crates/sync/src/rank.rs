//! The order of all locks.

macro_rules! ranks {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// The order in which locks may be taken, lowest first. docs/LOCKS.md says of each lock who takes it, and what
        /// it may be held for.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        #[repr(u8)]
        pub enum Rank {
            $($(#[$doc])* $name,)*
        }

        impl Rank {
            /// All ranks, lowest first.
            pub const ALL: &[Self] = &[$(Self::$name),*];
        }
    };
}

ranks! {
    /// The turn to change a program's user or group.
    Rights,
    /// A call of `mremap`, from its beginning to its end.
    Moving,
    /// The account of the program's mappings.
    Vma,
    /// Callbacks of one shrinker, while they are called.
    ShrinkerCallbacks,
    /// The thread that calls shrinkers.
    ShrinkerThread,
    /// The list of shrinkers.
    Shrinkers,
    /// The handle of a region in C. One thread may take two of them by their addresses.
    RegionHandle,
    /// The default manager of the process.
    DefaultManager,
    /// A heap in managed memory.
    Heap,
    /// Names of the groups.
    GroupNames,
    /// A sync of one file's region: one at a time writes what has changed.
    FileSync,
    /// Background work: the reclaim thread holds this lock while it works, and the forking thread across a fork.
    Housekeeping,
    /// The thread that writes shared regions back.
    Writer,
    /// Ranges that are to be prefetched.
    Prefetches,
    /// Ranges that were freed in place and are not marked yet.
    LazyBatch,
    /// The book of volatile ranges.
    VolatileRanges,
    /// The book of memory that is kept in place.
    ReuseBook,
    /// The batch of memory that a large discard gives back.
    Discards,
    /// The gate: every thread that works on memory enters it; it is closed across a fork.
    Gate,
    /// The batch of spare frames that are given back.
    SpareFrames,
    /// The core.
    Core,
    /// The queue of frees.
    Frees,
    /// Figures: the process's size, the children.
    Figures,
    /// What the core knows of the book of kept memory.
    ReuseTold,
    /// The delivery of faults.
    Delivery,
    /// What a process does once, as the installation of the SIGBUS handler.
    OncePerProcess,
    /// The board of this process.
    Board,
    /// The turn to compress again what a store keeps in RAM.
    Recompression,
    /// The order in which slots leave for a remote store.
    RemoteQueue,
    /// The objects of a remote store.
    RemoteObjects,
    /// The seats at which faults wait for a remote store.
    RemoteSeats,
    /// What the thread that packs for a remote store is told, and what it tells.
    RemotePacker,
    /// What a process has to tell the server of its run.
    RelayNotes,
    /// Seats of a store's scratch memory.
    Scratches,
    /// Bookkeeping of compressed RAM.
    Arena,
    /// Batches that wait to be written to a file.
    FileBatches,
    /// The ring by which batches are written behind a thread's back.
    FileRing,
    /// Clusters that were read from a file and are kept.
    FileClusters,
    /// The context of reads that are waited for awake.
    AwakeReads,
    /// The map of a file's blocks.
    FileBlocks,
    /// Spare indices of segments.
    SegmentIndices,
    /// Spare records of a table of slots.
    SlotRecords,
    /// Growth of an array that takes memory as it is used.
    TableGrowth,
    /// The files whose pages are regions'.
    Files,
    /// The streams of files that are read ahead.
    ReadAhead,
    /// The ring by which a thread has several reads of a stream under way.
    StreamRing,
    /// The ring of what cores were told last.
    Recent,
    /// The allocator of a preloaded library's own memory.
    InternalAllocator,
}

impl Rank {
    /// Whether the lock is one of the work on memory itself. A thread that finds it taken tries for a while before it
    /// sleeps, and a panic under it ends the process: the guarded state is half changed, and the next thread would wait
    /// for something that never happens.
    #[cfg(not(feature = "shuttle"))]
    pub(crate) const fn is_of_work(self) -> bool {
        matches!(self, Self::Housekeeping | Self::Core | Self::Figures)
    }
}
