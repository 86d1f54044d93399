//! The fixed seeds pass, reach every path, and replay exactly.

use millpond_sim::report::Coverage;
use millpond_sim::{Options, file, groups, names, remap, run, seeds, snapshot};

#[test]
fn the_fixed_seeds_pass_and_see_everything() {
    let mut seen = Coverage::default();
    for seed in seeds::FIXED {
        let run = run(seed, Options::default());
        if let Some(failure) = &run.failure {
            panic!(
                "seed {seed}: {}\n{}",
                failure.what,
                run.log.about(failure.page, 40)
            );
        }
        seen.add(&run.coverage);
    }
    for (all, seen) in [
        (&names::EVENTS[..], &seen.events),
        (&names::COMMANDS[..], &seen.commands),
        (&names::OUTCOMES[..], &seen.outcomes),
        (&names::REPLIES[..], &seen.replies),
        (&names::INJECTED[..], &seen.injected),
        (&names::ANSWERS[..], &seen.answers),
        (&snapshot::SEEN[..], &seen.snapshots),
        (&remap::SEEN[..], &seen.remaps),
        (&groups::SEEN[..], &seen.groups),
        (&file::SEEN[..], &seen.files),
        (&names::WORKINGSET[..], &seen.workingset),
    ] {
        for name in all {
            assert!(
                seen.contains_key(name),
                "no fixed seed has seen {name}; seen: {seen:?}"
            );
        }
    }
}

#[test]
fn a_seed_is_one_history() {
    let options = Options {
        events: 3000,
        ..Options::default()
    };
    let (once, again, other) = (run(5, options), run(5, options), run(6, options));
    assert_eq!(once.log.hash(), again.log.hash());
    assert_ne!(once.log.hash(), other.log.hash());
}
