//! The supervisor's side: one thread for each desk, which serves its requests with an ordinary store, and one that
//! checks once a second which processes are still there.
//!
//! The bytes of a window are copied before the store sees them, and a slot's bytes go from the store into the
//! thread's own buffer: the store never has to trust memory that another process may write to.
//!
//! A process that is killed, or runs out of patience, while one of its slots is being saved never learns the slot's
//! number. The slot is still in its account, so it ends with the account, or at once if only the patience has run
//! out.

use crate::accounts::{Accounts, runs};
use crate::desk::{Act, Refusal, leave, sleep_at, wake_at};
use crate::layout::{DESKS, Phase, RelayError, Shared, WINDOW};
use millpond_core::port::{Saved, Store};
use millpond_core::{PAGE_SIZE, SlotId};
use millpond_sync::OwnThread;
use rustix::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How often the processes are checked.
const LOOK_EVERY: Duration = Duration::from_secs(1);

struct Inner {
    shared: Shared,
    store: Arc<dyn Store>,
    accounts: Mutex<Accounts>,
    stop: AtomicBool,
}

/// Keeps slots of other processes in a store of this one, until this value is dropped. See the [crate](crate).
///
/// ```
/// use millpond_core::{SlotId, port::Slots};
/// use millpond_relay::{Relay, Server, Supervisor};
/// use millpond_store::{CompressedRam, CompressedRamConfig};
/// use std::sync::Arc;
///
/// // The supervisor:
/// let far = CompressedRam::new(CompressedRamConfig { max_bytes: None })?;
/// let server = Server::start(Arc::new(far))?;
///
/// // A process that finds the path in its environment. Here nothing fits in front.
/// let relay = Relay::open(&server.path())?;
/// let near = CompressedRam::new(CompressedRamConfig { max_bytes: Some(2 << 20) })?;
/// let store = Supervisor::behind(Box::new(near), relay, 2 << 20)?;
/// let page: Vec<u8> = (0..4096).map(|i| (i / 50) as u8).collect();
/// store.save(SlotId(7), None, &page).unwrap();
/// let mut back = vec![0; 4096];
/// store.load(SlotId(7), 0, &mut back).unwrap();
/// assert_eq!(back, page);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Server {
    inner: Arc<Inner>,
    file: OwnedFd,
    threads: Vec<OwnThread>,
}

impl Server {
    /// Starts the threads. The processes' slots go to `store`.
    ///
    /// # Errors
    /// The system refuses the memory, or a thread.
    pub fn start(store: Arc<dyn Store>) -> Result<Self, RelayError> {
        let (shared, file) = Shared::create()?;
        let inner = Arc::new(Inner {
            shared,
            store,
            accounts: Mutex::new(Accounts::default()),
            stop: AtomicBool::new(false),
        });
        let mut server = Self {
            inner,
            file,
            threads: Vec::new(),
        };
        for desk in 0..DESKS {
            server.spawn(move |inner| Clerk::new(inner, desk).work())?;
        }
        server.spawn(|inner| inner.watch())?;
        Ok(server)
    }

    fn spawn(&mut self, work: impl FnOnce(Arc<Inner>) + Send + 'static) -> Result<(), RelayError> {
        let inner = Arc::clone(&self.inner);
        let spawned = OwnThread::start(c"millpond-relay", move || work(inner));
        let thread = spawned.map_err(|error| RelayError::System {
            what: "start a thread of",
            path: self.path(),
            errno: rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::AGAIN),
        })?;
        self.threads.push(thread);
        Ok(())
    }

    /// Returns the path under which processes of this user open the relay while this value lives.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        millpond_board::path_of(&self.file)
    }

    /// Returns the processes whose memory is here, and nowhere else. Killed processes are excluded within a second.
    #[must_use]
    pub fn owners(&self) -> Vec<u32> {
        self.inner.accounts().owners()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.inner.stop.store(true, SeqCst);
        let page = self.inner.shared.page;
        page.closed.store(1, SeqCst);
        page.desks.iter().for_each(|desk| wake_at(&desk.phase));
        wake_at(&page.left);
        wake_at(&page.beats);
        for thread in self.threads.drain(..) {
            thread.join();
        }
    }
}

impl Inner {
    fn accounts(&self) -> MutexGuard<'_, Accounts> {
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Releases dead slots in the store.
    fn bury(&self, dead: impl IntoIterator<Item = u32>) {
        for slot in dead {
            self.store.release(SlotId(slot));
            self.accounts().reuse(slot);
        }
    }

    fn watch(&self) {
        let page = self.shared.page;
        while !self.stop.load(SeqCst) {
            let dead = self.accounts().sweep();
            self.bury(dead);
            self.free_desks();
            page.away_ms.store(self.store.beyond().away_ms, Relaxed);
            let beat = page.beats.fetch_add(1, SeqCst) + 1;
            sleep_at(&page.beats, beat, Instant::now() + LOOK_EVERY);
        }
    }

    /// Frees the desks of processes that were killed there, except those at which one of our threads is working.
    fn free_desks(&self) {
        for (number, desk) in self.shared.page.desks.iter().enumerate() {
            let holder = desk.holder.load(Acquire);
            let is_waiting =
                desk.is(Phase::Asked) || desk.is(Phase::Working) || desk.is(Phase::Left);
            if holder == 0 || is_waiting || runs(holder) {
                continue;
            }
            // The holder cannot have asked between the two checks: it is not running.
            if !desk.is(Phase::Asked) {
                leave(&self.shared, number);
            }
        }
    }
}

/// The thread at one desk.
struct Clerk {
    inner: Arc<Inner>,
    desk: usize,
    buffer: Vec<u8>,
}

impl Clerk {
    fn new(inner: Arc<Inner>, desk: usize) -> Self {
        Self {
            inner,
            desk,
            buffer: Vec::new(),
        }
    }

    fn work(&mut self) {
        let inner = Arc::clone(&self.inner);
        let desk = &inner.shared.page.desks[self.desk];
        while !inner.stop.load(SeqCst) {
            let seen = desk.phase.load(Acquire);
            if seen != Phase::Asked as u32 {
                sleep_at(&desk.phase, seen, Instant::now() + LOOK_EVERY);
                continue;
            }
            if !desk.turn(Phase::Asked, Phase::Working) {
                continue;
            }
            let act = Act::from_word(desk.act.load(Relaxed));
            let account = desk.account.load(Relaxed);
            let done = act.map_or(Err(Refusal::Missing), |act| self.act(act, account));
            desk.answer
                .store(done.err().map_or(0, Refusal::word), Relaxed);
            desk.number.store(done.unwrap_or(0), Relaxed);
            if desk.turn(Phase::Working, Phase::Done) {
                wake_at(&desk.phase);
            } else {
                if let (Some(Act::Save), Ok(slot)) = (act, done) {
                    self.let_go(account, slot as u32);
                }
                leave(&inner.shared, self.desk);
            }
            inner.shared.unmap(self.desk, self.buffer.len());
        }
    }

    fn act(&mut self, act: Act, account: u64) -> Result<u64, Refusal> {
        let desk = &self.inner.shared.page.desks[self.desk];
        let number = desk.number.load(Relaxed);
        let len = (desk.len.load(Relaxed) as usize).min(WINDOW);
        match act {
            Act::Begin => {
                let (account, dead) = self.inner.accounts().begin(number as u32);
                self.inner.bury(dead);
                Ok(account)
            }
            Act::Fork => self.inner.accounts().fork(account).ok_or(Refusal::Missing),
            Act::Adopt => {
                let is_there = self.inner.accounts().adopt(account, number as u32);
                is_there.then_some(0).ok_or(Refusal::Missing)
            }
            Act::End => {
                let dead = self.inner.accounts().end(account);
                self.inner.bury(dead);
                Ok(0)
            }
            Act::Save => self.save(account, len),
            Act::Load => self.load(number as u32, len),
            Act::Release => {
                self.buffer.resize(len, 0);
                self.inner.shared.take(self.desk, &mut self.buffer);
                let (numbers, _) = self.buffer.as_chunks::<4>();
                let numbers: Vec<u32> = numbers
                    .iter()
                    .map(|&slot| u32::from_ne_bytes(slot))
                    .collect();
                numbers
                    .into_iter()
                    .for_each(|slot| self.let_go(account, slot));
                Ok(0)
            }
        }
    }

    fn let_go(&self, account: u64, slot: u32) {
        let died = self.inner.accounts().let_go(account, slot);
        self.inner.bury(died.then_some(slot));
    }

    fn save(&mut self, account: u64, len: usize) -> Result<u64, Refusal> {
        let pages = len / PAGE_SIZE;
        if !len.is_multiple_of(PAGE_SIZE) || !pages.is_power_of_two() {
            return Err(Refusal::Missing);
        }
        self.buffer.resize(len, 0);
        self.inner.shared.take(self.desk, &mut self.buffer);
        let slot = self.inner.accounts().new_slot().ok_or(Refusal::Full)?;
        let refusal = match self.inner.store.save(SlotId(slot), None, &self.buffer) {
            Ok(Saved::Stored) if self.inner.accounts().give(account, slot) => {
                return Ok(u64::from(slot));
            }
            // The process was killed meanwhile. Or the store keeps nothing for bytes that no well-behaved process
            // would have sent.
            Ok(_) => Refusal::Missing,
            Err(error) => error.into(),
        };
        self.inner.bury([slot]);
        Err(refusal)
    }

    fn load(&mut self, slot: u32, len: usize) -> Result<u64, Refusal> {
        let desk = &self.inner.shared.page.desks[self.desk];
        let first = u16::try_from(desk.first_page.load(Relaxed)).map_err(|_| Refusal::Missing)?;
        if len == 0 || !len.is_multiple_of(PAGE_SIZE) {
            return Err(Refusal::Missing);
        }
        self.buffer.resize(len, 0);
        self.inner
            .store
            .load(SlotId(slot), first, &mut self.buffer)?;
        self.inner.shared.put(self.desk, &self.buffer);
        Ok(0)
    }
}
