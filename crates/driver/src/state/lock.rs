//! Locks with ranks. docs/LOCKS.md has the matrix; this file checks it in debug builds.
//!
//! A thread may take a lock only while every lock it holds has a lower rank. The ranks that each thread holds are kept
//! in a small static table and not in thread-local storage. In a preloaded library, thread-local storage is found by
//! way of memory that the program's allocator gave out. That is managed memory, which must not be touched under these
//! locks.
//!
//! A thread that finds a lock taken tries for a while before it sleeps. The core is held for a microsecond, and for ten
//! or twenty while the results of a batch go in. A sleep takes longer, and the thread that releases the lock has to
//! wake the sleeper, which on a virtual machine costs another 30 to 50 µs when the sleeper's processor has halted. A
//! fault pays this for the reclaim thread as often as the other way round. Of the faults beside that thread that took
//! more than 30 µs, half waited for the core or woke the other thread; with patience (fifty microseconds, then) one in
//! thirty did. Twenty microseconds cover nearly every batch; ten did not.

use std::sync::{
    Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
    TryLockError,
};
use std::time::{Duration, Instant};

/// How long a thread tries before it sleeps: longer than nearly every use of the core.
const SPIN: Duration = Duration::from_micros(20);
/// Pauses between two tries.
const TRIES: u32 = 8;

/// The order in which locks may be taken, lowest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum Rank {
    /// Background work: the reclaim thread holds this lock while it works, and the forking thread across a fork.
    Housekeeping = 1,
    /// The gate: every thread that works on memory enters it; it is closed across a fork.
    Gate = 2,
    /// The core.
    Core = 3,
    /// Figures: the process's size, the children.
    Figures = 4,
}

/// A mutex with a place in the order of locks. A panic while it is held ends the process: the guarded state is half
/// changed, and the next thread would wait for something that never happens.
#[derive(Debug)]
pub struct Ranked<T> {
    rank: Rank,
    mutex: Mutex<T>,
}

/// A guard: the lock is held while the value lives.
#[derive(Debug)]
pub struct Held<'a, T> {
    guard: Option<MutexGuard<'a, T>>,
    lock: &'a Ranked<T>,
}

impl<T> Ranked<T> {
    /// Makes a lock of this rank around `value`.
    pub const fn new(rank: Rank, value: T) -> Self {
        Self {
            rank,
            mutex: Mutex::new(value),
        }
    }

    /// Takes the lock.
    pub fn lock(&self) -> Held<'_, T> {
        witness::before(self.rank);
        let guard = self
            .try_for_a_while()
            .unwrap_or_else(|| self.mutex.lock().unwrap_or_else(PoisonError::into_inner));
        witness::taken(self.rank);
        Held {
            guard: Some(guard),
            lock: self,
        }
    }

    /// Takes the lock if no thread has it.
    pub fn try_lock(&self) -> Option<Held<'_, T>> {
        let guard = match self.mutex.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        witness::before(self.rank);
        witness::taken(self.rank);
        Some(Held {
            guard: Some(guard),
            lock: self,
        })
    }

    /// Tries until the lock is taken or [`SPIN`] has passed.
    fn try_for_a_while(&self) -> Option<MutexGuard<'_, T>> {
        let mut begun = None;
        loop {
            match self.mutex.try_lock() {
                Ok(guard) => return Some(guard),
                Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) => {}
            }
            if begun.get_or_insert_with(Instant::now).elapsed() >= SPIN {
                return None;
            }
            for _ in 0..TRIES {
                std::hint::spin_loop();
            }
        }
    }
}

impl<'a, T> Held<'a, T> {
    /// Lets the lock go until `signal` is notified or `limit` has passed, and takes it again.
    pub fn wait_timeout(mut self, signal: &Condvar, limit: Duration) -> Self {
        let guard = self.guard.take().expect("held until dropped");
        witness::released(self.lock.rank);
        let (guard, _) = signal
            .wait_timeout(guard, limit)
            .unwrap_or_else(PoisonError::into_inner);
        witness::taken(self.lock.rank);
        self.guard = Some(guard);
        self
    }
}

impl<T> std::ops::Deref for Held<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.guard.as_ref().expect("held until dropped")
    }
}

impl<T> std::ops::DerefMut for Held<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.guard.as_mut().expect("held until dropped")
    }
}

impl<T> Drop for Held<'_, T> {
    fn drop(&mut self) {
        if self.guard.take().is_some() {
            witness::released(self.lock.rank);
            if self.lock.mutex.is_poisoned() {
                millpond_mmu::panics::stop_unwinding();
            }
        }
    }
}

/// Keeps a fork apart from all work on memory. A thread that works is inside from the first lock to the last. A fork
/// closes the gate when all threads have left, so that no lock of ours, of the store's or of the backend's is held by a
/// thread that the child will not have.
///
/// No thread enters twice: a second entry behind a fork that waits would wait for itself.
#[derive(Debug)]
pub struct Gate(RwLock<()>);

/// A guard of the gate: the thread is inside, or the gate is closed, while the value lives. A panic meanwhile ends the
/// process, also when no lock is held: between two locks a folio is in flight, and the next thread that touched it
/// would wait for ever.
#[derive(Debug)]
pub struct Passage<G> {
    guard: Option<G>,
    /// Whether the thread was panicking before: a destructor that works on memory while the program's own panic unwinds
    /// is no panic of ours.
    unwinding_before: bool,
}

impl Gate {
    /// An open gate.
    pub(crate) const fn new() -> Self {
        Self(RwLock::new(()))
    }

    /// Goes inside.
    pub fn enter(&self) -> Passage<RwLockReadGuard<'_, ()>> {
        witness::before(Rank::Gate);
        let guard = self.0.read().unwrap_or_else(PoisonError::into_inner);
        witness::taken(Rank::Gate);
        Passage::new(guard)
    }

    /// Goes inside unless the gate is closed or a thread waits to close it.
    pub fn try_enter(&self) -> Option<Passage<RwLockReadGuard<'_, ()>>> {
        let guard = match self.0.try_read() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        witness::before(Rank::Gate);
        witness::taken(Rank::Gate);
        Some(Passage::new(guard))
    }

    /// Waits until all threads have left, and lets none in.
    pub fn close(&self) -> Passage<RwLockWriteGuard<'_, ()>> {
        witness::before(Rank::Gate);
        let guard = self.0.write().unwrap_or_else(PoisonError::into_inner);
        witness::taken(Rank::Gate);
        Passage::new(guard)
    }
}

impl<G> Passage<G> {
    fn new(guard: G) -> Self {
        Self {
            guard: Some(guard),
            unwinding_before: std::thread::panicking(),
        }
    }
}

impl<G> Drop for Passage<G> {
    fn drop(&mut self) {
        if std::thread::panicking() && !self.unwinding_before {
            millpond_mmu::panics::stop_unwinding();
        }
        self.guard = None;
        witness::released(Rank::Gate);
    }
}

/// The owner of locks across a fork: the child has another thread number, and holds the locks of the thread that
/// forked.
#[derive(Debug)]
pub struct LocksOf(u64);

impl LocksOf {
    /// The locks that this thread holds.
    pub fn this_thread() -> Self {
        Self(witness::me())
    }

    /// Takes over the forking thread's locks in the child, which has only this thread: no other thread holds a lock
    /// there.
    pub fn inherit(&self) {
        witness::inherit(self.0);
    }
}

#[cfg(debug_assertions)]
mod witness {
    use super::Rank;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// Thread number and a bit for each rank that the thread holds. All managers share the table; a thread that holds
    /// locks of two managers at once would be out of order anyway.
    static HELD: [AtomicU64; 256] = [const { AtomicU64::new(0) }; 256];
    const RANKS: u64 = 0xff;

    pub fn me() -> u64 {
        (rustix::thread::gettid().as_raw_nonzero().get() as u64) << 8
    }

    fn mine() -> Option<&'static AtomicU64> {
        let me = me();
        HELD.iter()
            .find(|seat| seat.load(Ordering::Relaxed) & !RANKS == me)
    }

    pub fn before(rank: Rank) {
        let held = mine().map_or(0, |seat| seat.load(Ordering::Relaxed) & RANKS);
        assert!(
            held >> rank as u8 == 0,
            "taking {rank:?} while holding ranks {held:#b}: see docs/LOCKS.md"
        );
    }

    pub fn taken(rank: Rank) {
        let bit = 1 << rank as u8;
        if let Some(seat) = mine() {
            seat.fetch_or(bit, Ordering::Relaxed);
            return;
        }
        // If there are more threads than seats, the check leaves out the threads that find none.
        let _ = HELD.iter().find(|seat| {
            seat.compare_exchange(0, me() | bit, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
        });
    }

    pub fn inherit(from: u64) {
        for seat in &HELD {
            let held = seat.load(Ordering::Relaxed);
            let held = (held & !RANKS == from).then_some(me() | (held & RANKS));
            seat.store(held.unwrap_or(0), Ordering::Relaxed);
        }
    }

    pub fn released(rank: Rank) {
        if let Some(seat) = mine() {
            let left = seat.load(Ordering::Relaxed) & !(1 << rank as u8);
            seat.store(if left & RANKS == 0 { 0 } else { left }, Ordering::Relaxed);
        }
    }
}

#[cfg(not(debug_assertions))]
mod witness {
    use super::Rank;
    pub fn me() -> u64 {
        0
    }
    pub fn inherit(_: u64) {}
    pub fn before(_: Rank) {}
    pub fn taken(_: Rank) {}
    pub fn released(_: Rank) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_in_order_are_taken() {
        let (low, high) = (Ranked::new(Rank::Core, 1), Ranked::new(Rank::Figures, 2));
        let low = low.lock();
        assert_eq!(*low + *high.lock(), 3);
    }

    const INSIDE: &str = "MILLPOND_TEST_PANIC_INSIDE";

    /// Enters the gate when it is dropped, as a region does that ends.
    struct Entering<'a>(&'a Gate);

    impl Drop for Entering<'_> {
        fn drop(&mut self) {
            let _inside = self.0.enter();
        }
    }

    /// A panic on the program's own thread, inside the gate and with no lock held, once unwound and left a folio in
    /// flight: the next thread that touched it waited for ever. The test runs itself once more as the child that
    /// panics. A panic of the program's own, whose unwinding goes through the gate, goes on as ever.
    #[test]
    fn a_panic_inside_the_gate_ends_the_process() {
        let gate = Gate::new();
        let of_the_programs = std::panic::catch_unwind(|| {
            let _entering = Entering(&gate);
            panic!("the program's own");
        });
        assert!(of_the_programs.is_err());
        if std::env::var_os(INSIDE).is_some() {
            let unwound = std::panic::catch_unwind(|| {
                let _inside = gate.enter();
                panic!("lost count inside");
            });
            println!("went on: {unwound:?}");
            return;
        }
        let text = last_words("a_panic_inside_the_gate_ends_the_process");
        assert!(text.contains("lost count inside"), "{text}");
    }

    /// The output of a test of this file that runs once more as a child, which must end by SIGABRT.
    fn last_words(test: &str) -> String {
        use std::os::unix::process::ExitStatusExt;
        let name = format!("state::lock::tests::{test}");
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", &name, "--nocapture"])
            .env(INSIDE, "1")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{text}");
        assert!(text.contains("millpond: a panic inside Millpond"), "{text}");
        text
    }

    /// A child of a fork once took the core's lock that it held already, and waited for ever.
    #[test]
    #[cfg(debug_assertions)]
    fn a_forks_child_holds_what_the_forking_thread_held() {
        let lock = Ranked::new(Rank::Core, 1);
        let _held = lock.lock();
        let locks = LocksOf::this_thread();
        // SAFETY: the child asks the static table and leaves by _exit.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            locks.inherit();
            let again = std::panic::catch_unwind(|| witness::before(Rank::Core));
            // SAFETY: the child leaves by _exit, so that nothing of the parent runs at exit.
            unsafe { libc::_exit(i32::from(again.is_ok())) };
        }
        let mut status = 0;
        // SAFETY: the status is written to a variable of this function.
        assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
        assert_eq!(status, 0);
    }

    /// A thread that takes a lock out of order holds another lock, and a panic under a lock ends the process.
    #[test]
    #[cfg(debug_assertions)]
    fn locks_out_of_order_are_caught() {
        if std::env::var_os(INSIDE).is_some() {
            let (low, high) = (Ranked::new(Rank::Core, 1), Ranked::new(Rank::Figures, 2));
            let _high = high.lock();
            let _low = low.lock();
            return;
        }
        let text = last_words("locks_out_of_order_are_caught");
        assert!(text.contains("taking Core while holding"), "{text}");
    }
}
