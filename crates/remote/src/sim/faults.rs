//! Which requests go wrong, and how.
//!
//! The fate of a request follows from the seed, from what it asks for and of which object, and from how often that was
//! asked for before. It does not follow from the order in which threads come, so a seed treats the same requests in the
//! same way each time.

use std::collections::BTreeMap;

/// A generator of numbers, the same for the same seed.
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

/// A number in which each bit follows from all bits of `bits`.
fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// What is asked of the service.
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
    /// The service does not take the credentials (403).
    Forbidden,
    /// No answer comes.
    Silent,
    /// A get brings fewer bytes than were asked for.
    Cut,
    /// One bit of what a get brings is another.
    Flipped,
    /// A get brings the same range of another object, which may be an older one with the same slots.
    Other,
    /// The service says that it has no such object, though it has.
    Gone,
    /// The service does what it was asked for, and answers that it failed.
    DoneButFailed,
    /// The service does what it was asked for, and no answer comes.
    DoneButSilent,
    /// The service answers that it failed, and does it later.
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

/// What can go wrong with the first write of a run, which believes a refusal.
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

/// What goes wrong how often.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    /// One request in so many; 0 for none.
    pub(super) one_in: u64,
    /// What can happen.
    pub(super) kinds: &'static [Fault],
    /// How often it may be said of one object that it is gone. A tier believes the third time.
    pub(super) gone_most: u32,
}

impl Plan {
    /// Nothing goes wrong.
    pub(super) const NONE: Self = Self {
        one_in: 0,
        kinds: &[],
        gone_most: 0,
    };

    /// One request in four goes wrong, in ways that pass.
    pub(super) const fn quarter(kinds: &'static [Fault]) -> Self {
        Self {
            one_in: 4,
            kinds,
            gone_most: 2,
        }
    }

    /// What goes wrong while the tier opens: as often, and in ways that its opening survives.
    pub(super) fn opening(self) -> Self {
        Self {
            kinds: OPENING,
            ..self
        }
    }

    /// Each request that `kind` can happen to goes wrong.
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
    /// How often each was asked for.
    asked: BTreeMap<(Ask, String), u64>,
    /// How often each object was said to be gone.
    gone: BTreeMap<String, u32>,
    /// How often each fault happened.
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

    /// What goes wrong with this request, if anything does, and dice for the rest of its fate.
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
