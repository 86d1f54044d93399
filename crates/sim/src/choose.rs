//! The workload: what actors decide to do next.
//!
//! Uniformly random accesses make every page equally cold; real programs have hot spots, sweeps and idle regions, and
//! reclaim is only interesting with those. So most accesses go to a small window of a region, some sweep through with
//! the stride of a folio (which brings much memory in with few events), and regions have orders from single pages to
//! whole leaves.

use millpond_core::{
    Advice, Event, FreeMode, GroupId, Kind, LEAF_PAGES, Order, OrderPolicy, PageCount, PageIndex,
    PageRange, PageState, Refusal, Reply,
};

use crate::actor::{DropStage, FreeStage, Op, ProtectStage, Ranges, UnmarkStage};
use crate::mmu::overlap;
use crate::profile::ARENA_PAGES;
use crate::report::{Check, breach};
use crate::snapshot::SnapshotStage;
use crate::sync::SyncStage;
use crate::world::{SimRegion, World};

const MAX_REGIONS: usize = 8;

impl World {
    /// Makes a region for actor `i`.
    ///
    /// # Errors
    /// A rule is broken.
    pub fn create_region(&mut self, i: usize, pages: u32, order: u8) -> Check {
        let order = Order::new(order).expect("orders are below ten");
        let adaptive = self.rng.chance(500) || self.profile.is_streamed;
        let policy = match adaptive {
            true => OrderPolicy::Adaptive { max: order },
            false => order.into(),
        };
        let kind = self.draw_kind();
        let reply = self.send(
            i,
            Event::CreateRegion {
                pages: PageCount(pages),
                order: policy,
                kind,
            },
        )?;
        match reply {
            Reply::Region { region, range } => {
                if range.len.0 != pages || !range.start.0.is_multiple_of(512) {
                    breach!("a region of {pages} pages is at {range}");
                }
                if range.end().0 > ARENA_PAGES
                    || self.ranges().any(|other| overlap(other, range))
                    || self.regions.iter().any(|r| r.id == region)
                {
                    breach!("the new region {region:?} at {range} is not its own");
                }
                self.regions.push(SimRegion {
                    id: region,
                    range,
                    order: order.get(),
                    largest: order.get(),
                    adaptive,
                    users: 0,
                    closing: false,
                    base: None,
                    group: GroupId::ROOT,
                    kind,
                });
                self.fill_file(range, kind);
                self.adopt_some(range, kind, order)?;
                if order == Order::MAX && self.actors[i].op.is_none() && self.rng.chance(500) {
                    self.begin_stream(i);
                }
                match self.profile.groups > 0 && self.rng.chance(700) {
                    true => self.join_group(i),
                    false => Ok(()),
                }
            }
            Reply::Refused(Refusal::NoAddressSpace) => Ok(()),
            other => breach!("a region of {pages} pages is answered with {other:?}"),
        }
    }

    /// Makes actor `i` go leaf by leaf through the most recently made region, while there is memory for it.
    fn begin_stream(&mut self, i: usize) {
        let Some(r) = self.regions.len().checked_sub(1) else {
            return;
        };
        let region = self.regions[r];
        let stream = Op::Access {
            range: region.range,
            next: region.range.start,
            stride: LEAF_PAGES,
            left: region.range.len.0 / LEAF_PAGES,
            writes: self.profile.writes,
        };
        self.begin(i, r, stream);
    }

    /// Makes actor `i` begin an operation in a region, which is not dropped before the operation ends.
    fn begin(&mut self, i: usize, r: usize, op: Op) {
        let region = self.regions[r];
        let op = self.suit_kind(region, op);
        if let Op::Discard { range, .. } = op {
            self.oracle.discard_begins(i, range);
        }
        self.regions[r].users += 1;
        self.actors[i].using = Some(region.range.start);
        self.actors[i].op = Some(op);
    }

    /// Puts the most recently made region into some group.
    fn join_group(&mut self, i: usize) -> Check {
        let group = self.any_group();
        let Some(region) = self.regions.last_mut() else {
            return Ok(());
        };
        region.group = group;
        let event = Event::MoveRegion {
            region: region.id,
            group,
            from: region.range.start,
        };
        match self.send(i, event)? {
            Reply::Done => Ok(()),
            other => breach!("{event:?} of an empty region is answered with {other:?}"),
        }
    }

    /// Draws a stream through one or more leaves, or single reads all over the region. First the region is filled:
    /// pages that were never written are zeros, and are in no slot.
    fn draw_stream(&mut self, region: SimRegion) -> Op {
        let (range, page) = (region.range, self.page_of(region.range));
        let last = PageIndex(range.end().0 - 1);
        if self.core.page_state(last) == PageState::Empty {
            return Op::Access {
                range,
                next: range.start,
                stride: 1,
                left: range.len.0,
                writes: 1000,
            };
        }
        let (next, stride, left) = match self.rng.chance(400) {
            true => (PageRange::block(page, Order::MAX).start, 1, 8 * LEAF_PAGES),
            // The next stream makes the core forget a few single reads; many keep leaves where they are.
            false => (
                page,
                self.rng.between(29, 299),
                self.rng.pick(&[12, 12, 200]),
            ),
        };
        Op::Access {
            range,
            next,
            stride,
            left: self.rng.between(left / 4, left),
            writes: self.profile.writes,
        }
    }

    /// A useful length and order for a region: few single pages, or many pages in large folios.
    pub fn draw_region(&mut self) -> (u32, u8) {
        // The region is longer than the reach of one event of a move.
        if self.profile.groups > 0 && self.rng.chance(100) {
            return (self.rng.between(9000, 12_000), self.rng.between(2, 9) as u8);
        }
        if self.profile.is_scattered && self.rng.chance(900) {
            return (
                self.rng.between(1500, 3000),
                self.rng.pick(&[0, 0, 1, 2, 4]),
            );
        }
        if self.profile.is_streamed {
            return (self.rng.between(3, 8) * LEAF_PAGES, 9);
        }
        match self.rng.below(4) {
            0 => (self.rng.between(200, 1200), self.rng.below(2) as u8),
            1 => (self.rng.between(300, 2500), self.rng.between(2, 4) as u8),
            2 => (self.rng.between(1000, 4000), self.rng.between(5, 8) as u8),
            _ => (self.rng.between(1000, 4000), 9),
        }
    }

    /// Gives actor `i`, a thread, its next operation.
    ///
    /// # Errors
    /// A rule is broken.
    pub fn choose(&mut self, i: usize) -> Check {
        // During a purge its region is worth dropping, and the addresses are worth reusing.
        let crowd = self.regions.len() > MAX_REGIONS - 2;
        let (birth, death) = match self.purging > 0 {
            true => (100, 30),
            false if crowd => (4, 2 + self.profile.snapshots),
            false => (4, 2 + self.profile.snapshots / 4),
        };
        if self.rng.chance(birth) && self.regions.len() < MAX_REGIONS {
            let (pages, order) = self.draw_region();
            return self.create_region(i, pages, order);
        }
        let open: Vec<usize> = (0..self.regions.len())
            .filter(|&r| !self.regions[r].closing)
            .collect();
        if open.is_empty() {
            let (pages, order) = self.draw_region();
            return self.create_region(i, pages, order);
        }
        self.visit_relatives();
        let crowded = open
            .iter()
            .copied()
            .find(|&r| self.regions[r].range.covers(self.hot));
        let r = match crowded {
            Some(r) if self.rng.chance(self.profile.crowding) => r,
            _ => self.rng.pick(&open),
        };
        if self.rng.chance(death) && open.len() > 2 {
            let purged = self.volatile.iter().rfind(|v| v.purged);
            let has_it = |r: &usize| purged.is_some_and(|v| self.regions[*r].range.covers(v.range));
            let r = open.iter().copied().find(has_it).unwrap_or(r);
            self.regions[r].closing = true;
            let range = self.regions[r].range;
            self.actors[i].op = Some(Op::Drop {
                range,
                stage: DropStage::Quiet,
            });
            return Ok(());
        }
        let anonymous = |r: &usize| self.regions[*r].kind == Kind::Anonymous;
        let open: Vec<usize> = open.into_iter().filter(anonymous).collect();
        let snapshots = self.rng.chance(self.profile.snapshots) && !open.is_empty();
        if snapshots && self.regions.len() < MAX_REGIONS + 2 {
            self.actors[i].op = Some(self.draw_snapshot(&open));
            return Ok(());
        }
        // A move while frames are being freed is rare enough to be worth provoking.
        let gathered = if self.batches.is_empty() { 0 } else { 200 };
        let remaps = self.profile.remaps.max(gathered);
        if self.profile.remaps > 0 && self.rng.chance(remaps) && !open.is_empty() {
            self.actors[i].op = Some(self.draw_remap(&open));
            return Ok(());
        }
        let region = self.regions[r];
        let regroups = self.profile.groups > 0 && self.rng.chance(self.profile.groups);
        let op = if regroups {
            Op::Regroup {
                range: region.range,
                group: self.any_group(),
                from: region.range.start,
            }
        } else if matches!(region.kind, Kind::File | Kind::Direct)
            && self.rng.chance(self.profile.syncs)
        {
            let wide = self.rng.chance(500);
            Op::Sync {
                range: if wide {
                    region.range
                } else {
                    self.part(region.range, 600)
                },
                stage: SyncStage::Begin,
            }
        } else if self.rng.chance(self.profile.freeing) && region.kind == Kind::Anonymous {
            self.draw_free_op(region)
        } else {
            self.draw_op(region)
        };
        self.begin(i, r, op);
        Ok(())
    }

    /// Draws a snapshot of one of the regions `open`, preferably of one that has snapshots or is one.
    fn draw_snapshot(&mut self, open: &[usize]) -> Op {
        let related = |r: &usize| self.regions[*r].base.is_some();
        let again: Vec<usize> = open.iter().copied().filter(related).collect();
        let r = match again.is_empty() || self.rng.chance(400) {
            true => self.rng.pick(open),
            false => self.rng.pick(&again),
        };
        self.regions[r].closing = true;
        Op::Snapshot {
            range: self.regions[r].range,
            stage: SnapshotStage::Quiet,
        }
    }

    /// Occasionally makes the threads meet at the same pages of another heir.
    fn visit_relatives(&mut self) {
        if self.hot.is_empty() || !self.rng.chance(300) {
            return;
        }
        let root = |region: &SimRegion| self.bases_of(region.range.start).last();
        let here = |region: &&SimRegion| region.range.covers(self.hot);
        let Some(region) = self.regions.iter().find(here) else {
            return;
        };
        let Some(shared) = root(region) else { return };
        let offset = self.hot.start.0 - region.range.start.0;
        let relative = |r: &&SimRegion| !r.closing && root(r) == Some(shared);
        let starts: Vec<_> = self.regions.iter().filter(relative).collect();
        let starts: Vec<_> = starts.iter().map(|r| r.range.start).collect();
        if !starts.is_empty() {
            self.hot.start = self.rng.pick(&starts).plus(offset);
        }
    }

    /// The pages for an operation in `region`: the whole region, or the few folios where the threads meet for a while.
    fn draw_home(&mut self, region: SimRegion) -> PageRange {
        if !region.range.covers(self.hot) || self.hot.is_empty() || self.rng.chance(20) {
            let page = self.page_of(region.range);
            let len = (3 << region.order).min(region.range.end().0 - page.0);
            self.hot = PageRange::new(page, PageCount(len));
        }
        let crowd = self.rng.chance(self.profile.crowding);
        if crowd { self.hot } else { region.range }
    }

    /// Draws an operation on unwanted memory.
    fn draw_free_op(&mut self, region: SimRegion) -> Op {
        let folio = 1 << region.order;
        let home = self.draw_home(region);
        let mine = |v: &&crate::volatile::Volatile| !v.leaving && region.range.covers(v.range);
        let marked: Vec<_> = self.volatile.iter().filter(mine).copied().collect();
        // Ranges are purged in the order of the list, so this is the range whose purge began last.
        let purged = marked.iter().rfind(|v| v.purged).map(|v| v.range);
        match self.rng.below(100) {
            // The owner of the range asks while it is being purged.
            _ if self.purging > 0 && purged.is_some() && self.rng.chance(500) => {
                self.draw_unmark(purged.expect("there is one"))
            }
            0..60 => {
                let mut ranges = Ranges::default();
                let wide = self.rng.chance(50);
                for nth in 0..self.rng.pick(&[1, 1, 2, 4]) {
                    let crowd = self.rng.chance(500);
                    let within = if crowd { home } else { region.range };
                    let most = if wide { u32::MAX } else { 4 * folio };
                    ranges.0[nth] = self.part(within, most);
                }
                let modes = [
                    FreeMode::Shared,
                    FreeMode::Exclusive,
                    FreeMode::ReadsZeros,
                    FreeMode::Stored,
                    FreeMode::AlreadyZeroed,
                ];
                Op::Free {
                    ranges,
                    mode: self.rng.pick(&modes),
                    stage: FreeStage::Begin,
                }
            }
            60..76 => Op::Mark {
                range: self.part(home, 8 * folio),
            },
            76..96 if !marked.is_empty() => {
                let volatile = self.rng.pick(&marked);
                // If a thread pins a purged range before its owner asks, the following discard is refused.
                match volatile.purged && self.rng.chance(500) {
                    true => Op::Pin {
                        range: self.part(volatile.range, (2 * folio).min(96)),
                        held: false,
                        left: 200,
                    },
                    false => self.draw_unmark(volatile.range),
                }
            }
            76..96 => Op::Mark {
                range: self.part(region.range, 64 * folio),
            },
            _ => Op::Recount {
                left: self.core.lazyfree_pages(),
            },
        }
    }

    fn draw_unmark(&mut self, range: PageRange) -> Op {
        let mut known = self.volatile.iter_mut();
        let volatile = known.find(|v| v.range == range).expect("it is volatile");
        volatile.leaving = true;
        let stage = UnmarkStage::Ask;
        Op::Unmark { range, stage }
    }

    fn draw_op(&mut self, region: SimRegion) -> Op {
        let folio = 1 << region.order;
        let writes = self.profile.writes;
        if self.profile.is_scattered && self.rng.chance(800) {
            // The touches go to many pages of a leaf or two, none of them neighbours.
            return Op::Access {
                range: region.range,
                next: self.page_of(region.range),
                stride: folio * self.rng.between(3, 12),
                left: self.rng.between(50, 200),
                writes,
            };
        }
        if self.profile.is_streamed && self.rng.chance(900) {
            return self.draw_stream(region);
        }
        let home = self.draw_home(region);
        match self.rng.below(100) {
            0..45 => {
                let range = self.part(home, 16 * folio);
                let next = self.page_of(range);
                Op::Access {
                    range,
                    next,
                    stride: 0,
                    left: self.rng.between(1, 20),
                    writes,
                }
            }
            45..65 => self.draw_walk(region),
            65..75 => {
                let wide = self.rng.chance(50);
                let range = self.draw_part(wide.then_some(region.range), home, 2 * folio);
                Op::Discard {
                    range,
                    rest: range,
                    done: false,
                }
            }
            75..82 => {
                let range = self.part(home, (2 * folio).min(96));
                Op::Pin {
                    range,
                    held: false,
                    left: self.rng.below(40),
                }
            }
            82..92 => {
                let wide = self.rng.chance(100);
                let range = self.draw_part(wide.then_some(region.range), home, 4 * folio);
                self.draw_advice(range)
            }
            _ if self.mmu.protections.len() < 4 => self.draw_protection(home),
            _ => {
                let range = self.part(home, 4 * folio);
                Op::Access {
                    range,
                    next: self.page_of(range),
                    stride: 1,
                    left: 3,
                    writes,
                }
            }
        }
    }

    /// Accesses that go through a region in order. In an adaptive region, faults at one page after the other lead to
    /// large steps.
    fn draw_walk(&mut self, region: SimRegion) -> Op {
        let range = region.range;
        let left = self.rng.between(1, 30);
        let stream = region.adaptive && self.rng.chance(700);
        Op::Access {
            range,
            next: self.page_of(range),
            stride: if stream { 1 } else { 1 << region.order },
            left,
            writes: self.profile.writes,
        }
    }

    fn draw_advice(&mut self, range: PageRange) -> Op {
        let advice = self.rng.pick(&[
            Advice::Cold,
            Advice::Cold,
            Advice::PageOut,
            Advice::PageOut,
            Advice::PageOut,
            Advice::Sequential,
            Advice::Random,
            Advice::Normal,
            Advice::WillNeed,
        ]);
        Op::Advise { range, advice }
    }

    fn draw_protection(&mut self, home: PageRange) -> Op {
        let stage = if self.rng.chance(600) {
            ProtectStage::Announce
        } else {
            ProtectStage::Apply { announced: None }
        };
        let range = self.part(home, 64);
        Op::Protect {
            range,
            locked: self.rng.chance(500),
            stage,
        }
    }

    /// A part of `wide`, of any length, or of at most `most` pages of `home`.
    fn draw_part(&mut self, wide: Option<PageRange>, home: PageRange, most: u32) -> PageRange {
        match wide {
            Some(wide) => self.part(wide, u32::MAX),
            None => self.part(home, most),
        }
    }

    /// A part of `range`, of at most `most` pages.
    fn part(&mut self, range: PageRange, most: u32) -> PageRange {
        let len = self.rng.between(1, most.clamp(1, range.len.0));
        let start = range.start.plus(self.rng.below(range.len.0 - len + 1));
        PageRange::new(start, PageCount(len))
    }

    fn page_of(&mut self, range: PageRange) -> PageIndex {
        range.start.plus(self.rng.below(range.len.0))
    }
}
