//! The handler follows the faulter's processor.
//!
//! Handing a fault to a thread on the same processor costs one context switch there and one back, about 7 µs for the
//! whole 4 KiB fault. Handing it to a thread on another, idle processor costs an interrupt to wake that processor
//! from its idle state, and another one to come back: we measured 48 µs. Left alone, the scheduler spreads the two
//! threads over processors, which is the slow case. So the handler pins itself to the processor from which faults
//! come.
//!
//! *Which processor is that?* Messages carry the faulter's thread id. The only source for another thread's processor
//! is its `stat` file in `/proc`, which takes a microsecond to read; the descriptor is kept open. We remember eight
//! threads. A thread that faults again within [`SOON`] did not have to be woken on an idle processor, so its file is
//! read only at every eighth fault. (It was once read at every 32nd of all faults. Then a thread that had been moved
//! took 16 slow faults before the handler followed, and redis-server with four times as much data as memory was in
//! that state half of the time: 41 s of work, as opposed to 17 s with a look at each fault.)
//!
//! *When to move.* Moving costs a migration, 38 µs. When threads on two processors fault alternately, following each
//! would be worse than staying. So the handler moves at once when one thread faults. When several threads fault, it
//! moves after several consecutive faults from the same other processor.
//!
//! *How the faulter stays.* The kernel runs a woken thread on an idle processor if there is one, and the faulter's
//! own never looks idle, because the handler runs there. Since Linux 6.12, a thread that sleeps after using more than
//! its share of the processor stays in the queue until the others have caught up, and is woken where it is. Between
//! two faults the handler works longer than the faulter, so it is the handler that exceeds its share, unless its time
//! counts less. So it runs with a niceness 20 steps better than the program's where the kernel allows that (root,
//! `CAP_SYS_NICE`, or the limit on niceness). Then the faulter stays: a fault of redis-server, with all reclaim in
//! the handler, took 35 to 68 µs and now takes 11. Where the kernel refuses, a second thread has to reclaim, which
//! keeps another processor from looking idle: 25 µs.
//!
//! *Threads of a real-time class* take precedence over any niceness. If one of them spins until another one makes
//! progress, the handler gets no processor until the kernel throttles the class: a loop over absent memory took 28 s,
//! and 9 to 11 with a handler of that class. The `stat` file also contains the faulter's real-time priority, and the
//! handler takes the next higher one where the kernel allows it. It keeps that until it ends.
//!
//! *When the guess is wrong*, the fault takes the slow hand-off, nothing else. A processor that goes offline or
//! leaves the process's cpuset is no trap: the kernel itself moves a pinned thread away, and the faulters, which
//! decide the next pin, only run where they may. When the kernel refuses a pin, the handler may again run wherever it
//! was originally allowed.

use core::fmt::Write;

use rustix::fd::OwnedFd;
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::process::{getpriority_process, setpriority_process};
use rustix::thread::gettid;
use std::time::Duration;

use super::Faulters;
use crate::affinity::Affinity;

/// Number of threads that are remembered.
const THREADS: usize = 8;
/// A thread that faults again within this time most likely runs on the handler's processor.
pub(super) const SOON: Duration = Duration::from_micros(20);
/// Number of quickly repeated faults of one thread between two looks at its processor.
const LOOK_EVERY: u32 = 8;
/// Number of consecutive faults from another processor after which the handler moves there, when several threads
/// fault.
const STREAK: u32 = 3;
/// The highest real-time priority.
const HIGHEST_CLASS: u32 = 99;
/// By how many steps the handler's niceness is better than the program's.
const PREFERRED_BY: i32 = 20;

/// Whether one thread faults, or several. Each change of threads outweighs [`CHANGE`](Self::CHANGE) faults of one
/// thread.
#[derive(Default)]
struct Company {
    last: u32,
    weight: u32,
    several: bool,
}

impl Company {
    const CHANGE: u32 = 16;
    /// A weight above this turns one thread into several; a weight of zero turns several into one.
    const SEVERAL: u32 = 4 * Self::CHANGE;
    const MOST: u32 = 64 * Self::CHANGE;

    fn note(&mut self, tid: u32) {
        if self.last == tid {
            self.weight = self.weight.saturating_sub(1);
        } else {
            self.last = tid;
            self.weight = (self.weight + Self::CHANGE).min(Self::MOST);
        }
        self.several = self.weight > 0 && (self.several || self.weight > Self::SEVERAL);
    }
}

pub(super) struct Follower {
    seen: [Option<Seen>; THREADS],
    next: usize,
    affinity: Affinity,
    wanted: u32,
    streak: u32,
    company: Company,
    preferred: bool,
    /// The real-time priority that the handler has, or was refused; 0 if none.
    class: u32,
}

struct Seen {
    tid: u32,
    stat: OwnedFd,
    place: Place,
    faults: u32,
}

/// The processor of a thread, and its real-time priority, which is 0 for a thread of another class.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Place {
    cpu: u32,
    class: u32,
}

impl Follower {
    /// Makes a follower for the calling thread, which takes precedence over the program from now on.
    pub(super) fn new() -> Self {
        Self {
            seen: [const { None }; THREADS],
            next: 0,
            affinity: Affinity::of_this_thread(),
            wanted: 0,
            streak: 0,
            company: Company::default(),
            preferred: prefer().is_ok(),
            class: 0,
        }
    }

    /// Returns whether several threads fault, and whether a single one stays on the handler's processor.
    pub(super) fn serves(&self) -> Faulters {
        if self.company.several {
            Faulters::Several
        } else if self.preferred && self.affinity.pinned().is_some() {
            Faulters::OneBeside
        } else {
            Faulters::One
        }
    }

    /// Notes that a fault of thread `tid` was served, and whether it came `soon` after the previous one. The `tid` is
    /// 0 if the kernel did not name the thread.
    pub(super) fn note(&mut self, tid: u32, soon: bool) {
        if tid == 0 {
            return;
        }
        self.company.note(tid);
        let Some(Place { cpu, class }) = self.place_of(tid, soon) else {
            return;
        };
        if class >= self.class && class > 0 {
            self.class = (class + 1).min(HIGHEST_CLASS);
            // A refusal changes nothing, and we do not ask again.
            take_class(self.class);
        }
        if self.affinity.pinned() == Some(cpu) {
            self.streak = 0;
        } else if self.wanted != cpu {
            (self.wanted, self.streak) = (cpu, 1);
        } else {
            self.streak += 1;
        }
        if self.streak >= if self.company.several { STREAK } else { 1 } {
            self.streak = 0;
            self.affinity.pin(cpu);
        }
    }

    fn place_of(&mut self, tid: u32, soon: bool) -> Option<Place> {
        let known = self
            .seen
            .iter()
            .position(|seen| seen.as_ref().is_some_and(|seen| seen.tid == tid));
        if let Some(at) = known {
            let seen = self.seen[at].as_mut()?;
            seen.faults += 1;
            if !soon || seen.faults % LOOK_EVERY == 0 {
                match read_place(&seen.stat) {
                    Some(place) => seen.place = place,
                    // The thread has ended, and its number may be reused.
                    None => {
                        self.seen[at] = None;
                        return None;
                    }
                }
            }
            return self.seen[at].as_ref().map(|seen| seen.place);
        }
        let stat = open_stat(tid)?;
        let place = read_place(&stat)?;
        self.seen[self.next] = Some(Seen {
            tid,
            stat,
            place,
            faults: 0,
        });
        self.next = (self.next + 1) % THREADS;
        Some(place)
    }
}

/// Gives the calling thread precedence over the program from now on. Returns its previous niceness.
fn prefer() -> Result<i32, Errno> {
    let this = Some(gettid());
    let nice = getpriority_process(this)?;
    setpriority_process(this, (nice - PREFERRED_BY).max(-20))?;
    Ok(nice)
}

/// Whether the kernel allows a handler to take precedence over the program. This tries it with the calling thread,
/// and then restores that thread's niceness.
pub(crate) fn may_be_preferred() -> Result<(), Errno> {
    let nice = prefer()?;
    setpriority_process(Some(gettid()), nice)
}

fn open_stat(tid: u32) -> Option<OwnedFd> {
    let mut path = Path {
        bytes: [0; 48],
        len: 0,
    };
    write!(path, "/proc/self/task/{tid}/stat").ok()?;
    let path = core::ffi::CStr::from_bytes_until_nul(&path.bytes).ok()?;
    let fd = openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    // Programs close low descriptors that they did not open.
    Some(rustix::io::fcntl_dupfd_cloexec(&fd, 512).unwrap_or(fd))
}

fn read_place(stat: &OwnedFd) -> Option<Place> {
    let mut bytes = [0u8; 512];
    let len = rustix::io::pread(stat, &mut bytes, 0).ok()?;
    parse_place(&bytes[..len])
}

/// Gives the calling thread a real-time priority. Returns whether the kernel allows it.
fn take_class(priority: u32) -> bool {
    let wanted = libc::sched_param {
        sched_priority: priority as libc::c_int,
    };
    // SAFETY: the kernel only reads the parameter. The call goes to the kernel directly and does not change `errno`
    // on success.
    unsafe {
        libc::syscall(
            libc::SYS_sched_setscheduler,
            0,
            libc::SCHED_FIFO,
            &raw const wanted,
        ) == 0
    }
}

/// Parses fields 39 and 40 of a `stat` line. The second field, the name, is in parentheses and may contain any bytes.
fn parse_place(line: &[u8]) -> Option<Place> {
    let after_name = line.iter().rposition(|&byte| byte == b')')? + 1;
    let mut fields = line[after_name..]
        .split(|&byte| byte == b' ')
        .filter(|field| !field.is_empty())
        .skip(36)
        .map(|field| core::str::from_utf8(field).ok()?.trim().parse().ok());
    Some(Place {
        cpu: fields.next()??,
        class: fields.next()??,
    })
}

struct Path {
    bytes: [u8; 48],
    len: usize,
}

impl Write for Path {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        // The last byte stays 0.
        let end = self.len + text.len();
        let room = self.bytes.len() - 1;
        self.bytes[..room]
            .get_mut(self.len..end)
            .ok_or(core::fmt::Error)?
            .copy_from_slice(text.as_bytes());
        self.len = end;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::thread::{CpuSet, sched_getaffinity};

    #[test]
    fn processor_and_class_are_parsed_whatever_the_threads_name() {
        let mut line = String::from("17 (a b) c) S");
        for field in 4..=52 {
            line.push_str(&format!(" {field}"));
        }
        let place = Place { cpu: 39, class: 40 };
        assert_eq!(parse_place(line.as_bytes()), Some(place));
    }

    #[test]
    fn this_thread_runs_on_a_processor_that_it_may_use() {
        let tid = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        let place = read_place(&open_stat(tid).unwrap()).unwrap();
        assert!(sched_getaffinity(None).unwrap().is_set(place.cpu as usize));
        assert_eq!(place.class, 0);
    }

    #[test]
    fn asking_for_a_preferred_handler_keeps_the_threads_priority() {
        let nice = || getpriority_process(Some(gettid())).unwrap();
        let before = nice();
        let _ = may_be_preferred();
        assert_eq!(nice(), before);
    }

    #[test]
    fn a_thread_that_is_gone_is_forgotten() {
        let mut follower = Follower::new();
        let tid = std::thread::spawn(|| rustix::thread::gettid().as_raw_nonzero().get() as u32)
            .join()
            .unwrap();
        for _ in 0..2 * LOOK_EVERY {
            follower.note(tid, true);
        }
        assert!(follower.seen.iter().all(Option::is_none));
    }

    #[test]
    fn a_faulter_is_located_at_once_and_followed() {
        let allowed = sched_getaffinity(None).unwrap();
        let is_allowed = |&cpu: &usize| allowed.is_set(cpu);
        let cpus: Vec<usize> = (0..CpuSet::MAX_CPU).filter(is_allowed).collect();
        let tid = gettid().as_raw_nonzero().get() as u32;
        std::thread::spawn(move || {
            let mut follower = Follower::new();
            follower.note(tid, false);
            let on = follower.affinity.pinned().unwrap() as usize;
            assert!(cpus.contains(&on));
            assert!(sched_getaffinity(None).unwrap().is_set(on));
            let beside = follower.serves() == Faulters::OneBeside;
            assert_eq!(beside, follower.preferred);
        })
        .join()
        .unwrap();
    }

    /// If the kernel refuses real-time classes, no faulter has one either.
    #[test]
    fn a_handler_gets_a_higher_class_than_the_thread_it_serves() {
        let this = || gettid().as_raw_nonzero().get() as u32;
        let faulter = std::thread::spawn(move || {
            let tid = this();
            take_class(5).then(|| {
                let handler = std::thread::spawn(move || {
                    Follower::new().note(tid, false);
                    read_place(&open_stat(this()).unwrap()).unwrap().class
                });
                handler.join().unwrap()
            })
        });
        let class = faulter.join().unwrap();
        assert!(class.is_none_or(|class| class == 6), "{class:?}");
    }

    #[test]
    fn alternating_faulters_count_as_several_until_one_faults_alone() {
        let mut company = Company::default();
        (0..1000).for_each(|_| company.note(7));
        assert!(!company.several);
        // An occasional fault of another thread does not count as several threads.
        for _ in 0..100 {
            company.note(8);
            (0..100).for_each(|_| company.note(7));
        }
        assert!(!company.several);
        (0..20).for_each(|n| company.note(n % 2));
        assert!(company.several);
        (0..100).for_each(|_| company.note(1));
        assert!(company.several, "the last change is not long ago");
        (0..2000).for_each(|_| company.note(1));
        assert!(!company.several);
    }
}
