//! Helper threads of the C library, which have no place under direct delivery.
//!
//! For timers that start a thread, for asynchronous I/O and for asynchronous look-ups of names the C library has
//! helper threads of its own. They run with all signals blocked for good, and are made past `pthread_create`. So they
//! die at their first touch of memory that is out, and by the first call with an address of the space: SIGBUS and
//! SIGSYS kill where they are blocked. They cannot be made differently from here, so what they do is done otherwise.
//!
//! | functions | are |
//! | --- | --- |
//! | `timer_create` with `SIGEV_THREAD` | served by a helper of ours, which can be interrupted ([`timers`]) |
//! | `aio_read`, `aio_write`, `aio_fsync`, `lio_listio` | done when they are asked for ([`aio`]) |
//! | `getaddrinfo_a` | done when it is asked for ([`lookups`]) |
//! | `mq_notify` with `SIGEV_THREAD` | the C library's, whose helper touches unmanaged memory only ([`queues`]) |

mod aio;
mod lookups;
mod notice;
mod queues;
mod timers;

use super::real;

/// Looks the C library's functions up. The program must not run yet.
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
