//! Stopping the program's other threads for a moment, while a dormant process engages.
//!
//! *How.* Each thread gets a SIGSYS with a mark, which is never blocked and whose handler is ours. The handler blocks
//! all other signals, says that the thread is *parked*, and waits until the thread that asked lets it go. By then the
//! kernel has ended the system call that the thread was in, and no call of its can find a page gone that was there
//! when the call began.
//!
//! *Calls.* A call that can be restarted begins again by itself. The kernel ends others with `EINTR` (`poll`, `sleep`,
//! waits with a time limit), for which a program that has no signal handlers need not be prepared. The handler makes
//! the thread repeat these ([`calls`]). A time limit that is not absolute begins again.
//!
//! *Where.* A thread is not parked inside this library or at the gate, where it may be between a question and what
//! follows from the answer, and not on a stack in managed memory, which it may be until it has a stack for its
//! handlers. It says that it is *busy*, and is asked again. Nor is it parked inside functions of the C library that
//! block all signals and read memory of the program's ([`Busy`]). A thread may be parked in a function that our code
//! has called while it holds one of our locks; all are let go then, and asked again.
//!
//! *What does not answer.* Threads that are stopped (by a debugger), wait for the child of a `vfork`, or block SIGSYS
//! by instructions of their own. The attempt is given up after a while, and nothing has changed.
//!
//! A parked thread may hold any lock of the program's, of the C library's or of its allocator's. Until it is let go,
//! the caller must take none of these.

mod calls;

use crate::guard::{gate, signals};
use crate::{engage, internal_alloc, last_thread, mremap, raw, space, tasks, vma};
use calls::Call;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering::*};
use millpond_mmu::interrupted;

/// The maximum number of threads that can be parked.
const MOST: usize = 1024;
/// Time between two looks at the answers, and after which a thread is asked again, in nanoseconds.
const LOOK: u64 = 20_000;
const AGAIN: u64 = 200_000;

/// Upper 16 bits of the value that a signal carries; the number of the attempt and of the thread's place follow.
const MARK: usize = 0x4d50;

/// A thread was asked.
const ASKED: u32 = 1;
/// It is where it cannot be parked.
const BUSY: u32 = 2;
const PARKED: u32 = 3;
/// It has ended.
const GONE: u32 = 4;

/// A thread: its ID, what it has answered, and the call that it was in when it was asked.
///
/// The answer belongs to an attempt. A thread may be so late that the next attempt is under way: if its answer counted
/// there, it would be taken for parked, and run on.
struct Place {
    thread: AtomicI32,
    state: AtomicU64,
    call: Call,
}

/// The state of a place in an attempt.
fn state(attempt: u32, answer: u32) -> u64 {
    u64::from(attempt) << 32 | u64::from(answer)
}

/// The number of the attempt that is under way, or 0.
static OPEN: AtomicU32 = AtomicU32::new(0);
/// The number of the latest attempt.
static LATEST: AtomicU32 = AtomicU32::new(0);
/// The address of `MOST` places, mapped when they are first needed.
static PLACES: AtomicUsize = AtomicUsize::new(0);
/// This library's code.
static CODE: (AtomicUsize, AtomicUsize) = (AtomicUsize::new(0), AtomicUsize::new(0));

/// The other threads are parked as long as this lives.
pub struct Parked(());

impl Drop for Parked {
    fn drop(&mut self) {
        OPEN.store(0, SeqCst);
        raw::futex_wake_all(&OPEN);
    }
}

/// The calling thread is not parked while this lives. It may be created only for a short time.
pub struct Busy(());

impl Busy {
    pub fn begin() -> Self {
        signals::this().keeps_on.fetch_add(1, Relaxed);
        Self(())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        signals::this().keeps_on.fetch_sub(1, Relaxed);
    }
}

/// Finds this library's code. Called once, when a process begins dormant.
pub fn find() {
    unsafe extern "C" fn visit(object: *mut libc::dl_phdr_info, _: usize, _: *mut c_void) -> c_int {
        // SAFETY: the dynamic linker passes a valid object.
        let object = unsafe { &*object };
        let own = find as *const () as usize;
        for n in 0..usize::from(object.dlpi_phnum) {
            // SAFETY: the object has this many headers.
            let header = unsafe { &*object.dlpi_phdr.add(n) };
            let start = object.dlpi_addr as usize + header.p_vaddr as usize;
            let end = start + header.p_memsz as usize;
            if header.p_type == libc::PT_LOAD && (start..end).contains(&own) {
                CODE.0.store(start, Relaxed);
                CODE.1.store(end, Relaxed);
                return 1;
            }
        }
        0
    }
    // SAFETY: the function does not keep its arguments.
    unsafe { libc::dl_iterate_phdr(Some(visit), core::ptr::null_mut()) };
}

/// Forgets, in a new child, an attempt of the parent's. The child's thread is still [`Busy`] with the fork.
pub fn after_fork_in_child() {
    OPEN.store(0, Relaxed);
}

/// Why the threads could not be parked.
#[derive(Clone, Copy)]
pub enum Unparked {
    /// This thread did not stop in time, whether it answered or not.
    Runs(i32),
    /// A parked thread held a lock of ours.
    Held,
    /// The kernel does not list the threads, there are more than [`MOST`], or there is no memory.
    Unknown,
}

/// Parks all other threads of the process. If they cannot all be parked within `patience` nanoseconds, they run on. The
/// caller holds no lock of ours and has signals blocked. Only one thread may call this at a time.
///
/// # Errors
/// The reason.
pub fn others(patience: u64) -> Result<Parked, Unparked> {
    let end = millpond_board::now_ns() + patience;
    loop {
        match others_until(end) {
            // The thread that holds the lock goes on meanwhile.
            Err(Unparked::Held) if millpond_board::now_ns() < end => raw::sleep(AGAIN),
            result => return result,
        }
    }
}

fn others_until(end: u64) -> Result<Parked, Unparked> {
    let places = places().ok_or(Unparked::Unknown)?;
    let attempt = LATEST.fetch_add(1, Relaxed).wrapping_add(1).max(1);
    OPEN.store(attempt, SeqCst);
    let parked = Parked(());
    let own = rustix::thread::gettid().as_raw_nonzero().get();
    let looks = engage::own_thread();
    let (mut known, mut asked) = (0, millpond_board::now_ns());
    loop {
        let before = known;
        let listed = tasks::each(|_, _, thread| {
            if thread != own
                && thread != looks
                && !places[..known].iter().any(|place| place.is_of(thread))
            {
                places.get(known)?.ask(thread, attempt, known);
                known += 1;
            }
            Some(())
        });
        listed.ok_or(Unparked::Unknown)?;
        let all = &places[..known];
        let mut running = all
            .iter()
            .enumerate()
            .filter(|(_, place)| !place.is_settled());
        let first = running.next();
        // Whoever makes a thread is parked by now, so no further one can appear.
        if first.is_none() && known == before {
            return match locks_are_free() {
                true => Ok(parked),
                false => Err(Unparked::Held),
            };
        }
        let now = millpond_board::now_ns();
        if let Some((_, first)) = first.filter(|_| now > end) {
            return Err(Unparked::Runs(first.thread.load(Relaxed)));
        }
        if now - asked > AGAIN {
            asked = now;
            for (number, place) in first.into_iter().chain(running) {
                place.ask_again(attempt, number);
            }
        }
        raw::sleep(LOOK);
    }
}

/// Returns whether no parked thread holds a lock that the caller will take.
fn locks_are_free() -> bool {
    vma::is_free() && mremap::is_free() && internal_alloc::is_free()
}

/// Returns the places, or `None` if there is no memory for them.
fn places() -> Option<&'static [Place]> {
    let mut at = PLACES.load(Relaxed);
    if at == 0 {
        at = raw::map_anonymous(MOST * size_of::<Place>()).ok()?;
        PLACES.store(at, Release);
    }
    // SAFETY: the mapping has room for as many places, of which zeros are valid ones, and stays. All words are atomic.
    Some(unsafe { core::slice::from_raw_parts(at as *const Place, MOST) })
}

impl Place {
    fn is_of(&self, thread: i32) -> bool {
        self.thread.load(Relaxed) == thread
    }

    fn is_settled(&self) -> bool {
        matches!(self.state.load(Acquire) as u32, PARKED | GONE)
    }

    /// Records what the thread has answered, if the attempt has not been given up.
    fn set(&self, attempt: u32, answer: u32) {
        let asked = |old: u64| (old >> 32 == u64::from(attempt)).then(|| state(attempt, answer));
        let _ = self.state.fetch_update(AcqRel, Acquire, asked);
    }

    /// Asks a thread for the first time.
    fn ask(&self, thread: i32, attempt: u32, number: usize) {
        self.thread.store(thread, Relaxed);
        self.state.store(state(attempt, ASKED), SeqCst);
        self.send(attempt, number);
    }

    fn ask_again(&self, attempt: u32, number: usize) {
        // It may answer at this moment.
        let (busy, asked) = (state(attempt, BUSY), state(attempt, ASKED));
        let _ = self.state.compare_exchange(busy, asked, AcqRel, Relaxed);
        self.send(attempt, number);
    }

    fn send(&self, attempt: u32, number: usize) {
        let thread = self.thread.load(Relaxed);
        // The first thread stays in the list when it has ended.
        if thread == tasks::first() && last_thread::ended_with().is_some() {
            self.set(attempt, GONE);
            return;
        }
        self.call.note(thread);
        if tasks::signal(thread, MARK << 48 | (attempt as usize) << 16 | number).is_err() {
            self.set(attempt, GONE);
        }
    }
}

/// Serves a SIGSYS that asks the calling thread to be parked. Returns false for all others.
///
/// # Safety
/// The arguments are those of a handler with `SA_SIGINFO`.
pub unsafe fn serve(info: *const libc::siginfo_t, context: *mut c_void) -> bool {
    // SAFETY: the kernel passes a valid siginfo, with a value if the code says that it was queued.
    let (code, sender, value) = unsafe {
        let info = &*info;
        (
            info.si_code,
            info.si_pid(),
            info.si_value().sival_ptr as usize,
        )
    };
    // The kernel sends a signal without a word about its sender if it has no memory left.
    if code == libc::SI_USER && sender == 0 && OPEN.load(Acquire) != 0 {
        return true;
    }
    if code != libc::SI_QUEUE || value >> 48 != MARK || sender != signals::process() {
        return false;
    }
    let (attempt, number) = ((value >> 16) as u32, value & 0xffff);
    // SAFETY: the kernel passes the interrupted context, which nobody else refers to.
    let context = unsafe { &mut *context.cast::<libc::ucontext_t>() };
    if let Some(place) = places().and_then(|places| places.get(number)) {
        place.answer(attempt, context);
    }
    true
}

impl Place {
    /// Parks the calling thread, if it can be, while the attempt is under way.
    fn answer(&self, attempt: u32, context: &mut libc::ucontext_t) {
        if OPEN.load(Acquire) != attempt {
            self.call.repeat(context);
            return;
        }
        if is_busy(context) {
            self.set(attempt, BUSY);
            return;
        }
        signals::block_all();
        self.set(attempt, PARKED);
        while OPEN.load(Acquire) == attempt {
            raw::futex_wait(&OPEN, attempt);
        }
        self.call.repeat(context);
    }
}

/// Returns whether a thread cannot be parked where it was interrupted.
fn is_busy(context: &libc::ucontext_t) -> bool {
    is_ours(interrupted::instruction(context))
        || space::contains(psm::stack_pointer() as usize)
        || signals::this().keeps_on.load(Relaxed) > 0
}

/// Returns whether an instruction is this library's, or at the gate.
fn is_ours(at: usize) -> bool {
    (CODE.0.load(Relaxed)..CODE.1.load(Relaxed)).contains(&at)
        || (gate::START..gate::START + gate::LEN).contains(&at)
}
