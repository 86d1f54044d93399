//! Pages that are marked instead of closed (`protection/guards.rs`), in single-threaded processes: forked children,
//! since the test harness has threads of its own. A child must not assert, so each wrong step has a number.

mod common;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use common::{Random, State, Tiny, config, in_child, stress_time, wait_for};
use millpond_core::{LEAF_PAGES, Mmu, PAGE_SIZE, PageCount, PageIndex, PageRange};
use millpond_mmu::{
    Delivery, Mask, Memory, MemoryConfig, TakeOutMethod, capabilities, shares_memory,
};
use millpond_sync::OwnThread;

/// The name of the capability.
const MARKS: &str = millpond_mmu::capabilities::MARKS;
const READ_WRITE: i32 = libc::PROT_READ | libc::PROT_WRITE;

/// Runs `work` with a manager over one leaf, in a single-threaded child. Expects `work` to return 0.
fn in_one_thread(order: u8, work: fn(&Arc<Tiny>) -> i32) {
    if !capabilities().has(MARKS) {
        return eprintln!("skipped: no {MARKS}");
    }
    let child = || {
        let mask = Mask {
            uffd: true,
            ..Mask::default()
        };
        let tiny = Tiny::with(
            MemoryConfig {
                mask,
                ..config(Delivery::InThread, TakeOutMethod::Auto, 1)
            },
            order,
        );
        let status = work(&tiny);
        tiny.end();
        status
    };
    let status = in_child(|| (), || (), child);
    assert!(libc::WIFEXITED(status), "{status:#x}");
    assert_eq!(libc::WEXITSTATUS(status), 0, "the number of the step");
}

fn fill(tiny: &Tiny) {
    for folio in 0..tiny.folios() {
        tiny.counter(folio, 1).store(folio as u64 + 1, Relaxed);
    }
}

/// Whether each folio contains what [`fill`] wrote.
fn is_filled(tiny: &Tiny) -> bool {
    (0..tiny.folios()).all(|folio| tiny.counter(folio, 1).load(Relaxed) == folio as u64 + 1)
}

fn runs(tiny: &Tiny) -> usize {
    tiny.mmu.open_runs().unwrap_or(usize::MAX)
}

/// Pages that go and come leave their mapping whole: closed pages would each be a run of their own.
#[test]
fn pages_of_a_single_thread_are_marked() {
    for order in [0, 2] {
        in_one_thread(order, |tiny| {
            fill(tiny);
            for round in 0..3 {
                for folio in (round % 2..tiny.folios()).step_by(2) {
                    if !tiny.evict(folio) {
                        return 1;
                    }
                }
                if runs(tiny) != 1 {
                    return 2;
                }
                if !is_filled(tiny) || runs(tiny) != 1 {
                    return 3;
                }
            }
            let all = PageRange::new(PageIndex(0), PageCount(LEAF_PAGES));
            if tiny.evict_all(0, 32) != 32 || runs(tiny) != 1 {
                return 4;
            }
            let mut present = 0;
            tiny.mmu.present_pages(all, &mut |run| present += run.len.0);
            if present != LEAF_PAGES - 32 * tiny.order.pages().0 {
                return 5;
            }
            i32::from(!is_filled(tiny)) * 6
        });
    }
}

/// Our own threads do not count, but a thread of the program does, as does a process that shares the memory.
#[test]
fn only_the_programs_threads_count() {
    fn is_marked(tiny: &Tiny, folio: usize) -> bool {
        // After several threads were seen, the kernel is not asked for a while.
        for _ in 0..300 {
            tiny.counter(folio, 1).store(1, Relaxed);
            tiny.evict(folio);
        }
        let marked = runs(tiny) == 1;
        tiny.counter(folio, 1).load(Relaxed);
        marked
    }
    in_one_thread(0, |tiny| {
        fill(tiny);
        if !is_marked(tiny, 3) {
            return 1;
        }
        let waits = |start: fn(Box<dyn FnOnce() + Send>) -> std::io::Result<OwnThread>| {
            let (go, wait) = std::sync::mpsc::channel::<()>();
            let (say, said) = std::sync::mpsc::channel();
            let thread = start(Box::new(move || {
                let _ = say.send(());
                let _ = wait.recv();
            }));
            let _ = said.recv();
            thread.ok().map(|thread| (go, thread))
        };
        let ours = waits(|work| OwnThread::start(c"ours", work));
        if !is_marked(tiny, 3) {
            return 2;
        }
        let programs = waits(|work| OwnThread::start_for_program(c"program", work));
        if is_marked(tiny, 3) {
            return 3;
        }
        for (go, thread) in programs.into_iter().chain(ours) {
            drop(go);
            thread.join();
        }
        if !is_marked(tiny, 3) {
            return 4;
        }
        shares_memory();
        i32::from(is_marked(tiny, 3)) * 5
    });
}

/// Marked pages come in while other threads run: no increment is lost, and no page is ever seen as zeros.
#[test]
fn marked_pages_come_in_whole_while_threads_run() {
    in_one_thread(0, |tiny| {
        let begun = std::time::Instant::now();
        while begun.elapsed() < stress_time() / 3 {
            fill(tiny);
            for folio in 0..tiny.folios() {
                tiny.evict(folio);
            }
            // A change of protection changes nothing about what threads see.
            for prot in [libc::PROT_READ, READ_WRITE] {
                let half = PageRange::new(PageIndex(0), PageCount(LEAF_PAGES / 2));
                common::protect(&tiny.mmu, half, prot);
            }
            let right = std::thread::scope(|scope| {
                let read = |n: u64| {
                    let mut random = Random(0x9E37_79B9 + n);
                    (0..600).all(|_| {
                        let folio = random.below(tiny.folios());
                        if random.below(8) == 0 {
                            tiny.evict(folio);
                        }
                        tiny.counter(folio, 1).load(Relaxed) == folio as u64 + 1
                    })
                };
                let threads = [1, 2, 3].map(|n| scope.spawn(move || read(n)));
                threads
                    .into_iter()
                    .all(|thread| thread.join().is_ok_and(|right| right))
            });
            if !right {
                return 1;
            }
        }
        0
    });
}

/// A system call treats a marked page like a closed one, and reading around the table does not show zeros either.
#[test]
fn a_system_call_fails_on_a_marked_page() {
    in_one_thread(0, |tiny| {
        fill(tiny);
        tiny.evict(5);
        let at = tiny.mmu.addr_of(PageIndex(5));
        // SAFETY: the pipe's ends belong to this function; the page belongs to the arena.
        unsafe {
            let mut ends = [0; 2];
            if libc::pipe(ends.as_mut_ptr()) != 0 {
                return 1;
            }
            if libc::write(ends[1], at.cast(), 8) != -1 {
                return 2;
            }
            if libc::write(ends[1], b"12345678".as_ptr().cast(), 8) != 8 {
                return 3;
            }
            if libc::read(ends[0], at.cast(), 8) != -1 {
                return 4;
            }
        }
        i32::from(!is_filled(tiny)) * 5
    });
}

/// A forked child has its parent's pages, marked or not, and each goes on independently.
#[test]
fn a_child_has_the_marked_pages() {
    in_one_thread(0, |tiny| {
        fill(tiny);
        for folio in (0..tiny.folios()).step_by(3) {
            tiny.evict(folio);
        }
        // The child does not have this thread.
        let (go, wait) = std::sync::mpsc::channel::<()>();
        let ours = OwnThread::start(c"ours", move || wait.recv().unwrap_or(()));
        while millpond_sync::OwnThreads::now().count == 0 {
            std::thread::yield_now();
        }
        tiny.mmu.before_fork();
        // SAFETY: the child ends with `_exit`.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            let mut wrong = i32::from(tiny.mmu.after_fork_in_child(&[]).is_err());
            wrong |= i32::from(!is_filled(tiny)) << 1;
            for folio in 0..tiny.folios() {
                tiny.counter(folio, 1).fetch_add(1, Relaxed);
                wrong |= i32::from(!tiny.evict(folio)) << 2;
            }
            wrong |= i32::from(runs(tiny) != 1) << 3;
            let is_more = |folio| tiny.counter(folio, 1).load(Relaxed) == folio as u64 + 2;
            wrong |= i32::from(!(0..tiny.folios()).all(is_more)) << 4;
            // SAFETY: the call ends the child at once.
            unsafe { libc::_exit(wrong) };
        }
        tiny.mmu.after_fork_in_parent();
        drop((go, ours));
        let status = wait_for(pid);
        match status {
            0 => i32::from(!is_filled(tiny)),
            _ => 64 | libc::WEXITSTATUS(status),
        }
    });
}

/// Memory that the program has unmapped without our knowledge is its own SIGSEGV, even after pages were marked.
#[test]
fn a_touch_of_unmapped_memory_is_the_programs_own_sigsegv() {
    in_one_thread(0, |tiny| {
        fill(tiny);
        tiny.evict(5);
        // SAFETY: the child is forked from a single-threaded process, unmaps its own memory, and dies.
        unsafe {
            let pid = libc::fork();
            if pid == 0 {
                libc::munmap(tiny.mmu.addr_of(PageIndex(7)).cast(), PAGE_SIZE);
                tiny.counter(7, 1).store(1, Relaxed);
                libc::_exit(1);
            }
            let status = wait_for(pid);
            i32::from(!libc::WIFSIGNALED(status) || libc::WTERMSIG(status) != libc::SIGSEGV)
        }
    });
}

/// All operations on pages, in any order, compared with an array of their expected contents: pages are taken out and
/// brought in one by one or in runs, dropped, protected and moved, and for some of the time the program has a second
/// thread.
#[test]
fn marked_pages_agree_with_an_array() {
    in_one_thread(0, |tiny| {
        for seed in 1..60 {
            let wrong = against_an_array(tiny, seed);
            if wrong != 0 {
                // The test harness captures what a child prints.
                let text = format!("seed {seed}: step {wrong}\n");
                // SAFETY: the kernel reads the text.
                unsafe { libc::write(2, text.as_ptr().cast(), text.len()) };
                return 1;
            }
        }
        0
    });
}

/// Returns the number of the step after which something was wrong, or 0.
fn against_an_array(tiny: &Arc<Tiny>, seed: u64) -> i32 {
    let mut random = Random(0xDEAD_BEEF * seed);
    let mut model = Model::new(tiny);
    let mut beside: Option<(std::sync::mpsc::Sender<()>, std::thread::JoinHandle<()>)> = None;
    // Once a second thread was seen, the kernel is not asked again for a few hundred steps.
    for step in 1..2000 {
        let page = random.below(model.values.len());
        let len = 1 + random.below(8.min(model.values.len() - page));
        let value = random.below(1 << 20) as u64;
        match random.below(24) {
            23 if random.below(16) == 0 => match beside.take() {
                Some((go, thread)) => {
                    drop(go);
                    let _ = thread.join();
                }
                None => {
                    let (go, wait) = std::sync::mpsc::channel::<()>();
                    let thread = std::thread::spawn(move || wait.recv().unwrap_or(()));
                    beside = Some((go, thread));
                }
            },
            what => model.step(what, page, len, value),
        }
        if !model.is_right(random.below(model.values.len())) {
            return step;
        }
    }
    drop(beside);
    match (0..model.values.len()).all(|page| model.is_right(page)) {
        true => 0,
        false => -1,
    }
}

/// What the pages of a manager should hold.
struct Model<'a> {
    tiny: &'a Tiny,
    values: Vec<u64>,
}

impl<'a> Model<'a> {
    fn new(tiny: &'a Tiny) -> Self {
        let values = vec![0; tiny.folios()];
        let mut model = Self { tiny, values };
        model.zap(0, model.values.len());
        model
    }

    fn is_right(&self, page: usize) -> bool {
        self.tiny.counter(page, 1).load(Relaxed) == self.values[page]
    }

    fn step(&mut self, what: usize, page: usize, len: usize, value: u64) {
        match what {
            0..=6 => {
                self.values[page] = value;
                self.tiny.counter(page, 1).store(value, Relaxed);
            }
            7..=13 => drop(self.tiny.evict(page)),
            14..=16 => drop(self.tiny.evict_all(page, len)),
            17 | 18 => self.protect(page, len, &[libc::PROT_READ, READ_WRITE]),
            19 => self.protect(page, len, &[libc::PROT_NONE, READ_WRITE]),
            20 => self.zap(page, len),
            _ => self.hand_over(page, len),
        }
    }

    fn protect(&self, page: usize, len: usize, prots: &[i32]) {
        for &prot in prots {
            common::protect(&self.tiny.mmu, range(page, len), prot);
        }
    }

    fn zap(&mut self, page: usize, len: usize) {
        self.tiny.mmu.zap(&[range(page, len)]);
        self.tiny.states.lock().unwrap()[page..page + len].fill(State::Empty);
        self.values[page..page + len].fill(0);
    }

    /// Moves pages to the other half of the leaf.
    fn hand_over(&mut self, page: usize, len: usize) {
        let half = self.values.len() / 2;
        let to = (page + half) % self.values.len();
        let len = len.min(self.values.len() - page.max(to));
        // Each folio has a frame, whose contents do not move with the folio's addresses.
        let is_out = |&page: &usize| self.tiny.states.lock().unwrap()[page] == State::Out;
        let out: Vec<_> = (page..page + len).filter(is_out).collect();
        for page in out {
            self.tiny.counter(page, 1).load(Relaxed);
        }
        self.zap(to, len);
        // SAFETY: nothing else uses these pages.
        let moved = unsafe {
            self.tiny
                .mmu
                .hand_over_watched(range(page, len), range(to, len), true)
        };
        moved.expect("pages move");
        let mut states = self.tiny.states.lock().unwrap();
        for at in 0..len {
            states.swap(page + at, to + at);
            self.values.swap(page + at, to + at);
        }
    }
}

fn range(page: usize, len: usize) -> PageRange {
    PageRange::new(PageIndex(page as u32), PageCount(len as u32))
}
