//! Small traces of known kinds.
#![allow(dead_code, reason = "each test binary uses a part")]

use millpond_replay::trace::Trace;

/// A trace that cycles through `pages` pages.
pub fn circle(pages: u64, accesses: u64) -> Trace {
    Trace::of_pages((0..accesses).map(|n| n % pages))
}

/// A trace that uses each page once.
pub fn scan(pages: u64) -> Trace {
    Trace::of_pages(0..pages)
}

/// Numbers that look random (xorshift), the same ones each time.
pub struct Chance(u64);

impl Chance {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % n
    }
}

/// A trace that uses page *k* with a probability about in proportion to 1/*k*.
pub fn zipf(pages: u64, accesses: u64, seed: u64) -> Trace {
    let mut chance = Chance::new(seed);
    let most = (pages as f64).ln();
    Trace::of_pages((0..accesses).map(|_| {
        let u = chance.below(1 << 30) as f64 / (1u64 << 30) as f64;
        ((u * most).exp() as u64).min(pages - 1)
    }))
}

/// A trace over sets of `pages` pages, each used at random for a while, then left for the next.
pub fn phases(pages: u64, accesses: u64, phases: u64, seed: u64) -> Trace {
    let mut chance = Chance::new(seed);
    let each = accesses / phases;
    Trace::of_pages(
        (0..phases)
            .flat_map(|phase| (0..each).map(move |_| phase).collect::<Vec<_>>())
            .map(|phase| phase * pages * 2 / 3 + chance.below(pages)),
    )
}

/// All kinds of traces, by name.
pub fn all() -> Vec<(&'static str, Trace)> {
    vec![
        ("circle", circle(300, 6000)),
        ("scan", scan(2000)),
        ("zipf", zipf(1000, 20_000, 7)),
        ("phases", phases(200, 20_000, 5, 11)),
    ]
}
