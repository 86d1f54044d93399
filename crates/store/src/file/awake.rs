//! Waiting for a read without sleeping.
//!
//! A thread that sleeps until a read is done leaves its processor idle. That costs more than it seems: the processor
//! halts, and has to be woken up. And if a handler's thread reads for a faulter that also sleeps, the queue of the
//! processor that both share is empty. Then the scheduler moves the faulter to another processor, the handler follows
//! it there, and both find cold caches: this happened 16,000 times in 18 s while gcc compiled a large file in a quarter
//! of its memory. So a thread that is told to stay awake submits the read to the kernel (`io_submit`), and polls for
//! its completion (`io_getevents`).
//!
//! A thread that serves its own faults saves only the wake-up. A random read of a page takes it 55 to 59 µs awake and
//! 78 to 83 asleep; the device takes 58. Its processor is busy during the wait. So a thread is told to stay awake only
//! while no other thread faults; several threads have work for each other's processors (and with two of them, staying
//! awake makes no difference).
//!
//! Writes sleep: the background thread makes them, and no thread waits for it.
//!
//! # For how long
//! Reading 32 KiB takes 60 to 100 µs on a disk that is worth waiting for, and sleeping costs about 200. A thread that
//! has waited for that long sleeps after all, and so takes at most twice the least possible time. If a device is always
//! slower, threads stop waiting for it: after such a wait a few reads sleep immediately, then twice as many, up to
//! [`REST_MOST`].
//!
//! # Not in a child that has just begun
//! The kernel destroys a context when the process ends, and then waits for every processor to pass a quiescent point:
//! 30 to 40 ms, during which the parent waits too. Most children read little: 200 of them with 30 reads each took 10 s,
//! where they should take 2. So a child sleeps for its first reads, which costs it no more than the context would.
//!
//! # Several reads at once
//! A folio that is assembled from several slots needs several reads, scattered over the file. Submitted together, eight
//! of them take 128 µs on a virtual disk, and one after the other 376. The same context is used here
//! ([`Awake::read_several`]), not a ring of `io_uring`: any thread can use it without a descriptor, containers allow
//! it, and it leaves none of the kernel's work to a program's thread.
//!
//! # When it does not work
//! The kernel, a sandbox, or the machine's limit on such contexts (`fs.aio-max-nr`) may refuse a context. A context
//! serves one thread at a time. A forked child does not have its parent's context. In all these cases the read is a
//! `pread`.

use arrayvec::ArrayVec;
use millpond_sync::{Held, Rank, Ranked};
use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::io::{self, Errno};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The longest time for which the device is polled.
const LONGEST: Duration = Duration::from_micros(200);
/// The most reads that sleep immediately because the device was slow.
const REST_MOST: u32 = 256;
/// Number of reads for which a child sleeps before it gets a context of its own.
const REST_IN_CHILD: u32 = 512;
/// The most reads submitted together.
pub(crate) const SEVERAL: usize = 16;
/// `IOCB_CMD_PREAD`.
const READ: u16 = 0;

/// The kernel's `struct iocb` (`linux/aio_abi.h`), little-endian.
#[repr(C)]
#[derive(Default)]
struct Request {
    data: u64,
    key: u32,
    rw_flags: u32,
    opcode: u16,
    priority: i16,
    fd: u32,
    buf: u64,
    bytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    eventfd: u32,
}

/// The kernel's `struct io_event`.
#[repr(C)]
#[derive(Default)]
struct Event {
    data: u64,
    request: u64,
    result: i64,
    more: i64,
}

impl Event {
    const NONE: Self = Self {
        data: 0,
        request: 0,
        result: 0,
        more: 0,
    };
}

const _: () = assert!(size_of::<Request>() == 64 && size_of::<Event>() == 32);
const _: () = assert!(cfg!(target_endian = "little"));

/// The kernel's context, to which reads are submitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Context {
    /// No context has been requested yet.
    None,
    /// The kernel refused a context.
    Refused,
    /// The kernel's name for the context.
    Open(usize),
}

struct State {
    context: Context,
    /// Number of reads that will still sleep before a thread waits awake again.
    resting: u32,
    /// The length of the last such rest.
    rest: u32,
}

/// Reads that wait awake. The module's documentation explains why.
pub(crate) struct Awake {
    wanted: AtomicBool,
    /// The lock is held by the thread that waits for the device. No thread waits for the lock.
    state: Ranked<State>,
}

/// One of several reads.
pub(crate) struct OneRead<'a> {
    pub(crate) fd: BorrowedFd<'a>,
    pub(crate) buf: &'a mut [u8],
    pub(crate) offset: u64,
    /// The number of bytes read, if the read was submitted and did not fail.
    pub(crate) read: Option<usize>,
}

/// The right to use the context, held by one thread at a time.
struct Turn<'a> {
    state: Held<'a, State>,
    context: usize,
}

impl Awake {
    pub(crate) const fn new() -> Self {
        Self {
            wanted: AtomicBool::new(false),
            state: Ranked::new(
                Rank::AwakeReads,
                State {
                    context: Context::None,
                    resting: 0,
                    rest: 0,
                },
            ),
        }
    }

    /// Sets whether threads stay awake from now on.
    pub(crate) fn want(&self, on: bool) {
        self.wanted.store(on, Relaxed);
    }

    /// Forgets the parent's context, which does not exist in a child.
    pub(crate) fn forget(&self) {
        let mut state = self.lock();
        state.context = Context::None;
        state.resting = REST_IN_CHILD;
    }

    fn lock(&self) -> Held<'_, State> {
        self.state.lock()
    }

    /// Reads like `pread`.
    pub(crate) fn read(
        &self,
        fd: BorrowedFd<'_>,
        buf: &mut [u8],
        offset: u64,
    ) -> Result<usize, Errno> {
        let Some(mut turn) = self.turn() else {
            return io::pread(fd, buf, offset);
        };
        let request = Request::read(fd, buf, offset);
        // SAFETY: the buffer is borrowed for writing until this returns.
        unsafe { turn.go(&request) }.unwrap_or_else(|| io::pread(fd, buf, offset))
    }

    /// Makes some of these reads at once, or none of them. Completed reads have their `read` set.
    pub(crate) fn read_several(&self, reads: &mut ArrayVec<OneRead<'_>, SEVERAL>) {
        if let Some(turn) = self.turn_for_several() {
            turn.go_several(reads);
        }
    }

    /// The context, if it exists or may be made, and no other thread has it.
    fn turn_for_several(&self) -> Option<Turn<'_>> {
        let mut state = self.state.try_lock()?;
        if state.context == Context::None && state.resting == 0 {
            state.context = set_up();
        }
        match state.context {
            Context::Open(context) => Some(Turn { state, context }),
            Context::None | Context::Refused => None,
        }
    }

    /// The context, if this thread should now wait awake for the device.
    fn turn(&self) -> Option<Turn<'_>> {
        if !self.wanted.load(Relaxed) {
            return None;
        }
        let mut state = self.state.try_lock()?;
        if state.resting > 0 {
            state.resting -= 1;
            return None;
        }
        if state.context == Context::None {
            state.context = set_up();
        }
        match state.context {
            Context::Open(context) => Some(Turn { state, context }),
            Context::None | Context::Refused => None,
        }
    }
}

impl State {
    /// Records that the device has answered, in time or not.
    fn note(&mut self, in_time: bool) {
        if in_time {
            self.rest /= 2;
        } else {
            self.rest = (2 * self.rest + 1).min(REST_MOST);
            self.resting = self.rest;
        }
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        if let Context::Open(context) = self.lock().context {
            // SAFETY: no thread uses the context any more. In a child that did not forget it, the kernel has no context
            // of that name.
            unsafe { libc::syscall(libc::SYS_io_destroy, context) };
        }
    }
}

impl Request {
    fn read(fd: BorrowedFd<'_>, buf: &mut [u8], offset: u64) -> Self {
        Self {
            opcode: READ,
            fd: fd.as_raw_fd() as u32,
            buf: buf.as_mut_ptr().expose_provenance() as u64,
            bytes: buf.len() as u64,
            offset: offset as i64,
            ..Self::default()
        }
    }
}

impl Turn<'_> {
    /// Submits a request and waits for the answer. The result is `None` if the kernel did not accept it.
    ///
    /// # Safety
    /// The request's buffer belongs to the caller and may be written to.
    unsafe fn go(&mut self, request: &Request) -> Option<Result<usize, Errno>> {
        let mut requests = [ptr::from_ref(request)];
        // SAFETY: this is one request, which the kernel copies. Its buffer stays until the answer arrives, since this
        // function does not return earlier.
        let taken = unsafe {
            libc::syscall(
                libc::SYS_io_submit,
                self.context,
                requests.len(),
                requests.as_mut_ptr(),
            )
        };
        if taken != 1 {
            return None;
        }
        let result = self.answer();
        let errno = |result: i64| Errno::from_raw_os_error(-result as i32);
        Some(usize::try_from(result).map_err(|_| errno(result)))
    }

    /// Submits several reads, and sleeps until all that the kernel accepts are done: one sleep for all of them costs
    /// little, and polling for each costs more.
    fn go_several(&self, reads: &mut ArrayVec<OneRead<'_>, SEVERAL>) {
        let request = |(at, read): (usize, &mut OneRead<'_>)| Request {
            data: at as u64,
            ..Request::read(read.fd, read.buf, read.offset)
        };
        let requests: ArrayVec<_, SEVERAL> = reads.iter_mut().enumerate().map(request).collect();
        let mut each: ArrayVec<_, SEVERAL> = requests.iter().map(ptr::from_ref).collect();
        // SAFETY: the count matches the requests, which the kernel copies. Their buffers are borrowed for writing, and
        // this function does not return before it has an answer for each accepted request.
        let taken = unsafe {
            libc::syscall(
                libc::SYS_io_submit,
                self.context,
                each.len(),
                each.as_mut_ptr(),
            )
        };
        let taken = usize::try_from(taken).unwrap_or(0);
        let mut answered = 0;
        while answered < taken {
            let mut events = [const { Event::NONE }; SEVERAL];
            let count = self.events(&mut events[..taken - answered], true);
            for event in &events[..count] {
                reads[event.data as usize].read = usize::try_from(event.result).ok();
            }
            answered += count;
        }
    }

    /// Waits for the answer to the only request: for a while awake, then asleep.
    fn answer(&mut self) -> i64 {
        let began = Instant::now();
        let mut event = Event::default();
        while began.elapsed() < LONGEST {
            if self.event(&mut event, false) {
                self.state.note(true);
                return event.result;
            }
        }
        self.state.note(false);
        // A signal ends the call, not the request.
        while !self.event(&mut event, true) {}
        event.result
    }

    /// Takes the answer if it has arrived; if `sleeps` is set, waits for it.
    fn event(&self, event: &mut Event, sleeps: bool) -> bool {
        self.events(std::slice::from_mut(event), sleeps) == 1
    }

    /// Takes the answers that have arrived; if `sleeps` is set, waits until there are as many as `events` has room for.
    /// Returns their number, which a signal may reduce.
    fn events(&self, events: &mut [Event], sleeps: bool) -> usize {
        let now = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let (least, limit) = match sleeps {
            true => (events.len(), ptr::null()),
            false => (1, &raw const now),
        };
        // SAFETY: there is room for this many events, and the time is only read.
        let count = unsafe {
            libc::syscall(
                libc::SYS_io_getevents,
                self.context,
                least,
                events.len(),
                events.as_mut_ptr(),
                limit,
            )
        };
        usize::try_from(count).unwrap_or(0)
    }
}

/// A third argument for `io_setup`, which takes only two. The preloaded library refuses such contexts to programs where
/// the kernel cannot bring in their memory. The argument tells it that the caller is not the program: the buffers here
/// are always resident.
pub const IO_OF_STORE: usize = 0x6d70_6f6e_6477;

/// Makes a context for as many requests as are submitted together.
fn set_up() -> Context {
    let mut context = 0_usize;
    let (count, place) = (SEVERAL as u32, &raw mut context);
    // SAFETY: the kernel writes one word.
    let result = unsafe { libc::syscall(libc::SYS_io_setup, count, place, IO_OF_STORE) };
    match result {
        0 => Context::Open(context),
        _ => Context::Refused,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fd::AsFd;
    use std::fs::File;
    use std::io::Write;
    use std::mem;

    fn file(bytes: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    fn awake() -> Awake {
        let awake = Awake::new();
        awake.want(true);
        awake
    }

    #[test]
    fn reads_awake_and_asleep_return_the_same_bytes() {
        let (awake, asleep) = (awake(), Awake::new());
        let file = file(&[[7; 4096], [8; 4096]].concat());
        for reader in [&awake, &asleep] {
            let mut page = [0; 4096];
            assert_eq!(reader.read(file.as_fd(), &mut page, 4096), Ok(4096));
            assert_eq!(page, [8; 4096]);
        }
        assert!(matches!(awake.lock().context, Context::Open(_)));
        assert_eq!(asleep.lock().context, Context::None);
    }

    #[test]
    fn the_end_of_the_file_and_errors_are_those_of_pread() {
        let (file, awake) = (file(&[1; 100]), awake());
        let mut page = [0; 4096];
        assert_eq!(awake.read(file.as_fd(), &mut page, 0), Ok(100));
        assert_eq!(awake.read(file.as_fd(), &mut page, 4096), Ok(0));
        let null = File::options().write(true).open("/dev/null").unwrap();
        assert_eq!(awake.read(null.as_fd(), &mut page, 0), Err(Errno::BADF));
    }

    #[test]
    fn concurrent_reads_and_a_refused_context_return_the_same_bytes() {
        let (file, awake) = (file(&[3; 4096]), awake());
        let read = || {
            let mut page = [0; 4096];
            assert_eq!(awake.read(file.as_fd(), &mut page, 0), Ok(4096));
            assert_eq!(page, [3; 4096]);
        };
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..1000).for_each(|_| read()));
            }
        });
        let turn = awake.turn().unwrap();
        assert!(awake.turn().is_none());
        read();
        drop(turn);
        let context = mem::replace(&mut awake.lock().context, Context::Refused);
        read();
        assert!(awake.state.try_lock().is_some());
        awake.lock().context = context;
    }

    #[test]
    fn a_slow_device_is_waited_for_less_and_less_often() {
        let awake = awake();
        for most in [1, 3, 7, 15] {
            awake.lock().note(false);
            assert_eq!((0..100).filter(|_| awake.turn().is_none()).count(), most);
        }
        (0..20).for_each(|_| awake.lock().note(false));
        assert_eq!(awake.lock().resting, REST_MOST);
        while awake.turn().is_none() {}
        (0..20).for_each(|_| awake.lock().note(true));
        assert_eq!(awake.lock().rest, 0);
    }

    #[test]
    fn a_child_gets_a_context_of_its_own() {
        let (file, awake) = (file(&[5; 4096]), awake());
        let mut page = [0; 4096];
        awake.read(file.as_fd(), &mut page, 0).unwrap();
        // SAFETY: the child makes only system calls, and ends.
        match unsafe { libc::fork() } {
            0 => {
                awake.forget();
                let mut read = || awake.read(file.as_fd(), &mut page, 0) == Ok(4096);
                let begins = (0..REST_IN_CHILD).all(|_| read());
                let none = awake.lock().context == Context::None;
                let goes_on = read();
                let own = matches!(awake.lock().context, Context::Open(_));
                let works = begins && none && goes_on && page == [5; 4096] && own;
                // SAFETY: none of the parent's code is run.
                unsafe { libc::_exit(i32::from(!works)) }
            }
            child => {
                let mut status = 0;
                // SAFETY: the child is this test's own.
                assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
                assert_eq!(status, 0);
            }
        }
        assert_eq!(awake.read(file.as_fd(), &mut page, 0), Ok(4096));
    }
}
