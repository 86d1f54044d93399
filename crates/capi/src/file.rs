//! Files that are mapped under the pond's budget.

use crate::pond::{Pond, check_process, manager, place};
use crate::region::advice_of;
use crate::status::{Failure, Status, answer, text};
use millpond::{FileError, FileRegion, GrowFileError, Manager, MapFileError, Mode};
use millpond_sync::{Rank, RankedRw};
use std::ffi::{c_char, c_int, c_void};

/// The type behind `millpond_file`.
pub struct File {
    /// The region's manager, which knows without a lock whether this is a forked child.
    manager: Manager,
    /// The region. A growth, which replaces it, takes the lock for writing.
    region: RankedRw<FileRegion>,
}

impl From<MapFileError> for Failure {
    fn from(error: MapFileError) -> Self {
        match error {
            MapFileError::Region(error) => error.into(),
            MapFileError::Empty { .. } | MapFileError::Beyond { .. } => {
                Self::invalid(error.to_string())
            }
            _ => Self::new(Status::System, error.to_string()),
        }
    }
}

impl From<FileError> for Failure {
    fn from(error: FileError) -> Self {
        match error {
            FileError::Range(error) => error.into(),
            FileError::Pin(error) => error.into(),
            FileError::Advise(error) => error.into(),
            FileError::Write { .. } | FileError::Sync(_) => {
                Self::new(Status::System, error.to_string())
            }
            _ => Self::new(Status::Lost, error.to_string()),
        }
    }
}

impl From<GrowFileError> for Failure {
    fn from(error: GrowFileError) -> Self {
        match error {
            GrowFileError::Sync(error) => error.into(),
            GrowFileError::Map(error) => error.into(),
            _ => Self::invalid(error.to_string()),
        }
    }
}

/// # Safety
/// `file` is null, or a file that has not been freed.
unsafe fn file<'a>(file: *const File) -> Result<&'a File, Failure> {
    // SAFETY: the caller's contract.
    let file = unsafe { file.as_ref() };
    let file = file.ok_or_else(|| Failure::invalid("null was passed for a file"))?;
    check_process(&file.manager)?;
    Ok(file)
}

/// # Safety
/// Each pointer is null or as the header requires, and nobody changes the range in the file. This applies to all
/// exported functions of this file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_map_file(
    pond: *const Pond,
    path: *const c_char,
    offset: u64,
    len: u64,
    mode: c_int,
    mapped: *mut *mut File,
) -> c_int {
    let map = || {
        // SAFETY: the caller's contract.
        let (manager, path, place) = unsafe {
            (
                manager(pond)?,
                text(path, "the path")?,
                place(mapped, "file")?,
            )
        };
        let path = path.ok_or_else(|| Failure::invalid("null was passed for a path"))?;
        let mode = match mode {
            0 => Mode::ReadOnly,
            1 => Mode::Private,
            2 => Mode::Shared,
            other => {
                return Err(Failure::invalid(format!(
                    "{other} is no mode: it is 0 (MILLPOND_FILE_READ) to 2 (MILLPOND_FILE_SHARED)"
                )));
            }
        };
        // SAFETY: the caller's contract.
        let region = unsafe {
            match len {
                0 => manager.map_file(path, offset.., mode),
                len => manager.map_file(path, offset..offset.saturating_add(len), mode),
            }
        }?;
        *place = Box::into_raw(Box::new(File {
            manager: manager.clone(),
            region: RankedRw::new(Rank::RegionHandle, region),
        }));
        Ok(())
    };
    answer(map())
}

/// # Safety
/// As [`millpond_map_file`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_file_data(file: *const File) -> *mut c_void {
    // SAFETY: the caller's contract.
    let file = unsafe { self::file(file) };
    let data = |file: &File| file.region.read().as_ptr().cast_mut().cast();
    file.map_or(std::ptr::null_mut(), data)
}

/// # Safety
/// As [`millpond_map_file`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_file_size(file: *const File) -> usize {
    // SAFETY: the caller's contract.
    unsafe { self::file(file) }.map_or(0, |file| file.region.read().len())
}

/// # Safety
/// As [`millpond_map_file`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_file_free(file: *mut File) {
    if !file.is_null() {
        // SAFETY: `millpond_map_file` made the file, and it is no longer used.
        drop(unsafe { Box::from_raw(file) });
    }
}

/// # Safety
/// As [`millpond_map_file`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_file_read(
    file: *const File,
    offset: usize,
    buffer: *mut c_void,
    len: usize,
) -> c_int {
    let read = || {
        // SAFETY: the caller's contract.
        let file = unsafe { self::file(file)? };
        if buffer.is_null() {
            return Err(Failure::invalid("null was passed for a buffer"));
        }
        // SAFETY: the caller's contract.
        let out = unsafe { std::slice::from_raw_parts_mut(buffer.cast(), len) };
        Ok(file.region.read().read_at(offset, out)?)
    };
    answer(read())
}

/// # Safety
/// As [`millpond_map_file`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_file_advise(
    file: *const File,
    offset: usize,
    len: usize,
    advice: c_int,
) -> c_int {
    let advise = || {
        // SAFETY: the caller's contract.
        let file = unsafe { self::file(file)? };
        let range = offset..offset.saturating_add(len);
        Ok(file.region.read().advise(range, advice_of(advice)?)?)
    };
    answer(advise())
}

/// # Safety
/// As [`millpond_map_file`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_file_sync(file: *const File, offset: usize, len: usize) -> c_int {
    // SAFETY: the caller's contract.
    let file = unsafe { self::file(file) };
    let sync = |file: &File| {
        let range = offset..offset.saturating_add(len);
        Ok(file.region.read().sync(range)?)
    };
    answer(file.and_then(sync))
}

/// # Safety
/// As [`millpond_map_file`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_file_grow(file: *const File, len: usize) -> c_int {
    // SAFETY: the caller's contract.
    let file = unsafe { self::file(file) };
    let grow = |file: &File| Ok(file.region.write().grow(len)?);
    answer(file.and_then(grow))
}
