//! The real core under a trace: the counts are right, and a cache of n pages holds n pages.

mod common;

use common::{all, circle, zipf};
use millpond_replay::core_policy::{CoreError, CorePolicy, Touch};
use millpond_replay::import::Access;
use millpond_replay::trace::Trace;
use proptest::prelude::*;

#[test]
fn a_footprint_that_fits_is_missed_once_per_page() {
    for (name, trace) in all() {
        let policy = CorePolicy::replay(&trace, trace.footprint()).unwrap();
        let counts = policy.counts();
        let first = u64::from(trace.footprint());
        assert_eq!((counts.first, counts.refaults), (first, 0), "{name}");
        assert_eq!(
            policy.stats().pgfault,
            first,
            "{name}: the core heard of hits"
        );
    }
}

#[test]
fn the_cache_is_full_and_no_fuller() {
    for (name, trace) in all() {
        for cache in [1, 2, 17, 100] {
            let mut policy = CorePolicy::new(trace.arena_pages(), cache).unwrap();
            for (n, &id) in trace.ids().iter().enumerate() {
                policy.access(trace.arena_page(id), false).unwrap();
                let stats = policy.stats();
                let held = stats.nr_mapped + stats.nr_limbo;
                let touched = policy.counts().first.min(u64::from(cache));
                // Each page stays until another one needs its place.
                assert!(
                    held >= touched.min(u64::from(cache).max(1)),
                    "{name}, access {n}: {held} of {cache}"
                );
                assert!(
                    held <= u64::from(cache),
                    "{name}, access {n}: {held} of {cache}"
                );
            }
            policy.core().check().unwrap();
        }
    }
}

#[test]
fn the_counts_are_the_cores_own() {
    let trace = zipf(3000, 60_000, 3);
    let policy = CorePolicy::replay(&trace, 500).unwrap();
    let (counts, stats) = (policy.counts(), policy.stats());
    assert_eq!(counts.accesses, 60_000);
    assert_eq!(counts.first, stats.pgzero);
    assert_eq!(counts.refaults, stats.pgmajfault);
    assert_eq!(counts.rescues, stats.limbo_rescue);
    assert!(counts.refaults > 0 && counts.rescues > 0);
}

#[test]
fn only_written_pages_are_written_out_again() {
    let circle = |write: bool| {
        let accesses = (0..3000).map(|n| {
            Ok(Access {
                page: n % 300,
                write: write || n < 300,
            })
        });
        let trace = Trace::read(accesses, true).unwrap();
        CorePolicy::replay(&trace, 100).unwrap().stats()
    };
    let (read, written) = (circle(false), circle(true));
    assert!(
        read.pswpout <= 300 && read.pswpout_unchanged > 300,
        "{read:?}"
    );
    assert_eq!(written.pswpout_unchanged, 0);
    assert!(written.pswpout > 600);
}

#[test]
fn first_touches_hits_and_refaults_are_distinguished() {
    let mut policy = CorePolicy::new(512, 2).unwrap();
    let touch = |policy: &mut CorePolicy, page| policy.access(page, false).unwrap();
    assert_eq!(touch(&mut policy, 0), Touch::First);
    assert_eq!(touch(&mut policy, 0), Touch::Hit);
    for page in 1..4 {
        assert_eq!(touch(&mut policy, page), Touch::First);
    }
    assert_eq!(touch(&mut policy, 0), Touch::Refault);
}

#[test]
fn an_empty_cache_is_refused() {
    assert_eq!(CorePolicy::new(512, 0).unwrap_err(), CoreError::NoCache);
    let error = CorePolicy::replay(&circle(10, 20), u32::MAX).unwrap_err();
    assert!(error.to_string().contains("4294967295"), "{error}");
}

proptest! {
    #[test]
    fn any_trace_goes_through(
        pages in prop::collection::vec((0u64..1200, any::<bool>()), 1..1500),
        cache in 1u32..200,
    ) {
        let accesses = pages.iter().map(|&(page, write)| Ok(Access { page, write }));
        let trace = Trace::read(accesses, true).unwrap();
        let policy = CorePolicy::replay(&trace, cache).unwrap();
        policy.core().check().unwrap();
        prop_assert!(policy.counts().misses() >= u64::from(trace.footprint()));
    }
}
