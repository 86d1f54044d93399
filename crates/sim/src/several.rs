//! Several seeds at once, each on its own thread: a run depends only on its seed.

use crate::{Options, Run, run};
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;

/// Runs `seeds`, as many at once as there are processors, and passes each run to `each` when it is done, so in no
/// particular order. Returns false as soon as `each` returns false; seeds that were not started by then are skipped.
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
        // A finished run waits until the previous one has been processed, since their logs are long. When no one takes
        // runs any more, the run's thread ends.
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
