//! Whether a process is dormant, or when and why it engaged, in words.

use crate::numbers::Time;
use millpond_board::{EngagedFor, Field};

/// Describes a process with these figures; `None` if it has been managed from its start.
///
/// ```
/// use millpond_board::Field;
/// use millpond_cli::dormancy::words;
/// assert_eq!(words(|_| 0), None);
/// let dormant = |field| u64::from(field == Field::Dormant);
/// assert_eq!(words(dormant).unwrap(), "dormant: its memory has not come near its budget");
/// ```
#[must_use]
pub fn words(get: impl Fn(Field) -> u64) -> Option<String> {
    if get(Field::Dormant) == 1 {
        return Some("dormant: its memory has not come near its budget".to_owned());
    }
    let why = match EngagedFor::of_number(get(Field::EngagedFor))? {
        EngagedFor::Memory => "as its memory might not have fit into its budget",
        EngagedFor::Thread => "to make a thread",
        EngagedFor::Call => "for a call that a dormant process cannot serve",
    };
    Some(format!(
        "engaged after {}, {why}",
        Time(get(Field::Engaged))
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engaged_process_says_when_and_why() {
        let engaged = |why: EngagedFor| {
            words(|field| match field {
                Field::Engaged => 1_500_000_000,
                Field::EngagedFor => why as u64,
                _ => 0,
            })
        };
        let all = EngagedFor::ALL.map(|why| engaged(why).unwrap());
        assert_eq!(all[1], "engaged after 1.50 s, to make a thread");
        assert!(
            all[0].contains("memory") && all[2].contains("call"),
            "{all:?}"
        );
    }
}
