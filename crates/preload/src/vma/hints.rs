//! Hints: addresses that a program suggests for a mapping, and how to tell whether it insists on them.
//!
//! A program may suggest an address for a mapping without insisting on it. Addresses outside the space are not ours
//! to give, and memory that the kernel maps there is outside the budget. Most programs that suggest such addresses do
//! not mind where their memory is: V8 and mimalloc draw them at random. They get memory from the space. But a few
//! cannot use any other address, since its bits have a meaning: ZGC maps its heap at 4, 8 and 16 TiB.
//!
//! Such programs reveal themselves by what they do next: they unmap at once what they got, and name another address
//! for the same length, time and again. After [`IN_A_ROW`] such rejections, hints outside the space go to the kernel
//! from then on. ZGC tries 8192 times. Other programs give up sooner, and the memory that they get is managed: an
//! allocator that wants an aligned place asks without an address after the first try; Go, whose heap has started at a
//! random address since 1.26, after 128 tries.

use super::Range;

/// A program that rejects this many addresses in a row insists on its own.
const IN_A_ROW: u32 = 256;

/// The history of hints outside the space.
#[derive(Default)]
pub struct Hints {
    /// The range that the program got instead of the address that it had named, until it unmaps that range.
    instead: Option<Range>,
    /// The length of the last such range.
    len: usize,
    in_a_row: u32,
}

impl Hints {
    /// Returns whether the program insists on its addresses.
    pub fn are_meant(&self) -> bool {
        self.in_a_row >= IN_A_ROW
    }

    /// Records that a hint was ignored, and `instead` mapped.
    pub fn passed_over(&mut self, instead: Range) {
        if self.instead.is_some() || self.len != instead.len() {
            self.in_a_row = 0;
        }
        self.len = instead.len();
        self.instead = Some(instead);
    }

    /// Records that memory was mapped without a hint.
    pub fn asked_without(&mut self) {
        if !self.are_meant() {
            *self = Self::default();
        }
    }

    /// Records that the program has unmapped `range`.
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
    fn hints_count_as_meant_after_repeated_refusals_of_substitutes() {
        let mut hints = Hints::default();
        (1..IN_A_ROW).for_each(|_| refuse(&mut hints, 8));
        assert!(!hints.are_meant());
        refuse(&mut hints, 8);
        assert!(hints.are_meant());
        hints.asked_without();
        assert!(hints.are_meant(), "for good");
    }

    #[test]
    fn keeping_a_substitute_or_asking_without_a_hint_resets_the_count() {
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
