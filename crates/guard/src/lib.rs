//! The guard: which memory the kernel touches in each system call.
//!
//! A program touches absent memory and faults; the faulting thread brings the page in and goes on. The kernel cannot do
//! so where userfaultfd serves faults of user mode only: a system call that touches an absent page answers `EFAULT`, or
//! worse, has done half of its work. So what the kernel is about to touch is brought in before the call, and held until
//! the call has returned. This crate says what that is:
//!
//! - [`table`] names every system call of x86-64 and aarch64 and says of each argument whether it points to memory,
//!   whether the kernel reads or writes there, and how much.
//! - [`filter`] makes the seccomp program from the table. The program stops a call only if an argument that the call
//!   has, and that points to memory, lies in the arena. All other calls pass at the price of the filter, 30 to 50 ns.
//! - [`touched`] lists the ranges of one call, from the table and the call's arguments. Some ranges are named by memory
//!   that other ranges hold (vectors, message headers), which is read by way of a [`touched::Source`].
//!
//! A range may be named that the kernel does not touch after all; a range that it touches must be named. All of this is
//! plain arithmetic: nothing here makes a system call, touches memory that it is not handed, or allocates.

mod arch;
pub mod call;
pub mod filter;
mod futex;
pub mod table;
pub mod touched;
