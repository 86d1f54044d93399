//! Compares the policies with models that are too slow and too simple to be wrong in the same way.
//!
//! The models keep a cache as a list of pages and follow the papers' text, with searches instead of links.
//! `cargo run --release -p millpond-replay --example verify` compares the policies with an independent simulator's
//! figures.

mod common;

use common::{all, circle, scan};
use millpond_replay::policies::Policy;
use millpond_replay::trace::Trace;
use proptest::prelude::*;
use std::collections::VecDeque;

/// A model: a cache that receives accesses and returns whether it had the page. `next` says when a page is used next.
type Model = Box<dyn FnMut(u32, &dyn Fn(u32) -> usize) -> bool>;

fn fifo(size: usize) -> Model {
    let mut queue = VecDeque::new();
    Box::new(move |id, _| {
        let hit = queue.contains(&id);
        if !hit {
            queue.truncate(size - 1);
            queue.push_front(id);
        }
        hit
    })
}

fn lru(size: usize) -> Model {
    let mut queue = VecDeque::new();
    Box::new(move |id, _| {
        let hit = queue.contains(&id);
        queue.retain(|&other| other != id);
        queue.truncate(size - 1);
        queue.push_front(id);
        hit
    })
}

/// A queue in which used pages go to the back: it has the same victims as a rotating hand.
fn clock(size: usize) -> Model {
    let mut queue: VecDeque<(u32, bool)> = VecDeque::new();
    Box::new(move |id, _| {
        if let Some(entry) = queue.iter_mut().find(|entry| entry.0 == id) {
            entry.1 = true;
            return true;
        }
        while queue.len() == size {
            match queue.pop_back() {
                Some((other, true)) => queue.push_front((other, false)),
                _ => break,
            }
        }
        queue.push_front((id, false));
        false
    })
}

fn sieve(size: usize) -> Model {
    // Young pages come first.
    let mut queue: Vec<(u32, bool)> = Vec::new();
    let mut hand: Option<u32> = None;
    Box::new(move |id, _| {
        if let Some(entry) = queue.iter_mut().find(|entry| entry.0 == id) {
            entry.1 = true;
            return true;
        }
        if queue.len() == size {
            let place = |queue: &[(u32, bool)], hand: Option<u32>| {
                hand.and_then(|hand| queue.iter().position(|entry| entry.0 == hand))
            };
            let mut at = place(&queue, hand).unwrap_or(queue.len() - 1);
            while queue[at].1 {
                queue[at].1 = false;
                at = at.checked_sub(1).unwrap_or(queue.len() - 1);
            }
            hand = at.checked_sub(1).map(|at| queue[at].0);
            queue.remove(at);
        }
        queue.insert(0, (id, false));
        false
    })
}

fn opt(size: usize) -> Model {
    let mut here: Vec<u32> = Vec::new();
    Box::new(move |id, next| {
        let hit = here.contains(&id);
        if !hit {
            if here.len() == size {
                let last = (0..size).max_by_key(|&n| next(here[n])).unwrap();
                here.swap_remove(last);
            }
            here.push(id);
        }
        hit
    })
}

/// The paper's figure 4, with its four lists as queues, young pages in front.
fn arc(size: usize) -> Model {
    let mut lists: [VecDeque<u32>; 4] = Default::default();
    let mut p = 0.0;
    fn replace(lists: &mut [VecDeque<u32>; 4], p: f64, in_b2: bool) {
        let t1 = lists[0].len() as f64;
        let from =
            usize::from(!(t1 >= 1.0 && (in_b2 && t1 == p || t1 > p)) && !lists[1].is_empty());
        if let Some(id) = lists[from].pop_back() {
            lists[from + 2].push_front(id);
        }
    }
    Box::new(move |id, _| {
        let on = lists.iter().position(|list| list.contains(&id));
        let [t1, t2, b1, b2] = [0, 1, 2, 3].map(|n| lists[n].len());
        match on {
            Some(2) => {
                p = (p + f64::max(1.0, b2 as f64 / b1 as f64)).min(size as f64);
                replace(&mut lists, p, false);
            }
            Some(3) => {
                p = (p - f64::max(1.0, b1 as f64 / b2 as f64)).max(0.0);
                replace(&mut lists, p, true);
            }
            None if t1 + b1 == size && t1 < size => {
                lists[2].pop_back();
                replace(&mut lists, p, false);
            }
            None if t1 + b1 == size => {
                lists[0].pop_back();
            }
            None if t1 + t2 + b1 + b2 >= size => {
                if t1 + t2 + b1 + b2 == 2 * size {
                    lists[3].pop_back();
                }
                replace(&mut lists, p, false);
            }
            _ => {}
        }
        lists
            .iter_mut()
            .for_each(|list| list.retain(|&other| other != id));
        lists[usize::from(on.is_some())].push_front(id);
        matches!(on, Some(0 | 1))
    })
}

/// Two queues of pages with their uses and one of ghosts, young pages in front.
fn s3fifo(size: usize) -> Model {
    let small_size = (size / 10).max(1);
    let main_size = size - small_size;
    let (mut small, mut main) = (VecDeque::<(u32, u8)>::new(), VecDeque::<(u32, u8)>::new());
    let mut ghosts = VecDeque::new();
    let mut full = false;
    Box::new(move |id, _| {
        let here = small
            .iter_mut()
            .chain(main.iter_mut())
            .find(|entry| entry.0 == id);
        if let Some(entry) = here {
            entry.1 = (entry.1 + 1).min(3);
            return true;
        }
        let known = ghosts.contains(&id);
        ghosts.retain(|&other| other != id);
        while small.len() + main.len() == size {
            full = true;
            if main.len() > main_size || small.is_empty() {
                while let Some((other, uses)) = main.pop_back() {
                    if uses == 0 {
                        break;
                    }
                    main.push_front((other, uses - 1));
                }
            } else {
                while let Some((other, uses)) = small.pop_back() {
                    if uses < 2 {
                        ghosts.push_front(other);
                        ghosts.truncate(main_size);
                        break;
                    }
                    main.push_front((other, 0));
                }
            }
        }
        if known || !full && small.len() >= small_size {
            main.push_front((id, 0));
        } else {
            small.push_front((id, 0));
        }
        false
    })
}

/// A function that makes a model with this many pages.
type Make = fn(usize) -> Model;

const MODELS: [(Policy, Make); 7] = [
    (Policy::Fifo, fifo),
    (Policy::Lru, lru),
    (Policy::Clock, clock),
    (Policy::Sieve, sieve),
    (Policy::Opt, opt),
    (Policy::Arc, arc),
    (Policy::S3Fifo, s3fifo),
];

fn by_model(trace: &Trace, mut model: Model) -> u64 {
    let ids = trace.ids();
    let mut misses = 0;
    for (n, &id) in ids.iter().enumerate() {
        let next = |id: u32| {
            let later = ids[n..].iter().position(|&other| other == id);
            later.map_or(usize::MAX, |distance| n + distance)
        };
        misses += u64::from(!model(id, &next));
    }
    misses
}

fn misses(policy: Policy, trace: &Trace, size: u32) -> u64 {
    policy.misses(trace, &[size]).unwrap()[0].misses
}

proptest! {
    #[test]
    fn policies_agree_with_their_models(
        pages in prop::collection::vec((0u64..12, 0u64..30, any::<bool>()), 1..250),
        size in 1u32..25,
    ) {
        // Some pages are used more often than others, so that second uses matter.
        let trace = Trace::of_pages(pages.into_iter().map(|(few, many, hot)| if hot { few } else { many }));
        for (policy, model) in MODELS {
            let expected = by_model(&trace, model(size as usize));
            prop_assert_eq!(misses(policy, &trace, size), expected, "{}", policy);
        }
    }
}

#[test]
fn no_policy_beats_opt_and_none_misses_what_fits() {
    for (name, trace) in all() {
        let footprint = trace.footprint();
        for policy in Policy::ALL {
            for size in [1, footprint / 10, footprint / 2] {
                let least = misses(Policy::Opt, &trace, size);
                assert!(
                    misses(policy, &trace, size) >= least,
                    "{policy} in {name}, {size}"
                );
            }
            if policy != Policy::S3Fifo && policy != Policy::Lirs {
                assert_eq!(
                    misses(policy, &trace, footprint),
                    u64::from(footprint),
                    "{policy} in {name}"
                );
            }
        }
    }
}

#[test]
fn cycles_always_miss_with_policies_that_evict_by_age() {
    let trace = circle(300, 6000);
    for policy in [
        Policy::Lru,
        Policy::Fifo,
        Policy::Clock,
        Policy::Arc,
        Policy::Sieve,
    ] {
        assert_eq!(misses(policy, &trace, 150), 6000, "{policy}");
    }
    // In each round after the first, all but one of the places hold a page that comes again.
    let opt = misses(Policy::Opt, &trace, 150);
    assert!((300 + 19 * 150..=300 + 19 * 152).contains(&opt), "{opt}");
    assert!(misses(Policy::Lirs, &trace, 150) < 6000 * 55 / 100);
}

#[test]
fn a_scan_is_missed_by_all() {
    let trace = scan(2000);
    for policy in Policy::ALL {
        assert_eq!(misses(policy, &trace, 100), 2000, "{policy}");
    }
}

#[test]
fn policy_names_are_parsed_and_unknown_ones_named() {
    for policy in Policy::ALL {
        assert_eq!(policy.name().parse(), Ok(policy));
    }
    let error = "mru".parse::<Policy>().unwrap_err();
    assert!(
        error.contains("\"mru\"") && error.contains("s3fifo"),
        "{error}"
    );
}
