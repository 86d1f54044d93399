//! Everything in this crate that depends on the processor, and what a new one needs.
//!
//! The processor is chosen here and nowhere else. A new one gets a folder with these items, each of which has its
//! conditions in the first folder, `x86_64`:
//!
//! | item | does | used by |
//! | --- | --- | --- |
//! | `call` | makes a system call by an instruction of its own | `sys/gate.rs` |
//! | `call_at` | makes a system call by the code at the gate, a system call's instruction and a return | `sys/gate.rs` |
//! | `frame` | reads and changes the registers in the frame of a signal: the stack pointer, the next instruction, what a fault was about to do, the system call that a filter stopped and its answer | `interrupted.rs` |
//! | `TELLS_ACCESSES` | whether a frame always says what the fault was about to do: without that, absent pages cannot be told from the program's own faults by protections | `protection/mod.rs` |
//! | `touch` | reads a byte, or copies, by instructions that may fault | `touch.rs` |
//! | `SKIPS_FAULTS`, `zero_if_mapped`, `copy_nofault`, `lines` | zero and copy memory of the arena by instructions that may fault, and say where these are. A matter of speed: a processor without them answers false | `uffd/skip.rs`, `uffd/zero.rs`, `uffd/copy_nofault.rs` |
//! | `zero` | zeroes pages that were given up, past the caches where there is a way | `uffd/zero_in_place.rs` |
//! | `MOVES_TABLES` | whether the kernel moves a mapping by a pointer for each 2 MiB (`CONFIG_HAVE_MOVE_PMD`) | `uffd/hand_over.rs` |
//!
//! A fault's way leads through `frame`, `touch` and `lines`, in signal handlers: they allocate nothing, and use neither
//! locks nor thread-local storage. `tests/interrupted.rs` raises each kind of signal and looks at what `frame` says.

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "aarch64")]
pub(crate) use aarch64::*;

#[cfg(target_arch = "x86_64")]
mod x86_64;
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::*;

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("this processor has no folder in crates/mmu/src/arch");

// Its tests run on every processor.
#[cfg(any(target_arch = "aarch64", test))]
#[path = "aarch64/syndrome.rs"]
mod syndrome;

/// The addresses of instructions that may fault, and the place where a thread that faults there goes on.
pub(crate) struct Line {
    pub(crate) instructions: core::ops::Range<usize>,
    pub(crate) end: usize,
}
