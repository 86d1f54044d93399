//! The order policy: how much to bring in when a fault requests one page.
//!
//! A fault costs about the same for one page as for sixteen, but unneeded pages cost memory. So each fault needs a
//! guess: is this the next page of a stream, or an isolated access?
//!
//! # What is recorded
//! For each leaf (2 MiB) the run of pages that its last faults brought in is recorded: its upper and lower ends, its
//! length, and the *window*, the order of the next step. A fault at one of the two ends continues the run; pages that
//! are already in memory are stepped over, because a stream does not fault there. A run continues from leaf to leaf.
//! Thread, time and instruction play no role: two streams in two leaves do not disturb each other, and a scattered
//! access disturbs a stream only if it falls into the same 2 MiB, once.
//!
//! Whether a *neighbour is in memory* means little: if half of a region is resident, so is every second neighbour.
//!
//! Threads that share a stream, each taking the next few MiB, reach their parts in any order. So the first page of a
//! leaf also continues a run that has filled a leaf a little before it, across leaves that are not in memory yet. It
//! does so with a smaller window, which does not fill its leaf: a stride over leaves finds no run that has filled one.
//!
//! # The inequality
//! A window of 2^w pages pays when the chance *p* that they are all used is above (fault + 2^w × copy) / 2^w × (fault +
//! copy): with 6 µs a fault and 0.5 µs a page, doubling pays from *p* ≈ 0.55 on. A random access continues a run of its
//! leaf with a chance of 2/512; a stream does so nearly always. Between the two there is room for any rule; this one
//! doubles the window with each fault that continues the run, like the kernel's readahead, and starts over with a fault
//! that does not:
//!
//! - a stream takes faults of 1, 1, 2, 4 … 512 pages: ten for its first 2 MiB, one for each further leaf;
//! - scattered accesses get one page each, as requested.
//!
//! # What a wrong guess costs
//! A run that ends leaves at most as many pages unused as it had used. An accidental neighbour costs one page. Objects
//! of a few pages would pay for each start, so each region has a *habit*: the mean length of its runs (logarithmic,
//! each run counting an eighth). The first step of a run is half the usual run. Sixteen runs of another kind suffice to
//! forget the habit; no run starts above 64 KiB.
//!
//! # If the order is fixed
//! The folios of a region with a fixed order all have the same size, as far as neighbours allow, but a stream over them
//! still needs more than one: the window determines how many come in with one fault, as the kernel's readahead brings
//! in several folios. They lie ahead of the requested page, in the run's direction: pages behind a stream may have left
//! memory again, and are not needed twice. The folios beyond the first only use memory that is free anyway.
//!
//! # What overrides it
//! The window is overridden by the region's own bound, the order that its pages' slot or its neighbours allow, a
//! sixty-fourth of the budget for one folio, and advice. *Sequential* starts at 64 KiB, *random* stays at one page.

use crate::addr::{LEAF_PAGES, Order, PageIndex, PageRange};
use crate::limits::PASSING_RUN;
use crate::tables::sparse::{Sparse, Word};
use std::fmt;
use std::ops::Range;
use std::str::FromStr;

/// The orders that a region's folios may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OrderPolicy {
    /// All folios have this order, as far as alignment and neighbours allow.
    Fixed(Order),
    /// The pattern of faults determines the order, up to `max`.
    Adaptive {
        /// The largest order.
        max: Order,
    },
}

impl OrderPolicy {
    /// The largest order that a folio may have.
    #[must_use]
    pub const fn largest(self) -> Order {
        match self {
            Self::Fixed(order) | Self::Adaptive { max: order } => order,
        }
    }
}

/// Why a text is not an [`OrderPolicy`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BadOrderPolicy(String);

impl fmt::Display for BadOrderPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(text) = self;
        write!(
            f,
            "{text:?} is no order: give 0 (4 KiB) to 9 (2 MiB), adaptive, or adaptive:MAX"
        )
    }
}

impl std::error::Error for BadOrderPolicy {}

/// `4`, `adaptive` (up to 9) or `adaptive:4`.
///
/// ```
/// use millpond_core::{Order, OrderPolicy};
///
/// assert_eq!("adaptive".parse(), Ok(OrderPolicy::Adaptive { max: Order::MAX }));
/// assert_eq!("0".parse(), Ok(OrderPolicy::Fixed(Order::ZERO)));
/// assert!("10".parse::<OrderPolicy>().is_err());
/// ```
impl FromStr for OrderPolicy {
    type Err = BadOrderPolicy;

    fn from_str(text: &str) -> Result<Self, BadOrderPolicy> {
        let bad = || BadOrderPolicy(text.to_owned());
        let order = |digits: &str| {
            let number = digits.parse().map_err(|_| bad())?;
            Order::new(number).ok_or_else(bad)
        };
        match text.strip_prefix("adaptive") {
            None => order(text).map(Self::Fixed),
            Some("") => Ok(Self::Adaptive { max: Order::MAX }),
            Some(rest) => {
                let max = order(rest.strip_prefix(':').ok_or_else(bad)?)?;
                Ok(Self::Adaptive { max })
            }
        }
    }
}

impl fmt::Display for OrderPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(order) => write!(f, "{}", order.get()),
            Self::Adaptive { max: Order::MAX } => write!(f, "adaptive"),
            Self::Adaptive { max } => write!(f, "adaptive:{}", max.get()),
        }
    }
}

impl From<Order> for OrderPolicy {
    fn from(order: Order) -> Self {
        Self::Fixed(order)
    }
}

/// The pattern of accesses to a leaf that the program has announced.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Hint {
    /// The program has announced nothing.
    #[default]
    None,
    Sequential,
    Random,
}

/// The window at which a run starts if the program has announced sequential access. No other run starts with a larger
/// one.
const START: u8 = 4;
/// Number of absent leaves that a stream may leave to another thread.
const LEFT: u32 = 3;
/// Number of orders by which the window is smaller in that case.
const LESS: u8 = 3;
/// Number of folios in memory that a stream may step over between two faults.
const STEP_OVER: u32 = 32;

/// The last run of a leaf.
#[derive(Clone, Copy, Debug, Default)]
struct Trend {
    /// Offset of the page that continues the run upwards, plus one; 0 when there is no run.
    above: u16,
    /// Offset of the page that continues the run downwards, plus one; 0 when that page is in the leaf before.
    below: u16,
    /// Pages that the run brought in, in this leaf and the previous ones.
    pages: u16,
    /// Order of the run's last step.
    window: u8,
    hint: Hint,
    /// Whether advice says that pages coming into this leaf will be needed.
    needed: bool,
}

/// The mean length of a region's runs, as sixteen times the logarithm to base 2.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Habit(u8);

impl Habit {
    /// Notes that a run of `pages` pages has ended.
    fn ended(&mut self, pages: u16) {
        let sample = 16 * i16::from(pages.max(1).ilog2() as u8);
        let mean = i16::from(self.0);
        let step = (sample - mean) / 8;
        let step = if step == 0 {
            (sample - mean).signum()
        } else {
            step
        };
        self.0 = (mean + step) as u8;
    }

    fn start(self) -> u8 {
        (self.0 / 16).saturating_sub(1).min(START)
    }
}

/// The state of a fault's leaf, and of the run that the fault continues, before the fault.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stand {
    leaf: u32,
    here: Trend,
    from: Option<Continued>,
    habit: Habit,
}

/// The run that a fault continues.
#[derive(Clone, Copy, Debug)]
struct Continued {
    leaf: u32,
    run: Trend,
    way: Way,
    /// Whether leaves between the two are not in memory yet.
    leaves_some: bool,
}

/// The direction of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    /// The run begins here, so its direction is not known.
    Unknown,
    Up,
    Down,
}

/// The step that a fault requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Step {
    pub(crate) window: Order,
    pub(crate) way: Way,
    /// Pages that the continued run has brought in. It is 0 if advice says that they are needed.
    pub(crate) run: u16,
    /// Whether the run comes from another leaf.
    pub(crate) enters: bool,
}

impl Word for Trend {
    fn to_word(self) -> u64 {
        let [above, below, pages] = [self.above, self.below, self.pages].map(u64::from);
        let said = u64::from(self.window) | (self.hint as u64) << 4 | u64::from(self.needed) << 6;
        above | below << 16 | pages << 32 | said << 48
    }

    fn of_word(word: u64) -> Self {
        let [above, below, pages, said] = [0, 16, 32, 48].map(|shift| (word >> shift) as u16);
        Self {
            above,
            below,
            pages,
            window: said as u8 & 15,
            hint: [Hint::None, Hint::Sequential, Hint::Random][usize::from(said >> 4 & 3)],
            needed: said >> 6 & 1 != 0,
        }
    }
}

/// The runs of all leaves.
#[derive(Debug)]
pub(crate) struct Trends(Sparse<Trend>);

impl Trends {
    pub(crate) fn new(leaves: u32) -> Self {
        Self(Sparse::new(leaves as usize))
    }

    /// Calls `each` with the addresses of each long table.
    pub(crate) fn each_table(&self, each: &mut dyn FnMut(Range<usize>)) {
        self.0.each_table(each);
    }

    fn of(&self, leaf: u32) -> Trend {
        self.0.get(leaf as usize)
    }

    fn change(&mut self, leaf: u32, by: impl FnOnce(&mut Trend)) {
        self.0.change(leaf as usize, by);
    }

    /// The state before a fault at `page`. `present` gives the folio in memory that a page is in.
    pub(crate) fn stand(
        &self,
        page: PageIndex,
        habit: Habit,
        present: impl Fn(PageIndex) -> Option<PageRange>,
    ) -> Stand {
        let of = |leaf, way, leaves_some| Continued {
            leaf,
            run: self.of(leaf),
            way,
            leaves_some,
        };
        let continued = self.continued(page, &present);
        let beyond = || self.run_beyond(page, &present);
        Stand {
            leaf: page.leaf(),
            here: self.of(page.leaf()),
            from: continued
                .map(|(leaf, way)| of(leaf, way, false))
                .or_else(|| beyond().map(|leaf| of(leaf, Way::Up, true))),
            habit,
        }
    }

    /// The step that a fault requests.
    pub(crate) fn window(&mut self, stand: &Stand, habit: &mut Habit) -> Step {
        let mut trend = stand.here;
        let window = match (trend.hint, stand.from) {
            (Hint::Random, _) => 0,
            (Hint::Sequential, None) => START,
            (_, Some(from)) if from.leaves_some => from.run.window.saturating_sub(LESS),
            (_, Some(from)) => from.run.window + 1,
            (Hint::None, None) => habit.start(),
        };
        match stand.from {
            Some(from) => {
                // A run that continues in another leaf is one run, and ends once. The run that it meets there is over.
                if from.leaf != stand.leaf {
                    // The thread whose part lies between continues from the same place.
                    if !from.leaves_some {
                        self.change(from.leaf, |run| run.above = 0);
                    }
                    trend.above = 0;
                }
                trend.pages = from.run.pages;
            }
            None => {
                if trend.above != 0 {
                    habit.ended(trend.pages);
                }
                (trend.pages, trend.above) = (0, 0);
            }
        }
        trend.window = window.min(Order::MAX.get());
        self.change(stand.leaf, |here| *here = trend);
        Step {
            window: Order::new(trend.window).expect("bounded by the largest order"),
            way: stand.from.map_or(Way::Unknown, |from| from.way),
            run: if trend.needed { 0 } else { trend.pages },
            enters: stand.from.is_some_and(|from| from.leaf != stand.leaf),
        }
    }

    /// Undoes [`Self::window`] for a fault that had no memory and will be repeated.
    pub(crate) fn restore(&mut self, stand: &Stand, habit: &mut Habit) {
        *habit = stand.habit;
        self.change(stand.leaf, |here| *here = stand.here);
        if let Some(from) = stand.from {
            self.change(from.leaf, |run| *run = from.run);
        }
    }

    /// Notes that a fault brought in `range`, which lies in one leaf.
    pub(crate) fn brought(&mut self, range: PageRange) {
        let first = (range.start.0 % LEAF_PAGES) as u16;
        let end = first + range.len.0 as u16;
        self.change(range.start.leaf(), |trend| {
            trend.pages = trend.pages.saturating_add(range.len.0 as u16);
            if trend.above == 0 {
                (trend.below, trend.above) = (first, end + 1);
            } else {
                trend.below = trend.below.min(first);
                trend.above = trend.above.max(end + 1);
            }
        });
    }

    /// Notes that the run of the leaf of `from`, which is whole, has continued through all of the leaf of `to`.
    pub(crate) fn go_on(&mut self, from: PageIndex, to: PageIndex) {
        let run = self.of(from.leaf());
        self.change(from.leaf(), |trend| trend.above = 0);
        self.change(to.leaf(), |trend| {
            trend.pages = run.pages.saturating_add(LEAF_PAGES as u16);
            trend.window = run.window;
        });
    }

    /// Notes a hint of the program about the leaf of `page`.
    pub(crate) fn advise(&mut self, page: PageIndex, hint: Hint) {
        self.change(page.leaf(), |trend| {
            trend.hint = hint;
            trend.needed &= hint != Hint::None;
        });
    }

    /// Notes that pages coming into the leaf of `page` will be needed.
    pub(crate) fn will_need(&mut self, page: PageIndex) {
        self.change(page.leaf(), |trend| trend.needed = true);
    }

    /// Forgets all that is known about the leaf of `page`.
    pub(crate) fn forget(&mut self, page: PageIndex) {
        self.change(page.leaf(), |trend| *trend = Trend::default());
    }

    /// Moves all that is known about the leaf of `from` to the leaf of `to`.
    pub(crate) fn moved(&mut self, from: PageIndex, to: PageIndex) {
        let run = self.of(from.leaf());
        self.forget(from);
        self.change(to.leaf(), |trend| *trend = run);
    }

    /// Whether the last run of the leaf of `page` has stopped somewhere inside it, and may continue.
    pub(crate) fn stands_in(&self, page: PageIndex) -> bool {
        let run = self.of(page.leaf());
        let through = run.below == 0 && u32::from(run.above) > LEAF_PAGES;
        run.pages >= PASSING_RUN && run.above != 0 && !through
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    /// The leaf whose run a fault at `page` continues, and the direction of that run.
    fn continued(
        &self,
        page: PageIndex,
        present: &impl Fn(PageIndex) -> Option<PageRange>,
    ) -> Option<(u32, Way)> {
        let leaf = page.leaf();
        let here = self.of(leaf);
        let start = leaf * LEAF_PAGES;
        // A run that has arrived here has an adjacent page in memory. This excludes most random faults, for the price
        // of reading an entry next to the page's own.
        let is_beside = |page: u32| present(PageIndex(page)).is_some();
        let from_below = page.0 == start || is_beside(page.0 - 1);
        if here.above != 0 {
            let above = start + u32::from(here.above) - 1;
            let up = page.0 == above
                || page.0 > above && from_below && steps_over(above, page.0, present);
            let below = start + u32::from(here.below);
            let down = here.below != 0 && page.0 < below && steps_over(page.0 + 1, below, present);
            if up || down {
                return Some((leaf, if up { Way::Up } else { Way::Down }));
            }
        }
        if from_below && let Some(before) = self.run_from_below(page, present) {
            return Some((before, Way::Up));
        }
        if page.0 + 1 != start + LEAF_PAGES && !is_beside(page.0 + 1) {
            return None;
        }
        let after = self.run_from_above(page, present)?;
        Some((after, Way::Down))
    }

    /// The leaf below that of `page` whose run has reached `page` upwards.
    fn run_from_below(
        &self,
        page: PageIndex,
        present: &impl Fn(PageIndex) -> Option<PageRange>,
    ) -> Option<u32> {
        let leaf = page.leaf();
        for before in (leaf.saturating_sub(STEP_OVER)..leaf).rev() {
            let run = self.of(before);
            if run.above != 0 {
                let end = before * LEAF_PAGES + u32::from(run.above) - 1;
                return steps_over(end, page.0, present).then_some(before);
            }
            if !self.is_whole(before, present) {
                return None;
            }
        }
        None
    }

    /// The leaf a little below that of `page`, its leaf's first page, if a run has filled it and the leaves between are
    /// absent.
    fn run_beyond(
        &self,
        page: PageIndex,
        present: &impl Fn(PageIndex) -> Option<PageRange>,
    ) -> Option<u32> {
        let leaf = page.leaf();
        if page.0 != leaf * LEAF_PAGES {
            return None;
        }
        let between = (leaf.saturating_sub(LEFT)..leaf).rev();
        let absent = between.take_while(|&at| present(PageIndex(at * LEAF_PAGES)).is_none());
        let before = absent.last()?.checked_sub(1)?;
        let run = self.of(before);
        let fills = u32::from(run.above) > LEAF_PAGES && run.window == Order::MAX.get();
        fills.then_some(before)
    }

    /// The leaf above that of `page` whose run has reached `page` downwards.
    fn run_from_above(
        &self,
        page: PageIndex,
        present: &impl Fn(PageIndex) -> Option<PageRange>,
    ) -> Option<u32> {
        let leaf = page.leaf();
        for after in leaf + 1..=leaf + STEP_OVER {
            let run = self.of(after);
            if run.above != 0 {
                let end = after * LEAF_PAGES + u32::from(run.below);
                return steps_over(page.0 + 1, end, present).then_some(after);
            }
            if !self.is_whole(after, present) {
                return None;
            }
        }
        None
    }

    /// Whether a leaf is in memory as one folio. Such a leaf sees no fault, so a run may have come from beyond it.
    fn is_whole(&self, leaf: u32, present: &impl Fn(PageIndex) -> Option<PageRange>) -> bool {
        let leaves = self.0.len() as u32;
        let there = || present(PageIndex(leaf * LEAF_PAGES));
        let folio = (leaf < leaves).then(there).flatten();
        folio.is_some_and(|folio| folio.len.0 == LEAF_PAGES)
    }
}

/// Whether at most [`STEP_OVER`] folios that are in memory lead from the page `from` to the page `to`.
fn steps_over(from: u32, to: u32, present: &impl Fn(PageIndex) -> Option<PageRange>) -> bool {
    let mut at = PageIndex(from);
    for _ in 0..STEP_OVER {
        if at.0 >= to {
            break;
        }
        match present(at) {
            Some(folio) => at = folio.end(),
            None => return false,
        }
    }
    at.0 >= to
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::PageCount;
    use std::collections::BTreeSet;

    /// Faults at the given pages, each of which brings in the absent pages of its block, and the requested orders.
    struct World {
        trends: Trends,
        habit: Habit,
        present: BTreeSet<u32>,
        /// Leaves that are in memory as one folio.
        whole: BTreeSet<u32>,
        brought: u32,
    }

    impl World {
        fn new() -> Self {
            Self {
                trends: Trends::new(16),
                habit: Habit::default(),
                present: BTreeSet::new(),
                whole: BTreeSet::new(),
                brought: 0,
            }
        }

        /// A stream has filled the first two leaves.
        fn with_a_stream() -> Self {
            let mut world = Self::new();
            for page in 0..2 * LEAF_PAGES {
                world.touch(page);
            }
            world
        }

        /// Touches a page. Returns the order of the fault, if there was one.
        fn touch(&mut self, page: u32) -> Option<u8> {
            let (present, whole) = (&self.present, &self.whole);
            let folio = |p: PageIndex| match whole.contains(&p.leaf()) {
                true => Some(PageRange::block(p, Order::MAX)),
                false => present
                    .contains(&p.0)
                    .then_some(PageRange::new(p, PageCount(1))),
            };
            folio(PageIndex(page)).is_none().then_some(())?;
            let stand = self.trends.stand(PageIndex(page), self.habit, folio);
            let order = self.trends.window(&stand, &mut self.habit).window;
            for p in PageRange::block(PageIndex(page), order).pages() {
                if self.present.insert(p.0) {
                    self.trends.brought(PageRange::new(p, PageCount(1)));
                    self.brought += 1;
                }
            }
            Some(order.get())
        }
    }

    #[test]
    fn order_policies_round_trip_through_text() {
        for text in ["0", "9", "adaptive", "adaptive:4"] {
            let policy: OrderPolicy = text.parse().unwrap();
            assert_eq!(policy.to_string(), text);
        }
        for text in [
            "",
            "10",
            "-1",
            "adaptive:",
            "adaptive4",
            "adaptive:10",
            "four",
        ] {
            let error = text.parse::<OrderPolicy>().unwrap_err().to_string();
            assert!(error.contains(&format!("{text:?}")), "{error}");
        }
    }

    #[test]
    fn a_stream_takes_ten_faults_for_its_first_leaf_and_one_for_each_further() {
        for pages in [0..4096, 4096 - 4096..4096] {
            let mut world = World::new();
            let faults: Vec<_> = pages.filter_map(|page| world.touch(page)).collect();
            assert_eq!(&faults[..10], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
            assert_eq!(faults.len(), 10 + 7);
        }
    }

    #[test]
    fn a_descending_stream_is_recognized() {
        let mut world = World::new();
        let faults = (0..4096).rev().filter_map(|page| world.touch(page));
        assert_eq!(faults.count(), 10 + 7);
    }

    /// Two threads share a stream, and the one whose part comes second is the first to fault. Such a leaf once took ten
    /// faults, and so did the leaf after it.
    #[test]
    fn threads_that_share_a_stream_may_come_in_any_order() {
        let mut world = World::with_a_stream();
        let mut faults = 0;
        for (first, second) in [(3, 2), (5, 4), (6, 7)] {
            for page in 0..LEAF_PAGES {
                let touched = [first, second].map(|leaf| world.touch(leaf * LEAF_PAGES + page));
                faults += touched.into_iter().flatten().count();
            }
        }
        assert!(faults <= 6 + 2 * usize::from(LESS), "{faults}");
    }

    /// A stride begins at the end of a stream.
    #[test]
    fn a_stride_over_leaves_is_not_a_stream() {
        let mut world = World::with_a_stream();
        let before = world.brought;
        for leaf in (3..16).step_by(2) {
            world.touch(leaf * LEAF_PAGES);
        }
        assert!(
            world.brought - before <= 64 + 6,
            "{}",
            world.brought - before
        );
    }

    #[test]
    fn scattered_touches_bring_in_few_unrequested_pages() {
        let mut world = World::new();
        let mut state = 1u64;
        let mut asked = BTreeSet::new();
        for _ in 0..2000 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let page = (state % 8192) as u32;
            world.touch(page);
            asked.insert(page);
        }
        let unasked = world.present.difference(&asked).count();
        assert!(unasked * 20 <= asked.len(), "{unasked} of {}", asked.len());
    }

    #[test]
    fn a_stride_of_sixteen_pages_brings_in_what_it_touches() {
        let mut world = World::new();
        for page in (0..8192).step_by(16) {
            world.touch(page);
        }
        assert_eq!(world.brought, 512);
    }

    #[test]
    fn a_stream_goes_on_behind_pages_that_were_there() {
        let mut world = World::new();
        for page in [20, 21, 22, 23, 100, 300] {
            world.touch(page);
        }
        world.trends.forget(PageIndex(0));
        let faults = (0..512).filter_map(|page| world.touch(page)).count();
        assert!(faults <= 11, "{faults} faults");
    }

    /// A stream does not fault in a leaf that is in memory as one folio. Each such leaf once ended the stream.
    #[test]
    fn a_stream_goes_on_behind_whole_leaves() {
        for reversed in [false, true] {
            let mut world = World::new();
            world.whole.extend([2, 5, 6]);
            let mut pages: Vec<u32> = (0..4096).collect();
            if reversed {
                pages.reverse();
            }
            let faults = pages.into_iter().filter_map(|page| world.touch(page));
            assert_eq!(faults.count(), 10 + 4);
        }
    }

    /// Two former errors: the place where the next leaf was last read hid the run's end, and the end of a leaf that was
    /// already in memory cut the run off.
    #[test]
    fn a_stream_goes_on_into_a_leaf_that_was_read_at_random() {
        let mut world = World::new();
        for page in (490..512).chain([600, 700, 800, 1100, 1300]) {
            world.present.insert(page);
            world
                .trends
                .brought(PageRange::new(PageIndex(page), PageCount(1)));
        }
        world.trends.forget(PageIndex(0));
        let faults: Vec<_> = (0..1536).filter_map(|page| world.touch(page)).collect();
        assert_eq!(faults[faults.len() - 2..], [9, 9], "{faults:?}");
        assert!(faults.len() <= 12, "{faults:?}");
    }

    #[test]
    fn short_runs_start_in_larger_steps_until_the_pattern_is_forgotten() {
        let mut world = World::new();
        let first = |world: &mut World, page| world.touch(page).unwrap();
        for object in 0..40 {
            for page in 0..16 {
                world.touch(object * 64 + page);
            }
        }
        assert!(first(&mut world, 3000) >= 2);
        for n in 0..24 {
            world.touch(4096 + n * 100);
        }
        assert_eq!(first(&mut world, 8000), 0);
    }

    #[test]
    fn advice_overrides_the_fault_pattern() {
        let mut world = World::new();
        world.trends.advise(PageIndex(0), Hint::Sequential);
        assert_eq!(world.touch(0), Some(START));
        world.trends.advise(PageIndex(512), Hint::Random);
        let faults: Vec<_> = (512..600).filter_map(|page| world.touch(page)).collect();
        assert!(faults.iter().all(|&order| order == 0));
    }
}
