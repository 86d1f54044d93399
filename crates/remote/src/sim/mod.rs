//! Runs the tier against a misbehaving service, many times, by seed.
//!
//! ```text
//!   threads that save, load, release ─▶ the tier, its threads ─▶ OpenDAL ─▶ SimService: what is asked for, or a fault
//!        │                                                                     ▲
//!        └── a table of what each slot holds (`work.rs`)                       └── fates by seed (`faults.rs`)
//! ```
//!
//! The tier is the real one, with its threads; only the service at its end is simulated, and pauses are shorter. One
//! request in four goes wrong, in every way that a service or the connection to it can fail: it is refused, fails, or
//! is not answered; the answer is too short, has a flipped bit, contains another object's bytes, or claims that there
//! is no such object; a write or a deletion is carried out and reported as failed; a write is carried out later.
//! Three things must hold:
//!
//! - *No wrong byte.* Each load returns what was saved, or an error, and a failed load succeeds when it is retried.
//! - *It continues.* When the faults end, every slot comes back at once.
//! - *Nothing is left.* Everything that is no longer wanted is deleted; only an object that the service wrote after
//!   reporting a failure may be left, because nobody knows about it.
//!
//! Permanent faults are errors of the corresponding kind ([`each_persistent_fault_is_an_error`]). The simulator
//! itself is tested with a tier whose seals are incomplete: it must find wrong bytes there, and finds none in the
//! same work with complete seals.
//!
//! A seed determines the work and the fate of each request. The scheduling of threads is up to the machine, so a
//! failure that depends on it may require several runs of its seed. A failure names its seed; `MILLPOND_SIM_SEED`
//! runs a single one.

mod faults;
mod service;
mod work;

use crate::config::{RemoteConfig, RemoteOpenError};
use crate::format::{RunKey, Weakness};
use crate::lease;
use crate::requests::{RemoteError, TimeLimits};
use crate::tier::{Remote, RemoteStats, RemoteStore};
use faults::{ALL, Fault, Plan};
use millpond_core::port::{LoadError, Slots, Upkeep};
use millpond_store::{CompressedRam, CompressedRamConfig};
use service::SimService;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use work::{Held, Tally, Work, lost, timed_out};

/// Work with slots of all lengths.
const MIXED: Work = Work {
    slots: 40,
    pages: &[1, 4, 16, 16, 16, 32, 40],
    steps: 250,
    threads: 2,
    room: 1 << 20,
};
/// Work with a few slots of one length: slots come to the same places of objects again and again.
const ALIKE: Work = Work {
    slots: 24,
    pages: &[16],
    steps: 400,
    threads: 1,
    room: 512 << 10,
};

/// A tier in front of a service.
struct World {
    service: SimService,
    store: RemoteStore,
}

impl World {
    /// Opens the tier for the work of a seed, with requests that go wrong as planned.
    fn open(seed: u64, work: Work, weakness: Weakness, plan: Plan) -> Self {
        let service = SimService::new(seed);
        service.follow(plan.opening());
        let store = open(&service, seed, work, weakness).unwrap();
        service.follow(plan);
        Self { service, store }
    }
}

fn open(
    service: &SimService,
    seed: u64,
    work: Work,
    weakness: Weakness,
) -> Result<RemoteStore, RemoteOpenError> {
    let config = RemoteConfig {
        object_bytes: 128 << 10,
        // Every other seed fetches ahead, and so keeps bytes that it has not checked yet.
        ahead_bytes: if seed.is_multiple_of(2) { 0 } else { 256 << 10 },
        // Some have hardly any room, or none, to record what has changed.
        memory_bytes: [0, 64 << 10, 64 << 20][seed as usize / 2 % 3],
        limits: TimeLimits {
            deadline: Duration::from_millis(600),
            attempt: Duration::from_millis(20),
        },
        ..RemoteConfig::new("memory://".parse().unwrap(), work.room)
    };
    let local = CompressedRam::new(CompressedRamConfig {
        max_bytes: Some(work.room),
    });
    let mut run = [0; 16];
    run[..8].copy_from_slice(&seed.to_le_bytes());
    let key = RunKey::of(&[5; 32], run).weakened(weakness);
    let (operator, prefix) = (service.operator(), lease::prefix(&run));
    Remote::open_at(operator, &prefix, key, Box::new(local.unwrap()), config)
}

/// Returns how long tests with seeds run: MILLPOND_STRESS_SECS, or 3 seconds.
fn stress_time() -> Duration {
    let seconds = std::env::var("MILLPOND_STRESS_SECS").ok();
    Duration::from_secs(seconds.and_then(|text| text.parse().ok()).unwrap_or(3))
}

/// The number of seeds that run concurrently: they mostly wait.
const AT_ONCE: usize = 4;

/// Calls `run` with one seed after the other until time is up, but with at least eight; or with the one that
/// MILLPOND_SIM_SEED names. If a thread panics, the seed is printed. Returns how many seeds ran.
fn seeds(run: impl Fn(u64) + Sync) -> u64 {
    struct Named(u64);
    impl Drop for Named {
        fn drop(&mut self) {
            if std::thread::panicking() {
                eprintln!("MILLPOND_SIM_SEED={} runs this again", self.0);
            }
        }
    }
    let run_named = |seed| {
        let _named = Named(seed);
        run(seed);
    };
    if let Ok(one) = std::env::var("MILLPOND_SIM_SEED") {
        run_named(one.parse().expect("MILLPOND_SIM_SEED is a number"));
        return 1;
    }
    let end = Instant::now() + stress_time();
    let next = AtomicU64::new(1);
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Relaxed);
                    if seed > 8 && Instant::now() >= end {
                        return;
                    }
                    run_named(seed);
                }
            });
        }
    });
    next.into_inner() - 1 - AT_ONCE as u64
}

#[test]
fn data_survives_a_quarter_of_requests_failing_and_nothing_is_left() {
    let all = Mutex::new((Tally::default(), BTreeMap::new()));
    let count = seeds(|seed| {
        let World { service, store } = World::open(seed, MIXED, Weakness::None, Plan::quarter(ALL));
        let (held, tally) = MIXED.run(seed, &store);
        assert_eq!(tally.wrong, 0, "{tally:?}");
        assert!(tally.errors <= tally.loads / 5 + 5, "{tally:?}");
        service.follow(Plan::NONE);
        for held in &held {
            assert_eq!(held.load(&store), Ok(true), "{held:?}");
        }
        // A slot that is being settled is briefly not counted.
        wait_until("all slots count", || {
            store.usage().slots == held.len() as u64
        });
        // In every other seed the run ends while requests fail.
        if seed % 4 < 2 {
            held.iter().for_each(|held| store.release(held.slot()));
            wait_until("all objects are deleted", || {
                RemoteStats::of(&store).objects == 0
            });
        } else {
            service.follow(Plan::quarter(ALL));
        }
        drop(store);
        assert_eq!(service.left(), Vec::<String>::new());
        let (tallies, faults) = &mut *all.lock().unwrap();
        tallies.add(tally);
        for (fault, times) in service.happened() {
            *faults.entry(fault).or_default() += times;
        }
    });
    let (tally, faults): (Tally, BTreeMap<Fault, u64>) = all.into_inner().unwrap();
    eprintln!("{count} seeds: {tally:?}, {faults:?}");
    let never: Vec<_> = ALL
        .iter()
        .filter(|kind| !faults.contains_key(kind))
        .collect();
    assert!(
        never.is_empty() || count == 1,
        "{never:?} never happened in {count} seeds"
    );
}

/// Waits for another thread's work.
fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let limit = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < limit, "{what}: not within 30 seconds");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Returns the slots that are only in the service: those whose loads contact it.
fn far(store: &RemoteStore, held: &[Held]) -> Vec<Held> {
    let is_far = |held: &&Held| {
        let before = RemoteStats::of(store).loads;
        assert_eq!(held.load(store), Ok(true), "{held:?}");
        RemoteStats::of(store).loads > before
    };
    held.iter().filter(is_far).copied().collect()
}

/// Each fault that happens every time is an error of the corresponding kind, and the error ends when the fault does.
#[test]
fn each_persistent_fault_is_an_error() {
    let timed_out = timed_out();
    let cases: [(&'static [Fault], LoadError, bool); 9] = [
        (&[Fault::Refused], timed_out, true),
        (&[Fault::Failed], timed_out, true),
        (&[Fault::SlowDown], timed_out, true),
        (&[Fault::Forbidden], timed_out, true),
        (&[Fault::Silent], timed_out, true),
        (&[Fault::Cut], LoadError::Corrupt, true),
        (&[Fault::Flipped], LoadError::Corrupt, true),
        (&[Fault::Other], LoadError::Corrupt, true),
        // If the service says three times that it does not have something, that counts as lost.
        (&[Fault::Gone], lost(), false),
    ];
    for (kind, error, passes) in cases {
        let World { service, store } = World::open(2, ALIKE, Weakness::None, Plan::NONE);
        let (held, _) = ALIKE.run(7, &store);
        let far = far(&store, &held);
        assert!(far.len() > 3, "{kind:?}: {far:?} are far");
        service.follow(Plan::always(kind));
        for held in &far[..3] {
            assert_eq!(held.load(&store), Err(error), "{kind:?}: {held:?}");
        }
        assert_eq!(RemoteStats::of(&store).lost_loads, 3, "{kind:?}");
        service.follow(Plan::NONE);
        let expected = if passes { Ok(true) } else { Err(error) };
        assert_eq!(far[0].load(&store), expected, "{kind:?}");
        assert!(service.happened().contains_key(&kind[0]), "{kind:?}");
    }
}

/// Opening a store whose credentials are refused once took ten seconds.
#[test]
fn a_service_that_refuses_the_credentials_is_an_error_at_once() {
    let service = SimService::new(1);
    service.follow(Plan::always(&[Fault::Forbidden]));
    let refused = open(&service, 1, ALIKE, Weakness::None).err();
    assert!(
        matches!(
            refused,
            Some(RemoteOpenError::Refused {
                error: RemoteError::Refused { .. },
                ..
            })
        ),
        "{refused:?}"
    );
    let asked: u64 = service.happened().values().sum();
    assert_eq!(asked, 1, "a refusal is not asked for again");
}

/// Writes that are not carried out, carried out silently, and carried out late: data stays in front until it is
/// elsewhere.
#[test]
fn nothing_is_lost_while_no_write_succeeds() {
    for kind in [
        &[Fault::Failed],
        &[Fault::Silent],
        &[Fault::DoneButFailed],
        &[Fault::Late],
    ] {
        let World { service, store } = World::open(3, ALIKE, Weakness::None, Plan::NONE);
        service.follow(Plan::always(kind));
        let work = Work { steps: 60, ..ALIKE };
        let (held, tally) = work.run(5, &store);
        assert_eq!(tally.wrong, 0, "{kind:?}: {tally:?}");
        assert!(!held.is_empty(), "{kind:?}");
        service.follow(Plan::NONE);
        for held in &held {
            assert_eq!(held.load(&store), Ok(true), "{kind:?}: {held:?}");
        }
    }
}

/// Returns how many loads return wrong bytes in work with these faults, and how many times a fault happens. Counts
/// the first seeds until one has wrong loads, or all of them.
fn wrong_loads(weakness: Weakness, kinds: &'static [Fault], seeds: u64) -> (u64, u64) {
    let (mut wrong, mut happened) = (0, 0);
    for seed in 1..=seeds {
        let World { service, store } = World::open(seed, ALIKE, weakness, Plan::quarter(kinds));
        let (_, tally) = ALIKE.run(seed, &store);
        wrong += tally.wrong;
        happened += service.happened().values().sum::<u64>();
        service.follow(Plan::NONE);
        if wrong > 0 {
            break;
        }
    }
    (wrong, happened)
}

/// If a seal does not cover its chunk's name, an older object with the same slots passes for the newer one. That
/// takes an object with the same slots at the same places: of 40 seeds on a busy machine, none may have one.
#[test]
fn seals_that_name_no_object_are_found_out() {
    let (wrong, happened) = wrong_loads(Weakness::Nameless, &[Fault::Other], 400);
    assert!(wrong > 0, "{happened} answers of other objects did no harm");
    let (wrong, happened) = wrong_loads(Weakness::None, &[Fault::Other], 3);
    assert!(wrong == 0 && happened > 20, "{wrong} of {happened}");
}

/// Without seals a flipped bit passes for what was saved. Data that is too short is still detected.
#[test]
fn pages_without_seals_are_found_out() {
    let (wrong, happened) = wrong_loads(Weakness::Unsealed, &[Fault::Flipped], 40);
    assert!(wrong > 0, "{happened} changed bits did no harm");
    let (wrong, happened) = wrong_loads(Weakness::None, &[Fault::Flipped], 3);
    assert!(wrong == 0 && happened > 20, "{wrong} of {happened}");
    let (wrong, happened) = wrong_loads(Weakness::Unsealed, &[Fault::Cut], 3);
    assert!(wrong == 0 && happened > 20, "{wrong} of {happened}");
}
