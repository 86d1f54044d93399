//! The curve against the truth: the same trace, replayed with as much more memory as the curve was asked about.
//!
//! No histogram of distances can be exact for a policy that is not a stack: with more memory it decides otherwise. Where accesses
//! follow one law all the time it is held to a tenth of the major faults.

mod common;

use common::{Chance, zipf};
use millpond_replay::core_policy::CorePolicy;
use millpond_replay::trace::Trace;

#[test]
fn what_the_curve_promises_is_kept_within_a_tenth_of_the_faults() {
    let mut chance = Chance::new(21);
    let uniform = Trace::of_pages((0..150_000).map(|_| chance.below(2000)));
    for (name, trace) in [("zipf", zipf(5000, 250_000, 9)), ("uniform", uniform)] {
        let footprint = trace.footprint();
        for cache in [footprint / 8, footprint / 4, footprint / 2] {
            let curve = CorePolicy::replay(&trace, cache).unwrap().curve();
            for more in [cache / 4, cache / 2, cache * 3 / 4] {
                let larger = CorePolicy::replay(&trace, cache + more).unwrap();
                let kept = larger.counts().refaults as f64 / curve.faults() as f64;
                let (promised, truth) = (curve.avoided(u64::from(more)), 1.0 - kept);
                assert!(
                    (promised - truth).abs() < 0.1,
                    "{name}, {more} more than {cache} pages: {promised:.3} promised, {truth:.3} in truth"
                );
            }
        }
    }
}

#[test]
fn where_all_of_it_is_used_in_turn_only_all_of_it_helps() {
    let trace = common::circle(1000, 20_000);
    let curve = CorePolicy::replay(&trace, 400).unwrap().curve();
    assert!(curve.avoided(400) < 0.1, "{curve}");
    assert!(curve.avoided(700) > 0.9, "{curve}");
}
