//! The end of a program whose last thread ended with the bare system call.
//!
//! Under the kernel's strict seccomp mode a program can only end threads with the system call `exit`, and some
//! runtimes end their threads with it too. The C library does not notice, so its count of threads
//! ([`threads`](crate::threads)) says nothing. Natively the process ends with its last thread. Its status is that of
//! the last thread or, on older kernels, of the first; we can only know the latter. Under Millpond our threads
//! remained and kept the process alive forever, deaf to SIGTERM because our threads block all signals.
//!
//! So the manager's tick checks once a second whether the first thread has ended, which takes one file of `/proc`. If
//! it has, the tick reads the names of all others. The names of our threads share a prefix; when only our threads are
//! left, no thread can ever run the program's code again, and the process ends. A thread of the program with such a
//! name counts as ours.
//!
//! One of our threads may be about to run the functions registered with `atexit` on behalf of the program's last
//! thread, or be running them. So the process ends at the second check that finds only our threads, and not at all
//! if the C library has noticed the end of the last thread.

use crate::{filters, raw, report, tasks, threads, words};
use core::ffi::CStr;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use millpond_board::State;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{CWD, Mode, OFlags};

/// Number of ticks between checks.
const EVERY: u32 = 10;
/// The prefixes of the names of our threads, and of the kernel's threads that write on behalf of a ring in this
/// process.
const OURS: [&[u8]; 2] = [b"millpond-", b"iou-"];
/// The position of the exit status in a thread's line, counted in fields from its state.
const EXIT_CODE: usize = 49;

/// Called by the manager's tick.
pub fn tick() {
    static TICKS: AtomicU32 = AtomicU32::new(0);
    if TICKS.fetch_add(1, Relaxed) % EVERY != EVERY - 1 || filters::are_for_all() {
        return;
    }
    static ENDED: AtomicBool = AtomicBool::new(false);
    let ended =
        ended_with().filter(|_| only_ours_are_left() == Some(true) && !threads::have_ended());
    let had_ended = ENDED.swap(ended.is_some(), Relaxed);
    if let Some(status) = ended.filter(|_| had_ended) {
        report::publish(State::Exited);
        raw::exit_group(status);
    }
}

/// Returns the status of the first thread if it has ended.
pub fn ended_with() -> Option<i32> {
    let mut text = [0; 1024];
    let line = read(CWD, c"/proc/self/stat", &mut text)?;
    status_of(line)
}

/// Returns the status of the first thread if it has ended, from the line that the kernel writes about a process.
fn status_of(line: &[u8]) -> Option<i32> {
    // The name, in parentheses, may contain any bytes.
    let behind_name = line.iter().rposition(|&byte| byte == b')')? + 2;
    let mut fields = line.get(behind_name..)?.split(|&byte| byte == b' ');
    if !matches!(fields.next()?, b"Z" | b"X") {
        return None;
    }
    let code = fields.nth(EXIT_CODE - 1)?.trim_ascii_end();
    let code: i32 = core::str::from_utf8(code).ok()?.parse().ok()?;
    Some(code >> 8 & 0xff)
}

/// Returns whether all threads but the first, which has ended, are ours, or `None` if that cannot be determined.
fn only_ours_are_left() -> Option<bool> {
    let (mut are_ours, mut count) = (true, 0);
    tasks::each(|directory, name, thread| {
        if thread != tasks::first() {
            are_ours = are_ours && is_ours(directory, name)?;
            count += 1;
        }
        Some(())
    })?;
    Some(are_ours && count > 0)
}

fn is_ours(tasks: &OwnedFd, task: &CStr) -> Option<bool> {
    let task = open(tasks, task, OFlags::PATH | OFlags::CLOEXEC)?;
    let mut text = [0; 32];
    Some(is_name_of_ours(read(&task, c"comm", &mut text)?))
}

fn is_name_of_ours(name: &[u8]) -> bool {
    OURS.iter().any(|ours| name.starts_with(ours))
}

fn open(directory: impl AsFd, path: &CStr, flags: OFlags) -> Option<OwnedFd> {
    rustix::fs::openat(directory, path, flags, Mode::empty()).ok()
}

fn read<'a>(directory: impl AsFd, path: &CStr, text: &'a mut [u8]) -> Option<&'a [u8]> {
    words::read(
        open(directory, path, OFlags::RDONLY | OFlags::CLOEXEC)?,
        text,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn io_uring_worker_threads_count_as_ours() {
        for (name, ours) in [
            (b"millpond-reclaim\n".as_slice(), true),
            (b"iou-wrk-1234\n", true),
            (b"iou-sqp-1234\n", true),
            (b"python3\n", false),
            (b"io\n", false),
            (b"", false),
        ] {
            assert_eq!(is_name_of_ours(name), ours, "{name:?}");
        }
    }

    fn line(state: &str, code: u32) -> String {
        // These are fields 3 to 52 of proc(5): the state, 48 numbers, the code.
        format!("7 (a ) Z 1) {state} {}{code}\n", "1 ".repeat(48))
    }

    #[test]
    fn a_stat_line_shows_whether_and_how_the_first_thread_ended() {
        assert_eq!(status_of(line("Z", 3 << 8).as_bytes()), Some(3));
        assert_eq!(status_of(line("Z", 0).as_bytes()), Some(0));
        assert_eq!(status_of(line("S", 3 << 8).as_bytes()), None);
        assert_eq!(status_of(b"7 (a"), None);
        assert_eq!(status_of(b"7 (a) Z 1 2"), None);
        assert_eq!(ended_with(), None, "the test's own process");
    }

    #[test]
    fn threads_of_the_program_are_not_ours() {
        assert_eq!(only_ours_are_left(), Some(false));
    }
}
