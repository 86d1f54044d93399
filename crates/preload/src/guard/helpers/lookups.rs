//! `getaddrinfo_a`: names are looked up at the time of the request, by the thread that makes it.
//!
//! The program sees requests that completed at once. The price is that it waits for the answers of name servers where
//! it would otherwise have continued.

use super::notice::{self, Event};
use crate::guard::is_on_for_good;
use core::ffi::{c_char, c_int};

/// `struct gaicb`.
#[repr(C)]
pub struct Request {
    name: *const c_char,
    service: *const c_char,
    wanted: *const libc::addrinfo,
    result: *mut libc::addrinfo,
    answer: c_int,
    rest: [c_int; 5],
}

exports! {
    real LOOKUP: unsafe extern "C" fn(c_int, *const *mut Request, c_int, *const Event) -> c_int =
        c"getaddrinfo_a";

    [none: Thread]
    unsafe extern "C" fn getaddrinfo_a(
        mode: c_int,
        list: *const *mut Request,
        count: c_int,
        event: *const Event,
    ) -> c_int {
        const WAIT: c_int = 0;
        const NO_WAIT: c_int = 1;
        if !is_on_for_good() {
            return match LOOKUP.get() {
                // SAFETY: the caller guarantees this.
                Some(real) => unsafe { real(mode, list, count, event) },
                None => libc::EAI_SYSTEM,
            };
        }
        if mode != WAIT && mode != NO_WAIT {
            crate::raw::set_errno(rustix::io::Errno::INVAL);
            return libc::EAI_SYSTEM;
        }
        for index in 0..count.max(0) as usize {
            // SAFETY: the caller guarantees that many requests, some of which may be null.
            unsafe {
                let request = *list.add(index);
                if let Some(request) = request.as_mut() {
                    let Request {
                        name,
                        service,
                        wanted,
                        ..
                    } = *request;
                    request.answer = libc::getaddrinfo(name, service, wanted, &mut request.result);
                }
            }
        }
        // SAFETY: the caller guarantees a valid event, or none.
        unsafe {
            if mode == NO_WAIT
                && let Some(event) = event.as_ref()
            {
                notice::tell(event);
            }
        }
        0
    }
}
