//! Timers that start a thread (`SIGEV_THREAD`), with a helper thread of ours.
//!
//! The kernel has no such timers. It sends a signal to the helper, which waits for nothing else and starts the thread
//! that the program wants. The signal is the one for which the C library's own helper waits. The program's handle for
//! a timer is the kernel's ID of it; the four functions that take a handle look for it here first.
//!
//! A child of a fork has neither timers nor the helper. The table and the lock each belong to one process: another
//! process starts afresh, and takes the lock from a thread that it does not have.

use super::notice::{self, Event};
use crate::guard::children::attributes;
use crate::guard::is_on_for_good;
use crate::guard::signals::RAISED;
use crate::raw;
use crate::signals::Blocked;
use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering::*};
use libc::{clockid_t, itimerspec, pthread_attr_t, timer_t};
use rustix::io::Errno;

/// The C library's own signal for timers.
const SIGNAL: c_int = 32;
/// The signals that the helper and the threads that it starts block, as with the C library's helper: all but those
/// that our faults raise, and the C library's own with which all threads change their user.
const BLOCKED: u64 = !(RAISED | 1 << 32);

type Create = unsafe extern "C" fn(clockid_t, *mut Event, *mut timer_t) -> c_int;
type Delete = unsafe extern "C" fn(timer_t) -> c_int;
type Set = unsafe extern "C" fn(timer_t, c_int, *const itimerspec, *mut itimerspec) -> c_int;
type Get = unsafe extern "C" fn(timer_t, *mut itimerspec) -> c_int;

struct Timer {
    /// The kernel's ID.
    id: usize,
    /// Unique to each timer, and delivered with the signal.
    mark: usize,
    event: Event,
    attributes: Option<Box<pthread_attr_t>>,
}

struct Table {
    timers: Vec<Timer>,
    marks: usize,
    /// The helper's thread ID, or 0.
    helper: usize,
}

struct Locked(UnsafeCell<Table>);

// SAFETY: the table is only used under the lock.
unsafe impl Sync for Locked {}

static TABLE: Locked = Locked(UnsafeCell::new(Table {
    timers: Vec::new(),
    marks: 0,
    helper: 0,
}));
/// The process that holds the lock, or 0; and the process that owns the table.
static LOCK: AtomicUsize = AtomicUsize::new(0);
static OWNER: AtomicUsize = AtomicUsize::new(0);

/// Runs `work` on the table of this process. Signal handlers may set timers, so none runs meanwhile.
fn locked<R>(work: impl FnOnce(&mut Table) -> R) -> R {
    let _blocked = Blocked::new();
    // SAFETY: the call is a query.
    let process = unsafe { raw::syscall(libc::SYS_getpid, [0; 6]) }.unwrap_or(1);
    loop {
        let holder = LOCK.load(Relaxed);
        // A holder in another process was a thread of the parent.
        if holder != process
            && LOCK
                .compare_exchange(holder, process, Acquire, Relaxed)
                .is_ok()
        {
            break;
        }
        rustix::thread::sched_yield();
    }
    // SAFETY: this thread holds the lock.
    let table = unsafe { &mut *TABLE.0.get() };
    if OWNER.swap(process, Relaxed) != process {
        // The parent may have been in the middle of changing its table.
        core::mem::forget(core::mem::take(&mut table.timers));
        table.helper = 0;
    }
    let result = work(table);
    LOCK.store(0, Release);
    result
}

/// Number of timers that this process, or its ancestors, ever had.
static EVER: AtomicUsize = AtomicUsize::new(0);

/// Returns the kernel's ID if the timer is one of ours.
fn ours(timer: timer_t) -> Option<usize> {
    let id = timer as usize;
    let is_there =
        EVER.load(Relaxed) > 0 && locked(|table| table.timers.iter().any(|timer| timer.id == id));
    is_there.then_some(id)
}

static STARTED: AtomicUsize = AtomicUsize::new(0);

/// The helper: starts a thread for each signal.
unsafe extern "C-unwind" fn help(_: *mut c_void) -> *mut c_void {
    let all = BLOCKED;
    let awaited = 1u64 << (SIGNAL - 1);
    let set = [
        libc::SIG_SETMASK as usize,
        &raw const all as usize,
        0,
        8,
        0,
        0,
    ];
    // SAFETY: the kernel reads a set that lives here; the second call is a query.
    unsafe {
        let _ = raw::syscall(libc::SYS_rt_sigprocmask, set);
        STARTED.store(raw::syscall(libc::SYS_gettid, [0; 6]).unwrap_or(0), Release);
    }
    loop {
        let mut info = [0usize; size_of::<libc::siginfo_t>() / size_of::<usize>()];
        let args = [
            &raw const awaited as usize,
            info.as_mut_ptr() as usize,
            0,
            8,
            0,
            0,
        ];
        // SAFETY: the kernel reads a set and writes a siginfo that live here.
        let came = unsafe { raw::syscall(libc::SYS_rt_sigtimedwait, args) };
        let is_timer = info[1] as u32 as i32 == libc::SI_TIMER;
        if came.is_ok() && is_timer {
            start(info[3]);
        }
    }
}

/// Starts the thread of the timer with this mark, if it still exists.
fn start(mark: usize) {
    locked(|table| {
        if let Some(timer) = table.timers.iter().find(|timer| timer.mark == mark) {
            let attributes = timer
                .attributes
                .as_deref()
                .map_or(core::ptr::null(), |at| at);
            let event = Event {
                attributes,
                ..timer.event
            };
            // SAFETY: the event came from the program, the attributes are valid.
            unsafe { notice::start_thread(&event, BLOCKED & !(1 << (SIGNAL - 1))) };
        }
    });
}

impl Table {
    /// Starts the helper if there is none, and returns its thread ID.
    fn helper(&mut self) -> Result<usize, Errno> {
        if self.helper == 0 {
            STARTED.store(0, Relaxed);
            // SAFETY: the function takes no argument.
            unsafe { notice::start(core::ptr::null(), help, core::ptr::null_mut()) }
                .map_err(|_| Errno::AGAIN)?;
            while STARTED.load(Acquire) == 0 {
                rustix::thread::sched_yield();
            }
            self.helper = STARTED.load(Relaxed);
        }
        Ok(self.helper)
    }

    fn add(
        &mut self,
        clock: clockid_t,
        event: Event,
        attributes: Option<Box<pthread_attr_t>>,
    ) -> Result<usize, Errno> {
        let helper = self.helper()?;
        self.marks += 1;
        let mark = self.marks;
        // SAFETY: zeros are a valid `sigevent`.
        let mut asked: libc::sigevent = unsafe { core::mem::zeroed() };
        asked.sigev_value.sival_ptr = mark as *mut c_void;
        asked.sigev_signo = SIGNAL;
        asked.sigev_notify = libc::SIGEV_THREAD_ID;
        asked.sigev_notify_thread_id = helper as c_int;
        let mut id = 0 as c_int;
        let args = [
            clock as usize,
            &raw const asked as usize,
            &raw mut id as usize,
            0,
            0,
            0,
        ];
        // SAFETY: the kernel reads and writes memory that lives here.
        unsafe { raw::syscall(libc::SYS_timer_create, args) }?;
        self.timers.push(Timer {
            id: id as usize,
            mark,
            event,
            attributes,
        });
        Ok(id as usize)
    }
}

exports! {
    real CREATE: Create = c"timer_create";
    real DELETE: Delete = c"timer_delete";
    real SET: Set = c"timer_settime";
    real GET: Get = c"timer_gettime";
    real OVERRUN: Delete = c"timer_getoverrun";

    [timer_create: Held]
    unsafe extern "C" fn timer_create(
        clock: clockid_t,
        event: *mut Event,
        timer: *mut timer_t,
    ) -> c_int {
        // SAFETY: the caller guarantees a valid event, or none.
        let asked =
            unsafe { event.as_ref() }.filter(|event| event.how == libc::SIGEV_THREAD && is_on_for_good());
        let Some(asked) = asked else {
            return match CREATE.get() {
                // SAFETY: the caller guarantees this.
                Some(real) => unsafe { real(clock, event, timer) },
                None => crate::c_answer(Err(Errno::NOSYS)) as c_int,
            };
        };
        let asked = *asked;
        // SAFETY: the caller guarantees valid attributes, or none.
        let attributes = unsafe { attributes::copy(asked.attributes) };
        EVER.fetch_add(1, Relaxed);
        let made = locked(|table| table.add(clock, asked, attributes));
        if let Ok(id) = made {
            // SAFETY: the caller guarantees room for a handle.
            unsafe { *timer = id as timer_t };
        }
        crate::c_result(made.map(drop))
    }

    [timer_delete: Numbers]
    unsafe extern "C" fn timer_delete(timer: timer_t) -> c_int {
        let Some(id) = ours(timer) else {
            return match DELETE.get() {
                // SAFETY: the caller guarantees this.
                Some(real) => unsafe { real(timer) },
                None => crate::c_answer(Err(Errno::NOSYS)) as c_int,
            };
        };
        let removed = locked(|table| {
            let at = table.timers.iter().position(|timer| timer.id == id);
            at.map(|at| table.timers.swap_remove(at))
        });
        if let Some(mut attributes) = removed.and_then(|timer| timer.attributes) {
            // SAFETY: the copy is valid, and nobody else has it.
            unsafe { libc::pthread_attr_destroy(attributes.as_mut()) };
        }
        // SAFETY: the call names a timer and no memory.
        let result = unsafe { raw::syscall(libc::SYS_timer_delete, [id, 0, 0, 0, 0, 0]) };
        crate::c_answer(result) as c_int
    }

    [timer_settime: Held]
    unsafe extern "C" fn timer_settime(
        timer: timer_t,
        flags: c_int,
        new: *const itimerspec,
        old: *mut itimerspec,
    ) -> c_int {
        match (ours(timer), SET.get()) {
            // SAFETY: the caller guarantees this.
            (None, Some(real)) => unsafe { real(timer, flags, new, old) },
            (id, _) => {
                let id = id.unwrap_or(timer as usize);
                let args = [id, flags as usize, new as usize, old as usize, 0, 0];
                // SAFETY: the caller guarantees what this call needs.
                crate::c_answer(unsafe { crate::guard::call::held(libc::SYS_timer_settime, args) })
                    as c_int
            }
        }
    }

    [timer_gettime: Held]
    unsafe extern "C" fn timer_gettime(timer: timer_t, at: *mut itimerspec) -> c_int {
        match (ours(timer), GET.get()) {
            // SAFETY: the caller guarantees this.
            (None, Some(real)) => unsafe { real(timer, at) },
            (id, _) => {
                let args = [id.unwrap_or(timer as usize), at as usize, 0, 0, 0, 0];
                // SAFETY: the caller guarantees what this call needs.
                crate::c_answer(unsafe { crate::guard::call::held(libc::SYS_timer_gettime, args) })
                    as c_int
            }
        }
    }

    [timer_getoverrun: Numbers]
    unsafe extern "C" fn timer_getoverrun(timer: timer_t) -> c_int {
        match (ours(timer), OVERRUN.get()) {
            // SAFETY: the caller guarantees this.
            (None, Some(real)) => unsafe { real(timer) },
            (id, _) => {
                let args = [id.unwrap_or(timer as usize), 0, 0, 0, 0, 0];
                // SAFETY: the call names a timer and no memory.
                crate::c_answer(unsafe { raw::syscall(libc::SYS_timer_getoverrun, args) }) as c_int
            }
        }
    }
}
