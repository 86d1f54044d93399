//! Several seeds at once, each on a thread of its own: a run depends on its seed alone.

use crate::{Options, Run, run};
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;

/// Runs `seeds`, as many at once as there are processors, and hands each run to `each` when it is done, so in no
/// particular order. Returns false as soon as `each` is false; seeds that were not begun by then are left out.
///
/// ```
/// use millpond_sim::{Options, run_each};
///
/// let options = Options { events: 200, ..Options::default() };
/// let mut seeds = Vec::new();
/// let passed = run_each(1..=4, options, |run| {
///     seeds.push(run.seed);
///     run.failure.is_none()
/// });
/// seeds.sort_unstable();
/// assert!(passed && seeds == [1, 2, 3, 4]);
/// assert!(!run_each(1.., options, |_| false));
/// ```
pub fn run_each(
    seeds: impl IntoIterator<Item = u64, IntoIter: Send>,
    options: Options,
    mut each: impl FnMut(Run) -> bool,
) -> bool {
    let seeds = Mutex::new(seeds.into_iter());
    let next = || {
        let mut seeds = seeds.lock().unwrap_or_else(PoisonError::into_inner);
        seeds.next()
    };
    thread::scope(|scope| {
        // A run that is done waits until the one before it is looked at, as their logs are long. When nobody looks any
        // more, the thread of the run ends.
        let (done, runs) = mpsc::sync_channel(0);
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            let done = done.clone();
            scope.spawn(move || {
                while let Some(seed) = next()
                    && done.send(run(seed, options)).is_ok()
                {}
            });
        }
        drop(done);
        runs.iter().all(&mut each)
    })
}
