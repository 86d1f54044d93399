//! POSIX asynchronous I/O (`aio_read` and its relatives), performed at the time of the request.
//!
//! The C library's functions that query the state of an operation read it from the program's own control block, and
//! find an operation that has already completed. An operation that waits for something other than a disk (a pipe, a
//! socket) would block the program, so a thread performs it; `aio_suspend` does not wait for it, and its caller asks
//! again.

use super::notice::{self, Event};
use crate::guard::call;
use crate::guard::is_on_for_good;
use crate::guard::real::Real;
use crate::raw;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicI32, Ordering::Release};
use rustix::io::Errno;

/// `struct aiocb`.
#[repr(C)]
pub struct Control {
    fd: c_int,
    operation: c_int,
    priority: c_int,
    buffer: *mut c_void,
    len: usize,
    event: Event,
    next: usize,
    own: [c_int; 2],
    error: AtomicI32,
    answer: isize,
    offset: i64,
    rest: [usize; 4],
}

const _: () = assert!(size_of::<Control>() == size_of::<libc::aiocb>());

type One = unsafe extern "C" fn(*mut Control) -> c_int;

/// Performs the operation of a control block. `operation` is the block's own, or `LIO_READ` or `LIO_WRITE`.
///
/// # Safety
/// The block and its buffer are valid.
unsafe fn perform(control: *mut Control, operation: c_int) {
    // SAFETY: the caller promises this.
    let (fd, buffer, len, offset) = unsafe {
        let control = &*control;
        (
            control.fd as usize,
            control.buffer as usize,
            control.len,
            control.offset,
        )
    };
    let number = match operation {
        libc::LIO_READ => libc::SYS_pread64,
        _ => libc::SYS_pwrite64,
    };
    // SAFETY: the caller promises a buffer of that length.
    let answer = unsafe { call::held(number, [fd, buffer, len, offset as usize, 0, 0]) };
    if answer == Err(Errno::SPIPE) {
        // SAFETY: the caller promises a block that stays until the operation is complete.
        unsafe {
            (*control).operation = operation;
            (*control).error.store(libc::EINPROGRESS, Release);
            if let Err(error) = notice::start(core::ptr::null(), wait, control.cast()) {
                done(control, Err(Errno::from_raw_os_error(error)));
            }
        }
        return;
    }
    // SAFETY: the caller promises this.
    unsafe { done(control, answer) };
}

/// Performs, in a thread of its own, an operation on a descriptor that has no file offset.
unsafe extern "C-unwind" fn wait(control: *mut c_void) -> *mut c_void {
    let control = control.cast::<Control>();
    // SAFETY: the program keeps the block and its buffer until the operation is complete.
    unsafe {
        let Control {
            fd,
            buffer,
            len,
            operation,
            ..
        } = &*control;
        let number = match *operation {
            libc::LIO_READ => libc::SYS_read,
            _ => libc::SYS_write,
        };
        let args = [*fd as usize, *buffer as usize, *len, 0, 0, 0];
        done(control, call::held(number, args));
    }
    core::ptr::null_mut()
}

/// Records the result in the block, and notifies the program.
///
/// # Safety
/// The block is valid.
unsafe fn done(control: *mut Control, answer: Result<usize, Errno>) {
    // SAFETY: the caller promises this. The event is copied before the program may free the block.
    unsafe {
        let event = (*control).event;
        (*control).answer = answer.map_or(-1, |value| value as isize);
        let error = answer.err().map_or(0, Errno::raw_os_error);
        (*control).error.store(error, Release);
        notice::tell(&event);
    }
}

/// Performs one operation, or lets the C library do it.
unsafe fn one(real: &Real<One>, control: *mut Control, operation: c_int) -> c_int {
    match real.get() {
        // SAFETY: the caller guarantees this.
        Some(real) if !is_on_for_good() => unsafe { real(control) },
        _ => {
            // SAFETY: the caller guarantees a valid block.
            unsafe { perform(control, operation) };
            0
        }
    }
}

exports! {
    real READ: One = c"aio_read64";
    real WRITE: One = c"aio_write64";

    [pread64: Held]
    unsafe extern "C" fn aio_read64(control: *mut Control) -> c_int = unsafe {
        one(&READ, control, libc::LIO_READ)
    }

    [pread64: Held]
    unsafe extern "C" fn aio_read(control: *mut Control) -> c_int = aio_read64;

    [pwrite64: Held]
    unsafe extern "C" fn aio_write64(control: *mut Control) -> c_int = unsafe {
        one(&WRITE, control, libc::LIO_WRITE)
    }

    [pwrite64: Held]
    unsafe extern "C" fn aio_write(control: *mut Control) -> c_int = aio_write64;

    [fsync: Numbers]
    unsafe extern "C" fn aio_fsync64(how: c_int, control: *mut Control) -> c_int
        = SYNC if !is_on_for_good(), else unsafe {
            sync(how, control)
        }

    [fsync: Numbers]
    unsafe extern "C" fn aio_fsync(how: c_int, control: *mut Control) -> c_int = aio_fsync64;

    [pread64: Held]
    unsafe extern "C" fn lio_listio64(
        mode: c_int,
        list: *const *mut Control,
        count: c_int,
        event: *const Event,
    ) -> c_int
        = LIST if !is_on_for_good(), else unsafe {
            all(mode, list, count, event)
        }

    [pread64: Held]
    unsafe extern "C" fn lio_listio(
        mode: c_int,
        list: *const *mut Control,
        count: c_int,
        event: *const Event,
    ) -> c_int = lio_listio64;
}

unsafe fn sync(how: c_int, control: *mut Control) -> c_int {
    let number = match how {
        libc::O_SYNC => libc::SYS_fsync,
        libc::O_DSYNC => libc::SYS_fdatasync,
        _ => return crate::c_answer(Err(Errno::INVAL)) as c_int,
    };
    // SAFETY: the caller guarantees a valid block; the call names no memory.
    unsafe {
        let fd = (*control).fd as usize;
        done(control, raw::syscall(number, [fd, 0, 0, 0, 0, 0]));
    }
    0
}

unsafe fn all(mode: c_int, list: *const *mut Control, count: c_int, event: *const Event) -> c_int {
    let mut is_well = true;
    for index in 0..count.max(0) as usize {
        // SAFETY: the caller guarantees that many blocks, some of which may be null.
        unsafe {
            let control = *list.add(index);
            if control.is_null() || (*control).operation == libc::LIO_NOP {
                continue;
            }
            perform(control, (*control).operation);
            while mode == libc::LIO_WAIT && is_under_way(control) {
                rustix::thread::sched_yield();
            }
            is_well &= (*control).answer >= 0 || is_under_way(control);
        }
    }
    if mode != libc::LIO_WAIT {
        // SAFETY: the caller guarantees a valid event, or none.
        if let Some(event) = unsafe { event.as_ref() } {
            // SAFETY: as above.
            unsafe { notice::tell(event) };
        }
    }
    match is_well {
        true => 0,
        false => crate::c_answer(Err(Errno::IO)) as c_int,
    }
}

/// # Safety
/// The block is valid.
unsafe fn is_under_way(control: *const Control) -> bool {
    // SAFETY: the caller promises this.
    unsafe { (*control).error.load(core::sync::atomic::Ordering::Acquire) == libc::EINPROGRESS }
}
