//! Notifies the program that something is complete, as a `sigevent` specifies: by a signal, or by a thread.

use crate::{raw, threads};
use core::ffi::{c_int, c_void};
use core::mem::MaybeUninit;
use libc::pthread_attr_t;

/// `struct sigevent`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Event {
    pub value: usize,
    pub signal: c_int,
    pub how: c_int,
    pub function: usize,
    pub attributes: *const pthread_attr_t,
    pub rest: [usize; 4],
}

const _: () = assert!(size_of::<Event>() == size_of::<libc::sigevent>());

/// `SI_ASYNCIO`.
const ASYNCHRONOUS_IO: i32 = -4;

/// A function of the program that a new thread is to call.
struct Call {
    function: usize,
    value: usize,
    blocked: u64,
}

/// Notifies the program. If that fails, there is nobody to tell.
///
/// # Safety
/// The event is valid.
pub unsafe fn tell(event: &Event) {
    match event.how {
        libc::SIGEV_SIGNAL => send(event),
        // SAFETY: the caller promises this.
        libc::SIGEV_THREAD => unsafe { start_thread(event, 0) },
        _ => {}
    }
}

fn send(event: &Event) {
    let word = |low: u32, high: u32| (high as usize) << 32 | low as usize;
    // SAFETY: the calls are queries.
    let (process, user) = unsafe {
        let process = raw::syscall(libc::SYS_getpid, [0; 6]).unwrap_or(0);
        (process, raw::syscall(libc::SYS_getuid, [0; 6]).unwrap_or(0))
    };
    let mut info = [0usize; size_of::<libc::siginfo_t>() / size_of::<usize>()];
    info[0] = word(event.signal as u32, 0);
    info[1] = word(ASYNCHRONOUS_IO as u32, 0);
    info[2] = word(process as u32, user as u32);
    info[3] = event.value;
    let args = [
        process,
        event.signal as usize,
        info.as_ptr() as usize,
        0,
        0,
        0,
    ];
    // SAFETY: the kernel reads a siginfo that lives here, and sends this process a signal that it asked for.
    let _ = unsafe { raw::syscall(libc::SYS_rt_sigqueueinfo, args) };
}

/// Starts a thread that calls the event's function, with the signals in `blocked` blocked. Nobody joins it.
///
/// # Safety
/// The event has a function of the program, and valid attributes or none.
pub unsafe fn start_thread(event: &Event, blocked: u64) {
    let call = Box::new(Call {
        function: event.function,
        value: event.value,
        blocked,
    });
    let call = Box::into_raw(call);
    // SAFETY: the caller promises this; the box belongs to the new thread.
    if unsafe { start(event.attributes, begin, call.cast()) }.is_err() {
        // SAFETY: no thread was created that could have taken the box.
        drop(unsafe { Box::from_raw(call) });
    }
}

pub type Begin = unsafe extern "C-unwind" fn(*mut c_void) -> *mut c_void;
type Plain = extern "C" fn(*mut c_void) -> *mut c_void;

/// Starts a program thread that nobody joins, with the signal mask of its creator.
///
/// # Safety
/// The attributes are valid, or null. `begin` may be called with `argument`.
pub unsafe fn start(
    attributes: *const pthread_attr_t,
    begin: Begin,
    argument: *mut c_void,
) -> Result<(), c_int> {
    let mut state = libc::PTHREAD_CREATE_JOINABLE;
    let mut thread = MaybeUninit::<libc::pthread_t>::uninit();
    unsafe extern "C" {
        fn pthread_attr_getdetachstate(at: *const pthread_attr_t, state: *mut c_int) -> c_int;
    }
    // SAFETY: the caller promises this. A thread function that may unwind is called like any other.
    unsafe {
        if !attributes.is_null() {
            pthread_attr_getdetachstate(attributes, &mut state);
        }
        let begin = core::mem::transmute::<Begin, Plain>(begin);
        match threads::pthread_create(thread.as_mut_ptr(), attributes, begin, argument) {
            0 if state == libc::PTHREAD_CREATE_JOINABLE => {
                libc::pthread_detach(thread.assume_init());
                Ok(())
            }
            0 => Ok(()),
            error => Err(error),
        }
    }
}

unsafe extern "C-unwind" fn begin(call: *mut c_void) -> *mut c_void {
    type Function = unsafe extern "C-unwind" fn(usize);
    // SAFETY: the creator gave the box away.
    let Call {
        function,
        value,
        blocked,
    } = *unsafe { Box::from_raw(call.cast::<Call>()) };
    let args = [
        libc::SIG_SETMASK as usize,
        &raw const blocked as usize,
        0,
        size_of::<u64>(),
        0,
        0,
    ];
    // SAFETY: the kernel reads a set that lives here.
    let _ = unsafe { raw::syscall(libc::SYS_rt_sigprocmask, args) };
    // SAFETY: the program's function takes a value of the size of a word.
    unsafe { core::mem::transmute::<usize, Function>(function)(value) };
    core::ptr::null_mut()
}
