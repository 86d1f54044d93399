//! Ponds: opening, closing, the budget.

use crate::sized::{self, Structure};
use crate::status::{Failure, Status, answer, text};
use crate::store::Wanted;
use millpond::{Delivery, Manager, ManagerBuilder, OnStoreFull, OrderPolicy};
use std::ffi::{c_char, c_int};
use std::fmt::Display;
use std::str::FromStr;

/// The type behind `millpond`.
pub struct Pond {
    manager: Manager,
}

/// The layout of `struct millpond_options`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Options {
    pub(crate) size: usize,
    pub(crate) ram: u64,
    pub(crate) store: *const c_char,
    pub(crate) store_max: u64,
    pub(crate) order: *const c_char,
    pub(crate) delivery: *const c_char,
    pub(crate) address_space: u64,
    pub(crate) lazyfree_max: u64,
    pub(crate) publish: *const c_char,
    pub(crate) flags: u32,
    pub(crate) store_directory: *const c_char,
    pub(crate) store_file: u64,
}

// SAFETY: the structure contains only numbers and pointers, with the size first.
unsafe impl Structure for Options {
    const NAME: &'static str = "struct millpond_options";
}

/// The values of `enum millpond_flag`.
mod flag {
    pub(super) const STORE_OUTSIDE_BUDGET: u32 = 1 << 0;
    pub(super) const COVER_PROCESS: u32 = 1 << 1;
    pub(super) const ABORT_WHEN_FULL: u32 = 1 << 2;
    pub(super) const BACKGROUND_ALWAYS: u32 = 1 << 3;
    pub(super) const BACKGROUND_NEVER: u32 = 1 << 4;
    pub(super) const ENCRYPT: u32 = 1 << 5;
    pub(super) const ALL: u32 = (1 << 6) - 1;
}

impl Options {
    /// # Safety
    /// The strings are null or C strings.
    unsafe fn builder(&self) -> Result<ManagerBuilder, Failure> {
        if self.ram == 0 {
            return Err(Failure::invalid(
                "no RAM budget was given: set .ram to 16 MiB or more",
            ));
        }
        // SAFETY: the caller's contract, for these strings and the next ones.
        let [store, order] = unsafe {
            [
                text(self.store, "the store")?,
                text(self.order, "the order")?,
            ]
        };
        // SAFETY: the caller's contract.
        let [delivery, publish, directory] = unsafe {
            [
                text(self.delivery, "the delivery")?,
                text(self.publish, "the name")?,
                text(self.store_directory, "the store's directory")?,
            ]
        };
        let delivery = delivery.map_or(Ok(Delivery::InThread), setting)?;
        let mut builder = Manager::builder().ram(self.ram).delivery(delivery);
        let wanted = Wanted {
            name: store,
            max_bytes: (self.store_max > 0).then_some(self.store_max),
            directory,
            file_bytes: self.store_file,
        };
        if let Some(kind) = wanted.kind()? {
            builder = builder.store(kind);
        }
        if let Some(order) = order {
            builder = builder.order(setting::<OrderPolicy>(order)?);
        }
        if self.address_space > 0 {
            builder = builder.address_space(self.address_space);
        }
        if self.lazyfree_max > 0 {
            builder = builder.lazyfree_max(self.lazyfree_max);
        }
        if let Some(name) = publish {
            builder = builder.publish(name);
        }
        self.with_flags(builder)
    }

    fn with_flags(&self, mut builder: ManagerBuilder) -> Result<ManagerBuilder, Failure> {
        let has = |flag| self.flags & flag != 0;
        let (always, never) = (has(flag::BACKGROUND_ALWAYS), has(flag::BACKGROUND_NEVER));
        let unknown = self.flags & !flag::ALL;
        if unknown != 0 || (always && never) {
            return Err(Failure::invalid(match unknown {
                0 => "a thread cannot reclaim always and never: set one of the flags".into(),
                _ => format!("{unknown:#x} is no flag that this library knows"),
            }));
        }
        if has(flag::STORE_OUTSIDE_BUDGET) {
            builder = builder.store_outside_budget(true);
        }
        if has(flag::COVER_PROCESS) {
            builder = builder.cover_process();
        }
        if has(flag::ENCRYPT) {
            builder = builder.encrypt(true);
        }
        if has(flag::ABORT_WHEN_FULL) {
            builder = builder.on_store_full(OnStoreFull::Abort);
        }
        if always || never {
            builder = builder.background_reclaim(always);
        }
        Ok(builder)
    }
}

/// Parses the text of a setting.
pub(crate) fn setting<T: FromStr<Err: Display>>(text: &str) -> Result<T, Failure> {
    text.parse()
        .map_err(|error: T::Err| Failure::invalid(error.to_string()))
}

/// Refuses a forked child's calls on its parent's pond.
pub(crate) fn check_process(manager: &Manager) -> Result<(), Failure> {
    match manager.is_inherited() {
        false => Ok(()),
        true => Err(Failure::new(
            Status::Forked,
            "the pond was opened by a parent of this process, which has its memory: open another one after the fork",
        )),
    }
}

/// # Safety
/// `pond` is null, or a pond that has not been closed.
pub(crate) unsafe fn manager<'a>(pond: *const Pond) -> Result<&'a Manager, Failure> {
    // SAFETY: the caller's contract.
    let pond = unsafe { pond.as_ref() };
    let pond = pond.ok_or_else(|| Failure::invalid("null was passed for a pond"))?;
    check_process(&pond.manager)?;
    Ok(&pond.manager)
}

/// Converts the pointer to the place for a handle into a reference.
///
/// # Safety
/// `at` is null, or writable.
pub(crate) unsafe fn place<'a, T>(at: *mut *mut T, what: &str) -> Result<&'a mut *mut T, Failure> {
    let null = || Failure::invalid(format!("null was passed for where the {what} goes"));
    // SAFETY: the caller's contract.
    unsafe { at.as_mut() }.ok_or_else(null)
}

/// # Safety
/// Each pointer is null or as the header requires. This applies to all exported functions of this file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_open(options: *const Options, pond: *mut *mut Pond) -> c_int {
    let open = || {
        // SAFETY: the caller's contract.
        let (place, builder) = unsafe { (place(pond, "pond")?, sized::read(options)?.builder()?) };
        let manager = builder.build()?;
        *place = Box::into_raw(Box::new(Pond { manager }));
        Ok(())
    };
    answer(open())
}

/// # Safety
/// As [`millpond_open`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_close(pond: *mut Pond) {
    if !pond.is_null() {
        // SAFETY: `millpond_open` made the pond, and it is no longer used.
        drop(unsafe { Box::from_raw(pond) });
    }
}

/// # Safety
/// As [`millpond_open`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_set_ram(pond: *const Pond, bytes: u64) -> c_int {
    // SAFETY: the caller's contract.
    answer(unsafe { manager(pond) }.and_then(|manager| Ok(manager.set_ram(bytes)?)))
}

/// # Safety
/// As [`millpond_open`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_quiesce(pond: *const Pond) -> c_int {
    // SAFETY: the caller's contract.
    answer(unsafe { manager(pond) }.map(Manager::quiesce))
}

/// Returns the version of this library.
#[unsafe(no_mangle)]
pub extern "C" fn millpond_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}
