//! Sizes as people write them, such as `64M`, `1.5G`, `512MiB`, `268435456`.
//!
//! `K`, `M`, `G`, `T` and their `iB` forms are powers of 1,024; `KB`, `MB`, `GB`, `TB` are powers of 1,000, as in GNU's
//! tools. The arithmetic uses integers of 128 bits, so that `0.1G` is exact and nothing overflows silently.

use std::fmt;

/// Smallest budget, in bytes: the least that the core accepts.
pub const MIN_RAM: u64 = millpond_core::limits::MIN_LIMIT_PAGES as u64 * 4096;
/// Largest budget, in bytes.
pub const MAX_RAM: u64 = millpond_core::limits::MAX_ARENA_PAGES as u64 * 4096;

/// Why a size cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SizeError {
    /// The text is not a number with a known unit.
    #[error("`{0}` is not a size; write a number with K, M, G or T, such as 64M or 1.5G")]
    Malformed(String),
    /// The size is a number with a minus sign.
    #[error("`{0}` is negative; a size is at least {min}", min = Human(MIN_RAM))]
    Negative(String),
    /// The size is zero, or less than one byte.
    #[error("`{0}` is zero; a budget is at least {min}", min = Human(MIN_RAM))]
    Zero(String),
    /// The size is below [`MIN_RAM`].
    #[error("`{0}` is too small; a budget is at least {min}", min = Human(MIN_RAM))]
    TooSmall(String),
    /// The size is above [`MAX_RAM`].
    #[error("`{0}` is too large; a budget is at most {max}", max = Human(MAX_RAM))]
    TooLarge(String),
}

/// Bytes of `text`.
///
/// # Errors
/// When `text` is not a size, or does not fit 64 bits.
pub fn parse(text: &str) -> Result<u64, SizeError> {
    let malformed = || SizeError::Malformed(text.to_owned());
    let trimmed = text.trim();
    if let Some(rest) = trimmed.strip_prefix('-') {
        let number = rest.starts_with(|c: char| c.is_ascii_digit());
        return Err(if number {
            SizeError::Negative(text.to_owned())
        } else {
            malformed()
        });
    }
    let split = trimmed
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(split);
    let unit = unit_bytes(unit.trim_start()).ok_or_else(malformed)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
        return Err(malformed());
    }
    // Twenty digits are more than 64 bits hold; a longer number is an overflow, or a precision that nobody can see.
    let whole = whole.trim_start_matches('0');
    if whole.len() > 20 {
        return Err(SizeError::TooLarge(text.to_owned()));
    }
    let fraction = &fraction[..fraction.len().min(18)];
    let digits = |s: &str| {
        if s.is_empty() {
            Ok(0)
        } else {
            s.parse::<u128>()
        }
    };
    let (Ok(whole), Ok(part)) = (digits(whole), digits(fraction)) else {
        return Err(malformed());
    };
    let bytes = whole * unit + part * unit / 10u128.pow(fraction.len() as u32);
    u64::try_from(bytes).map_err(|_| SizeError::TooLarge(text.to_owned()))
}

/// A budget for `millpond run --ram`: a size within what Millpond can manage.
///
/// # Errors
/// When `text` is not a size, is zero, or is outside [`MIN_RAM`]..=[`MAX_RAM`].
pub fn parse_ram(text: &str) -> Result<u64, SizeError> {
    match parse(text)? {
        0 => Err(SizeError::Zero(text.to_owned())),
        bytes if bytes < MIN_RAM => Err(SizeError::TooSmall(text.to_owned())),
        bytes if bytes > MAX_RAM => Err(SizeError::TooLarge(text.to_owned())),
        bytes => Ok(bytes),
    }
}

fn unit_bytes(unit: &str) -> Option<u128> {
    let unit = unit.to_ascii_lowercase();
    let (power, rest) = match unit.chars().next() {
        None | Some('b') => (0, unit.as_str()),
        Some(letter) => ("kmgt".find(letter)? as u32 + 1, &unit[1..]),
    };
    match (power, rest) {
        (0, "" | "b") => Some(1),
        (1.., "" | "i" | "ib") => Some(1 << (10 * power)),
        (1.., "b") => Some(1000u128.pow(power)),
        _ => None,
    }
}

/// Bytes in human-readable form: three significant figures and a binary unit.
#[derive(Clone, Copy, Debug)]
pub struct Human(pub u64);

impl fmt::Display for Human {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
        let mut value = self.0 as f64;
        let mut unit = 0;
        while value >= 1023.5 && unit + 1 < UNITS.len() {
            value /= 1024.0;
            unit += 1;
        }
        let exact = unit == 0 || value.fract() == 0.0;
        let decimals = if exact || value >= 99.95 { 0 } else { 1 };
        f.pad(&format!("{value:.decimals$} {}", UNITS[unit]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_parsed_with_their_units() {
        for (text, bytes) in [
            ("64M", 64 << 20),
            ("64m", 64 << 20),
            ("1.5G", 3 << 29),
            ("512MiB", 512 << 20),
            ("512Mi", 512 << 20),
            ("512 MiB", 512 << 20),
            ("20MB", 20_000_000),
            ("67108864", 64 << 20),
            ("67108864B", 64 << 20),
            (".5G", 1 << 29),
            ("2.G", 2 << 30),
            ("0064M", 64 << 20),
            ("1T", 1 << 40),
        ] {
            assert_eq!(parse_ram(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn invalid_size_is_named_in_the_error() {
        for text in [
            "", "M", "6x", "1..5G", "1.5.5G", "0x10M", "64MiBs", "1e9", ".", "+5M", "-M", "NaN",
            "64 M B",
        ] {
            assert_eq!(
                parse_ram(text),
                Err(SizeError::Malformed(text.to_owned())),
                "{text}"
            );
        }
    }

    #[test]
    fn size_out_of_bounds_names_the_bound() {
        for text in ["0", "0M", "0.0000000001K"] {
            assert_eq!(
                parse_ram(text),
                Err(SizeError::Zero(text.to_owned())),
                "{text}"
            );
        }
        for text in ["1", "15.99M", "16777215"] {
            assert_eq!(
                parse_ram(text),
                Err(SizeError::TooSmall(text.to_owned())),
                "{text}"
            );
        }
        for text in [
            "17T",
            "18446744073709551616",
            "99999999999999999999999T",
            "18446744073709551615G",
        ] {
            assert_eq!(
                parse_ram(text),
                Err(SizeError::TooLarge(text.to_owned())),
                "{text}"
            );
        }
        assert_eq!(parse_ram("-5M"), Err(SizeError::Negative("-5M".to_owned())));
        assert_eq!(parse_ram("16M"), Ok(MIN_RAM));
    }

    #[test]
    fn bytes_are_printed_readably() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1 KiB"),
            (1536, "1.5 KiB"),
            (MIN_RAM, "16 MiB"),
            (255 << 20 | 1 << 19, "256 MiB"),
            (u64::MAX, "16777216 TiB"),
        ] {
            assert_eq!(Human(bytes).to_string(), text);
        }
    }
}
