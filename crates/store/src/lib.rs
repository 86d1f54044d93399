//! The stores: places for the bytes that do not fit in Millpond's budget of RAM.
//!
//! Every store here implements [`millpond_core::port::Store`]:
//!
//! - [`CompressedRam`]: LZ4 in an arena of its own, and zstd for unused data while that is nearly full. This is the
//!   usual store.
//! - [`FileStore`]: an unlinked temporary file, or a file with a given name, with direct I/O where the file system
//!   supports it; or several files with priorities.
//! - [`Spill`]: compressed RAM until that is full, the file afterwards.
//! - [`Tiered`]: any store, and behind it a slow [`Place`] for what was saved first: what stores beyond the machine are
//!   made of.
//! - [`Null`]: no store; every save of anything but zeros answers `Full`.
//!
//! [`MappedFile`] is not a store: its bytes are a program's file, from which a region's pages are read.
//!
//! The stores share one codec, one checksum and one slot table. Saving, loading and releasing neither call the global
//! allocator nor use thread-local storage, and set no `errno`. All memory comes from the kernel by raw system calls,
//! so that a store works in a signal handler of a program whose `malloc` is being replaced.
//!
//! ```
//! use millpond_core::{SlotId, port::{Saved, Slots}};
//! use millpond_store::{CompressedRam, CompressedRamConfig};
//!
//! let store = CompressedRam::new(CompressedRamConfig { max_bytes: Some(64 << 20) })?;
//! let page: Vec<u8> = (0..4096).map(|i| (i / 50) as u8).collect();
//! assert_eq!(store.save(SlotId(7), None, &page), Ok(Saved::Stored));
//!
//! let mut back = vec![0; 4096];
//! store.load(SlotId(7), 0, &mut back).unwrap();
//! assert_eq!(back, page);
//! # Ok::<(), millpond_store::OpenError>(())
//! ```

mod arch;
mod arena;
mod checksum;
mod codec;
mod compressed_ram;
mod error;
mod file;
mod image;
mod mapped;
mod mem;
mod null;
mod paged;
mod pieces;
mod random;
mod ring;
mod scratch;
mod slot_places;
mod slot_table;
mod spill;
mod sums;
mod tiered;
mod zstd;

pub use compressed_ram::{CompressedRam, CompressedRamConfig};
pub use error::OpenError;
pub use file::{FileArea, FileStore, FileStoreConfig, IO_OF_STORE, Location};
pub use mapped::{Access, DataFile, DataFileError, MappedFile, StreamReads};
pub use null::Null;
pub use pieces::{Entry, Pieces};
pub use slot_places::{SlotPlaces, SlotState, SlotWord};
pub use spill::Spill;
pub use sums::Sums;
pub use tiered::{Front, Place, Refused, Tiered};
