//! Maps the zeros of several folios in one call.
//!
//! A stream of touches is answered with a window of folios. If they are neighbours in the arena, and their frames in
//! the pool, the fixed cost of a call is paid only once: the entry into the kernel, and the interrupt of other
//! processors. New pages need no frames, so any neighbours will do. At most 2 MiB go together; a folio of that size
//! is a call of its own (`huge.rs`).
//!
//! Small folios that together fill a leaf get a huge page, like a folio of 2 MiB: 0.2 µs a page, whereas small pages
//! take 0.8. It stays a huge page as long as the folios come and go together, which the core ensures
//! (`core/src/tables/places.rs`). When one of them leaves, or comes back, alone, the kernel splits it into 512 small
//! pages, which takes 300 µs: then the leaf has cost as much as small pages would have cost from the start. When one
//! is dropped alone, its memory becomes free when the kernel is short of memory.
//!
//! A call that stops halfway is finished folio by folio, by the rules of `install.rs`.

use millpond_core::{Frame, InstallError, Order, PAGE_SIZE, PageRange, Placed};

use super::UffdMemory;
use super::cost::Method;
use super::huge::LEAVES;
use super::install::AtBorder;
use super::transfer::Existing;
use crate::pool::Pool;
use crate::reservation::HUGE;

/// Whether a huge page can map the range.
pub(super) fn is_leaf(start: usize, len: usize) -> bool {
    len == HUGE && start.is_multiple_of(HUGE)
}

impl UffdMemory {
    /// Implements [`Mmu::install_zero_all`](millpond_core::Mmu::install_zero_all).
    pub(super) fn install_zero_all(
        &self,
        work: &[(PageRange, Option<Frame>)],
        results: &mut [Result<Placed, InstallError>],
    ) {
        assert_eq!(work.len(), results.len(), "one result for each folio");
        let mut first = 0;
        while first < work.len() {
            let rest = &work[first..];
            let (count, install): (_, fn(&Self, &[_], &mut [_])) = match self.leaves(rest) {
                0 => (self.zero_run(rest), Self::install_zero_run),
                leaves => (leaves, Self::install_zero_leaves),
            };
            install(self, &rest[..count], &mut results[first..first + count]);
            first += count;
        }
    }

    /// Counts the folios, from the start, that are neighbouring leaves of new zeros.
    fn leaves(&self, work: &[(PageRange, Option<Frame>)]) -> usize {
        let from = self.common.at(work[0].0.start);
        let next = |&(n, (at, frame)): &(usize, &(PageRange, Option<Frame>))| {
            let (start, len) = (self.common.at(at.start), at.len.bytes() as usize);
            is_leaf(start, len) && frame.is_none() && start == from + n * HUGE
        };
        work.iter()
            .take(LEAVES)
            .enumerate()
            .take_while(next)
            .count()
    }

    fn install_zero_leaves(
        &self,
        run: &[(PageRange, Option<Frame>)],
        results: &mut [Result<Placed, InstallError>],
    ) {
        let mut placed = [0; LEAVES];
        let placed = &mut placed[..run.len()];
        self.place_zeros_at_all(self.common.at(run[0].0.start), placed);
        for ((&(at, _), &mut huge), result) in run.iter().zip(placed).zip(results) {
            let (start, rest) = (self.common.at(at.start) + huge, HUGE - huge);
            *result = self
                .copy(start, self.common.zeros.of(rest), rest, Existing::Stays)
                .map(|()| Placed::Copied)
                .map_err(|stopped| self.give_up_zeros(at, huge + stopped.done));
        }
    }

    /// Counts the folios, from the start, that are neighbours, up to 2 MiB and within a block of the pool.
    fn zero_run(&self, work: &[(PageRange, Option<Frame>)]) -> usize {
        let (at, first) = work[0];
        let end = |at: PageRange| self.common.at(at.start) + at.len.bytes() as usize;
        let mut next = (
            end(at),
            first.map(|frame| self.common.pool.addr(frame) + frame.order().bytes()),
        );
        let mut bytes = at.len.bytes() as usize;
        for (n, &(at, frame)) in work.iter().enumerate().skip(1) {
            bytes += at.len.bytes() as usize;
            let here = (
                self.common.at(at.start),
                frame.map(|frame| self.common.pool.addr(frame)),
            );
            let apart = first
                .zip(frame)
                .is_some_and(|(first, frame)| !Pool::same_mapping(first, frame));
            if here != next || bytes > HUGE || apart {
                return n;
            }
            next = (
                end(at),
                frame.map(|frame| self.common.pool.addr(frame) + frame.order().bytes()),
            );
        }
        work.len()
    }

    fn install_zero_run(
        &self,
        run: &[(PageRange, Option<Frame>)],
        results: &mut [Result<Placed, InstallError>],
    ) {
        let dst = self.common.at(run[0].0.start);
        let len = run.iter().map(|(at, _)| at.len.bytes() as usize).sum();
        let mapped = match run[0].1 {
            _ if run.len() == 1 => 0,
            None => {
                let huge = if is_leaf(dst, len) {
                    self.place_zeros(dst)
                } else {
                    0
                };
                let zeros = self.common.zeros.of(len - huge);
                self.copy(dst + huge, zeros, len - huge, Existing::Stays)
                    .map_or_else(|stopped| huge + stopped.done, |()| len)
            }
            Some(first) => self.move_zeros(run, dst, self.common.pool.addr(first), len),
        };
        let mut before = 0;
        for (&(at, frame), result) in run.iter().zip(results) {
            let (start, len) = (self.common.at(at.start), at.len.bytes() as usize);
            let done = mapped.saturating_sub(before).min(len);
            before += len;
            *result = match frame {
                Some(frame) if done > 0 => {
                    let lease = self.common.pool.lease(frame);
                    self.complete(&lease, start, (done, done), AtBorder::Split)
                }
                None if done == len => Ok(Placed::Copied),
                _ => {
                    // The program is unmapping memory here right now.
                    self.common.drop_pages(start, done);
                    self.install_zero(at, frame)
                }
            };
        }
    }

    /// Moves the zeroed frames of a run. Returns how many bytes were moved: none if copying is cheaper.
    fn move_zeros(
        &self,
        run: &[(PageRange, Option<Frame>)],
        dst: usize,
        src: usize,
        len: usize,
    ) -> usize {
        let size = (len / PAGE_SIZE).ilog2() as u8;
        let choice = self.choose(Order::new(size).expect("up to 2 MiB"));
        if choice.method != Method::Move {
            return 0;
        }
        for frame in run.iter().filter_map(|(_, frame)| *frame) {
            let mut lease = self.common.pool.lease(frame);
            // SAFETY: the caller guarantees that the frame is populated.
            unsafe { lease.bytes_mut() }.fill(0);
        }
        if is_leaf(dst, len) && is_leaf(src, len) {
            self.make_room(dst, HUGE);
        }
        self.move_some(dst, src, len, 0).0
    }
}
