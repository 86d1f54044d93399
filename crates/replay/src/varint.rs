//! LEB128 of zigzag deltas: turns a sequence of 64-bit numbers into few bytes.
//!
//! Neighbours in a trace are mostly close together, in either direction. The difference of two of them (modulo 2^64) is
//! folded so that small negative numbers are small too (0, -1, 1, -2 … become 0, 1, 2, 3 …). It is written seven bits a
//! byte, the lowest first, with the highest bit set in all bytes but the last.

/// The most bytes that one number takes.
pub(crate) const MAX_BYTES: usize = 10;

/// A decoder of a sequence, byte by byte.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Decoder {
    last: u64,
    bits: u64,
    shift: u32,
}

/// Error: a number has more than 64 bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Overlong;

impl Decoder {
    /// Takes one byte. Answers the value that it completes, if it does.
    pub(crate) fn push(&mut self, byte: u8) -> Result<Option<u64>, Overlong> {
        let low = u64::from(byte & 0x7f);
        if self.shift == 63 && low > 1 {
            return Err(Overlong);
        }
        self.bits |= low << self.shift;
        if byte & 0x80 != 0 {
            self.shift += 7;
            return if self.shift > 63 {
                Err(Overlong)
            } else {
                Ok(None)
            };
        }
        let delta = (self.bits >> 1) ^ (self.bits & 1).wrapping_neg();
        self.last = self.last.wrapping_add(delta);
        (self.bits, self.shift) = (0, 0);
        Ok(Some(self.last))
    }

    /// Whether the bytes so far end between two numbers.
    pub(crate) fn is_at_boundary(&self) -> bool {
        self.shift == 0
    }
}

/// An encoder of a sequence.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Encoder {
    last: u64,
}

impl Encoder {
    /// The bytes for `value`, and their number.
    pub(crate) fn push(&mut self, value: u64) -> ([u8; MAX_BYTES], usize) {
        let delta = value.wrapping_sub(self.last) as i64;
        self.last = value;
        let mut bits = ((delta << 1) ^ (delta >> 63)) as u64;
        let mut bytes = [0; MAX_BYTES];
        let mut len = 0;
        while bits >= 0x80 {
            bytes[len] = bits as u8 | 0x80;
            bits >>= 7;
            len += 1;
        }
        bytes[len] = bits as u8;
        (bytes, len + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_of_more_than_64_bits_are_refused() {
        let mut decoder = Decoder::default();
        let overlong = [0xff; MAX_BYTES]
            .into_iter()
            .find_map(|byte| decoder.push(byte).err());
        assert_eq!(overlong, Some(Overlong));
        let mut decoder = Decoder::default();
        let mut last = Ok(None);
        for byte in [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02] {
            last = decoder.push(byte);
        }
        assert_eq!(last, Err(Overlong));
    }

    proptest! {
        #[test]
        fn what_was_encoded_is_decoded(values in prop::collection::vec(any::<u64>(), 0..100)) {
            let (mut encoder, mut decoder) = (Encoder::default(), Decoder::default());
            let mut decoded = Vec::new();
            for &value in &values {
                let (bytes, len) = encoder.push(value);
                for &byte in &bytes[..len] {
                    decoded.extend(decoder.push(byte).unwrap());
                }
                prop_assert!(decoder.is_at_boundary());
            }
            prop_assert_eq!(decoded, values);
        }
    }
}
