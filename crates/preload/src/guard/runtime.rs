//! Runtimes that work past the C library: what they map is left to the kernel.
//!
//! Go blocks all signals, by an instruction of its own, where it makes a thread or takes one in from C, and makes
//! system calls on memory of its heap meanwhile: the stack for its signals lies there, and the words that its threads
//! wait at. The filter stops these calls, and a SIGSYS that is blocked kills. A program that calls C has its heap
//! from the C library's `mmap`, so that it was in the space. So a Go program's own mappings are the kernel's under
//! direct delivery, and only what its C code allocates is managed. With handler delivery all of it is.
//!
//! A Go program is known by the build's id among the notes of its file. A library of Go's that another program loads is
//! not known.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

static MAPS_ARE_ITS_OWN: AtomicBool = AtomicBool::new(false);

/// Whether the program's mappings are left to the kernel.
#[inline]
pub fn maps_for_itself() -> bool {
    MAPS_ARE_ITS_OWN.load(Relaxed)
}

/// Looks at the program's file, whose headers are mapped.
pub fn find() {
    unsafe extern "C" fn first(
        object: *mut libc::dl_phdr_info,
        _: usize,
        found: *mut c_void,
    ) -> c_int {
        // SAFETY: the dynamic linker passes a valid object, the program first, and our own argument back.
        unsafe { *found.cast::<bool>() = is_of_go(&*object) };
        1
    }
    let mut found = false;
    // SAFETY: the function does not keep its arguments.
    unsafe { libc::dl_iterate_phdr(Some(first), (&raw mut found).cast()) };
    MAPS_ARE_ITS_OWN.store(found, Relaxed);
}

/// Whether a note of the object is Go's.
///
/// # Safety
/// The object is one that the dynamic linker has mapped.
unsafe fn is_of_go(object: &libc::dl_phdr_info) -> bool {
    (0..usize::from(object.dlpi_phnum)).any(|n| {
        // SAFETY: the object has this many headers.
        let header = unsafe { &*object.dlpi_phdr.add(n) };
        if header.p_type != libc::PT_NOTE {
            return false;
        }
        let start = object.dlpi_addr as usize + header.p_vaddr as usize;
        // SAFETY: the linker has mapped the notes, and they stay.
        let notes =
            unsafe { core::slice::from_raw_parts(start as *const u8, header.p_memsz as usize) };
        has_name(notes, b"Go\0\0")
    })
}

/// Whether one of the notes has this owner: each is three words (the lengths of name and contents, and a type), and the
/// two, each filled up to a word.
fn has_name(mut notes: &[u8], wanted: &[u8]) -> bool {
    let word = |notes: &[u8], at: usize| {
        let bytes = notes.get(at..at + 4)?.try_into().ok()?;
        Some(u32::from_ne_bytes(bytes) as usize)
    };
    while let (Some(name), Some(contents)) = (word(notes, 0), word(notes, 4)) {
        let behind_name = 12 + name.next_multiple_of(4);
        if notes.get(12..12 + name) == Some(wanted) {
            return true;
        }
        let next = behind_name.saturating_add(contents.next_multiple_of(4));
        notes = notes.get(next..).unwrap_or_default();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(name: &[u8], contents: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for word in [name.len(), contents.len(), 4] {
            bytes.extend((word as u32).to_ne_bytes());
        }
        for part in [name, contents] {
            bytes.extend(part);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
        }
        bytes
    }

    #[test]
    fn a_note_is_found_behind_others() {
        let mut notes = note(b"GNU\0", &[1; 20]);
        assert!(!has_name(&notes, b"Go\0\0"));
        notes.extend(note(b"Go\0\0", b"an id of odd len"));
        assert!(has_name(&notes, b"Go\0\0"));
        assert!(!has_name(&notes[..30], b"Go\0\0"), "cut off");
        find();
        assert!(!maps_for_itself(), "this test is no program of Go's");
    }
}
