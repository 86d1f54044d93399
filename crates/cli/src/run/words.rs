//! Options whose values are the words of a setting.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Arg, Command};
use millpond_settings::Word;
use std::ffi::OsStr;
use std::marker::PhantomData;

/// A parser of the words of `W`, which the help lists.
#[derive(Clone)]
pub(super) struct Words<W> {
    words: PossibleValuesParser,
    value: PhantomData<fn() -> W>,
}

/// Takes the words of a setting. The help says of each what the setting says of it, or what `about` says in its place,
/// in the order of the words.
pub(super) fn words<W: Word>(about: impl IntoIterator<Item = &'static str>) -> Words<W> {
    let mut about = about.into_iter();
    let all = W::ALL.iter().map(|(_, word, usual)| {
        let help = about.next().unwrap_or(usual);
        PossibleValue::new(*word).help(help)
    });
    Words {
        words: PossibleValuesParser::new(all.collect::<Vec<_>>()),
        value: PhantomData,
    }
}

impl<W: Word + Send + Sync> TypedValueParser for Words<W> {
    type Value = W;

    fn parse_ref(
        &self,
        command: &Command,
        argument: Option<&Arg>,
        value: &OsStr,
    ) -> Result<W, clap::Error> {
        // A text that is no UTF-8 is none of the words, and is refused with the words as any other is.
        let text = value.to_string_lossy();
        let word = self
            .words
            .parse_ref(command, argument, OsStr::new(&*text))?;
        Ok(W::of_word(&word).expect("the parser lets these words through alone"))
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        self.words.possible_values()
    }
}
