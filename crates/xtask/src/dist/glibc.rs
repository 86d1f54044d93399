//! The version of glibc that a program or library needs: the newest version to which one of its symbols is bound.

use super::DistError;
use crate::tool::at;
use object::Endianness;
use object::read::elf::ElfFile64;
use std::path::Path;
use std::{fmt, fs};

/// A version of glibc.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Version(pub u32, pub u32);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

impl Version {
    /// The version in the name of a set of symbols, such as `GLIBC_2.34`. `None` for other libraries' names.
    fn named(name: &[u8]) -> Option<Self> {
        // This name stands for relocations in the short form, not for a symbol. glibc 2.36 is the first to support
        // them.
        if name == b"GLIBC_ABI_DT_RELR" {
            return Some(Self(2, 36));
        }
        let number = std::str::from_utf8(name).ok()?.strip_prefix("GLIBC_")?;
        let (major, rest) = number.split_once('.')?;
        let minor = rest.split('.').next()?;
        Some(Self(major.parse().ok()?, minor.parse().ok()?))
    }
}

/// The version that the program or library at `path` needs.
pub fn needed_by(path: &Path) -> Result<Version, DistError> {
    let bytes = at(path, fs::read(path))?;
    newest(&bytes).map_err(|error| DistError::NoElf {
        path: path.to_owned(),
        error,
    })
}

fn newest(bytes: &[u8]) -> Result<Version, object::read::Error> {
    let file = ElfFile64::<Endianness>::parse(bytes)?;
    let (endian, sections) = (file.endian(), file.elf_section_table());
    let mut newest = Version(0, 0);
    let Some((mut libraries, link)) = sections.gnu_verneed(endian, bytes)? else {
        return Ok(newest);
    };
    let strings = sections.strings(endian, bytes, link)?;
    while let Some((_, mut versions)) = libraries.next()? {
        while let Some(version) = versions.next()? {
            let version = Version::named(version.name(endian, strings)?);
            newest = newest.max(version.unwrap_or(newest));
        }
    }
    Ok(newest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::TaskError;

    #[test]
    fn versions_are_numbers_and_not_texts() {
        assert_eq!(Version::named(b"GLIBC_2.2.5"), Some(Version(2, 2)));
        assert!(Version::named(b"GLIBC_2.34") > Version::named(b"GLIBC_2.4"));
        assert_eq!(Version::named(b"GLIBC_ABI_DT_RELR"), Some(Version(2, 36)));
        assert_eq!(Version::named(b"GCC_3.0"), None);
        assert_eq!(Version::named(b"GLIBC_PRIVATE"), None);
    }

    #[test]
    fn needed_glibc_of_a_program_is_found_and_a_text_is_refused() {
        let needs = needed_by(&std::env::current_exe().unwrap()).unwrap();
        assert!(needs >= Version(2, 2) && needs < Version(3, 0), "{needs}");
        assert!(matches!(
            needed_by(Path::new("/etc/passwd")),
            Err(DistError::NoElf { .. })
        ));
        assert!(matches!(
            needed_by(Path::new("/no/where")),
            Err(DistError::Task(TaskError::File { .. }))
        ));
    }
}
