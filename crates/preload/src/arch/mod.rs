//! Everything in this crate that depends on the processor, and the requirements for a new one.
//!
//! The processor is selected here and nowhere else. A new one gets a folder with these items; the first folder,
//! `x86_64`, documents the conditions of each.
//!
//! | item | does | used by |
//! | --- | --- | --- |
//! | `thread_pointer`, `tls_table` | read the thread pointer, and the address of the thread's table of thread-local blocks | `raw.rs`, `fork.rs` |
//! | `this_thread` | returns the address of this library's own words for the thread | `guard/signals/thread.rs` |
//! | `on_given` | calls a function on another stack in such a way that it can be unwound | `guard/signals/given.rs` |
//! | `caller_as_second`, `caller_as_third`, `caller_as_seventh` | bodies of exports that continue in a function whose last argument is the export's return address | `malloc.rs`, `mmap/mod.rs` |
//! | `without_flags_in_second`, `without_flags_in_third` | bodies of exports that clear bits of an argument and jump to the replaced function, which finds the stack as the program left it | `dlopen.rs` |
//! | `by_option` | the body of `prctl`: some values of the first argument are served, all others jump to the C library | `prctl.rs` |
//! | `by_number` | the body of `syscall`: numbers that have a bit are served, except for children that share memory or start elsewhere; all others jump to the C library | `syscall.rs` |
//! | `DUP2`, `FORK`, `CHILDREN`, `MAP_32BIT` | numbers and a flag that only some processors have | `syscall.rs`, `clone.rs`, `mmap/unfixed.rs` |
//! | `waits::poll`, `waits::select` | make these calls, or their replacements on newer processors | `guard/calls/poll.rs` |
//! | `frames::entry`, `frames::nothing` | the handler that the kernel gets in place of the program's. It moves the frame to the stack that the program wants; without it frames stay where the kernel has put them, and cannot be on a stack in managed memory | `guard/signals/actions.rs`, `handlers.rs` |
//! | `HAS_GATE`, `gate::CODE`, `gate::RETURN`, `gate::call`, `gate::FRAME` | direct delivery: the code of the gate, the path through it on which a thread may be cancelled, and its description for the unwinder. Without a gate there is no direct delivery, and a handler serves faults | `guard/mod.rs`, `guard/gate.rs`, `guard/cancel.rs` |
//! | `FUNCTIONS` | the replaced functions that the folder's own exports call: on x86-64 `setcontext` and `swapcontext`, whose contexts contain masks, and `execl` and its relatives, whose arguments are in registers | `guard/signals/mod.rs` |
//!
//! The bodies of exports are macros, because an export is one naked function. `guard::start` refuses direct delivery
//! if [`HAS_GATE`] is false, so items that only direct delivery needs may be omitted until then.

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "aarch64")]
pub use aarch64::*;

#[cfg(target_arch = "x86_64")]
mod x86_64;
#[cfg(target_arch = "x86_64")]
pub use x86_64::*;

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("this processor has no folder in crates/preload/src/arch");
