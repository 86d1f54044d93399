//! Translates bytes from a terminal to actions.
//!
//! The drawing library also has a reader of keys. It is not used, because it reads until it has a whole key. Half a
//! sequence blocks it, so a signal would have to wait for the next key; and at the end of input it retries without a
//! pause. This program waits in one place for keys, signals and the time, so it only needs the byte sequences of the
//! few keys that it uses.
//!
//! A terminal sends an arrow as three bytes, of which the first is also the byte of the Escape key. Time tells the two
//! apart: the bytes of a sequence arrive together. So an Escape at the end of the bytes read is kept until
//! [`Decoder::finish`] is called because nothing followed for a while.

/// The wait for the rest of a sequence, in milliseconds. A slow line may take that long; a second key press takes
/// longer.
pub const REST_MS: u64 = 50;
const ESCAPE: u8 = 0x1b;
/// The longest sequence that is waited for: a longer one is not a key.
const LONGEST: usize = 16;

/// A key that has a meaning here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Key {
    /// A printable character.
    Char(char),
    /// Enter.
    Enter,
    /// Escape alone.
    Escape,
    /// The arrow up.
    Up,
    /// The arrow down.
    Down,
    /// The arrow to the left.
    Left,
    /// The arrow to the right.
    Right,
    /// The key for the first line.
    Home,
    /// The key for the last line.
    End,
    /// The key for many lines up.
    PageUp,
    /// The key for many lines down.
    PageDown,
    /// A letter with Ctrl.
    Ctrl(char),
}

/// An action requested by the user.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Select the process this many places further down.
    Step(isize),
    /// Show the details of the selected process, or hide them.
    Open,
    /// Go back to the previous view, or leave from the list.
    Back,
    /// Leave the program.
    Leave,
    /// Sort by the next column to the right, or to the left.
    Sort {
        /// Whether the column is to the right.
        right: bool,
    },
    /// Reverse the order of the list.
    Reverse,
    /// Show the list of keys, or hide it.
    Help,
    /// Redraw everything.
    Redraw,
    /// Suspend the program, to return to the shell for a while.
    Suspend,
}

impl Action {
    /// The action that `key` asks for.
    #[must_use]
    pub fn of(key: Key) -> Option<Self> {
        const MANY: isize = 10;
        Some(match key {
            Key::Up | Key::Char('k') => Self::Step(-1),
            Key::Down | Key::Char('j') => Self::Step(1),
            Key::PageUp => Self::Step(-MANY),
            Key::PageDown => Self::Step(MANY),
            Key::Home | Key::Char('g') => Self::Step(isize::MIN),
            Key::End | Key::Char('G') => Self::Step(isize::MAX),
            Key::Enter => Self::Open,
            Key::Escape => Self::Back,
            Key::Char('q') | Key::Ctrl('c') => Self::Leave,
            Key::Left | Key::Char('<') => Self::Sort { right: false },
            Key::Right | Key::Char('>') => Self::Sort { right: true },
            Key::Char('r') => Self::Reverse,
            Key::Char('?') => Self::Help,
            Key::Ctrl('l') => Self::Redraw,
            Key::Ctrl('z') => Self::Suspend,
            _ => return None,
        })
    }
}

/// A decoder, which turns bytes into keys.
#[derive(Debug, Default)]
pub struct Decoder {
    /// The start of a sequence.
    begun: Vec<u8>,
}

impl Decoder {
    /// The keys that `bytes` complete.
    pub fn take(&mut self, bytes: &[u8]) -> Vec<Key> {
        let mut keys = Vec::new();
        for &byte in bytes {
            if self.begun.is_empty() && byte != ESCAPE {
                keys.extend(plain(byte));
                continue;
            }
            if byte == ESCAPE {
                // A second Escape ends whatever the first began.
                keys.extend(self.finish());
            }
            self.begun.push(byte);
            match self.begun[..] {
                [_] | [_, b'[' | b'O'] => {}
                [_, b'[' | b'O', .., last] => {
                    let is_last = (0x40..=0x7e).contains(&last);
                    if is_last || self.begun.len() == LONGEST {
                        keys.extend(sequence(&self.begun[2..]));
                        self.begun.clear();
                    }
                }
                // An Escape directly followed by another key is that key with Alt, which has no meaning here.
                _ => self.begun.clear(),
            }
        }
        keys
    }

    /// Whether the rest of a sequence may be on its way.
    #[must_use]
    pub fn waits(&self) -> bool {
        !self.begun.is_empty()
    }

    /// Ends a sequence that was not continued, and returns the key that it stands for.
    pub fn finish(&mut self) -> Option<Key> {
        let alone = self.begun == [ESCAPE];
        self.begun.clear();
        alone.then_some(Key::Escape)
    }
}

/// The key of a byte that does not begin a sequence.
fn plain(byte: u8) -> Option<Key> {
    match byte {
        b'\r' | b'\n' => Some(Key::Enter),
        1..=26 => Some(Key::Ctrl(char::from(byte - 1 + b'a'))),
        b' '..=b'~' => Some(Key::Char(char::from(byte))),
        _ => None,
    }
}

/// The key of a sequence without its first two bytes.
fn sequence(rest: &[u8]) -> Option<Key> {
    match rest {
        b"A" => Some(Key::Up),
        b"B" => Some(Key::Down),
        b"C" => Some(Key::Right),
        b"D" => Some(Key::Left),
        b"M" => Some(Key::Enter),
        b"H" | b"1~" | b"7~" => Some(Key::Home),
        b"F" | b"4~" | b"8~" => Some(Key::End),
        b"5~" => Some(Key::PageUp),
        b"6~" => Some(Key::PageDown),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(bytes: &[u8]) -> Vec<Key> {
        let mut decoder = Decoder::default();
        let mut keys = decoder.take(bytes);
        keys.extend(decoder.finish());
        keys
    }

    #[test]
    fn keys_are_decoded_from_their_sequences() {
        assert_eq!(keys(b"j\r?"), [Key::Char('j'), Key::Enter, Key::Char('?')]);
        assert_eq!(keys(b"\x1b[A\x1bOB"), [Key::Up, Key::Down]);
        assert_eq!(keys(b"\x1b[5~\x1b[6~"), [Key::PageUp, Key::PageDown]);
        assert_eq!(keys(b"\x1b[H\x1b[4~"), [Key::Home, Key::End]);
        assert_eq!(keys(b"\x03\x1a"), [Key::Ctrl('c'), Key::Ctrl('z')]);
        assert_eq!(keys(b"\x1b"), [Key::Escape]);
        assert_eq!(keys(b"\x1b\x1b"), [Key::Escape, Key::Escape]);
        // An unknown sequence is ignored, however it looks, and the keys that follow it are not lost.
        assert_eq!(keys(b"\x1b[200~\x1bq\x1b[1;5Aj"), [Key::Char('j')]);
        assert_eq!(keys("\u{e9}\0j".as_bytes()), [Key::Char('j')]);
        assert_eq!(keys(b"\x1b[11111111111111j"), [Key::Char('j')]);
    }

    #[test]
    fn a_sequence_may_come_in_pieces() {
        let mut decoder = Decoder::default();
        assert_eq!(decoder.take(b"j\x1b"), [Key::Char('j')]);
        assert!(decoder.waits());
        assert_eq!(decoder.take(b"["), []);
        assert_eq!(decoder.take(b"A"), [Key::Up]);
        assert!(!decoder.waits());
        // An incomplete sequence that stays incomplete is not an Escape.
        decoder.take(b"\x1b[");
        assert_eq!(decoder.finish(), None);
    }

    #[test]
    fn any_bytes_are_decoded_without_a_panic() {
        let mut decoder = Decoder::default();
        for n in 0..100_000_u32 {
            let byte = (n.wrapping_mul(2_654_435_761) >> 24) as u8;
            decoder.take(&[byte, ESCAPE, byte]);
            assert!(decoder.begun.len() < LONGEST);
        }
    }
}
