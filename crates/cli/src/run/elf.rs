//! Determines from a program's file whether the dynamic loader will load the preload library into it.
//!
//! Millpond enters a program through `LD_PRELOAD`, which only glibc's dynamic loader reads. A static program has no
//! loader. musl's loader would load a library built for another libc and crash. A program of another word size gets a
//! warning and runs without the library. For a program that gains rights (set-uid, set-gid, capabilities of its file)
//! the loader ignores the variable; a `su` that root starts gains none. In each of these cases the program would run
//! *without its budget and without any message*. Hence its file is read before it is started.

use crate::arch::MACHINE;
use object::read::ReadCache;
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader};
use object::{Endianness, elf};
use std::ffi::CString;
use std::fs::{File, Metadata};
use std::io::{self, Read, Seek};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The kind of file that the kernel would take a file for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A program that the preload library can enter.
    Preloadable,
    /// A program that the preload library cannot enter.
    Unfit(Unfit),
    /// A script: its interpreter and the one argument the `#!` line may carry.
    Script { interpreter: Vec<u8> },
    /// Neither a program nor a script; `execvp` passes such a file to `/bin/sh`.
    Unknown,
}

/// Why the preload library cannot enter a program.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Unfit {
    /// A 32-bit program (x32 ones included).
    #[error("it is a 32-bit program; only 64-bit ones can be run, so install its 64-bit build")]
    Bits32,
    /// A program for another processor.
    #[error("it is built for another processor (ELF machine {0}); install its build for this one")]
    ForeignMachine(u16),
    /// A program without a dynamic loader.
    #[error("it is statically linked and loads no libraries; use a dynamically linked build of it")]
    Static,
    /// A program whose loader is not glibc's.
    #[error("its loader is `{0}`, not glibc's ld-linux; use a build for glibc")]
    ForeignLoader(String),
    /// A file that starts with the ELF magic number but is otherwise invalid.
    #[error("its ELF header is damaged: {0}")]
    Damaged(&'static str),
    /// A program that runs with its owner's rights.
    #[error(
        "it is set-uid, and the loader ignores LD_PRELOAD for such programs; put `millpond run` behind it (as in `sudo \
         millpond run`), or use a copy without that bit (chmod u-s)"
    )]
    SetUid,
    /// A program that runs with its group's rights.
    #[error(
        "it is set-gid, and the loader ignores LD_PRELOAD for such programs; use a copy without that bit (chmod g-s)"
    )]
    SetGid,
    /// A program that gets capabilities from its file.
    #[error(
        "its file grants capabilities, and the loader ignores LD_PRELOAD for such programs; use a copy without them (setcap -r)"
    )]
    FileCapabilities,
    /// A program with a sanitizer that replaces the allocator and lays out all addresses.
    #[error(
        "it is built with {0}, which has an allocator and addresses of its own; run it without millpond, or run a build \
         without -fsanitize"
    )]
    Sanitized(&'static str),
}

/// Inspects the file `path`.
///
/// # Errors
/// When the file cannot be read. That includes a program that may be executed but not read.
pub fn classify(path: &Path) -> io::Result<Kind> {
    let mut file = File::open(path)?;
    // The kernel looks at the first 256 bytes for the `#!` line; anything after them is not a part of it.
    let mut head = Vec::with_capacity(256);
    (&mut file).take(256).read_to_end(&mut head)?;
    if let Some(line) = head.strip_prefix(b"#!") {
        return Ok(script(line));
    }
    if !head.starts_with(&elf::ELFMAG) {
        return Ok(Kind::Unknown);
    }
    if let Some(unfit) = privileged(path, &file)? {
        return Ok(Kind::Unfit(unfit));
    }
    file.rewind()?;
    Ok(match header(&head, file) {
        Ok(()) => Kind::Preloadable,
        Err(unfit) => Kind::Unfit(unfit),
    })
}

fn script(line: &[u8]) -> Kind {
    let blank = |b: &u8| *b == b' ' || *b == b'\t';
    let line = line.split(|&b| b == b'\n').next().unwrap_or_default();
    let start = line.iter().position(|b| !blank(b)).unwrap_or(line.len());
    let rest = &line[start..];
    let end = rest
        .iter()
        .position(|b| blank(b) || *b == 0)
        .unwrap_or(rest.len());
    match &rest[..end] {
        [] => Kind::Unknown,
        interpreter => Kind::Script {
            interpreter: interpreter.to_vec(),
        },
    }
}

fn privileged(path: &Path, file: &File) -> io::Result<Option<Unfit>> {
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    let unfit = gains(&file.metadata()?, user.as_raw(), group.as_raw());
    // Root already has all rights.
    if unfit.is_some() || rustix::process::getuid().is_root() {
        return Ok(unfit);
    }
    let name = CString::new(path.as_os_str().as_encoded_bytes()).map_err(io::Error::other)?;
    let mut value = [0u8; 64];
    Ok(
        match rustix::fs::getxattr(&name, c"security.capability", &mut value) {
            Ok(1..) => Some(Unfit::FileCapabilities),
            _ => None,
        },
    )
}

/// The rights that a user gains from the owner or the group of a file.
fn gains(file: &Metadata, user: u32, group: u32) -> Option<Unfit> {
    let mode = file.mode();
    if mode & libc::S_ISUID != 0 && file.uid() != user {
        return Some(Unfit::SetUid);
    }
    // Set-gid without the group's execute bit means mandatory locking, not other rights.
    let is_set_gid = mode & libc::S_ISGID != 0 && mode & libc::S_IXGRP != 0;
    (is_set_gid && file.gid() != group).then_some(Unfit::SetGid)
}

fn header(head: &[u8], file: File) -> Result<(), Unfit> {
    match head.get(4) {
        Some(&class) if class == elf::ELFCLASS64 => {}
        Some(&class) if class == elf::ELFCLASS32 => return Err(Unfit::Bits32),
        _ => return Err(Unfit::Damaged("its class is neither 32 nor 64 bits")),
    }
    let damaged = |error: object::read::Error| {
        let _ = error;
        Unfit::Damaged("its program headers cannot be read")
    };
    let data = &ReadCache::new(file);
    let header = elf::FileHeader64::<Endianness>::parse(data).map_err(damaged)?;
    let endian = header.endian().map_err(damaged)?;
    let machine = header.e_machine(endian);
    if machine != MACHINE {
        return Err(Unfit::ForeignMachine(machine));
    }
    let kind = header.e_type(endian);
    if kind != elf::ET_EXEC && kind != elf::ET_DYN {
        return Err(Unfit::Damaged(
            "it is an object file or a core dump, not a program",
        ));
    }
    for program in header.program_headers(endian, data).map_err(damaged)? {
        let loader = program.interpreter(endian, data).map_err(damaged)?;
        if let Some(loader) = loader {
            glibc_loader(loader)?;
            // A file without sections is run without this check.
            return match sanitizer(header, endian, data) {
                Ok(Some(name)) => Err(Unfit::Sanitized(name)),
                Ok(None) | Err(_) => Ok(()),
            };
        }
    }
    Err(Unfit::Static)
}

/// The sanitizer with which a program is built, if it is an unsupported one: the compiler makes the code call the
/// sanitizer's initialization. Others (for leaks, for undefined behaviour) do not touch the memory layout.
fn sanitizer(
    header: &elf::FileHeader64<Endianness>,
    endian: Endianness,
    data: &ReadCache<File>,
) -> object::read::Result<Option<&'static str>> {
    const STARTS: [(&[u8], &str); 4] = [
        (b"__asan_init", "AddressSanitizer"),
        (b"__hwasan_init", "HWAddressSanitizer"),
        (b"__msan_init", "MemorySanitizer"),
        (b"__tsan_init", "ThreadSanitizer"),
    ];
    let sections = header.sections(endian, data)?;
    let is_dynamic =
        |section: &&elf::SectionHeader64<_>| section.sh_type(endian) == elf::SHT_DYNSYM;
    let Some(symbols) = sections.iter().find(is_dynamic) else {
        return Ok(None);
    };
    // The names are read in one piece: reading each symbol of node's separately took 75,000 reads of its file.
    let strings = sections.section(symbols.link(endian))?;
    let mut names = strings.data(endian, data)?.split(|&byte| byte == 0);
    Ok(names
        .find_map(|name| STARTS.iter().find(|(start, _)| *start == name))
        .map(|found| found.1))
}

/// Checks that a loader is glibc's. glibc's loader is called `ld-linux-x86-64.so.2` or `ld-linux-aarch64.so.1`,
/// wherever it lies (a Nix store, a private prefix); musl's is called `ld-musl-…`.
fn glibc_loader(loader: &[u8]) -> Result<(), Unfit> {
    let name = loader.rsplit(|&b| b == b'/').next().unwrap_or_default();
    if name.starts_with(b"ld-linux") {
        Ok(())
    } else {
        Err(Unfit::ForeignLoader(
            String::from_utf8_lossy(loader).into_owned(),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// `millpond run su` was also refused for root, although the loader honours the variable for root.
    #[test]
    fn setuid_file_grants_rights_only_to_users_without_them() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let seen = |mode: u32, more_users: u32, more_groups: u32| {
            file.as_file()
                .set_permissions(PermissionsExt::from_mode(mode))
                .unwrap();
            let file = file.as_file().metadata().unwrap();
            gains(&file, file.uid() + more_users, file.gid() + more_groups)
        };
        assert_eq!(seen(0o4755, 1, 0), Some(Unfit::SetUid));
        assert_eq!(seen(0o4755, 0, 1), None);
        assert_eq!(seen(0o2755, 0, 1), Some(Unfit::SetGid));
        assert_eq!(seen(0o2755, 1, 0), None);
        assert_eq!(seen(0o2745, 1, 1), None);
        assert_eq!(seen(0o755, 1, 1), None);
    }
}
