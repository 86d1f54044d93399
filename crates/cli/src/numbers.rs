//! Numbers and times as people read them.

use std::fmt::{self, Write as _};

/// A number with a comma between thousands.
#[derive(Clone, Copy, Debug)]
pub struct Thousands(pub u64);

impl fmt::Display for Thousands {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.0.to_string();
        for (index, digit) in digits.chars().enumerate() {
            if index > 0 && (digits.len() - index).is_multiple_of(3) {
                f.write_char(',')?;
            }
            f.write_char(digit)?;
        }
        Ok(())
    }
}

/// Nanoseconds in the unit that suits them.
#[derive(Clone, Copy, Debug)]
pub struct Time(pub u64);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ns = self.0 as f64;
        match self.0 {
            0..1_000 => write!(f, "{} ns", self.0),
            1_000..1_000_000 => write!(f, "{:.1} µs", ns / 1e3),
            1_000_000..1_000_000_000 => write!(f, "{:.1} ms", ns / 1e6),
            _ => write!(f, "{:.2} s", ns / 1e9),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_printed_readably() {
        let thousands = [0, 999, 1000, 1_234_567].map(|n| Thousands(n).to_string());
        assert_eq!(thousands, ["0", "999", "1,000", "1,234,567"]);
        let times = [5, 1500, 2_000_000, 61_000_000_000].map(|n| Time(n).to_string());
        assert_eq!(times, ["5 ns", "1.5 µs", "2.0 ms", "61.00 s"]);
    }
}
