//! Capabilities to do without, for tests and to see what another kernel would cost.
//!
//! The environment variable `MILLPOND_MASK` names them, separated by commas. It is read once for each memory that is
//! created, and never afterwards: the fault path reads no environment. A preloaded library, which must not read the
//! environment at all, passes its own mask.

use std::fmt;
use std::str::FromStr;

/// The capabilities that a [`RealMemory`](crate::RealMemory) must do without, even if the kernel has them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Mask {
    /// userfaultfd in all its forms: memory is watched through page protections, with in-thread delivery.
    pub uffd: bool,
    /// `UFFDIO_MOVE`.
    pub moves: bool,
    /// userfaultfd's write protection.
    pub wp: bool,
    /// `UFFDIO_POISON`.
    pub poison: bool,
    /// `process_madvise` on the process itself.
    pub vectors: bool,
    /// `MADV_GUARD_INSTALL`, where memory is watched through page protections.
    pub guards: bool,
    /// `PAGEMAP_SCAN`. Once a memory was created without it, the whole process does without it.
    pub scan: bool,
}

/// Why a text is not a [`Mask`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BadMask(String);

impl fmt::Display for BadMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(word) = self;
        write!(
            f,
            "{word} is no capability; give some of uffd,move,wp,poison,vectors,guards,scan"
        )
    }
}

impl std::error::Error for BadMask {}

impl FromStr for Mask {
    type Err = BadMask;

    /// Same as [`Mask::parse`].
    fn from_str(text: &str) -> Result<Self, BadMask> {
        Self::parse(text).map_err(|word| BadMask(word.to_owned()))
    }
}

impl Mask {
    /// The environment variable that names the capabilities.
    pub const VARIABLE: &str = "MILLPOND_MASK";

    /// Parses the names, separated by commas: `uffd`, `move`, `wp`, `poison`, `vectors`, `guards`, `scan`.
    ///
    /// ```
    /// use millpond_mmu::Mask;
    /// assert!(Mask::parse("move,scan").is_ok_and(|mask| mask.moves && mask.scan && !mask.uffd));
    /// assert_eq!(Mask::parse(""), Ok(Mask::default()));
    /// assert_eq!(Mask::parse("mvoe"), Err("mvoe"));
    /// ```
    ///
    /// # Errors
    /// The first word that is not one of these names.
    pub fn parse(text: &str) -> Result<Self, &str> {
        let mut mask = Self::default();
        for word in text
            .split(',')
            .map(str::trim)
            .filter(|word| !word.is_empty())
        {
            *match word {
                "uffd" => &mut mask.uffd,
                "move" => &mut mask.moves,
                "wp" => &mut mask.wp,
                "poison" => &mut mask.poison,
                "vectors" => &mut mask.vectors,
                "guards" => &mut mask.guards,
                "scan" => &mut mask.scan,
                _ => return Err(word),
            } = true;
        }
        Ok(mask)
    }

    /// Returns the mask that `MILLPOND_MASK` names. If it names anything else, this prints a line and masks nothing.
    #[must_use]
    pub fn from_environment() -> Self {
        let Some(text) = std::env::var_os(Self::VARIABLE) else {
            return Self::default();
        };
        let text = text.to_string_lossy();
        text.parse().unwrap_or_else(|error: BadMask| {
            crate::report::line(format_args!("{}: {error}", Self::VARIABLE));
            Self::default()
        })
    }
}
