//! Reading ahead: what left memory together comes back together.
//!
//! A request takes milliseconds however few bytes it brings. Slots are packed in the order in which they left memory,
//! so a program that reads in that order finds what it needs next right after what it has just fetched. A load that
//! continues where an earlier one ended, in the same object or at the beginning of the next, doubles the amount
//! fetched beyond it, up to the end of the object. Every load also fetches its neighbours, as far as past loads show
//! that these are wanted ([`neighbours`](crate::neighbours)). Surplus bytes are kept, still sealed, up to a limit;
//! the oldest are dropped first. There is room for several objects, because two threads save: what is adjacent in
//! memory may be in one object and in the fourth after it, and a stream alternates between them. (With room for one,
//! a stream fetched 2.75 times for each object, and a third of all bytes twice.)
//!
//! A load that wants some pages of a chunk fetches the whole chunk, because it is sealed as a unit. The chunk is kept
//! in the same way: a walk that touches every other page would otherwise fetch it eight times.
//!
//! When the guess is wrong, bytes were paid for and not used: at most as many as the stream had used before.

use crate::format::{PREAMBLE, UNIT};
use crate::neighbours::Neighbours;
use std::collections::VecDeque;
use std::ops::Range;

/// The number of streams that are followed concurrently.
const STREAMS: usize = 8;
/// Units fetched beyond the first load that continues a stream: 64 KiB.
const FIRST: u32 = (64 << 10) / UNIT as u32;
/// The maximum number of units between two loads of one stream. Slots that died leave such gaps.
const GAP: u32 = (64 << 10) / UNIT as u32;

#[derive(Clone, Copy)]
struct Stream {
    object: u64,
    end: u32,
    window: u32,
}

struct Kept {
    object: u64,
    units: Range<u32>,
    bytes: Vec<u8>,
}

/// Bytes that were fetched ahead. The module's documentation describes them.
pub(crate) struct Ahead {
    most: usize,
    /// The maximum number of units fetched beyond a load.
    widest: u32,
    held: usize,
    streams: VecDeque<Stream>,
    neighbours: Neighbours,
    kept: VecDeque<Kept>,
}

impl Ahead {
    /// Keeps up to `most` bytes, and fetches up to `widest` of them at a time. If `most` is 0, nothing is fetched
    /// ahead.
    pub(crate) fn new(most: usize, widest: usize) -> Self {
        let widest = widest.min(most);
        Self {
            most,
            widest: (widest / UNIT) as u32,
            held: 0,
            streams: VecDeque::new(),
            neighbours: Neighbours::new(widest),
            kept: VecDeque::new(),
        }
    }

    /// Returns the bytes of these units, if they are here.
    pub(crate) fn find(&mut self, object: u64, units: &Range<u32>) -> Option<Vec<u8>> {
        let has = |kept: &&Kept| {
            kept.object == object && kept.units.start <= units.start && units.end <= kept.units.end
        };
        let kept = self.kept.iter().find(has)?;
        let start = (units.start - kept.units.start) as usize * UNIT;
        let len = units.len() * UNIT;
        Some(kept.bytes[start..start + len].to_vec())
    }

    /// Returns the units to fetch for a load of `units` in an object whose chunks end at `end`, and whether the load
    /// continues a stream. The result includes `units`.
    pub(crate) fn plan(&mut self, object: u64, units: &Range<u32>, end: u32) -> (Range<u32>, bool) {
        let begin = (PREAMBLE / UNIT) as u32;
        let continues = |stream: &Stream| {
            let here =
                stream.object == object && (stream.end..=stream.end + GAP).contains(&units.start);
            let next =
                stream.object + 1 == object && units.start <= begin + GAP && stream.window > 0;
            here || next
        };
        let window = match self.streams.iter().position(continues) {
            Some(at) => self
                .streams
                .remove(at)
                .map_or(0, |stream| (2 * stream.window).max(FIRST)),
            None => 0,
        };
        let window = window.min(self.widest);
        self.note(Stream {
            object,
            end: units.end,
            window,
        });
        self.neighbours.note(object, units);
        let around = self.neighbours.around(units, end);
        let stream = (units.end + window).min(end.max(units.end));
        (around.start..around.end.max(stream), window > 0)
    }

    /// Continues the stream of a load that was served from here. Returns whether there is one.
    pub(crate) fn passed(&mut self, object: u64, units: &Range<u32>) -> bool {
        self.neighbours.note(object, units);
        let follows = |stream: &&mut Stream| {
            stream.object == object && (stream.end..=stream.end + GAP).contains(&units.start)
        };
        let Some(stream) = self.streams.iter_mut().find(follows) else {
            return false;
        };
        stream.end = units.end;
        stream.window > 0
    }

    fn note(&mut self, stream: Stream) {
        if self.streams.len() == STREAMS {
            self.streams.pop_front();
        }
        self.streams.push_back(stream);
    }

    /// Keeps fetched bytes.
    pub(crate) fn keep(&mut self, object: u64, units: Range<u32>, bytes: Vec<u8>) {
        if bytes.len() > self.most {
            return;
        }
        self.held += bytes.len();
        self.kept.push_back(Kept {
            object,
            units,
            bytes,
        });
        while self.held > self.most {
            let oldest = self.kept.pop_front();
            self.held -= oldest.map_or(0, |kept| kept.bytes.len());
        }
    }

    /// Drops what is here of an object that is gone, or was damaged.
    pub(crate) fn forget(&mut self, object: u64) {
        let held = &mut self.held;
        self.kept.retain(|kept| {
            let stays = kept.object != object;
            *held -= if stays { 0 } else { kept.bytes.len() };
            stays
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sequential_reads_are_fetched_ahead() {
        let mut ahead = Ahead::new(1 << 20, 1 << 20);
        let end = 60_000;
        assert_eq!(ahead.plan(5, &(1000..1010), end), (1000..1010, false));
        assert_eq!(
            ahead.plan(5, &(40_000..40_010), end),
            (40_000..40_010, false)
        );
        // The first of the two continues.
        assert_eq!(
            ahead.plan(5, &(1010..1020), end),
            (1010..1020 + FIRST, true)
        );
        assert!(ahead.passed(5, &(1020..1100)));
        assert!(!ahead.passed(5, &(50_000..50_010)));
        assert_eq!(
            ahead.plan(5, &(1100..1110), end),
            (1100..1110 + 2 * FIRST, true)
        );
        // It also continues into the next object.
        assert_eq!(ahead.plan(6, &(1..11), end), (1..11 + 4 * FIRST, true));
        // It never extends beyond the object's end.
        assert_eq!(ahead.plan(6, &(11..21), 100), (11..100, true));
    }

    #[test]
    fn kept_bytes_stay_within_their_limit() {
        let mut ahead = Ahead::new(1 << 10, 1 << 10);
        for object in 0..10 {
            ahead.keep(object, 1..17, vec![object as u8; 256]);
        }
        assert!(ahead.held <= 1 << 10);
        assert_eq!(ahead.find(0, &(1..2)), None);
        assert_eq!(ahead.find(9, &(2..4)), Some(vec![9; 32]));
        assert_eq!(ahead.find(9, &(2..18)), None);
        ahead.forget(9);
        assert_eq!((ahead.find(9, &(2..4)), ahead.held), (None, 768));
    }
}
