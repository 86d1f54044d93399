//! Leaf tables record what each page of the arena is now.
//!
//! A leaf covers 2 MiB with 512 entries of 8 bytes, like the lowest level of a page table. A directory maps the leaves
//! of the arena to the tables in use. So untouched addresses cost four bytes per 2 MiB, and moving 2 MiB of memory
//! means moving one directory entry: folios name their place in a table, not their address, and each table knows the
//! leaf that it serves.
//!
//! A table consists of *rows* of 128 entries (`rows`), and has only the rows that hold something: an isolated page
//! costs 1 KiB, and not 4. Rows live in one array, sized for the whole arena when the core is built. The array comes
//! zeroed from the allocator, which for this size means address space that the kernel backs on first touch; zero is the
//! empty entry. Giving a page an entry therefore never allocates, and a table or row that has become empty is the next
//! one to be reused.
//!
//! A page that leaves memory leaves its *shadow* behind, in the bits of an entry that its kind does not use
//! ([`workingset`](crate::policy::workingset) explains their meaning). A page in the store, or one that was given up as
//! zeros, has an entry anyway, so its shadow costs nothing. A page whose contents were dropped has only a shadow: its
//! entry reads as empty. A table with nothing but shadows is memory spent on the past; it waits on a list of its
//! lruvec, oldest first, and is dropped when there are too many (`past`). The counts of each table alone determine
//! which tables are on these lists, and every change of an entry goes through `LeafTable::change_part`, so that every
//! path keeps the lists correct.

mod packing;
mod past;
mod rows;
mod shadows;
mod table;

pub use packing::Entry;
pub(crate) use table::LeafTable;
