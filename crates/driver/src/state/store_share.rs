//! The share of the budget that compressed RAM may take if a file is behind it.
//!
//! # What is weighed
//! A page of RAM holds one page for the program, or two or three compressed ones that are then loaded in 3 µs and not
//! from a file in 80. Which use is better depends on the program. A program that randomly uses twice its memory misses
//! half either way, and each page found in compressed RAM is a gain: python3 with 273 MiB of small objects in 150 MiB
//! takes 26 seconds if a third of the remaining memory is compressed RAM, and 13 if it is six tenths. A program whose
//! set is a little larger than the memory left to it would not miss at all if it had the room of the compressed pages
//! for itself: the same program takes 37 seconds for many uses of 125 MiB of its objects if compressed RAM has a third,
//! and 7 if it has a sixty-fourth.
//!
//! # The inequality
//! These figures are known: how many recent loads came from either place and how long they took, and how many of them
//! more memory would have avoided, by the core's curve ([`curve`]). With `n` loads, a part `f` of them from compressed
//! RAM of `z` bytes; `a(x)` the share of loads that `x` more bytes for the program would avoid; and `r` and `b` the
//! costs of a load from RAM and from the file, including the fault, the cost of loads with compressed RAM of `z'` bytes
//! would be
//!
//! ```text
//!     n · (1 − a(z − z')) · (f' · r + (1 − f') · b),    f' = f · z'/z, 1 at most
//! ```
//!
//! Compressed RAM may hold any page that has left memory, so its part of the loads is proportional to its size. (The
//! contents of either place do not tell: much of them are folios of which only a page or two are still needed, and
//! copies of pages in memory. By its contents a file of 40 MiB looked like one of 150, of which little would come
//! forward.) For `z'` above `z` the curve is extended backwards with its initial slope, for at most a quarter of
//! memory, or one step: its first point is that far away, and if all misses end there on one side, they may begin at
//! once on the other. Both are guesses, which are better for smaller steps, so a larger share is reached in several
//! steps, each judged with the results of the one before. A step must lower the cost by a twentieth. No share is too
//! large for a program that uses all of its memory at random: it may leave the frames a sixteenth. (When the maximum
//! was five eighths, the rest came from the file regardless of the costs.)
//!
//! # When it is wrong
//! A share that is too small shows in loads from the file that more memory would not avoid; a share that is too large
//! shows in loads that it would avoid. A wrong share costs the time until then, some ticks. Two looks in a row have to
//! agree: a window in which a program passes from one phase to the next represents neither. If the guesses of two
//! neighbouring sizes contradict each other, the share would oscillate, and each change moves data between RAM and
//! file; so after each reversal more time passes before the next. Nothing is decided while little is loaded, nor while
//! data beyond the last decision is still on its way to the file (`store/src/spill.rs`). A larger share is only tried
//! when the present one is full: incompressible data is in the file whatever the share is.

use crate::state::governor::FLOOR;
use millpond_core::policy::curve::{self, SIZES};
use millpond_core::{PAGE_SIZE, PageCount, Tier, Tiers};
use millpond_mmu::Delivery;
use std::cmp::Ordering;

/// The shares that compressed RAM may have of the budget that the rest of the program leaves, in 1/[`WHOLE`].
const SHARES: [u32; 13] = [
    16, 32, 64, 128, 205, 341, 440, BEGIN, 640, 720, 800, 880, 960,
];
/// The initial share. Until it is full, the frames have the rest. With a third, half of the pages that went out while a
/// program filled its memory went to the file, and each of these had to be read from there once.
pub const BEGIN: u32 = 540;
/// The whole of which the shares are parts.
pub const WHOLE: u64 = 1024;
/// Least loads between two looks that say something.
const LOADS: u64 = 1024;
/// Least misses of the core's sample between two looks that say something.
const SAMPLED: u64 = 32;
/// Least gain of a step, as a part of the cost.
const GAIN: f64 = 0.05;
/// Part of its share at which compressed RAM counts as full.
const FULL: f64 = 0.875;
/// Maximum number of looks before the share may reverse its direction again.
const PATIENCE_MOST: u32 = 15;
/// Assumed time of a load from the file, in nanoseconds, until there was one.
const BEHIND: f64 = 80_000.0;
/// Time of a fault besides the load, in nanoseconds.
const BY_SIGNAL: f64 = 5_000.0;
const BY_HANDLER: f64 = 9_000.0;

/// A direction in which the share can go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    Less,
    More,
}

/// The counts at some time.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    tiers: Tiers,
    refaults_at: [u64; SIZES],
}

/// How many pages compressed data may take, given the `share` that it should have and the `left` pages available: the
/// frames, which have `frames` now, keep their minimum. A store gives nothing back before it exceeds its limit by an
/// eighth (`store/src/arena/mod.rs`); so if the frames are at their minimum, its limit is lower by that amount.
pub fn beside_frames(share: u64, left: u64, frames: u32) -> u64 {
    let share = share.min(left.saturating_sub(FLOOR));
    match u64::from(frames) <= FLOOR {
        true => share * 8 / 9,
        false => share,
    }
}

/// The share of compressed RAM, and the figures that determine it. See the [module](self).
#[derive(Debug)]
pub struct StoreShare {
    level: usize,
    /// The direction of the last step. `wanted` is the direction that the last look would have taken.
    way: Way,
    wanted: Option<Way>,
    /// Looks since the last step. `patience` is how many there must be before the share may reverse its direction.
    looks: u32,
    patience: u32,
    last: Seen,
    fault: f64,
    /// Time of a recent load from the file.
    behind: f64,
}

impl StoreShare {
    pub fn new(delivery: Delivery, share: u32) -> Self {
        Self {
            level: SHARES.iter().position(|&it| it >= share).unwrap_or(0),
            way: Way::Less,
            wanted: None,
            looks: 0,
            patience: 0,
            last: Seen::default(),
            fault: match delivery {
                Delivery::InThread | Delivery::Direct => BY_SIGNAL,
                Delivery::Handler => BY_HANDLER,
            },
            behind: BEHIND,
        }
    }

    /// The share that compressed RAM should have from now on, if it changes. `tiers` and `refaults_at` count from the
    /// creation of the store and the core, and the core has `limit` pages for frames.
    pub fn look(
        &mut self,
        tiers: Tiers,
        refaults_at: [u64; SIZES],
        limit: PageCount,
    ) -> Option<u32> {
        let now = Seen { tiers, refaults_at };
        if tiers.moves {
            self.last = now;
            return None;
        }
        let lately = Lately::between(&self.last, &now, limit)?;
        self.last = now;
        if let Some(nanos) = lately.behind_took {
            self.behind = nanos;
        }
        self.looks += 1;
        let costs = |level: usize, near: bool| {
            let share = f64::from(SHARES[level]) / f64::from(SHARES[self.level]);
            let most = tiers.ram_most as f64 * share;
            lately.cost(most, self.fault, self.behind, near)
        };
        let full = tiers.ram_bytes as f64 >= FULL * tiers.ram_most as f64;
        let (cost, best) = (0..SHARES.len())
            .filter(|&level| level <= self.level || full)
            .filter_map(|level| Some((costs(level, level <= self.level + 1)?, level)))
            .min_by(|a, b| a.0.total_cmp(&b.0))?;
        let enough = costs(self.level, true)? * (1.0 - GAIN);
        let wanted = match best.cmp(&self.level) {
            _ if cost > enough => None,
            Ordering::Less => Some((Way::Less, best)),
            Ordering::Equal => None,
            Ordering::Greater => Some((Way::More, best)),
        };
        let before = std::mem::replace(&mut self.wanted, wanted.map(|(way, _)| way));
        let (way, level) = wanted.filter(|&(way, _)| before == Some(way))?;
        if way != self.way && self.looks <= self.patience {
            return None;
        }
        if way != self.way {
            self.patience = (2 * self.patience + 1).min(PATIENCE_MOST);
        }
        (self.level, self.way, self.looks) = (level, way, 0);
        Some(SHARES[level])
    }
}

/// The events between two looks.
struct Lately {
    /// The share of the loads that came from RAM.
    from_ram: f64,
    /// Time of a load from RAM, in nanoseconds. `behind_took` is that of a load from the file.
    ram_took: f64,
    behind_took: Option<f64>,
    tiers: Tiers,
    sampled: [u64; SIZES],
    limit: u64,
}

impl Lately {
    /// The difference between two looks; `None` if too little has happened.
    fn between(then: &Seen, now: &Seen, limit: PageCount) -> Option<Self> {
        let sampled = std::array::from_fn(|size| {
            now.refaults_at[size].saturating_sub(then.refaults_at[size])
        });
        let ram = since(now.tiers.ram, then.tiers.ram);
        let behind = since(now.tiers.behind, then.tiers.behind);
        let loads = ram.loads + behind.loads;
        let took = |tier: Tier| (tier.loads > 0).then(|| tier.nanos as f64 / tier.loads as f64);
        let says_something = loads >= LOADS && sampled[0] >= SAMPLED && now.tiers.ram_bytes > 0;
        says_something.then(|| Self {
            from_ram: ram.loads as f64 / loads as f64,
            ram_took: took(ram).unwrap_or(0.0),
            behind_took: took(behind),
            tiers: now.tiers,
            sampled,
            limit: limit.0.into(),
        })
    }

    /// The cost, without a unit, that the loads would have had with compressed RAM of this many bytes. For much more
    /// memory this is not known, so it is only computed for a size that is `near`.
    fn cost(&self, most: f64, fault: f64, behind: f64, near: bool) -> Option<f64> {
        let held = self.tiers.ram_bytes as f64;
        let stays = most <= self.tiers.ram_most as f64;
        let bytes = if stays { most.min(held) } else { most };
        let from_behind = 1.0 - (self.from_ram * bytes / held).min(1.0);
        let load = self.ram_took + from_behind * (behind - self.ram_took);
        let misses = self.misses((held - bytes) / PAGE_SIZE as f64, near)?;
        Some(misses * (fault + load))
    }

    /// The share of major faults that remains with this many `more` pages, or with fewer if negative: up to a quarter,
    /// or a size that is `near`.
    fn misses(&self, more: f64, near: bool) -> Option<f64> {
        let avoided = |pages: f64| {
            let avoided = curve::avoided(&self.sampled, self.limit, pages as u64);
            avoided.unwrap_or(0.0)
        };
        let quarter = (self.limit as f64 / 4.0).max(1.0);
        if more >= 0.0 {
            return Some(1.0 - avoided(more));
        }
        (near || more >= -quarter).then(|| 1.0 - avoided(quarter) * more / quarter)
    }
}

/// The loads since `then`.
fn since(now: Tier, then: Tier) -> Tier {
    Tier {
        loads: now.loads.saturating_sub(then.loads),
        nanos: now.nanos.saturating_sub(then.nanos),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = PAGE_SIZE as u64;

    /// A budget of 16 MiB of which compressed data was once allowed 15, although frames never have less than 2.
    #[test]
    fn compressed_data_leaves_the_frames_their_minimum() {
        assert_eq!(beside_frames(960, 4096, 3000), 960, "as it was");
        assert_eq!(beside_frames(3840, 4096, 600), 4096 - FLOOR);
        // An eighth more is not given back, and still leaves the frames their least.
        let most = beside_frames(3840, 4096, FLOOR as u32);
        assert!(most + most / 8 <= 4096 - FLOOR && most > 3000, "{most}");
        assert_eq!(beside_frames(400, 500, FLOOR as u32), 0);
    }

    /// Pages that frames and compressed RAM have together.
    const BUDGET: u64 = 35_000;

    /// A program that uses `set` of its `touched` pages at random. The pages compress to a third, and any page that is
    /// out may be in either place.
    struct Program {
        touched: u64,
        set: u64,
    }

    /// A program whose set is a little less than the budget.
    const NEARLY_FITS: Program = Program {
        touched: 75_000,
        set: 32_000,
    };
    /// A program that misses regardless of how much memory it has.
    const ALL: Program = Program {
        touched: 75_000,
        set: 75_000,
    };

    impl Program {
        /// The result of a look after the program has run for a while with that share, of which compressed RAM uses
        /// `used`.
        fn run(&self, share: &mut StoreShare, used: f64) -> Option<u32> {
            let most = BUDGET * u64::from(SHARES[share.level]) / WHOLE;
            let ram = (most as f64 * used) as u64;
            let frames = BUDGET - ram;
            let out = self.touched.saturating_sub(frames);
            let compressed = (3 * ram).min(out);
            let missing = self.set.saturating_sub(frames);
            let loads = 1_000_000 * missing / self.set;
            let from_ram = loads * compressed / out.max(1);
            let last = share.last;
            let tier = |then: Tier, loads: u64, each: u64| Tier {
                loads: then.loads + loads,
                nanos: then.nanos + loads * each,
            };
            let tiers = Tiers {
                ram: tier(last.tiers.ram, from_ram, 3_000),
                behind: tier(last.tiers.behind, loads - from_ram, 80_000),
                ram_bytes: ram * PAGE,
                ram_most: most * PAGE,
                moves: used > 1.0,
            };
            let refaults_at = std::array::from_fn(|size| {
                let more = frames * u64::from(curve::MORE[size]) / 4;
                last.refaults_at[size] + loads * missing.saturating_sub(more) / missing.max(1)
            });
            share.look(tiers, refaults_at, PageCount(frames as u32))
        }

        /// The share once nothing changes any longer, and the number of steps to it.
        fn settles(&self, share: &mut StoreShare) -> (u32, usize) {
            let steps = (0..200).filter(|_| self.run(share, 1.0).is_some()).count();
            (SHARES[share.level], steps)
        }
    }

    #[test]
    fn a_set_that_would_nearly_fit_gets_more_frames() {
        let mut share = StoreShare::new(Delivery::Handler, BEGIN);
        let (settled, steps) = NEARLY_FITS.settles(&mut share);
        assert!(settled <= 64 && steps <= 5, "{settled} after {steps} steps");
    }

    #[test]
    fn unavoidable_misses_lead_to_a_large_compressed_share() {
        for begin in [SHARES[0], BEGIN] {
            let mut share = StoreShare::new(Delivery::Handler, begin);
            let (settled, steps) = ALL.settles(&mut share);
            assert!(
                settled >= 540 && steps <= 8,
                "{settled} after {steps} steps"
            );
        }
    }

    #[test]
    fn an_unused_share_is_not_enlarged() {
        let mut share = StoreShare::new(Delivery::Handler, BEGIN);
        for _ in 0..20 {
            assert_eq!(ALL.run(&mut share, 0.8), None);
        }
    }

    #[test]
    fn share_does_not_change_before_the_excess_has_moved() {
        let mut share = StoreShare::new(Delivery::Handler, BEGIN);
        for _ in 0..4 {
            assert_eq!(NEARLY_FITS.run(&mut share, 1.2), None);
        }
        assert_eq!(NEARLY_FITS.run(&mut share, 1.0), None);
        assert!(NEARLY_FITS.run(&mut share, 1.0).is_some());
    }

    /// A case of redis-server, between one pass over everything and the next: a window in between looked as if a little
    /// more memory would save three quarters, and the data that therefore went to the file took seven seconds to come
    /// back.
    #[test]
    fn one_window_alone_decides_nothing() {
        let mut share = StoreShare::new(Delivery::Handler, BEGIN);
        let fits = Program {
            touched: 40_000,
            set: 40_000,
        };
        for _ in 0..10 {
            assert_eq!(fits.run(&mut share, 1.0), None);
            assert_eq!(NEARLY_FITS.run(&mut share, 1.0), None);
        }
    }

    /// A case of redis-server that was stuck at a fifth: if most of the remaining memory is compressed, a step is more
    /// than a quarter of the frames.
    #[test]
    fn a_step_may_be_large_relative_to_the_remaining_frames() {
        let mut share = StoreShare::new(Delivery::Handler, 205);
        let told: Vec<_> = (1..=2)
            .map(|look| {
                let tier = |loads, each| Tier {
                    loads: look * loads,
                    nanos: look * loads * each,
                };
                let tiers = Tiers {
                    ram: tier(2_256, 1_700),
                    behind: tier(757, 51_000),
                    ram_bytes: 4_132_864,
                    ram_most: 4_061_184,
                    moves: false,
                };
                let refaults_at = [141, 128, 119, 97, 84].map(|count| look * count);
                share.look(tiers, refaults_at, PageCount(1_510))
            })
            .collect();
        assert_eq!(told, [None, Some(341)]);
    }

    /// A program that behaves in one way if the share is large, and in another if it is small.
    #[test]
    fn each_reversal_takes_longer_than_the_last() {
        let mut share = StoreShare::new(Delivery::Handler, BEGIN);
        let begin = share.level;
        // Further steps in the same direction are not reversals.
        let mut turns = Vec::new();
        for look in 0..400_u32 {
            let before = share.way;
            match share.level >= begin {
                true => NEARLY_FITS.run(&mut share, 1.0),
                false => ALL.run(&mut share, 1.0),
            };
            if share.way != before {
                turns.push(look);
            }
        }
        let apart: Vec<_> = turns.windows(2).map(|two| two[1] - two[0]).collect();
        let patient = &apart[3..];
        assert!(
            patient.iter().all(|&looks| looks > PATIENCE_MOST) && patient.len() < 30,
            "{apart:?}"
        );
        assert!(apart[0] < PATIENCE_MOST, "{apart:?}");
    }

    #[test]
    fn too_few_loads_change_nothing() {
        let mut share = StoreShare::new(Delivery::InThread, BEGIN);
        let tier = |nanos| Tier { loads: 500, nanos };
        let tiers = Tiers {
            ram: tier(1_000_000),
            behind: tier(50_000_000),
            ram_bytes: 40 << 20,
            ram_most: 40 << 20,
            moves: false,
        };
        let limit = PageCount(20_000);
        assert_eq!(share.look(tiers, [1000, 1, 1, 1, 1], limit), None);
        let program = Program {
            touched: 75_000,
            set: 40_000,
        };
        let told = program.run(&mut share, 0.0);
        assert_eq!(told, None, "nothing is held, nothing is to be had");
    }
}
