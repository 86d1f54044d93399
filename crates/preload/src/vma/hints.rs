//! Hints that are meant.
//!
//! A program may name an address for a mapping without insisting on it. Addresses outside the space are not ours to
//! give, and what the kernel maps there is outside the budget. Most programs that name them do not mind where they are:
//! V8 and mimalloc draw them at random. They get memory from the space. But a few do nothing without the very address,
//! as its bits have a meaning: ZGC maps its heap at 4, 8 and 16 TiB.
//!
//! One can tell them by what they do next: they unmap at once what they have got, and name another address for the same
//! length, time and again. After [`IN_A_ROW`] such refusals hints outside the space are the kernel's, from then on. ZGC
//! tries 8192 times. An allocator that wants an aligned place asks without an address after the first try; Go, whose
//! heap begins at an address drawn at random since 1.26, after 128. What these then get is managed.

use super::Range;

/// So many refused addresses are a program that means them.
const IN_A_ROW: u32 = 256;

/// What became of hints outside the space.
#[derive(Default)]
pub struct Hints {
    /// What the program got where it had named another address, until it unmaps that.
    instead: Option<Range>,
    /// How long that was.
    len: usize,
    in_a_row: u32,
}

impl Hints {
    /// Whether the program minds.
    pub fn are_meant(&self) -> bool {
        self.in_a_row >= IN_A_ROW
    }

    /// A hint was passed over, and `instead` mapped.
    pub fn passed_over(&mut self, instead: Range) {
        if self.instead.is_some() || self.len != instead.len() {
            self.in_a_row = 0;
        }
        self.len = instead.len();
        self.instead = Some(instead);
    }

    /// Something was mapped without a hint.
    pub fn asked_without(&mut self) {
        if !self.are_meant() {
            *self = Self::default();
        }
    }

    /// The program has unmapped `range`.
    pub fn unmapped(&mut self, range: &Range) {
        if self.instead.as_ref() == Some(range) {
            self.in_a_row += 1;
            self.instead = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refuse(hints: &mut Hints, len: usize) {
        hints.passed_over(100..100 + len);
        hints.unmapped(&(100..100 + len));
    }

    #[test]
    fn hints_are_meant_when_what_came_instead_is_refused_time_and_again() {
        let mut hints = Hints::default();
        (1..IN_A_ROW).for_each(|_| refuse(&mut hints, 8));
        assert!(!hints.are_meant());
        refuse(&mut hints, 8);
        assert!(hints.are_meant());
        hints.asked_without();
        assert!(hints.are_meant(), "for good");
    }

    #[test]
    fn who_keeps_one_or_does_without_does_not_mind() {
        for other in [
            |hints: &mut Hints| hints.passed_over(7..9),
            |hints: &mut Hints| refuse(hints, 9),
            Hints::asked_without,
        ] {
            let mut hints = Hints::default();
            for _ in 0..2 * IN_A_ROW {
                refuse(&mut hints, 8);
                other(&mut hints);
            }
            assert!(!hints.are_meant());
        }
    }
}
