//! `setsockopt`: refuses options that would let a socket refer to the program's pages.
//!
//! *Sending without a copy.* `MSG_ZEROCOPY` has an effect only on a socket whose `SO_ZEROCOPY` is set; on all others
//! the kernel ignores the flag and copies. So the option is refused with `EOPNOTSUPP`, the answer for protocols that
//! cannot do it, and programs then send copies. To make the copies here we would have to know when they may be freed:
//! the kernel reports that in the socket's error queue, which is for the program to read.
//!
//! *TLS in the kernel.* With the protocol `tls` above TCP the kernel encrypts out of the program's pages and decrypts
//! into them, and refers to them meanwhile without a pin. The protocol is refused with `ENOENT`, the answer of a
//! kernel without it, and TLS libraries then do the encryption themselves.
//!
//! The kernel decides everything else about the arguments: before a refusal we make a harmless request with the same
//! option, so that a bad descriptor, or a socket that never had the option, gets the usual answer. One case remains:
//! a socket passed on by a process that is not under Millpond, with the option already set.

use super::copy_from_program;
use crate::{guard, space};
use core::ffi::{c_int, c_void};
use rustix::io::Errno;

/// The option's number in `asm-generic/socket.h`.
const SO_ZEROCOPY: i32 = 60;
/// The option's number in `linux/tcp.h`.
const TCP_ULP: i32 = 31;
const TLS: &[u8; 3] = b"tls";

/// The arguments of one call.
#[derive(Clone, Copy)]
struct Request {
    fd: i32,
    level: i32,
    name: i32,
    value: usize,
    len: u32,
}

impl Request {
    fn to_kernel(self) -> Result<(), Errno> {
        let args = [
            self.fd as usize,
            self.level as usize,
            self.name as usize,
            self.value,
            self.len as usize,
            0,
        ];
        // SAFETY: the call sets what the program asked for, or clears an option.
        unsafe { guard::call::held(libc::SYS_setsockopt, args) }.map(drop)
    }

    /// Returns whether the value is the number one, which the kernel would accept.
    fn is_one(self) -> bool {
        let mut value = [0; size_of::<c_int>()];
        self.len as usize >= value.len()
            && copy_from_program(self.value, &mut value) == Ok(value.len())
            && c_int::from_ne_bytes(value) == 1
    }

    /// Returns whether the value is the name `tls`, terminated by its length or by a zero.
    fn is_tls(self) -> bool {
        let mut name = [0; TLS.len() + 1];
        let len = name.len().min(self.len as usize);
        copy_from_program(self.value, &mut name[..len]) == Ok(len)
            && name.starts_with(TLS)
            && name[TLS.len()] == 0
    }
}

fn set(request: Request) -> Result<(), Errno> {
    let zerocopy = request.level == libc::SOL_SOCKET && request.name == SO_ZEROCOPY;
    let protocol = request.level == libc::IPPROTO_TCP && request.name == TCP_ULP;
    if !zerocopy && !protocol || space::get().is_none() {
        return request.to_kernel();
    }
    if zerocopy && request.is_one() {
        let zero: c_int = 0;
        let value = core::ptr::from_ref(&zero) as usize;
        Request { value, ..request }.to_kernel()?;
        return Err(Errno::OPNOTSUPP);
    }
    if protocol && request.is_tls() {
        // An empty name is invalid on sockets that may have a protocol above them.
        return match (Request { len: 0, ..request }).to_kernel() {
            Ok(()) | Err(Errno::INVAL) => Err(Errno::NOENT),
            result => result,
        };
    }
    request.to_kernel()
}

exports! {
    [setsockopt: Held]
    unsafe extern "C" fn setsockopt(
        fd: c_int,
        level: c_int,
        name: c_int,
        value: *const c_void,
        len: libc::socklen_t,
    ) -> c_int {
        crate::c_result(set(Request {
            fd,
            level,
            name,
            value: value as usize,
            len,
        }))
    }
}
