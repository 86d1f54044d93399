//! Sizes of memory for a replay: parts of the trace's footprint, bytes, or pages.

use crate::size::{self, SizeError};

/// Bytes in a page.
const PAGE: u64 = 4096;

/// A size as the user gave it.
#[derive(Clone, PartialEq, Debug)]
pub struct RamSize {
    text: String,
    amount: Amount,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Amount {
    /// Per cent of the footprint.
    Percent(f64),
    Bytes(u64),
    Pages(u64),
}

/// A reason why a size cannot be used for a trace.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RamSizeError {
    /// The size is less than a page.
    #[error(
        "--ram {text} is less than a page of a trace that touches {footprint} pages; give more, such as 25% or 1000p"
    )]
    TooSmall {
        /// The size.
        text: String,
        /// Pages that the trace touches.
        footprint: u32,
    },
    /// The size is more than can be managed.
    #[error("--ram {text} is more than 16 TiB; give less, such as 25% or 64M")]
    TooLarge {
        /// The size.
        text: String,
    },
}

impl RamSize {
    /// Reads `25%`, `64M` or `1000p`.
    ///
    /// # Errors
    /// A line that quotes the text and says how a size is written.
    pub fn parse(text: &str) -> Result<Self, String> {
        let trimmed = text.trim();
        let bad = || format!("`{text}` is not a size; write 25%, 64M or 1000p (pages)");
        let amount = if let Some(number) = trimmed.strip_suffix('%') {
            let percent: f64 = number.trim_end().parse().map_err(|_| bad())?;
            if !(percent > 0.0 && percent <= 1000.0) {
                return Err(format!(
                    "`{text}` is not a share of the footprint; write more than 0% and at most 1000%"
                ));
            }
            Amount::Percent(percent)
        } else if let Some(number) = trimmed.strip_suffix(['p', 'P']) {
            Amount::Pages(number.trim_end().parse().map_err(|_| bad())?)
        } else {
            Amount::Bytes(size::parse(trimmed).map_err(|error| match error {
                SizeError::Malformed(_) => bad(),
                SizeError::Negative(_) => format!("`{text}` is negative; write 25%, 64M or 1000p"),
                error => error.to_string(),
            })?)
        };
        Ok(Self {
            text: trimmed.to_owned(),
            amount,
        })
    }

    /// The size as it was given.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The number of pages of this size for a trace that touches `footprint` pages, rounded down.
    ///
    /// # Errors
    /// When the size is less than a page, or more than can be managed.
    pub fn pages(&self, footprint: u32) -> Result<u32, RamSizeError> {
        let pages = match self.amount {
            Amount::Percent(percent) => (f64::from(footprint) * percent / 100.0) as u64,
            Amount::Bytes(bytes) => bytes / PAGE,
            Amount::Pages(pages) => pages,
        };
        let text = || self.text.clone();
        if pages > u64::from(millpond_core::limits::MAX_ARENA_PAGES) {
            return Err(RamSizeError::TooLarge { text: text() });
        }
        match pages as u32 {
            0 => Err(RamSizeError::TooSmall {
                text: text(),
                footprint,
            }),
            pages => Ok(pages),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_parse_as_percentages_bytes_and_pages() {
        for (text, pages) in [
            ("25%", 250),
            ("12.5 %", 125),
            ("200%", 2000),
            ("64M", 16384),
            ("4096", 1),
            ("1000p", 1000),
            ("7P", 7),
        ] {
            assert_eq!(
                RamSize::parse(text).unwrap().pages(1000),
                Ok(pages),
                "{text}"
            );
        }
    }

    #[test]
    fn invalid_size_is_named_with_the_valid_forms() {
        for text in [
            "", "%", "x%", "0%", "-5%", "NaN%", "inf%", "1e9%", "p", "-1p", "-3M", "lots",
        ] {
            let error = RamSize::parse(text).unwrap_err();
            assert!(error.contains(&format!("`{text}`")), "{error}");
            assert!(error.contains('%'), "{error}");
        }
    }

    #[test]
    fn less_than_a_page_is_refused() {
        for text in ["0.01%", "4095", "0p"] {
            let error = RamSize::parse(text).unwrap().pages(1000).unwrap_err();
            assert!(error.to_string().contains(text), "{error}");
        }
        let error = RamSize::parse("17T").unwrap().pages(1000).unwrap_err();
        assert!(error.to_string().contains("17T"), "{error}");
    }
}
