//! A store that the processes of one run share, although only one of them can talk to the network.
//!
//! A program under `millpond run` must not contain an HTTP client: it would allocate, wait and open descriptors where
//! a fault may do none of these. So the process that watches the run, its *supervisor*, keeps the store beyond the
//! machine for the whole process tree, and the program's processes hand their oldest slots over to it. They meet in
//! memory that all of them map, as they do at the board (`millpond-board`).
//!
//! ```text
//!   a process of the program                        the supervisor
//!   ────────────────────────                        ──────────────
//!   Relayed, a store                                Server
//!     in front: RAM, a file                           Accounts: whose slots are whose
//!     places: which slot is where                     any store: RemoteStore, under `millpond run`
//!            │                                               ▲
//!            ▼                                               │
//!          Relay ── takes a desk, asks, sleeps ──▶ desk ── a thread for each desk
//! ```
//!
//! - [`Relayed`] is the store of a process: another store, and behind it what the [`Supervisor`] keeps
//!   (`supervisor.rs`). When the store in front has no room left, the slots that were saved first move there
//!   (`mover.rs`).
//! - [`Relay`] is the way there: a *desk* in shared memory, where a thread makes one request at a time (`desk.rs`).
//! - [`Server`] answers in the supervisor (`server.rs`), and knows which process may still need which slot
//!   (`accounts.rs`): processes fork, become other programs, and are killed.
//!
//! Once the relay is open, nothing on a process's side allocates, opens a file, or starts a thread.

mod accounts;
mod desk;
mod layout;
mod mover;
mod server;
mod supervisor;

pub use desk::{Refusal, Relay};
pub use layout::{DESKS, RelayError};
pub use server::Server;
pub use supervisor::{Relayed, Supervisor};
