//! Which requests go wrong, and how.
//!
//! The fate of a request depends on the seed, on what it asks for and of which object, and on how many times that was
//! asked before. It does not depend on the order in which threads come, so a seed always treats the same requests in
//! the same way.

use std::collections::BTreeMap;

/// A deterministic pseudorandom generator.
pub(super) struct Dice(pub(super) u64);

impl Dice {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    pub(super) fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }
}

/// Returns a number in which each bit depends on all bits of `bits`.
fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// A request to the service.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Ask {
    Stat,
    Get,
    Put,
    Delete,
}

/// What goes wrong with a request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Fault {
    /// There is no connection.
    Refused,
    /// The service fails (500).
    Failed,
    /// There are too many requests (503).
    SlowDown,
    /// The service rejects the credentials (403).
    Forbidden,
    /// No answer comes.
    Silent,
    /// A get returns fewer bytes than requested.
    Cut,
    /// One bit in the result of a get is flipped.
    Flipped,
    /// A get returns the same range of another object, which may be an older one with the same slots.
    Other,
    /// The service says that it has no such object, although it has.
    Gone,
    /// The service carries the request out, and reports that it failed.
    DoneButFailed,
    /// The service carries the request out, and does not answer.
    DoneButSilent,
    /// The service reports that the request failed, and carries it out later.
    Late,
}

use Fault::*;

/// All that can go wrong.
pub(super) const ALL: &[Fault] = &[
    Refused,
    Failed,
    SlowDown,
    Forbidden,
    Silent,
    Cut,
    Flipped,
    Other,
    Gone,
    DoneButFailed,
    DoneButSilent,
    Late,
];

/// All that can go wrong with the first write of a run, for which a refusal is final.
const OPENING: &[Fault] = &[
    Refused,
    Failed,
    SlowDown,
    Silent,
    DoneButFailed,
    DoneButSilent,
    Late,
];

impl Fault {
    /// Whether it can happen to such a request.
    fn is_of(self, ask: Ask) -> bool {
        match self {
            Refused | Failed | SlowDown | Forbidden | Silent => true,
            Cut | Flipped | Other | Gone => ask == Ask::Get,
            DoneButFailed | DoneButSilent => matches!(ask, Ask::Put | Ask::Delete),
            Late => ask == Ask::Put,
        }
    }
}

/// What goes wrong, and how often.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    /// One in this many requests goes wrong; 0 for none.
    pub(super) one_in: u64,
    /// What can happen.
    pub(super) kinds: &'static [Fault],
    /// How many times one object may be reported as gone. A tier believes the third time.
    pub(super) gone_most: u32,
}

impl Plan {
    /// Nothing goes wrong.
    pub(super) const NONE: Self = Self {
        one_in: 0,
        kinds: &[],
        gone_most: 0,
    };

    /// One request in four goes wrong, in temporary ways.
    pub(super) const fn quarter(kinds: &'static [Fault]) -> Self {
        Self {
            one_in: 4,
            kinds,
            gone_most: 2,
        }
    }

    /// Returns what goes wrong while the tier opens: equally often, and in ways that opening survives.
    pub(super) fn opening(self) -> Self {
        Self {
            kinds: OPENING,
            ..self
        }
    }

    /// Every request to which `kind` can happen goes wrong.
    pub(super) const fn always(kind: &'static [Fault]) -> Self {
        Self {
            one_in: 1,
            kinds: kind,
            gone_most: u32::MAX,
        }
    }
}

/// The fates of all requests.
pub(super) struct Faults {
    seed: u64,
    pub(super) plan: Plan,
    /// How many times each request was made.
    asked: BTreeMap<(Ask, String), u64>,
    /// How many times each object was reported as gone.
    gone: BTreeMap<String, u32>,
    /// How many times each fault happened.
    pub(super) happened: BTreeMap<Fault, u64>,
}

impl Faults {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            seed,
            plan: Plan::NONE,
            asked: BTreeMap::new(),
            gone: BTreeMap::new(),
            happened: BTreeMap::new(),
        }
    }

    /// Returns what goes wrong with this request, if anything, and dice for the rest of its fate.
    pub(super) fn fate(&mut self, ask: Ask, path: &str) -> (Option<Fault>, Dice) {
        let times = self.asked.entry((ask, path.to_owned())).or_default();
        *times += 1;
        let words = path.bytes().map(u64::from);
        let about = words.chain([ask as u64, *times]);
        let mut dice = Dice(about.fold(self.seed, |bits, word| mix(bits ^ word)));
        let kinds: Vec<Fault> = self
            .plan
            .kinds
            .iter()
            .copied()
            .filter(|kind| kind.is_of(ask))
            .collect();
        let happens = self.plan.one_in > 0 && dice.next().is_multiple_of(self.plan.one_in);
        if !happens || kinds.is_empty() {
            return (None, dice);
        }
        let mut fault = kinds[dice.below(kinds.len())];
        if fault == Gone {
            let gone = self.gone.entry(path.to_owned()).or_default();
            *gone += 1;
            if *gone > self.plan.gone_most {
                fault = Failed;
            }
        }
        *self.happened.entry(fault).or_default() += 1;
        (Some(fault), dice)
    }
}
