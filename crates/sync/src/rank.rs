//! The order of all locks.

macro_rules! ranks {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// The order in which locks may be taken, lowest first. docs/LOCKS.md explains for each lock who takes it, and
        /// for what it may be held.
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
    /// The handle of a region in C. One thread may take two of them in the order of their addresses.
    RegionHandle,
    /// The default manager of the process.
    DefaultManager,
    /// A heap in managed memory.
    Heap,
    /// Names of the groups.
    GroupNames,
    /// A sync of one file's region: only one at a time writes its changes.
    FileSync,
    /// Background work: the reclaim thread holds this lock while it works, and the forking thread across a fork.
    Housekeeping,
    /// The thread that writes shared regions back.
    Writer,
    /// Ranges to prefetch.
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
    /// Figures: the size of the process, the children.
    Figures,
    /// What the core knows about the book of kept memory.
    ReuseTold,
    /// The delivery of faults.
    Delivery,
    /// Work that a process does once, such as installing the SIGBUS handler.
    OncePerProcess,
    /// The board of this process.
    Board,
    /// The turn to recompress data that a store keeps in RAM.
    Recompression,
    /// The order in which slots leave for a remote store.
    RemoteQueue,
    /// The objects of a remote store.
    RemoteObjects,
    /// The seats at which faults wait for a remote store.
    RemoteSeats,
    /// The orders to the thread that packs for a remote store, and its answers.
    RemotePacker,
    /// Messages from a process to the server of its run.
    RelayNotes,
    /// Seats of a store's scratch memory.
    Scratches,
    /// Bookkeeping of compressed RAM.
    Arena,
    /// Batches that wait to be written to a file.
    FileBatches,
    /// The ring that writes batches while a thread continues.
    FileRing,
    /// Clusters that were read from a file and are kept.
    FileClusters,
    /// The context of reads for which a thread waits without sleeping.
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
    /// The ring with which a thread has several reads of a stream in flight.
    StreamRing,
    /// The ring of the latest events and commands of all cores.
    Recent,
    /// The allocator of a preloaded library's own memory.
    InternalAllocator,
}

impl Rank {
    /// Whether the lock is used in the work on memory itself. A thread that finds such a lock taken tries for a while
    /// before it sleeps, and a panic under it ends the process: the guarded state is half changed, and the next thread
    /// would wait for something that never happens.
    #[cfg(not(feature = "shuttle"))]
    pub(crate) const fn is_of_work(self) -> bool {
        matches!(self, Self::Housekeeping | Self::Core | Self::Figures)
    }
}
