//! The `status` file of a process in `/proc`.

use std::fs;

/// The text of the file of process `pid`; empty when the process is gone.
pub fn of(pid: i32) -> String {
    fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default()
}

/// The value of the field `name`, without the space around it.
pub fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = status.lines();
    lines.find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim()))
}
