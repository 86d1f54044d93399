//! Calls about clocks, timers and sleep.

use super::{VALUE, reads_bytes, row, writes_bytes};
use crate::call::Call;

// One line per call.
#[rustfmt::skip]
pub(super) const CALLS: &[Call] = &[
    row(35, "nanosleep", &[reads_bytes(16), writes_bytes(16)]),
    row(36, "getitimer", &[VALUE, writes_bytes(32)]),
    row(37, "alarm", &[VALUE]),
    row(38, "setitimer", &[VALUE, reads_bytes(32), writes_bytes(32)]),
    row(96, "gettimeofday", &[writes_bytes(16), writes_bytes(8)]),
    row(159, "adjtimex", &[writes_bytes(208)]),
    row(164, "settimeofday", &[reads_bytes(16), reads_bytes(8)]),
    row(201, "time", &[writes_bytes(8)]),
    row(222, "timer_create", &[VALUE, reads_bytes(64), writes_bytes(4)]),
    row(223, "timer_settime", &[VALUE, VALUE, reads_bytes(32), writes_bytes(32)]),
    row(224, "timer_gettime", &[VALUE, writes_bytes(32)]),
    row(225, "timer_getoverrun", &[VALUE]),
    row(226, "timer_delete", &[VALUE]),
    row(227, "clock_settime", &[VALUE, reads_bytes(16)]),
    row(228, "clock_gettime", &[VALUE, writes_bytes(16)]),
    row(229, "clock_getres", &[VALUE, writes_bytes(16)]),
    row(230, "clock_nanosleep", &[VALUE, VALUE, reads_bytes(16), writes_bytes(16)]),
    row(305, "clock_adjtime", &[VALUE, writes_bytes(208)]),
];
