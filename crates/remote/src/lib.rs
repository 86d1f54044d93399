//! The last place for cold pages: objects in a store that other people run.
//!
//! [`RemoteStore`] is a [`Store`](millpond_core::port::Store) that puts a remote one behind another store. What does not
//! fit there any more is packed into objects ([`format`]), sealed, and sent by a thread of its own through OpenDAL: to
//! S3 and what speaks it, to Redis and what speaks it, to a directory.

pub mod format;
