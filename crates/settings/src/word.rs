//! Settings whose values are words.
//!
//! The macro `words` makes an enum and its text form from one list. `millpond run --help` prints a variant's comment,
//! so that is one line without a full stop.

use std::fmt;
use std::str::FromStr;

/// A setting whose values are words.
pub trait Word: Copy + Eq + 'static {
    /// The name of the setting in messages.
    const WHAT: &'static str;

    /// The values, each with its word and the word's meaning.
    const ALL: &'static [(Self, &'static str, &'static str)];

    /// The word of this value.
    fn word(self) -> &'static str {
        let found = Self::ALL.iter().find(|(value, ..)| *value == self);
        found.map_or("", |(_, word, _)| word)
    }

    /// The value of a word, if there is one.
    #[must_use]
    fn of_word(text: &str) -> Option<Self> {
        let found = Self::ALL.iter().find(|(_, word, _)| *word == text);
        found.map(|(value, ..)| *value)
    }
}

/// A text that is not a value of a setting whose values are words.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BadWord {
    text: String,
    what: &'static str,
    choices: String,
}

impl BadWord {
    fn of<W: Word>(text: &str) -> Self {
        Self {
            text: text.to_owned(),
            what: W::WHAT,
            choices: choices::<W>(),
        }
    }
}

impl fmt::Display for BadWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            text,
            what,
            choices,
        } = self;
        write!(f, "`{text}` is no {what}; choose {choices}")
    }
}

impl std::error::Error for BadWord {}

/// The words of a setting, listed as in a sentence: `auto, direct or handler`.
#[must_use]
pub fn choices<W: Word>() -> String {
    let words: Vec<_> = W::ALL.iter().map(|(_, word, _)| *word).collect();
    match words.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} or {last}", others.join(", ")),
        _ => words.concat(),
    }
}

macro_rules! words {
    ($(
        $(#[$outer:meta])*
        enum $name:ident: $what:literal {
            $(#[doc = $about:literal] $(#[$inner:meta])* $variant:ident = $word:literal,)+
        }
    )+) => {$(
        $(#[$outer])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub enum $name {
            $(#[doc = $about] $(#[$inner])* $variant,)+
        }

        impl Word for $name {
            const WHAT: &'static str = $what;
            const ALL: &'static [(Self, &'static str, &'static str)] =
                &[$((Self::$variant, $word, $about.trim_ascii()),)+];
        }

        impl FromStr for $name {
            type Err = BadWord;

            fn from_str(text: &str) -> Result<Self, BadWord> {
                Self::of_word(text).ok_or_else(|| BadWord::of::<Self>(text))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.word())
            }
        }
    )+};
}

words! {
    /// The thread that serves a fault of a program under a budget.
    enum DeliveryChoice: "delivery of faults" {
        /// As direct, except for programs linked with liburing or libaio
        #[default]
        Auto = "auto",
        /// The faulting thread
        Direct = "direct",
        /// One of Millpond's threads
        Handler = "handler",
    }

    /// The behaviour when the store is full or fails. A program that exceeds its budget loses nothing, and a line on
    /// standard error reports it.
    enum OnStoreFull: "reaction to a full store" {
        /// Exceed the budget and print a warning
        #[default]
        Exceed = "exceed",
        /// Stop the program
        Abort = "abort",
    }

    /// When a process begins to be managed.
    enum Engage: "time to engage" {
        /// At its start
        Start = "start",
        /// When its memory comes near the budget
        #[default]
        Needed = "needed",
    }

    /// The amount of memory that is reported to a program when it asks.
    enum Tell: "memory to report" {
        /// The budget and how much of it is left
        #[default]
        Budget = "budget",
        /// The machine's memory
        Machine = "machine",
    }

    /// Whether something is enabled.
    enum Switch: "switch" {
        /// Enabled
        #[default]
        On = "on",
        /// Disabled
        Off = "off",
    }
}

impl Switch {
    /// Whether it is enabled.
    #[must_use]
    pub fn is_on(self) -> bool {
        self == Self::On
    }
}

impl From<bool> for Switch {
    fn from(is_on: bool) -> Self {
        if is_on { Self::On } else { Self::Off }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn goes_both_ways<W: Word + fmt::Display + fmt::Debug + FromStr<Err = BadWord>>() {
        for &(value, word, about) in W::ALL {
            assert_eq!(
                (value.to_string().as_str(), word.parse()),
                (word, Ok(value))
            );
            assert!(about == about.trim() && !about.ends_with('.'), "{about}");
        }
    }

    #[test]
    fn each_word_round_trips_through_text() {
        goes_both_ways::<DeliveryChoice>();
        goes_both_ways::<OnStoreFull>();
        goes_both_ways::<Engage>();
        goes_both_ways::<Tell>();
        goes_both_ways::<Switch>();
    }

    #[test]
    fn an_unknown_word_is_named_with_its_alternatives() {
        let error = "thread".parse::<DeliveryChoice>().unwrap_err();
        let wanted = "`thread` is no delivery of faults; choose auto, direct or handler";
        assert_eq!(error.to_string(), wanted);
        assert!("On".parse::<Switch>().is_err() && "".parse::<Switch>().is_err());
    }
}
