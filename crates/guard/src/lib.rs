//! The guard: which memory the kernel touches in each system call.
//!
//! A program touches absent memory and faults; the faulting thread brings the page in and continues. The kernel cannot
//! do so if userfaultfd serves only faults in user mode: a system call that touches an absent page answers `EFAULT`, or
//! worse, has done half of its work. So the memory that the kernel is about to touch is brought in before the call, and
//! held until the call has returned. This crate says which memory that is:
//!
//! - [`table`] names every system call of x86-64 and aarch64 and says of each argument whether it points to memory,
//!   whether the kernel reads or writes there, and how much.
//! - [`filter`] makes the seccomp program from the table. The program stops a call only if one of its arguments points
//!   to memory in the arena. All other calls pass at the cost of the filter, 30 to 50 ns.
//! - [`touched`] lists the ranges of one call, from the table and the call's arguments. Some ranges are named by memory
//!   in other ranges (vectors, message headers), which is read through a [`touched::Source`].
//!
//! The list may contain a range that the kernel does not touch after all; it must contain every range that the kernel
//! touches. All of this is plain arithmetic: nothing here makes a system call, touches memory other than its arguments,
//! or allocates.

mod arch;
pub mod call;
pub mod filter;
mod futex;
pub mod table;
pub mod touched;
