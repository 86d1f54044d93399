//! The frame pool's book, which records what each place holds.
//!
//! The pool is a second range of addresses, with an area for each order. A place in it is
//!
//! - a *hole*: addresses without memory, where a take-out can put a folio;
//! - *busy*: it holds a folio in limbo, or a folio on its way in;
//! - *spare*: it has pages that hold nothing. The next folio that comes in uses them first, so that memory circulates
//!   between program and pool without the kernel's allocator;
//! - *draining*: its pages are being given back to the kernel.
//!
//! Each node has an area of its own for each order, so that folios taken out or brought in on a node lie in that node's
//! memory. There is one budget for all nodes: if a node has no spare frame, other nodes' spare frames are given back to
//! make room for new pages.
//!
//! The choice among several places aims at moving neighbours by one system call ([`places`](crate::tables::places)).
//! Holes, spare and draining places are three sets of bits, and a place in none of them is busy. A place costs 3½ bits,
//! so the pool can afford more places than there is memory.

use crate::addr::{Frame, Order, PageIndex};
use crate::config::PoolLayout;
use crate::ids::NodeId;
use crate::tables::places::{Bits, End, Places, block_of};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PlaceState {
    Hole,
    Busy,
    Spare,
    Draining,
}

#[derive(Debug)]
struct Area {
    /// The number of the area's first place.
    first: u32,
    len: u32,
    /// The number from which places are counted in the sets: the start of the block that contains the first place.
    base: u32,
    holes: Places,
    spare: Places,
    draining: Bits,
}

impl Area {
    fn new(order: Order, first: u32, len: u32) -> Self {
        let base = first - first % block_of(order) as u32;
        let end = first - base + len;
        Self {
            first,
            len,
            base,
            holes: Places::full(order, first - base..end),
            spare: Places::new(order, end, End::Last),
            draining: Bits::new(end as usize),
        }
    }

    /// The state of a place; `None` outside the area.
    fn state_of(&self, index: u32) -> Option<PlaceState> {
        if !(self.first..self.first + self.len).contains(&index) {
            return None;
        }
        let at = index - self.base;
        Some(match () {
            () if self.holes.has(at) => PlaceState::Hole,
            () if self.spare.has(at) => PlaceState::Spare,
            () if self.draining.has(at as usize) => PlaceState::Draining,
            () => PlaceState::Busy,
        })
    }
}

/// The book of all areas. Nothing here allocates after the book was made.
#[derive(Debug)]
pub(crate) struct Frames {
    /// The areas, by node, then order.
    areas: Vec<[Area; 10]>,
    /// Places of a node, by order.
    places: [u32; 10],
    spare_pages: u32,
    draining_pages: u32,
}

impl Frames {
    /// A pool with `layout` on each node.
    pub(crate) fn new(layout: &PoolLayout, nodes: u8) -> Self {
        let areas = |node: u8| {
            std::array::from_fn(|order| {
                let n = layout.frames[order];
                let order = Order::new(order as u8).expect("there are ten");
                Area::new(order, u32::from(node) * n, n)
            })
        };
        Self {
            areas: (0..nodes).map(areas).collect(),
            places: layout.frames,
            spare_pages: 0,
            draining_pages: 0,
        }
    }

    /// Pages of all spare frames.
    pub(crate) fn spare_pages(&self) -> u32 {
        self.spare_pages
    }

    /// Pages of the spare frames of an order.
    pub(crate) fn spare_pages_of(&self, order: Order) -> u32 {
        let spare = |areas: &[Area; 10]| areas[usize::from(order.get())].spare.len();
        self.areas.iter().map(spare).sum::<u32>() * order.pages().0
    }

    /// Pages that are on their way back to the kernel.
    pub(crate) fn draining_pages(&self) -> u32 {
        self.draining_pages
    }

    /// How many holes `order` has on a node.
    pub(crate) fn holes(&self, order: Order, node: NodeId) -> usize {
        self.area(order, node).holes.len() as usize
    }

    /// Whether `order` has a spare frame on any node.
    pub(crate) fn has_spare(&self, order: Order) -> bool {
        self.spare_node(order).is_some()
    }

    /// The first node that has a spare frame of `order`.
    fn spare_node(&self, order: Order) -> Option<NodeId> {
        let mut nodes = (0..self.areas.len() as u8).map(NodeId);
        nodes.find(|&node| self.has_spare_on(order, node))
    }

    /// Whether `order` has a spare frame on a node.
    pub(crate) fn has_spare_on(&self, order: Order, node: NodeId) -> bool {
        self.area(order, node).spare.len() > 0
    }

    /// A hole of `order` on a node for the folio at `page`, busy from now on.
    pub(crate) fn take_hole(
        &mut self,
        order: Order,
        node: NodeId,
        page: PageIndex,
    ) -> Option<Frame> {
        let area = self.area_mut(order, node);
        let index = area.base + area.holes.take_for(page)?;
        Some(Frame::new(order, index))
    }

    /// Takes all holes of a block of order 0 on a node, which are busy from now on, and returns the first. At least
    /// `left` other holes stay.
    pub(crate) fn take_block(&mut self, node: NodeId, left: usize) -> Option<Frame> {
        if self.holes(Order::ZERO, node) < block_of(Order::ZERO) + left {
            return None;
        }
        let area = self.area_mut(Order::ZERO, node);
        let first = area.base + area.holes.take_block()?;
        Some(Frame::new(Order::ZERO, first))
    }

    /// A spare frame of `order` on a node for the folio at `page`, busy from now on.
    pub(crate) fn take_spare(
        &mut self,
        order: Order,
        node: NodeId,
        page: PageIndex,
    ) -> Option<Frame> {
        let area = self.area_mut(order, node);
        let index = area.base + area.spare.take_for(page)?;
        self.spare_pages -= order.pages().0;
        Some(Frame::new(order, index))
    }

    /// A spare frame to give back, draining from now on: the smallest that covers `pages`, or the largest there is.
    pub(crate) fn drain_one(&mut self, pages: u32) -> Option<Frame> {
        let covers = |&order: &Order| self.has_spare(order) && order.pages().0 >= pages;
        let largest = || Order::all().rev().find(|&order| self.has_spare(order));
        let order = Order::all().find(covers).or_else(largest)?;
        self.drain_any_of(order)
    }

    /// The largest spare frame of at most `pages` pages, or the smallest there is, draining from now on.
    pub(crate) fn drain_at_most(&mut self, pages: u32) -> Option<Frame> {
        let fits = |&order: &Order| self.has_spare(order) && order.pages().0 <= pages;
        let smallest = || Order::all().find(|&order| self.has_spare(order));
        let order = Order::all().rev().find(fits).or_else(smallest)?;
        self.drain_any_of(order)
    }

    /// A spare frame of `order`, draining from now on.
    pub(crate) fn drain_any_of(&mut self, order: Order) -> Option<Frame> {
        self.drain_one_of(order, self.spare_node(order)?)
    }

    /// A spare frame of `order` on a node, draining from now on.
    pub(crate) fn drain_one_of(&mut self, order: Order, node: NodeId) -> Option<Frame> {
        let area = self.area_mut(order, node);
        let at = area.spare.take_any()?;
        let index = area.base + at;
        area.draining.set(at as usize, 1, true);
        self.spare_pages -= order.pages().0;
        self.draining_pages += order.pages().0;
        Some(Frame::new(order, index))
    }

    /// Notes that a busy frame has lost its pages.
    pub(crate) fn now_hole(&mut self, frame: Frame) {
        let (area, at) = self.was(frame, PlaceState::Busy);
        area.holes.put(at);
    }

    /// Notes that a busy frame has pages that hold nothing.
    pub(crate) fn now_spare(&mut self, frame: Frame) {
        let (area, at) = self.was(frame, PlaceState::Busy);
        area.spare.put(at);
        self.spare_pages += frame.order().pages().0;
    }

    /// Starts to give a busy frame back: it is draining from now on.
    pub(crate) fn drain_busy(&mut self, frame: Frame) {
        let (area, at) = self.was(frame, PlaceState::Busy);
        area.draining.set(at as usize, 1, true);
        self.draining_pages += frame.order().pages().0;
    }

    /// Notes that a draining frame is a hole. Returns false when it was not draining.
    pub(crate) fn drained(&mut self, frame: Frame) -> bool {
        if self.state_of(frame) != Some(PlaceState::Draining) {
            return false;
        }
        self.draining_pages -= frame.order().pages().0;
        let (area, at) = self.was(frame, PlaceState::Draining);
        area.draining.set(at as usize, 1, false);
        area.holes.put(at);
        true
    }

    /// The state of a place; `None` outside the pool.
    pub(crate) fn state_of(&self, frame: Frame) -> Option<PlaceState> {
        let node = self.node_of(frame);
        let area = self.areas.get(usize::from(node.0))?;
        area[usize::from(frame.order().get())].state_of(frame.index())
    }

    /// The node whose area a frame is in.
    pub(crate) fn node_of(&self, frame: Frame) -> NodeId {
        let places = self.places[usize::from(frame.order().get())];
        NodeId((frame.index() / places) as u8)
    }

    /// The busy places, for checks.
    pub(crate) fn busy(&self) -> impl Iterator<Item = Frame> + '_ {
        let areas = self.areas.iter().flat_map(|areas| Order::all().zip(areas));
        areas.flat_map(|(order, area)| {
            let size = block_of(order);
            let end = (area.first - area.base + area.len) as usize;
            // Most blocks contain only holes or only spare frames. The area begins in the first block.
            let blocks = 0..end.div_ceil(size);
            let may_be_busy = move |&block: &usize| {
                area.holes.in_block(block) + area.spare.in_block(block) < size
            };
            blocks.filter(may_be_busy).flat_map(move |block| {
                let first = area.base + (block * size) as u32;
                (first..first + size as u32)
                    .filter(|&index| area.state_of(index) == Some(PlaceState::Busy))
                    .map(move |index| Frame::new(order, index))
            })
        })
    }

    /// Bytes of memory that the book takes.
    pub(crate) fn bytes(&self) -> u64 {
        self.areas
            .iter()
            .flatten()
            .map(|area| area.holes.bytes() + area.spare.bytes() + area.draining.bytes())
            .sum()
    }

    /// The area of a frame that was `state` until now, and the frame's number in the area's sets.
    fn was(&mut self, frame: Frame, state: PlaceState) -> (&mut Area, u32) {
        let node = self.node_of(frame);
        let area = self.area_mut(frame.order(), node);
        let is = area.state_of(frame.index());
        assert_eq!(is, Some(state), "frame {frame} should be {state:?}");
        let at = frame.index() - area.base;
        (area, at)
    }

    fn area(&self, order: Order, node: NodeId) -> &Area {
        &self.areas[usize::from(node.0)][usize::from(order.get())]
    }

    fn area_mut(&mut self, order: Order, node: NodeId) -> &mut Area {
        &mut self.areas[usize::from(node.0)][usize::from(order.get())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn exactly_the_taken_frames_are_busy() {
        let layout = PoolLayout {
            frames: std::array::from_fn(|order| (1300 >> order) as u32 + 3),
        };
        let mut frames = Frames::new(&layout, 2);
        let mut taken = BTreeSet::new();
        let mut turn = 0_u32;
        for order in (0..60).flat_map(|_| Order::all()) {
            turn = turn.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let (node, page) = (NodeId((turn >> 31) as u8), PageIndex(turn >> 12));
            if frames.holes(order, node) > 0 {
                taken.extend(frames.take_hole(order, node, page));
            }
            if turn.is_multiple_of(3)
                && let Some(frame) = taken.pop_first()
            {
                match turn / 3 % 3 {
                    0 => frames.now_hole(frame),
                    1 => frames.now_spare(frame),
                    _ => frames.drain_busy(frame),
                }
            }
            assert_eq!(frames.busy().collect::<BTreeSet<_>>(), taken);
        }
        let mut drained = 0;
        while let Some(frame) = frames.drain_one(1) {
            drained += u32::from(frames.drained(frame));
            assert_eq!(frames.busy().collect::<BTreeSet<_>>(), taken);
        }
        assert!(drained > 20 && taken.len() > 200);
    }
}
