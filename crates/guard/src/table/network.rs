//! Calls about sockets.

use super::{
    BY_COMMAND, MESSAGE, VALUE, counted, messages, pointed_to, reads, row, writes, writes_bytes,
};
use crate::call::Call;

// One line per call.
#[rustfmt::skip]
pub(super) const CALLS: &[Call] = &[
    row(41, "socket", &[VALUE, VALUE, VALUE]),
    row(42, "connect", &[VALUE, reads(counted(2)), VALUE]),
    row(43, "accept", &[VALUE, writes(pointed_to(2)), writes_bytes(4)]),
    row(44, "sendto", &[VALUE, reads(counted(2)), VALUE, VALUE, reads(counted(5)), VALUE]),
    row(45, "recvfrom", &[VALUE, writes(counted(2)), VALUE, VALUE, writes(pointed_to(5)), writes_bytes(4)]),
    row(46, "sendmsg", &[VALUE, reads(MESSAGE), VALUE]),
    row(47, "recvmsg", &[VALUE, writes(MESSAGE), VALUE]),
    row(48, "shutdown", &[VALUE, VALUE]),
    row(49, "bind", &[VALUE, reads(counted(2)), VALUE]),
    row(50, "listen", &[VALUE, VALUE]),
    row(51, "getsockname", &[VALUE, writes(pointed_to(2)), writes_bytes(4)]),
    row(52, "getpeername", &[VALUE, writes(pointed_to(2)), writes_bytes(4)]),
    row(53, "socketpair", &[VALUE, VALUE, VALUE, writes_bytes(8)]),
    row(54, "setsockopt", &[VALUE, VALUE, VALUE, reads(BY_COMMAND), VALUE]),
    row(55, "getsockopt", &[VALUE, VALUE, VALUE, writes(pointed_to(4)), writes_bytes(4)]),
    row(288, "accept4", &[VALUE, writes(pointed_to(2)), writes_bytes(4), VALUE]),
    row(299, "recvmmsg", &[VALUE, writes(messages(2)), VALUE, VALUE, writes_bytes(16)]),
    row(307, "sendmmsg", &[VALUE, reads(messages(2)), VALUE, VALUE]),
];
