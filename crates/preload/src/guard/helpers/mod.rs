//! Helper threads of the C library, which cannot work under direct delivery.
//!
//! The C library has helper threads for timers that start a thread, for asynchronous I/O and for asynchronous name
//! look-ups. They run with all signals permanently blocked, and are created without going through `pthread_create`.
//! So they die when they first touch absent memory, or when they first make a call with an address of the space:
//! SIGBUS and SIGSYS kill if they are blocked. We cannot change how they are created, so we do their work in other
//! ways.
//!
//! | functions | are |
//! | --- | --- |
//! | `timer_create` with `SIGEV_THREAD` | served by a helper of ours, which can be interrupted ([`timers`]) |
//! | `aio_read`, `aio_write`, `aio_fsync`, `lio_listio` | performed at the time of the request ([`aio`]) |
//! | `getaddrinfo_a` | performed at the time of the request ([`lookups`]) |
//! | `mq_notify` with `SIGEV_THREAD` | left to the C library, whose helper touches only unmanaged memory ([`queues`]) |

mod aio;
mod lookups;
mod notice;
mod queues;
mod timers;

use super::real;

/// Looks up the C library's functions. The program must not be running yet.
pub fn find() {
    for functions in [
        aio::FUNCTIONS,
        lookups::FUNCTIONS,
        queues::FUNCTIONS,
        timers::FUNCTIONS,
    ] {
        real::find(functions);
    }
}
