//! What depends on the processor, and what a new one needs.
//!
//! The processor is chosen here and nowhere else. A new one gets a file with this item:
//!
//! | item | is | used by |
//! | --- | --- | --- |
//! | `HERE` | the calls by this processor's own numbers, a [`Machine`](crate::table::Machine) | `table/mod.rs`, and through it the filter and all who ask for a call |
//!
//! The machine itself is a list of names in the order of the numbers, as `table/aarch64.rs` is, and is compiled for
//! every processor, so that its tests run everywhere. One of them compares it with the system's header.

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "aarch64")]
pub use aarch64::HERE;

#[cfg(target_arch = "x86_64")]
mod x86_64;
#[cfg(target_arch = "x86_64")]
pub use x86_64::HERE;

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("this processor has no file in crates/guard/src/arch");
