//! Millpond's own threads, which a new child of a fork can start whatever its parent's threads were doing.
//!
//! A program with threads may fork at any moment. The child has one thread, and every lock in its former state: a lock
//! that another thread held is held forever. The C library repairs its own locks in the child. The standard library
//! does not: each of its threads records its stack in a table, for the message about a stack overflow, when it starts
//! and when it ends, and the table has a lock. If another thread of the parent was doing that at the fork, the child
//! hangs when it starts its first thread. (If the parent starts and ends threads all the time, about one child in 3,000
//! hangs.) A child that builds a manager needs threads, so `pthread_create` makes them, and they take no lock of the
//! standard library.
//!
//! Such a thread lacks two things: the message about its stack, and a name that [`std::thread::current`] knows. The
//! system knows its name. It has no unwinding to catch: a panic that reaches the thread's end ends the process, because
//! without that thread the program would wait for it forever.
//!
//! A table (`own_threads.rs`) distinguishes these threads from the program's, except those that call functions of the
//! program.
//!
//! With the feature `shuttle` the scheduler makes the threads.

use std::ffi::CStr;
use std::io;

/// The stack that the standard library gives to threads, in bytes.
const STACK: usize = 2 << 20;

impl OwnThread {
    /// Starts a thread that does `work`, with a stack of 2 MiB. It inherits the signal mask.
    ///
    /// # Errors
    /// The system has no thread to give.
    pub fn start(name: &'static CStr, work: impl FnOnce() + Send + 'static) -> io::Result<Self> {
        Self::start_with_stack(name, STACK, work)
    }

    /// [`start`](Self::start) for a thread that calls functions of the program, which may do anything: it counts as one
    /// of the program's threads.
    ///
    /// # Errors
    /// The system has no thread to give.
    pub fn start_for_program(
        name: &'static CStr,
        work: impl FnOnce() + Send + 'static,
    ) -> io::Result<Self> {
        Self::start_as(name, STACK, false, work)
    }

    /// [`start`](Self::start) with a stack of this many bytes, or more if the program's thread-local variables fill it.
    ///
    /// # Errors
    /// The system has no thread to give.
    pub fn start_with_stack(
        name: &'static CStr,
        stack: usize,
        work: impl FnOnce() + Send + 'static,
    ) -> io::Result<Self> {
        Self::start_as(name, stack, true, work)
    }
}

#[cfg(not(feature = "shuttle"))]
mod chosen {
    use crate::own_threads::Noted;
    use std::ffi::{CStr, c_int, c_void};
    use std::io;
    use std::mem::{ManuallyDrop, MaybeUninit};

    const PAGE: usize = 4096;
    /// A program whose thread-local variables need more than this has no room for our threads.
    const STACK_MOST: usize = 1 << 30;

    /// A thread. It keeps running when this value is dropped.
    #[derive(Debug)]
    pub struct OwnThread(libc::pthread_t);

    struct Start {
        name: &'static CStr,
        is_ours: bool,
        work: Box<dyn FnOnce() + Send>,
    }

    extern "C" fn run(start: *mut c_void) -> *mut c_void {
        // SAFETY: `start_with_stack` made the pointer from a box, and gave it to this thread alone.
        let Start {
            name,
            is_ours,
            work,
        } = *unsafe { Box::from_raw(start.cast::<Start>()) };
        let noted = is_ours.then(Noted::this_thread);
        // A thread without its name does the same work.
        let _ = rustix::thread::set_name(name);
        work();
        drop(noted);
        std::ptr::null_mut()
    }

    impl OwnThread {
        pub(super) fn start_as(
            name: &'static CStr,
            mut stack: usize,
            is_ours: bool,
            work: impl FnOnce() + Send + 'static,
        ) -> io::Result<Self> {
            let start = Box::new(Start {
                name,
                is_ours,
                work: Box::new(work),
            });
            let start = Box::into_raw(start).cast();
            loop {
                // SAFETY: the pointer comes from a box, and only the thread uses it once there is one.
                match unsafe { create(stack, start) } {
                    Ok(thread) => return Ok(Self(thread)),
                    // The error does not tell what does not fit on the stack.
                    Err(libc::EINVAL) if stack < STACK_MOST => stack = 2 * stack.max(PAGE),
                    Err(errno) => {
                        // SAFETY: it was made by `Box::into_raw`, and there is no thread that has it.
                        drop(unsafe { Box::from_raw(start.cast::<Start>()) });
                        return Err(io::Error::from_raw_os_error(errno));
                    }
                }
            }
        }

        /// Waits until the thread has ended. A thread does not wait for itself (see [`is_current`](Self::is_current)).
        pub fn join(self) {
            let thread = ManuallyDrop::new(self).0;
            // SAFETY: the thread was not detached, and is joined once, as the value is gone.
            unsafe { libc::pthread_join(thread, std::ptr::null_mut()) };
        }

        /// Whether the calling thread is this one.
        #[must_use]
        pub fn is_current(&self) -> bool {
            // SAFETY: the calls compare two values.
            unsafe { libc::pthread_equal(self.0, libc::pthread_self()) != 0 }
        }
    }

    impl Drop for OwnThread {
        fn drop(&mut self) {
            // SAFETY: the thread was neither joined nor detached before: both take the value.
            unsafe { libc::pthread_detach(self.0) };
        }
    }

    /// # Safety
    /// `start` is what [`run`] may have.
    unsafe fn create(stack: usize, start: *mut c_void) -> Result<libc::pthread_t, c_int> {
        let mut attributes = MaybeUninit::uninit();
        let mut thread = MaybeUninit::uninit();
        // SAFETY: the attributes are made before they are used, and ended afterwards. The thread is there when the call
        // says so.
        unsafe {
            let made = libc::pthread_attr_init(attributes.as_mut_ptr());
            if made != 0 {
                return Err(made);
            }
            let mut error = libc::pthread_attr_setstacksize(attributes.as_mut_ptr(), stack);
            if error == 0 {
                error = libc::pthread_create(thread.as_mut_ptr(), attributes.as_ptr(), run, start);
            }
            libc::pthread_attr_destroy(attributes.as_mut_ptr());
            match error {
                0 => Ok(thread.assume_init()),
                error => Err(error),
            }
        }
    }
}

#[cfg(feature = "shuttle")]
mod chosen {
    use shuttle::thread;
    use std::ffi::CStr;
    use std::io;

    /// A thread of the scheduler.
    #[derive(Debug)]
    pub struct OwnThread(thread::JoinHandle<()>);

    impl OwnThread {
        /// The scheduler chooses the stack.
        pub(super) fn start_as(
            name: &'static CStr,
            _: usize,
            _: bool,
            work: impl FnOnce() + Send + 'static,
        ) -> io::Result<Self> {
            let name = name.to_string_lossy().into_owned();
            let thread = thread::Builder::new().name(name).spawn(work)?;
            Ok(Self(thread))
        }

        /// Waits until the thread has ended. The scheduler handles its panic.
        pub fn join(self) {
            let _ = self.0.join();
        }

        /// Whether the calling thread is this one.
        #[must_use]
        pub fn is_current(&self) -> bool {
            self.0.thread().id() == thread::current().id()
        }
    }
}

pub use chosen::OwnThread;

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;
    use std::sync::mpsc;

    #[test]
    fn a_thread_has_its_name_and_is_joined() {
        let (say, said) = mpsc::channel();
        let thread = OwnThread::start(c"millpond-test", move || {
            say.send(rustix::thread::name().unwrap()).unwrap();
        });
        let thread = thread.unwrap();
        assert!(!thread.is_current());
        thread.join();
        assert_eq!(said.try_recv().unwrap().as_c_str(), c"millpond-test");
    }

    /// The C library refuses a stack that thread-local variables fill, without saying why.
    #[test]
    fn a_stack_that_is_too_small_is_made_larger() {
        for stack in [0, 1, 5000] {
            let (say, said) = mpsc::channel();
            let work = move || say.send(7).unwrap();
            let thread = OwnThread::start_with_stack(c"millpond-test", stack, work).unwrap();
            thread.join();
            assert_eq!(said.try_recv(), Ok(7));
        }
    }

    /// This test runs itself again in a separate process, whose thread panics.
    #[test]
    fn a_panic_ends_the_process() {
        const NAME: &str = "own_thread::tests::a_panic_ends_the_process";
        const PANICS: &str = "MILLPOND_TEST_PANICS";
        if std::env::var_os(PANICS).is_some() {
            let thread = OwnThread::start(c"millpond-test", || panic!("as it should"));
            return thread.unwrap().join();
        }
        let mut again = Command::new(std::env::current_exe().unwrap());
        let ended = again.args(["--exact", NAME]).env(PANICS, "1").output();
        let ended = ended.unwrap();
        assert_eq!(ended.status.signal(), Some(libc::SIGABRT), "{ended:?}");
    }
}
