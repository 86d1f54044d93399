//! The settings that `millpond run` hands over in the environment.
//!
//! The settings are read from the environment block that the dynamic linker passes to constructors: the C library's own
//! `environ` is not set yet when this library, the first of all, is initialised.
//!
//! For the same reason no code here may call `getenv`. The standard library does, for the directory of temporary
//! files and for the size of each thread's stack, and was told that nothing is set: `TMPDIR` was never followed.
//! Worse, a program may have a `getenv` of its own, as sudo and bash do, which comes before the C library's wherever
//! the name is looked up. That of sudo ended the process by SIGSEGV before the program's first instruction. Nobody
//! knows what such a function does, and which locks and memory it touches, when a thread of ours begins, or in the
//! child of a fork. So the code that is linked into this library calls [`__wrap_getenv`] instead.

use core::ffi::{CStr, c_char};
use millpond::{Mask, OrderPolicy};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// The place for evicted bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Store {
    /// The manager chooses: compressed RAM, or another store that it thinks best.
    Auto,
    /// The store is compressed RAM.
    CompressedRam,
    /// The store is a file: the given one, or an unlinked temporary one.
    File(Option<PathBuf>),
}

/// The action when the store takes no more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnStoreFull {
    /// The program goes over the budget.
    Exceed,
    /// The program is stopped.
    Abort,
}

/// How faults come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Delivery {
    /// Directly, but for programs that direct delivery refuses something.
    Auto,
    /// To the thread that faults ([`crate::guard`]).
    Direct,
    /// To a thread of ours.
    Handler,
}

/// The settings of a recording of the pages that the program touches.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// Number of pages that stay mapped.
    pub window: u32,
    /// The file of the tapes, to which the touched pages are written.
    pub tapes: PathBuf,
}

/// All settings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// The budget in bytes; `None` means that nothing is to be managed.
    pub ram: Option<u64>,
    /// The place for evicted bytes.
    pub store: Store,
    /// How faults come.
    pub delivery: Delivery,
    /// The path of the relay to the store beyond the machine, if there is one.
    pub relay: Option<PathBuf>,
    /// Most bytes that the store's file may take.
    pub file_bytes: Option<u64>,
    /// The action when the store is full.
    pub on_store_full: OnStoreFull,
    /// The path of the report board.
    pub board: Option<PathBuf>,
    /// Whether a store's file may lie on tmpfs.
    pub force_tmpfs: bool,
    /// The directory of temporary files, `TMPDIR`.
    pub temporary: Option<PathBuf>,
    /// Whether bytes that go to a file are encrypted.
    pub encrypt: bool,
    /// The orders of folios, if the user has chosen them.
    pub order: Option<OrderPolicy>,
    /// Whether memory that the program frees is kept until it is wanted.
    pub lazy_purge: bool,
    /// Whether the program is told that its budget is all the memory there is.
    pub tell_budget: bool,
    /// The settings of the recording, if a trace is recorded.
    pub record: Option<Record>,
    /// The capabilities of the kernel's to do without.
    pub mask: Mask,
}

impl Settings {
    /// Reads the variables out of `variables`, of the form `NAME=value`.
    ///
    /// # Errors
    /// A line for the user that names the variable and its value.
    pub fn parse<'a>(variables: impl Iterator<Item = &'a [u8]>) -> Result<Self, String> {
        let mut settings = Self {
            ram: None,
            store: Store::Auto,
            relay: None,
            file_bytes: None,
            delivery: Delivery::Auto,
            on_store_full: OnStoreFull::Exceed,
            board: None,
            force_tmpfs: false,
            temporary: None,
            encrypt: false,
            order: None,
            lazy_purge: true,
            tell_budget: true,
            record: None,
            mask: Mask::default(),
        };
        for variable in variables {
            match variable.strip_prefix(b"TMPDIR=") {
                Some(path) if !path.is_empty() => {
                    settings.temporary = Some(OsStr::from_bytes(path).into());
                }
                _ => {}
            }
            let Some(rest) = variable.strip_prefix(b"MILLPOND_") else {
                continue;
            };
            let Some(equals) = rest.iter().position(|&byte| byte == b'=') else {
                continue;
            };
            settings.take(&rest[..equals], &rest[equals + 1..])?;
        }
        Ok(settings)
    }

    fn take(&mut self, name: &[u8], value: &[u8]) -> Result<(), String> {
        let text = String::from_utf8_lossy(value);
        let bad = |name: &str, wanted: &str| {
            Err(format!(
                "MILLPOND_{name}={text} is not {wanted}; use `millpond run`"
            ))
        };
        match name {
            b"RAM" => match text.parse() {
                Ok(ram) => self.ram = Some(ram),
                Err(_) => return bad("RAM", "a number of bytes"),
            },
            b"STORE" => match value {
                b"auto" => self.store = Store::Auto,
                b"zram" => self.store = Store::CompressedRam,
                b"file" => self.store = Store::File(None),
                _ => match value.strip_prefix(b"file:") {
                    Some(path) if !path.is_empty() => {
                        self.store = Store::File(Some(OsStr::from_bytes(path).into()));
                    }
                    _ => return bad("STORE", "auto, zram, file or file:PATH"),
                },
            },
            b"DELIVERY" => match value {
                b"auto" => self.delivery = Delivery::Auto,
                b"direct" => self.delivery = Delivery::Direct,
                b"handler" => self.delivery = Delivery::Handler,
                _ => return bad("DELIVERY", "auto, direct or handler"),
            },
            b"ON_STORE_FULL" => match value {
                b"exceed" => self.on_store_full = OnStoreFull::Exceed,
                b"abort" => self.on_store_full = OnStoreFull::Abort,
                _ => return bad("ON_STORE_FULL", "exceed or abort"),
            },
            b"RELAY" => self.relay = Some(OsStr::from_bytes(value).into()),
            b"FILE_MAX" => match text.parse() {
                Ok(bytes) => self.file_bytes = Some(bytes),
                Err(_) => return bad("FILE_MAX", "a number of bytes"),
            },
            b"BOARD" => self.board = Some(OsStr::from_bytes(value).into()),
            b"FORCE_TMPFS" => self.force_tmpfs = value == b"1",
            b"ENCRYPT" => match value {
                b"on" => self.encrypt = true,
                b"off" => self.encrypt = false,
                // No memory may go out unencrypted because of a misspelt word.
                _ => return bad("ENCRYPT", "on or off"),
            },
            b"ORDER" => match text.parse() {
                Ok(order) => self.order = Some(order),
                Err(_) => return bad("ORDER", "0 to 9, adaptive or adaptive:MAX"),
            },
            b"LAZY_PURGE" => match value {
                b"on" => self.lazy_purge = true,
                b"off" => self.lazy_purge = false,
                _ => return bad("LAZY_PURGE", "on or off"),
            },
            b"TELL" => match value {
                b"budget" => self.tell_budget = true,
                b"machine" => self.tell_budget = false,
                _ => return bad("TELL", "budget or machine"),
            },
            b"RECORD" => match record(value) {
                Some(record) => self.record = Some(record),
                None => return bad("RECORD", "a number of pages, a colon and a file"),
            },
            b"MASK" => match Mask::parse(&text) {
                Ok(mask) => self.mask = mask,
                Err(_) => return bad("MASK", "some of uffd,move,wp,poison,vectors,guards,scan"),
            },
            _ => {}
        }
        Ok(())
    }
}

/// The window and the path of the tapes, from `WINDOW:PATH`.
fn record(value: &[u8]) -> Option<Record> {
    let colon = value.iter().position(|&byte| byte == b':')?;
    let window = std::str::from_utf8(&value[..colon]).ok()?.parse().ok()?;
    let tapes = OsStr::from_bytes(&value[colon + 1..]);
    (!tapes.is_empty()).then(|| Record {
        window,
        tapes: tapes.into(),
    })
}

/// The code that is linked into this library calls this function for `getenv` (`build.rs`). It answers that nothing
/// is set.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn __wrap_getenv(_: *const c_char) -> *mut c_char {
    core::ptr::null_mut()
}

/// The strings of a null-terminated array of C strings.
///
/// # Safety
/// `array` is such an array, and it lives and is not changed for `'a`.
pub unsafe fn strings<'a>(array: *const *const c_char) -> impl Iterator<Item = &'a [u8]> {
    (0..).map_while(move |n| {
        if array.is_null() {
            return None;
        }
        // SAFETY: entries up to the null are readable, and `map_while` ends there.
        let string = unsafe { *array.add(n) };
        // SAFETY: each entry is a C string.
        (!string.is_null()).then(|| unsafe { CStr::from_ptr(string) }.to_bytes())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use millpond::Order;

    fn parse(variables: &[&str]) -> Result<Settings, String> {
        Settings::parse(variables.iter().map(|text| text.as_bytes()))
    }

    #[test]
    fn everything_is_read() {
        let settings = parse(&[
            "HOME=/",
            "TMPDIR=/big",
            "MILLPOND_RAM=67108864",
            "MILLPOND_STORE=file:/tmp/x=y",
            "MILLPOND_DELIVERY=direct",
            "MILLPOND_ON_STORE_FULL=abort",
            "MILLPOND_BOARD=/b",
            "MILLPOND_ORDER=4",
            "MILLPOND_LAZY_PURGE=off",
            "MILLPOND_ENCRYPT=on",
            "MILLPOND_TELL=machine",
            "MILLPOND_RECORD=256:/tapes:1",
        ])
        .unwrap();
        assert_eq!(settings.ram, Some(64 << 20));
        assert_eq!(settings.store, Store::File(Some("/tmp/x=y".into())));
        assert_eq!(settings.delivery, Delivery::Direct);
        assert_eq!(settings.on_store_full, OnStoreFull::Abort);
        assert_eq!(
            (settings.board, settings.order),
            (Some("/b".into()), "4".parse().ok())
        );
        assert!(!settings.lazy_purge && settings.encrypt && !settings.tell_budget);
        assert_eq!(settings.temporary, Some("/big".into()));
        let record = settings.record.unwrap();
        assert_eq!((record.window, record.tapes), (256, "/tapes:1".into()));
    }

    #[test]
    fn orders_are_fixed_or_adaptive() {
        let order = |text: &str| parse(&[&format!("MILLPOND_ORDER={text}")]).unwrap().order;
        let max = |max| Order::new(max).unwrap();
        assert_eq!(order("0"), Some(OrderPolicy::Fixed(max(0))));
        assert_eq!(
            order("adaptive"),
            Some(OrderPolicy::Adaptive { max: max(9) })
        );
        assert_eq!(
            order("adaptive:4"),
            Some(OrderPolicy::Adaptive { max: max(4) })
        );
    }

    #[test]
    fn what_is_wrong_is_named() {
        for variable in [
            "MILLPOND_RAM=64M",
            "MILLPOND_STORE=tape",
            "MILLPOND_STORE=file:",
            "MILLPOND_DELIVERY=thread",
            "MILLPOND_ORDER=10",
            "MILLPOND_ORDER=adaptive:",
            "MILLPOND_ORDER=Adaptive",
            "MILLPOND_LAZY_PURGE=1",
            "MILLPOND_RECORD=256",
            "MILLPOND_RECORD=many:/tapes",
            "MILLPOND_RECORD=256:",
        ] {
            let error = parse(&[variable]).unwrap_err();
            assert!(error.starts_with(variable), "{error}");
        }
    }

    #[test]
    fn without_a_budget_there_is_none() {
        let settings = parse(&["MILLPOND_STORE=zram", "TMPDIR="]).unwrap();
        assert_eq!(settings.temporary, None);
        assert_eq!((settings.ram, settings.lazy_purge), (None, true));
    }
}
