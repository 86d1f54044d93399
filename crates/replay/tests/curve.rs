//! The curve compared with reality: the same trace, replayed with the additional memory for which the curve was asked.
//!
//! The curve is the core's, from the counters that a live run has. Where accesses follow one law all the time, the
//! curve may be off by a tenth of the major faults; example `curve` does the same with a directory of traces.

mod common;

use common::{Chance, circle, zipf};
use millpond_replay::core_policy::CorePolicy;
use millpond_replay::trace::Trace;

/// The largest error of the curve, as a part of the major faults, over caches of these parts of the footprint.
fn worst(name: &str, trace: &Trace, parts: &[u32]) -> f64 {
    let footprint = trace.footprint();
    let mut worst = 0.0_f64;
    for cache in parts.iter().map(|part| footprint / part) {
        let curve = CorePolicy::replay(trace, cache).unwrap().curve();
        for more in [1, 2, 3, 4, 8].map(|quarters| cache * quarters / 4) {
            if cache + more >= footprint {
                continue;
            }
            let larger = CorePolicy::replay(trace, cache + more).unwrap();
            let kept = larger.counts().refaults as f64 / curve.faults() as f64;
            let (promised, truth) = (curve.avoided(u64::from(more)), 1.0 - kept);
            println!(
                "{name}, {more} more than {cache} pages: {promised:.3} promised, {truth:.3} in truth"
            );
            worst = worst.max((promised - truth).abs());
        }
    }
    worst
}

#[test]
fn the_curves_predictions_hold_within_a_tenth_of_the_faults() {
    let mut chance = Chance::new(21);
    let uniform = Trace::of_pages((0..150_000).map(|_| chance.below(2000)));
    // Half of the accesses go to a tenth of the pages.
    let mut hot = |n: u64| match n % 2 {
        0 => chance.below(400),
        _ => chance.below(4000),
    };
    let pools = Trace::of_pages((0..200_000).map(&mut hot));
    for (name, trace) in [
        ("zipf", zipf(5000, 250_000, 9)),
        ("uniform", uniform),
        ("pools", pools),
        ("circle", circle(1000, 100_000)),
    ] {
        let worst = worst(name, &trace, &[8, 4, 2]);
        assert!(worst < 0.1, "{name} is off by {worst:.3}");
    }
}

/// Less than a hundredth of 40,000 pages is looked at, and that is enough.
#[test]
fn a_sampled_curve_of_a_larger_memory_agrees() {
    let trace = zipf(40_000, 500_000, 5);
    let worst = worst("zipf", &trace, &[4]);
    assert!(worst < 0.075, "off by {worst:.3}");
}

/// Where all pages of a loop are used in turn, each further page in memory is a fault less each time round.
#[test]
fn misses_of_a_loop_fall_by_the_part_that_fits() {
    let trace = circle(1000, 50_000);
    let curve = CorePolicy::replay(&trace, 400).unwrap().curve();
    for (more, want) in [(100, 1.0 / 6.0), (200, 1.0 / 3.0), (400, 2.0 / 3.0)] {
        assert!((curve.avoided(more) - want).abs() < 0.05, "{curve}");
    }
    assert!(curve.avoided(800) > 0.95, "{curve}");
}
