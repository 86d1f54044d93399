//! A hand-written manager, as small as possible: each folio has one frame and one state.

#![allow(dead_code, reason = "each test file uses a part of it")]

pub mod huge;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use millpond_core::{
    Frame, LEAF_PAGES, Mmu, Order, PageCount, PageIndex, PageRange, Placed, PoolLayout,
};
use millpond_mmu::{
    Delivery, FaultSink, Mask, Memory, MemoryConfig, RealMemory, Resolution, TakeOutMethod,
};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// The folio was never touched and reads as zeros.
    Empty,
    /// The folio is mapped; its frame is a hole.
    Mapped,
    /// The folio is on its way in or out.
    InFlight,
    /// The folio is in its frame.
    Out,
    /// The folio's contents are lost.
    Lost,
}

/// A manager in which folio `i` covers the pages from `i << order` on and has frame `i`.
pub struct Tiny {
    pub mmu: Arc<RealMemory>,
    pub order: Order,
    pub states: Mutex<Vec<State>>,
    pub faults: AtomicU64,
    handler: bool,
}

pub fn config(delivery: Delivery, take_out: TakeOutMethod, leaves: u32) -> MemoryConfig {
    let pages = PageCount(leaves * 512);
    let frames = std::array::from_fn(|order| (pages.0 >> order).max(4));
    MemoryConfig {
        arena: pages,
        bases: &[],
        reserved: None,
        pool: PoolLayout { frames },
        delivery,
        take_out,
        // The results of the tests must not depend on how busy the machine is.
        huge_within: std::time::Duration::MAX,
        mask: Mask::from_environment(),
    }
}

/// Makes memory of open leaves, without delivery. If this kernel cannot move pages, prints why and returns `None`.
pub fn open_leaves(leaves: u32) -> Option<RealMemory> {
    if !usable(Delivery::InThread, TakeOutMethod::Move) {
        return None;
    }
    let mmu = RealMemory::new(config(Delivery::InThread, TakeOutMethod::Move, leaves)).unwrap();
    let pages = PageCount(leaves * LEAF_PAGES);
    mmu.open(PageRange::new(PageIndex(0), pages)).unwrap();
    Some(mmu)
}

impl Tiny {
    /// Makes a manager over `leaves` leaves, all open, with faults delivered.
    pub fn new(delivery: Delivery, take_out: TakeOutMethod, leaves: u32, order: u8) -> Arc<Self> {
        Self::with(config(delivery, take_out, leaves), order)
    }

    /// Makes a manager over memory of this configuration.
    pub fn with(config: MemoryConfig, order: u8) -> Arc<Self> {
        let (delivery, pages) = (config.delivery, config.arena);
        let mmu = RealMemory::new(config).unwrap();
        let order = Order::new(order).unwrap();
        mmu.open(PageRange::new(PageIndex(0), pages)).unwrap();
        let folios = (pages.0 / order.pages().0) as usize;
        let tiny = Arc::new(Self {
            mmu: Arc::new(mmu),
            order,
            states: Mutex::new(vec![State::Empty; folios]),
            faults: AtomicU64::new(0),
            handler: delivery == Delivery::Handler,
        });
        tiny.mmu.attach(Arc::new(Sink(Arc::clone(&tiny)))).unwrap();
        tiny
    }

    pub fn folios(&self) -> usize {
        self.states.lock().unwrap().len()
    }

    pub fn range(&self, folio: usize) -> PageRange {
        let pages = self.order.pages();
        PageRange::new(PageIndex(folio as u32 * pages.0), pages)
    }

    pub fn frame(&self, folio: usize) -> Frame {
        Frame::new(self.order, folio as u32)
    }

    /// Returns the `n`th counter of a folio.
    pub fn counter(&self, folio: usize, n: usize) -> &AtomicU64 {
        let at = self
            .mmu
            .addr_of(self.range(folio).start)
            .wrapping_add(n * 8);
        assert!(n * 8 < self.order.bytes());
        // SAFETY: the address is inside the arena, aligned, and lives as long as the RealMemory; a fault resolves it.
        unsafe { AtomicU64::from_ptr(at.cast()) }
    }

    /// Waits until no operation on the folio is in progress. The program sees a fault end slightly before the handler
    /// has recorded it.
    pub fn settle(&self, folio: usize) {
        while self.states.lock().unwrap()[folio] == State::InFlight {
            std::thread::yield_now();
        }
    }

    /// Takes a mapped folio out. Returns whether it was mapped and could go.
    pub fn evict(&self, folio: usize) -> bool {
        self.settle(folio);
        {
            let mut states = self.states.lock().unwrap();
            if states[folio] != State::Mapped {
                return false;
            }
            states[folio] = State::InFlight;
        }
        let taken = self
            .mmu
            .take_out(self.range(folio), self.frame(folio))
            .is_ok();
        self.states.lock().unwrap()[folio] = if taken { State::Out } else { State::Mapped };
        self.mmu.wake(self.range(folio));
        taken
    }

    /// Takes neighbouring mapped folios out in one call. Returns how many went.
    pub fn evict_all(&self, first: usize, count: usize) -> usize {
        let mut folios = [0; 32];
        let mut n = 0;
        {
            let mut states = self.states.lock().unwrap();
            for folio in first..(first + count).min(states.len()) {
                if states[folio] == State::Mapped {
                    states[folio] = State::InFlight;
                    folios[n] = folio;
                    n += 1;
                }
            }
        }
        let work: Vec<_> = folios[..n]
            .iter()
            .map(|&folio| (self.range(folio), self.frame(folio)))
            .collect();
        let mut results = vec![Ok(()); n];
        self.mmu.take_out_all(&work, &mut results);
        for (&folio, result) in folios[..n].iter().zip(&results) {
            self.states.lock().unwrap()[folio] = if result.is_ok() {
                State::Out
            } else {
                State::Mapped
            };
            self.mmu.wake(self.range(folio));
        }
        results.iter().filter(|result| result.is_ok()).count()
    }

    pub fn resolve(&self, page: PageIndex) -> Resolution {
        let folio = (page.0 / self.order.pages().0) as usize;
        let before = {
            let mut states = self.states.lock().unwrap();
            let before = states[folio];
            match before {
                State::Mapped => return Resolution::Retry,
                State::Lost => return Resolution::Lost,
                State::InFlight if self.handler => return Resolution::Asleep,
                State::InFlight => {
                    drop(states);
                    std::thread::yield_now();
                    return Resolution::Retry;
                }
                State::Empty | State::Out => states[folio] = State::InFlight,
            }
            before
        };
        self.faults.fetch_add(1, Ordering::Relaxed);
        let (range, frame) = (self.range(folio), self.frame(folio));
        if before == State::Out {
            if self.mmu.install(frame, range).unwrap() == Placed::Copied {
                self.mmu.free_frames(&[frame]);
            }
        } else {
            self.mmu.install_zero(range, None).unwrap();
        }
        self.states.lock().unwrap()[folio] = State::Mapped;
        Resolution::Installed
    }

    /// Breaks the reference cycle: the sink holds the manager, which holds the memory.
    pub fn end(&self) {
        self.mmu.detach();
    }
}

struct Sink(Arc<Tiny>);

impl FaultSink for Sink {
    fn fault(&self, page: PageIndex) -> Resolution {
        self.0.resolve(page)
    }
}

/// Runs a test with both deliveries, each with both methods.
pub fn each_kind(mut run: impl FnMut(Delivery, TakeOutMethod)) {
    for delivery in [Delivery::InThread, Delivery::Handler] {
        for method in [TakeOutMethod::Move, TakeOutMethod::Copy] {
            if usable(delivery, method) {
                run(delivery, method);
            }
        }
    }
}

/// Whether this kernel supports the delivery and the method. Prints the reason if not.
pub fn usable(delivery: Delivery, method: TakeOutMethod) -> bool {
    match RealMemory::new(config(delivery, method, 1)) {
        Ok(_) => true,
        Err(error) => {
            eprintln!("skipped {delivery:?}/{method:?}: {error}");
            false
        }
    }
}

/// Changes the protection of pages as the program does: by a system call, or through the memory that keeps
/// protections.
pub fn protect(mmu: &RealMemory, range: PageRange, protection: i32) {
    match mmu.protect_pages(range, protection) {
        Some(changed) => changed.unwrap(),
        None => {
            let at = mmu.addr_of(range.start).cast();
            // SAFETY: the pages are in the arena, and only the caller uses them.
            let changed = unsafe { libc::mprotect(at, range.len.bytes() as usize, protection) };
            assert_eq!(changed, 0);
        }
    }
}

/// Returns how long each stress test runs.
pub fn stress_time() -> std::time::Duration {
    let seconds = std::env::var("MILLPOND_STRESS_SECS")
        .ok()
        .and_then(|s| s.parse().ok())
        .unwrap_or(3.0);
    std::time::Duration::from_secs_f64(seconds)
}

/// Runs `work` in a forked child and returns the child's wait status. `work` must not assert: it returns an exit
/// status.
pub fn in_child(before: impl FnOnce(), after: impl FnOnce(), work: impl FnOnce() -> i32) -> i32 {
    before();
    // SAFETY: the child runs `work` and ends with `_exit`, without returning into the test harness.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0);
    if pid == 0 {
        let status = work();
        // SAFETY: the call ends the child at once.
        unsafe { libc::_exit(status) };
    }
    after();
    wait_for(pid)
}

pub fn wait_for(pid: i32) -> i32 {
    let mut status = 0;
    // SAFETY: `status` outlives the call.
    assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
    status
}

/// A small generator of random numbers: xorshift.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n as u64) as usize
    }
}
