//! Everything in this crate that depends on the processor, and what a new one needs.
//!
//! The processor is chosen here and nowhere else. A new one gets a folder with these items. The first folder,
//! `x86_64`, states the conditions of each:
//!
//! | item | does | used by |
//! | --- | --- | --- |
//! | `call` | makes a system call with an instruction of its own | `sys/gate.rs` |
//! | `call_at` | makes a system call through the gate's code: a system call instruction and a return | `sys/gate.rs` |
//! | `frame` | reads and changes the registers in the frame of a signal: the stack pointer, the next instruction, what a fault was about to do, the system call that a filter stopped and its result | `interrupted.rs` |
//! | `TELLS_ACCESSES` | whether a frame always says what the fault was about to do: without that, protections cannot distinguish absent pages from the program's own faults | `protection/mod.rs` |
//! | `touch` | reads a byte, or copies, with instructions that may fault | `touch.rs` |
//! | `SKIPS_FAULTS`, `zero_if_mapped`, `copy_nofault`, `lines` | zero and copy memory of the arena with instructions that may fault, and say where these are. They only save time: a processor without them returns false | `common/skip.rs`, `common/zero.rs`, `common/copy_nofault.rs` |
//! | `zero` | zeroes pages that were given up, bypassing the caches if possible | `uffd/zero_in_place.rs` |
//! | `MOVES_TABLES` | whether the kernel moves a mapping with one pointer for each 2 MiB (`CONFIG_HAVE_MOVE_PMD`) | `uffd/hand_over.rs` |
//!
//! A fault passes through `frame`, `touch` and `lines`, in signal handlers: they allocate nothing, and use neither
//! locks nor thread-local storage. `tests/interrupted.rs` raises each kind of signal and checks what `frame` says.

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

/// The addresses of instructions that may fault, and where a thread that faults there continues.
pub(crate) struct Line {
    pub(crate) instructions: core::ops::Range<usize>,
    pub(crate) end: usize,
}
