//! The frame pool's book: which places are holes, which hold spare pages.
//!
//! The pool is a second range of addresses, with an area for each order. A place in it is
//!
//! - a *hole*: addresses without memory, where a take-out can put a folio;
//! - *busy*: it holds a folio in limbo, or a folio on its way in;
//! - *spare*: it has pages that hold nothing. They are the first to be used for the next folio that comes in,
//!   so that memory circulates between program and pool without the kernel's allocator;
//! - *draining*: its pages are being given back to the kernel.
//!
//! Both are used first in, first out: folios taken out in address order then lie in address order in the pool
//! too, and stay in order as their frames go round, so that neighbours can be moved by one system call. (Spare
//! frames used last in, first out turned the order round each time: 1.8 folios a call instead of 6.)

use crate::addr::{Frame, Order};
use crate::config::PoolLayout;
use std::collections::VecDeque;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    Hole,
    Busy,
    Spare,
    Draining,
}

#[derive(Debug)]
struct Area {
    places: Vec<Place>,
    /// Holes that held something before.
    holes: VecDeque<u32>,
    /// Places from here on were never used.
    fresh: u32,
    spare: VecDeque<u32>,
}

/// The book of all areas. Nothing here allocates after it was made.
#[derive(Debug)]
pub(crate) struct Frames {
    areas: [Area; 10],
    spare_pages: u32,
    draining_pages: u32,
}

impl Frames {
    pub(crate) fn new(layout: &PoolLayout) -> Self {
        let areas = layout.frames.map(|n| Area {
            places: vec![Place::Hole; n as usize],
            holes: VecDeque::with_capacity(n as usize),
            fresh: 0,
            spare: VecDeque::with_capacity(n as usize),
        });
        Self {
            areas,
            spare_pages: 0,
            draining_pages: 0,
        }
    }

    /// Pages of all spare frames.
    pub(crate) fn spare_pages(&self) -> u32 {
        self.spare_pages
    }

    /// Pages on their way back to the kernel.
    pub(crate) fn draining_pages(&self) -> u32 {
        self.draining_pages
    }

    /// How many holes `order` has.
    pub(crate) fn holes(&self, order: Order) -> usize {
        let area = self.area(order);
        area.holes.len() + area.places.len() - area.fresh as usize
    }

    /// Whether `order` has a spare frame.
    pub(crate) fn has_spare(&self, order: Order) -> bool {
        !self.area(order).spare.is_empty()
    }

    /// A hole of `order`, busy from now on.
    pub(crate) fn take_hole(&mut self, order: Order) -> Option<Frame> {
        let area = self.area_mut(order);
        let index = match area.holes.pop_front() {
            Some(index) => index,
            None if (area.fresh as usize) < area.places.len() => {
                area.fresh += 1;
                area.fresh - 1
            }
            None => return None,
        };
        area.places[index as usize] = Place::Busy;
        Some(Frame::new(order, index))
    }

    /// A spare frame of `order`, busy from now on.
    pub(crate) fn take_spare(&mut self, order: Order) -> Option<Frame> {
        let area = self.area_mut(order);
        let index = area.spare.pop_front()?;
        area.places[index as usize] = Place::Busy;
        self.spare_pages -= order.pages().0;
        Some(Frame::new(order, index))
    }

    /// A spare frame to give back, draining from now on: the smallest that covers `pages`, or the largest there is.
    pub(crate) fn drain_one(&mut self, pages: u32) -> Option<Frame> {
        let covers = |&order: &Order| self.has_spare(order) && order.pages().0 >= pages;
        let largest = || Order::all().rev().find(|&order| self.has_spare(order));
        let order = Order::all().find(covers).or_else(largest)?;
        self.drain_one_of(order)
    }

    /// The largest spare frame of at most `pages` pages, or the smallest there is, draining from now on.
    pub(crate) fn drain_at_most(&mut self, pages: u32) -> Option<Frame> {
        let fits = |&order: &Order| self.has_spare(order) && order.pages().0 <= pages;
        let smallest = || Order::all().find(|&order| self.has_spare(order));
        let order = Order::all().rev().find(fits).or_else(smallest)?;
        self.drain_one_of(order)
    }

    /// A spare frame of `order`, draining from now on.
    pub(crate) fn drain_one_of(&mut self, order: Order) -> Option<Frame> {
        let frame = self.take_spare(order)?;
        self.set(frame, Place::Busy, Place::Draining);
        self.draining_pages += order.pages().0;
        Some(frame)
    }

    /// A busy frame has lost its pages.
    pub(crate) fn now_hole(&mut self, frame: Frame) {
        self.set(frame, Place::Busy, Place::Hole);
        self.area_mut(frame.order()).holes.push_back(frame.index());
    }

    /// A busy frame has pages that hold nothing.
    pub(crate) fn now_spare(&mut self, frame: Frame) {
        self.set(frame, Place::Busy, Place::Spare);
        self.area_mut(frame.order()).spare.push_back(frame.index());
        self.spare_pages += frame.order().pages().0;
    }

    /// A busy frame is given back, draining from now on.
    pub(crate) fn drain_busy(&mut self, frame: Frame) {
        self.set(frame, Place::Busy, Place::Draining);
        self.draining_pages += frame.order().pages().0;
    }

    /// A draining frame is a hole. False when it was not draining.
    pub(crate) fn drained(&mut self, frame: Frame) -> bool {
        if self.place(frame) != Some(Place::Draining) {
            return false;
        }
        self.draining_pages -= frame.order().pages().0;
        self.set(frame, Place::Draining, Place::Hole);
        self.area_mut(frame.order()).holes.push_back(frame.index());
        true
    }

    /// What a place is; `None` outside the pool.
    pub(crate) fn place(&self, frame: Frame) -> Option<Place> {
        self.area(frame.order())
            .places
            .get(frame.index() as usize)
            .copied()
    }

    /// Busy places, for checks.
    pub(crate) fn busy(&self) -> impl Iterator<Item = Frame> + '_ {
        Order::all().flat_map(move |order| {
            let places = self.area(order).places.iter().enumerate();
            places
                .filter(|(_, place)| **place == Place::Busy)
                .map(move |(i, _)| Frame::new(order, i as u32))
        })
    }

    /// Bytes of memory that the book takes.
    pub(crate) fn bytes(&self) -> u64 {
        self.areas
            .iter()
            .map(|area| area.places.len() as u64 + u64::from(area.fresh) * 8)
            .sum()
    }

    fn set(&mut self, frame: Frame, from: Place, to: Place) {
        let place = &mut self.area_mut(frame.order()).places[frame.index() as usize];
        assert_eq!(
            *place, from,
            "frame {frame} should be {from:?} to become {to:?}"
        );
        *place = to;
    }

    fn area(&self, order: Order) -> &Area {
        &self.areas[usize::from(order.get())]
    }

    fn area_mut(&mut self, order: Order) -> &mut Area {
        &mut self.areas[usize::from(order.get())]
    }
}
