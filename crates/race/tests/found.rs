//! Bugs of the driver found by schedules, each with the smallest program that shows it.

use millpond_core::{Advice, Event, FreeMode, LEAF_PAGES, Order, PageCount, PageRange};
use millpond_mmu::Delivery;
use millpond_race::program::Thread;
use millpond_race::world::{Plot, Profile, World};
use millpond_race::{Scheduler, background, judge, schedule};
use millpond_sim::rng::Rng;
use millpond_sim::store::Weather;
use millpond_sync::thread;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

/// Schedules of each test and scheduler.
const SCHEDULES: usize = 400;

/// A world, and the regions in it.
struct Scene {
    world: Arc<World>,
    plots: Vec<Plot>,
}

impl Scene {
    fn new(profile: Profile, lengths: &[u32], order: u8) -> Self {
        let world = Arc::new(World::of(profile, Rng::new(1), false));
        let order = Order::new(order).unwrap().into();
        let region = |&pages| {
            world
                .region(PageCount(pages), order)
                .expect("there are addresses")
        };
        let plots = lengths.iter().map(region).collect();
        Self { world, plots }
    }

    fn thread(&self, me: usize) -> Thread {
        Thread::new(Arc::clone(&self.world), me, Rng::new(me as u64))
    }

    fn range(&self, plot: usize) -> PageRange {
        self.plots[plot].named.1
    }

    /// Makes a thread write all pages of a region several times.
    fn fill(&self, me: usize, plot: usize, rounds: u32) -> impl FnOnce() + Send + 'static + use<> {
        let (mut thread, range) = (self.thread(me), self.range(plot));
        move || (0..rounds).for_each(|_| thread.touch_all(range, 1000))
    }
}

/// Runs under a fair scheduler: otherwise threads that run until another one has done something would starve it.
fn check_fairly(test: impl Fn() + Clone + Send + Sync + 'static) {
    let done = schedule(1, Scheduler::Random, SCHEDULES / 8, test);
    assert_eq!(done, Ok(()));
}

fn check(test: impl Fn() + Clone + Send + Sync + 'static) {
    for scheduler in [Scheduler::Random, Scheduler::Pct] {
        let done = schedule(1, scheduler, SCHEDULES, test.clone());
        assert_eq!(done, Ok(()), "{scheduler:?}");
    }
}

/// A thread that finds nothing to reclaim waits until something completes that other threads have in flight. The core
/// requests no wake-up for a folio for which no thread has asked, so the completion woke no thread, and the thread
/// continued only after a millisecond.
#[test]
fn a_thread_without_memory_is_woken_by_any_completion() {
    check(|| {
        let scene = Scene::new(Profile::plain(0), &[120, 32, 32], 5);
        // What is not pinned is one folio of 32 pages, on its way in or there.
        let pinned = scene.range(0);
        assert!(scene.world.driver.pin(pinned).is_ok());
        let [one, other] = [1, 2].map(|n| thread::spawn(scene.fill(n, n, 1)));
        one.join().unwrap();
        other.join().unwrap();
        let unpin = |range| Event::Unpin { range };
        scene.world.driver.operate(pinned, unpin).unwrap();
        judge::at_rest(&scene.world);
    });
}

/// A thread without memory waits for a batch of a busy worker. The worker woke it before recording that it is no longer
/// busy, so a thread that checked in between slept for a millisecond.
#[test]
fn a_thread_that_waits_for_a_worker_is_woken_by_its_end() {
    check(|| {
        let mut profile = Profile::plain(0);
        profile.workers = 1;
        let mut scene = Scene::new(profile, &[130, 200], 0);
        scene.fill(0, 0, 1)();
        let freed = scene.plots.remove(0);
        let fills = thread::spawn(scene.fill(1, 0, 1));
        scene.world.end(freed, true);
        fills.join().unwrap();
        scene.world.driver.quiesce();
        judge::at_rest(&scene.world);
        scene.world.driver.stop_freeing();
    });
}

/// A thread that takes the mark of a volatile range back waits for ongoing purges. A purge that ended between the check
/// of their number and the sleep woke no thread.
#[test]
fn a_waiter_for_a_volatile_range_is_woken_by_the_end_of_a_purge() {
    let schedules = Arc::new(AtomicU32::new(0));
    check(move || {
        let scene = Scene::new(Profile::plain(0), &[64, 96, 32], 5);
        let (mut thread, range) = (scene.thread(0), scene.range(0));
        scene.fill(0, 0, 1)();
        scene.fill(1, 1, 1)();
        thread.mark(range);
        // There is no memory left, and the purge gives enough of it.
        let touches = thread::spawn(scene.fill(2, 2, 1));
        // The purge takes some hundred steps; the question comes in the middle or at the end of it.
        let steps = schedules.fetch_add(1, Relaxed) % 400;
        (0..steps).for_each(|_| scene.world.memory().pause());
        thread.ask_for(range);
        touches.join().unwrap();
        judge::at_rest(&scene.world);
    });
}

/// A freeing thread leaves the gate before it frees what it has unhooked. A fork in between found pages on their way,
/// and its child would have counted them forever.
#[test]
fn a_fork_waits_for_pages_that_a_thread_has_unhooked() {
    check(|| {
        let mut scene = Scene::new(Profile::plain(0), &[40], 0);
        scene.fill(0, 0, 1)();
        // No thread asks for memory for a while, so the pool takes none of it.
        (0..8).for_each(|_| scene.world.driver.tick_in_background());
        let freed = scene.plots.remove(0);
        let world = Arc::clone(&scene.world);
        let forks = thread::spawn(move || {
            let still = world.driver.hold_still(&[]);
            judge::still(&world, still.core());
        });
        scene.world.end(freed, false);
        forks.join().unwrap();
        judge::at_rest(&scene.world);
    });
}

/// A handler reads about a touch and is late. In the meantime another thread brings the page in, the touching thread
/// continues, and the region ends. The handler then reported the contents as lost, and marked a page that belonged to
/// no region.
#[test]
fn a_late_handler_does_not_touch_a_region_that_has_ended() {
    check(|| {
        let mut profile = Profile::plain(0);
        profile.delivery = Delivery::Handler;
        let mut scene = Scene::new(profile, &[1], 0);
        let (world, range) = (Arc::clone(&scene.world), scene.range(0));
        let handler = thread::spawn(move || background::serve_faults(&world));
        let touches = thread::spawn(scene.fill(0, 0, 1));
        assert_eq!(scene.world.driver.populate(range), Ok(()));
        touches.join().unwrap();
        let ended = scene.plots.remove(0);
        scene.world.end(ended, false);
        scene.world.memory().kernel.as_ref().unwrap().stop();
        handler.join().unwrap();
        judge::at_rest(&scene.world);
    });
}

/// The same handler, when a snapshot has the addresses: its *base*, which no thread of the program ever touches, was
/// not empty, and the driver took that for a fault of its own and ended the program. A region that grew somewhere else
/// had the same. Seed 4393824 found it.
#[test]
fn a_handler_that_is_late_leaves_nothing_in_a_new_region() {
    for grows in [false, true] {
        check(move || {
            let mut profile = Profile::plain(0);
            profile.delivery = Delivery::Handler;
            // What grows has a neighbour, so that it has to move.
            let longer = PageCount(LEAF_PAGES + 1);
            let mut scene = Scene::new(profile, &[longer.0, 1, 1], 0);
            let world = Arc::clone(&scene.world);
            let handler = thread::spawn(move || background::serve_faults(&world));
            let (mut thread, start) = (scene.thread(0), scene.range(0).start);
            let page = PageRange::new(start, PageCount(1));
            let touches = thread::spawn(move || thread.touch_all(page, 1000));
            assert_eq!(scene.world.driver.populate(page), Ok(()));
            touches.join().unwrap();
            let ended = scene.plots.remove(0);
            scene.world.end(ended, false);
            let (driver, named) = (&scene.world.driver, scene.plots[0].named);
            // SAFETY: no thread touches the region.
            unsafe {
                match grows {
                    true => assert_eq!(driver.grow(named, longer).unwrap().1.start, start),
                    false => drop(driver.snapshot(named).unwrap()),
                }
            }
            scene.world.memory().kernel.as_ref().unwrap().stop();
            handler.join().unwrap();
        });
    }
}

/// The store is full, and threads touch a few pages without a pause, while another one has the book of volatile ranges.
/// A touch then takes as long as a batch of reclaim, and what a lower budget took out was back before the next batch:
/// the call went on for as long as the touches did. Seed 14626335 found it, with a pin for the touches.
#[test]
fn a_lower_budget_is_not_waited_for_while_the_store_is_full() {
    check_fairly(|| {
        let scene = Scene::new(Profile::plain(0), &[150, 8], 0);
        scene.world.store.set_weather(Weather {
            full: true,
            ..Weather::default()
        });
        (0..2).for_each(|n| scene.fill(n, n, 1)());
        let pinned = scene.range(0);
        assert!(scene.world.driver.pin_in_any_case(pinned).is_ok());
        let done = Arc::new(AtomicBool::new(false));
        let driver = Arc::clone(&scene.world.driver);
        let book = scene.world.driver.volatile();
        let touches = [1, 2, 3, 4, 5, 6].map(|me| {
            let (mut thread, range, seen) = (scene.thread(me), scene.range(1), Arc::clone(&done));
            thread::spawn(move || {
                while !seen.load(Relaxed) {
                    thread.touch_all(range, 500);
                }
            })
        });
        let lower = thread::spawn(move || driver.set_ram(driver.most_ram() / 8 * 6));
        lower.join().unwrap();
        done.store(true, Relaxed);
        drop(book);
        touches.into_iter().for_each(|one| one.join().unwrap());
        let unpin = |range| Event::Unpin { range };
        scene.world.driver.operate(pinned, unpin).unwrap();
        judge::at_rest(&scene.world);
    });
}

/// A pin brought its pages in one after the other, and started again when one was taken out in the meantime: a thread
/// that repeatedly took all of them out kept it from finishing (seed 14626335).
#[test]
fn a_pin_ends_although_others_take_its_pages_out() {
    check_fairly(|| {
        let scene = Scene::new(Profile::plain(0), &[32], 0);
        scene.fill(0, 0, 1)();
        let range = scene.range(0);
        let done = Arc::new(AtomicBool::new(false));
        let (world, seen) = (Arc::clone(&scene.world), Arc::clone(&done));
        let takes = thread::spawn(move || {
            let advice = Advice::PageOut;
            while !seen.load(Relaxed) {
                let out = world
                    .driver
                    .operate(range, |range| Event::Advise { range, advice });
                out.expect("the range is in a region");
            }
        });
        assert!(scene.world.driver.pin(range).is_ok());
        done.store(true, Relaxed);
        takes.join().unwrap();
        let unpin = |range| Event::Unpin { range };
        scene.world.driver.operate(range, unpin).unwrap();
        judge::at_rest(&scene.world);
    });
}

/// A fork brings in what its child needs, and gives up lost pages. A page was lost, and another thread discarded it
/// before the fork checked again: it was available to everyone, but the child was made without it. (Seed 7984536.)
#[test]
fn a_fork_retries_a_lost_page_that_was_discarded_meanwhile() {
    let schedules = Arc::new(AtomicU32::new(0));
    check(move || {
        let scene = Scene::new(Profile::plain(0), &[16, 200], 0);
        scene.fill(0, 0, 1)();
        scene.fill(1, 1, 1)();
        scene.world.store.set_weather(Weather {
            load_errors: 1000,
            ..Weather::default()
        });
        let needed = PageRange::new(scene.range(0).start, PageCount(2));
        let world = Arc::clone(&scene.world);
        let forks = thread::spawn(move || {
            let _still = world.driver.hold_still(&[needed]);
            judge::are_there(&world, &[needed]);
        });
        let steps = schedules.fetch_add(1, Relaxed) % 200;
        (0..steps).for_each(|_| scene.world.memory().pause());
        scene.thread(2).forget(needed);
        forks.join().unwrap();
        scene.world.store.set_weather(Weather::default());
    });
}

/// A lazy free of a part of a folio in limbo first brings the folio in. The folio was written out at the same time, and
/// the store could not return it: the free was refused because of contents for which it had no use. (Seed 636994.)
#[test]
fn a_lazy_free_of_a_page_lost_meanwhile_succeeds() {
    let schedules = Arc::new(AtomicU32::new(0));
    check(move || {
        let scene = Scene::new(Profile::plain(0), &[32, 180], 5);
        scene.fill(0, 0, 1)();
        scene.world.store.set_weather(Weather {
            load_errors: 1000,
            ..Weather::default()
        });
        let (whole, advice) = (scene.range(0), Advice::PageOut);
        let out = |range| Event::Advise { range, advice };
        scene.world.driver.operate(whole, out).unwrap();
        let presses = thread::spawn(scene.fill(1, 1, 1));
        let steps = schedules.fetch_add(1, Relaxed) % 800;
        (0..steps).for_each(|_| scene.world.memory().pause());
        let half = PageRange::new(whole.start, PageCount(16));
        let freed = scene.world.driver.lazy_free(&[half], FreeMode::Shared);
        assert_eq!(freed, Ok(()));
        presses.join().unwrap();
        scene.world.store.set_weather(Weather::default());
    });
}
