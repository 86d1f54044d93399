//! Leaf tables say what each page of the arena is now.
//!
//! A leaf covers 2 MiB by 512 entries of 8 bytes, like the lowest level of a page table. A directory maps the leaves
//! of the arena to the tables in use. So untouched addresses cost four bytes for each 2 MiB, and to move 2 MiB of
//! memory is to move one directory entry: folios name their place in a table, not their address, and each table knows
//! the leaf that it serves.
//!
//! A table consists of *rows* of 128 entries (`rows`), of which it has those that hold something: a page that lies
//! alone costs 1 KiB, and not 4. Rows live in one array, sized for the whole arena when the core is built. It comes
//! zeroed from the allocator, which for arrays of this size means address space that the kernel backs on first touch;
//! zero is the empty entry. Giving a page an entry therefore never allocates, and a table or row that has become empty
//! is the next one to be used again.
//!
//! A page that left memory leaves its *shadow* behind: the bits of an entry that its kind has no use for
//! ([`workingset`](crate::policy::workingset) says what they mean). A page in the store, and one that was given up as
//! zeros, have an entry anyway, and its shadow costs nothing. A page whose contents were dropped has nothing but a
//! shadow: its entry reads as empty. A table that holds nothing else is memory spent on the past; it waits on a list
//! of its lruvec, oldest first, to be dropped when there are too many (`past`). The counts of each table alone say
//! which tables are on these lists, and every change of an entry goes through `LeafTable::change_part`, so that every
//! path keeps the lists right.

mod packing;
mod past;
mod rows;
mod shadows;
mod table;

pub use packing::Entry;
pub(crate) use table::LeafTable;
