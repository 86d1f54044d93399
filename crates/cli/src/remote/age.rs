//! The age from which a run counts as dead.

use std::time::Duration;

/// Below this age a live run would be taken for a dead one: it sends a sign of life once a minute, and may need several
/// tries for that.
const LEAST: Duration = Duration::from_secs(5 * 60);

/// Parses a time such as `90m`, `12h`, `7d` or `1day 12h`.
///
/// # Errors
/// When `text` is not a time, or so short that a live run may be silent for that long.
pub fn parse(text: &str) -> Result<Duration, String> {
    let age = humantime::parse_duration(text).map_err(|why| {
        format!("`{text}` is no time ({why}); write a number with m, h or d, such as 90m or 7d")
    })?;
    if age < LEAST {
        return Err(format!(
            "`{text}` is less than 5 minutes; a run that lives may be silent for so long, and would lose memory"
        ));
    }
    Ok(age)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_parsed_with_their_units() {
        for (text, minutes) in [("5m", 5), ("90m", 90), ("12h", 720), ("1day 12h", 2160)] {
            assert_eq!(parse(text), Ok(Duration::from_secs(minutes * 60)), "{text}");
        }
    }

    #[test]
    fn invalid_or_too_short_age_is_named_in_the_error() {
        for text in ["", "7", "d", "soon", "-1h", "4m 59s", "0s"] {
            let refused = parse(text).unwrap_err();
            assert!(refused.starts_with(&format!("`{text}`")), "{refused}");
        }
    }
}
