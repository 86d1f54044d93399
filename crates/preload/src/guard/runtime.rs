//! Runtimes that bypass the C library: their mappings are left to the kernel.
//!
//! When Go creates a thread or adopts one from C, it blocks all signals by its own instruction, and meanwhile makes
//! system calls on memory of its heap, which contains its signal stack and the words that its threads wait on. The
//! filter stops these calls, and a blocked SIGSYS kills. A Go program that calls C gets its heap from the C library's
//! `mmap`, so it used to lie in the space. So under direct delivery a Go program's own mappings come from the kernel,
//! and only memory that its C code allocates is managed. With handler delivery all of it is.
//!
//! We recognise a Go program by the build ID among the notes of its file. The same goes for a Go library loaded by
//! another program if the call of `mmap` comes from it: the rest of that program is managed as usual. A C library
//! before 2.35 cannot tell without a lock which object an address belongs to; there such a library is not recognised.

use super::real::{Find, Real};
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The object that contains an address, as described by the C library's `dl_find_object`.
#[repr(C)]
struct Place {
    flags: u64,
    start: usize,
    end: usize,
    /// Its first word is the offset of the object's mapping from the addresses in its headers, as `<link.h>`
    /// promises.
    link_map: *const usize,
    eh_frame: usize,
    reserved: [u64; 8],
}

type Header = libc::Elf64_Phdr;
type FindObject = unsafe extern "C" fn(usize, *mut Place) -> c_int;

// SAFETY: the C library's function has this type.
static FIND_OBJECT: Real<FindObject> = unsafe { Real::named(c"_dl_find_object") };

static MAPS_ARE_ITS_OWN: AtomicBool = AtomicBool::new(false);
static IS_ANYWHERE: AtomicBool = AtomicBool::new(false);

/// Returns whether mappings made by the code at `caller` are left to the kernel.
#[inline]
pub fn maps_for_itself(caller: usize) -> bool {
    super::has_signals() && (MAPS_ARE_ITS_OWN.load(Relaxed) || calls_from_go(caller))
}

/// Returns whether a Go runtime has been seen in this process.
pub fn is_anywhere() -> bool {
    IS_ANYWHERE.load(Relaxed)
}

/// Examines the program's file, whose headers are mapped.
pub fn find() {
    unsafe extern "C" fn first(
        object: *mut libc::dl_phdr_info,
        _: usize,
        found: *mut c_void,
    ) -> c_int {
        // SAFETY: the dynamic linker passes a valid object, the program first, and our own argument back.
        let (object, found) = unsafe { (&*object, &mut *found.cast::<bool>()) };
        let at = object.dlpi_addr as usize;
        // SAFETY: the object has this many headers, and its notes are mapped.
        *found = unsafe { is_of_go(at, object.dlpi_phdr, object.dlpi_phnum.into()) };
        1
    }
    let mut found = false;
    // SAFETY: the function does not keep its arguments.
    unsafe { libc::dl_iterate_phdr(Some(first), (&raw mut found).cast()) };
    MAPS_ARE_ITS_OWN.store(found, Relaxed);
    IS_ANYWHERE.store(found, Relaxed);
    FIND_OBJECT.find();
}

/// Returns whether the object that contains this code is Go's. Takes no lock and allocates nothing.
fn calls_from_go(caller: usize) -> bool {
    let Some(find_object) = FIND_OBJECT.get() else {
        return false;
    };
    // SAFETY: zeros are valid.
    let mut place: Place = unsafe { core::mem::zeroed() };
    // SAFETY: the C library's function fills a structure of this size. Running code is mapped, and so is its object.
    if unsafe { find_object(caller, &mut place) } != 0 {
        return false;
    }
    // SAFETY: the linker has filled all of the structure. A mapped object starts with its header, unless it is an
    // unusual one, which is not Go's.
    let found = unsafe { has_notes_of_go(place.start, *place.link_map) };
    if found {
        IS_ANYWHERE.store(true, Relaxed);
    }
    found
}

/// Returns whether the object whose first page is at `start` is Go's.
///
/// # Safety
/// The page is mapped, and `at` is the offset of the object from the addresses in its headers.
unsafe fn has_notes_of_go(start: usize, at: usize) -> bool {
    const MAGIC: [u8; 4] = *b"\x7fELF";
    // SAFETY: the caller promises a page.
    let header = unsafe { &*(start as *const libc::Elf64_Ehdr) };
    let headers_end = header.e_phoff as usize + usize::from(header.e_phnum) * size_of::<Header>();
    if header.e_ident[..4] != MAGIC || headers_end > crate::vma::PAGE {
        return false;
    }
    let headers = (start + header.e_phoff as usize) as *const Header;
    // SAFETY: the headers lie in the first page, and the caller promises the rest.
    unsafe { is_of_go(at, headers, header.e_phnum.into()) }
}

/// Returns whether a note of the object is Go's.
///
/// # Safety
/// The object is mapped at offset `at` from the addresses in its headers, and has this many headers.
unsafe fn is_of_go(at: usize, headers: *const Header, count: usize) -> bool {
    (0..count).any(|n| {
        // SAFETY: the caller promises this many headers.
        let header = unsafe { &*headers.add(n) };
        if header.p_type != libc::PT_NOTE {
            return false;
        }
        let start = at + header.p_vaddr as usize;
        // SAFETY: the linker has mapped the notes, and they stay.
        let notes =
            unsafe { core::slice::from_raw_parts(start as *const u8, header.p_memsz as usize) };
        has_name(notes, b"Go\0\0")
    })
}

/// Returns whether one of the notes has this owner. Each note is three words (the lengths of name and contents, and a
/// type), then the name and the contents, each padded to a word.
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
    fn an_elf_note_is_found_after_others() {
        let mut notes = note(b"GNU\0", &[1; 20]);
        assert!(!has_name(&notes, b"Go\0\0"));
        notes.extend(note(b"Go\0\0", b"an id of odd len"));
        assert!(has_name(&notes, b"Go\0\0"));
        assert!(!has_name(&notes[..30], b"Go\0\0"), "cut off");
        find();
        assert!(
            !MAPS_ARE_ITS_OWN.load(Relaxed),
            "this test is no program of Go's"
        );
        assert!(!calls_from_go(find as *const () as usize));
    }
}
