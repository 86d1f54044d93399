//! A store that the processes of one run share, while one of them alone can talk to the network.
//!
//! A program under `millpond run` must not contain a client of HTTP: it would allocate, wait and open descriptors where
//! a fault may do none of that. So the process that watches the run, its *supervisor*, keeps the store beyond the
//! machine for the whole tree, and the program's processes hand their oldest slots over to it. They meet in memory that
//! all of them map, as they do at the board (`millpond-board`).
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
//!   (`supervisor.rs`). The slots that were saved first move there when the store in front has no room left
//!   (`mover.rs`).
//! - [`Relay`] is the way there: a *desk* in shared memory, at which a thread asks one thing at a time (`desk.rs`).
//! - [`Server`] answers in the supervisor (`server.rs`), and knows which process may still need which slot
//!   (`accounts.rs`): processes fork, become other programs, and are killed.
//!
//! Nothing on a process's side allocates, opens a file, or starts a thread once the relay is open.

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
