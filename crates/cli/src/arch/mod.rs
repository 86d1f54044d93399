//! What depends on the processor, and what a new one needs.
//!
//! The processor is chosen here and nowhere else.
//!
//! | item | is | used by |
//! | --- | --- | --- |
//! | `MACHINE` | the number of this processor in programs' files (`e_machine`) | `run/elf.rs`: a program for another one is refused |

#[cfg(target_arch = "aarch64")]
pub use object::elf::EM_AARCH64 as MACHINE;

#[cfg(target_arch = "x86_64")]
pub use object::elf::EM_X86_64 as MACHINE;
