//! What depends on the processor, and what a new one may have.
//!
//! The processor is chosen here and nowhere else. One without a file of its own has `portable`.
//!
//! | item | does | used by |
//! | --- | --- | --- |
//! | `prefetch` | fetches a line of memory into the caches; it may do nothing | `mem.rs`, for what a fault is about to read |

#[cfg(not(target_arch = "x86_64"))]
mod portable;
#[cfg(not(target_arch = "x86_64"))]
pub(crate) use portable::prefetch;

#[cfg(target_arch = "x86_64")]
mod x86_64;
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::prefetch;
