//! Pieces of objects that were fetched for a part of them: the neighbours of a page that was asked for.
//!
//! A piece has its place before it is here. The first to find the place empty fetches the piece while holding the
//! place, so that others wait for the same request. A place whose fetch fails stays empty, and the next one tries.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// Bytes in a piece, which begins at a multiple of this.
pub(super) const PIECE: usize = 64 << 10;

/// A piece, or the place for it.
pub(super) type Place = Arc<tokio::sync::Mutex<Option<Vec<u8>>>>;

/// The most recently used pieces.
pub(super) struct Kept {
    /// Object, number of the piece in it, and the piece; the most recently used one is last.
    places: VecDeque<(u64, u64, Place)>,
    most: usize,
}

impl Kept {
    /// Makes room for this many bytes, but at least for one piece.
    pub(super) fn new(bytes: usize) -> Self {
        Self {
            places: VecDeque::new(),
            most: (bytes / PIECE).max(1),
        }
    }

    /// Returns the piece with which a range is fetched, if it is a part of one.
    pub(super) fn piece(bytes: &Range<u64>) -> Option<u64> {
        let of = |byte: u64| byte / PIECE as u64;
        let is_part =
            bytes.end - bytes.start < PIECE as u64 && of(bytes.start) == of(bytes.end - 1);
        is_part.then(|| of(bytes.start))
    }

    /// Returns the place of a piece. The least recently used piece makes room for it.
    pub(super) fn place(&mut self, object: u64, piece: u64) -> Place {
        let mut places = self.places.iter();
        let found = places.position(|place| (place.0, place.1) == (object, piece));
        let found = match found.and_then(|at| self.places.remove(at)) {
            Some((_, _, place)) => place,
            None => Place::default(),
        };
        if self.places.len() == self.most {
            self.places.pop_front();
        }
        self.places.push_back((object, piece, Arc::clone(&found)));
        found
    }

    /// Drops the pieces of an object.
    pub(super) fn forget(&mut self, object: u64) {
        self.places.retain(|place| place.0 != object);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pieces_that_were_used_last_are_kept() {
        let mut kept = Kept::new(3 * PIECE);
        let first = kept.place(0, 7);
        for piece in 0..3 {
            kept.place(0, piece);
            assert!(Arc::ptr_eq(&first, &kept.place(0, 7)), "{piece}");
        }
        kept.place(1, 7);
        kept.place(1, 8);
        kept.place(1, 9);
        assert!(!Arc::ptr_eq(&first, &kept.place(0, 7)));
        kept.forget(1);
        assert_eq!(kept.places.len(), 1);
    }

    #[test]
    fn a_read_within_a_piece_fetches_the_whole_piece() {
        let piece = PIECE as u64;
        let cases = [
            (0..4096, Some(0)),
            (piece - 4096..piece, Some(0)),
            (piece..piece + 1, Some(1)),
            (0..piece, None),
            (piece - 4096..piece + 4096, None),
            (4 * piece..8 * piece, None),
        ];
        for (range, expected) in cases {
            assert_eq!(Kept::piece(&range), expected, "{range:?}");
        }
    }
}
