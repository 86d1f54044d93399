//! Runs a seed.
//!
//! A seed determines a world and a schedule. With PCT the first schedule of a world only measures its length, so a seed
//! stands for a few schedules of one world, which are always run together.

use crate::background;
use crate::judge;
use crate::program::Thread;
use crate::world::World;
use millpond_driver::sabotage::{self, Sabotage};
use millpond_sim::rng::Rng;
use millpond_sim::store::Weather;
use millpond_sync::thread;
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Steps after which an unfinished schedule has failed: threads run in circles.
const STEPS: usize = 2_000_000;
/// Stack size of a thread: the driver's lists of commands are on the stack.
const STACK: usize = 512 << 10;
/// Schedules of a world with PCT.
const SCHEDULES: usize = 4;
/// Changes of priority in a schedule of PCT.
const DEPTH: usize = 4;

/// The scheduler that decides which thread goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Scheduler {
    /// A thread at random, at each step.
    Random,
    /// The thread of the highest priority, which changes a few times in a schedule.
    Pct,
}

/// The caller's options for a run.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The scheduler that decides which thread continues.
    pub scheduler: Scheduler,
    /// The fix to take out of the driver.
    pub sabotage: Option<Sabotage>,
    /// Whether the threads' actions are written to standard error.
    pub log: bool,
}

/// Runs a seed. Returns a hash of everything that the program's threads did, which is the same whenever the seed is
/// run.
///
/// # Errors
/// What failed.
pub fn run(seed: u64, options: Options) -> Result<u64, String> {
    let _sabotaged = sabotage::set(options.sabotage);
    let digest = Arc::new(AtomicU64::new(0));
    let sum = Arc::clone(&digest);
    let world = move || {
        let touches = live(seed, options.log);
        sum.fetch_add(touches, Ordering::Relaxed);
    };
    let schedules = match options.scheduler {
        Scheduler::Random => 1,
        Scheduler::Pct => SCHEDULES,
    };
    schedule(seed, options.scheduler, schedules, world)?;
    Ok(digest.load(Ordering::Relaxed))
}

/// Runs something under a number of schedules of a seed.
///
/// # Errors
/// What failed.
pub fn schedule(
    seed: u64,
    scheduler: Scheduler,
    schedules: usize,
    what: impl Fn() + Send + Sync + 'static,
) -> Result<(), String> {
    let mut config = Config::new();
    config.stack_size = STACK;
    config.failure_persistence = FailurePersistence::None;
    config.max_steps = MaxSteps::FailAfter(STEPS);
    config.silence_warnings = true;
    let done = catch_unwind(AssertUnwindSafe(|| match scheduler {
        Scheduler::Random => {
            let scheduler = RandomScheduler::new_from_seed(seed, schedules);
            Runner::new(scheduler, config).run(what)
        }
        Scheduler::Pct => {
            let scheduler = PctScheduler::new_from_seed(seed, DEPTH, schedules);
            Runner::new(scheduler, config).run(what)
        }
    }));
    match done {
        Ok(_) => Ok(()),
        Err(panic) => Err(text_of(&*panic)),
    }
}

fn text_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic without words").to_owned()
}

/// One schedule of a world, from beginning to end. Returns the hash of all touches.
fn live(seed: u64, log: bool) -> u64 {
    let world = Arc::new(World::new(seed, log));
    let mut rng = Rng::new(!seed);
    let served = Arc::clone(&world);
    let handler = thread::spawn(move || background::serve_faults(&served));
    for phase in 0..world.profile.phases {
        let fails = phase % 2 == 1;
        let weather = if fails {
            world.profile.weather
        } else {
            Weather::default()
        };
        world.store.set_weather(weather);
        live_a_while(&world, &mut rng);
        judge::at_rest(&world);
    }
    world.store.set_weather(Weather::default());
    judge::end(&world, &mut rng);
    if let Some(kernel) = &world.memory().kernel {
        kernel.stop();
    }
    handler
        .join()
        .expect("a thread that panics ends the schedule");
    world.memory().now().digest
}

/// Lets all threads run, and waits for their ends. At rest more can be judged than while they run.
fn live_a_while(world: &Arc<World>, rng: &mut Rng) {
    let mut threads = Vec::new();
    for me in 0..world.profile.threads {
        let one = Thread::new(Arc::clone(world), me, Rng::new(rng.word()));
        threads.push(thread::spawn(move || one.live()));
    }
    let house = Arc::clone(world);
    threads.push(thread::spawn(move || background::keep_house(&house)));
    let forking = Thread::new(Arc::clone(world), 29, Rng::new(rng.word()));
    threads.push(thread::spawn(move || background::fork(forking)));
    for thread in threads {
        thread
            .join()
            .expect("a thread that panics ends the schedule");
    }
}
