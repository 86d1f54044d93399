//! The status that a call returns, and the message that is kept in the thread.

use millpond::{
    AdviseError, BuildError, GroupError, MoveError, PinError, RangeError, RegionError, RemapError,
    SetRamError, SnapshotError, VolatileError,
};
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};

/// The values of `enum millpond_status`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i32)]
pub(crate) enum Status {
    Invalid = 1,
    Unaligned = 2,
    Pinned = 3,
    Lost = 4,
    NoAddresses = 5,
    OverBudget = 6,
    System = 7,
    Store = 8,
    Volatile = 9,
    Busy = 10,
    Removed = 11,
    OtherPond = 12,
    Forked = 13,
}

/// Why a call did nothing.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) status: Status,
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(status: Status, message: impl Into<String>) -> Self {
        Self {
            status,
            message: message.into(),
        }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(Status::Invalid, message)
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Returns the message of the last call that failed in this thread.
#[unsafe(no_mangle)]
pub extern "C" fn millpond_error() -> *const c_char {
    // At the thread's end the message may already be gone.
    LAST.try_with(|last| last.borrow().as_ptr())
        .unwrap_or(c"".as_ptr())
}

/// Returns the status for `result`, and keeps its message.
pub(crate) fn answer(result: Result<(), Failure>) -> c_int {
    let Err(failure) = result else {
        return 0;
    };
    let message = CString::new(failure.message.replace('\0', "\u{fffd}")).unwrap_or_default();
    let _ = LAST.try_with(|last| last.replace(message));
    failure.status as c_int
}

/// Returns the text at `text`, or `None` for null.
///
/// # Safety
/// `text` is null, or a zero-terminated string that lives for the duration of the call.
pub(crate) unsafe fn text<'a>(text: *const c_char, what: &str) -> Result<Option<&'a str>, Failure> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's contract.
    let bytes = unsafe { CStr::from_ptr(text) };
    let not_utf8 = |_| Failure::invalid(format!("{what} {bytes:?} is not UTF-8"));
    bytes.to_str().map(Some).map_err(not_utf8)
}

// An error that wraps a range error has the status of the wrapped error.
macro_rules! failures {
    ($($error:ident $(, $wrapped:ident)? { $($(#[$doc:meta])* $pattern:pat => $status:ident,)* })*) => {$(
        impl From<$error> for Failure {
            fn from(error: $error) -> Self {
                use $error::*;
                $(
                    if let $wrapped(error) = error {
                        return error.into();
                    }
                )?
                let status = match &error { $($pattern => Status::$status,)* };
                Self::new(status, error.to_string())
            }
        }
    )*};
}

failures! {
    BuildError {
        Memory(_) | Thread(_) | Publish(_) | TablesTooLarge { .. } => System,
        Store(_) => Store,
        _ => Invalid,
    }
    RegionError {
        NoAddressSpace { .. } => NoAddresses,
        Memory { .. } => System,
        Group(MoveError::Removed) => Removed,
        Group(MoveError::OtherManager) => OtherPond,
        Group(_) => Busy,
        _ => Invalid,
    }
    RangeError {
        Unaligned { .. } => Unaligned,
        Pinned { .. } => Pinned,
        Lost { .. } => Lost,
        OutOfRecords => NoAddresses,
        _ => Invalid,
    }
    VolatileError, Range {
        Overlaps { .. } | NotVolatile { .. } => Volatile,
        _ => Invalid,
    }
    RemapError, Range {
        OtherManager => OtherPond,
        Volatile { .. } => Volatile,
        NoAddressSpace { .. } => NoAddresses,
        Memory { .. } => System,
        _ => Invalid,
    }
    SnapshotError {
        Pinned { .. } => Pinned,
        NoAddressSpace { .. } => NoAddresses,
        _ => System,
    }
    AdviseError, Range {
        Thread { .. } => System,
        _ => Invalid,
    }
    PinError, Range {
        OverBudget { .. } => OverBudget,
        TooOften { .. } => Pinned,
        _ => Invalid,
    }
    GroupError {
        NameTaken { .. } | InUse => Busy,
        Removed => Removed,
        OtherManager => OtherPond,
        Thread { .. } => System,
        _ => Invalid,
    }
    MoveError {
        Removed => Removed,
        OtherManager => OtherPond,
        _ => Busy,
    }
}

impl From<SetRamError> for Failure {
    fn from(error: SetRamError) -> Self {
        Self::invalid(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message() -> String {
        // SAFETY: the string lives until this thread's next call.
        let text = unsafe { CStr::from_ptr(millpond_error()) };
        text.to_str().unwrap().to_owned()
    }

    #[test]
    fn a_failure_leaves_its_message_in_its_thread() {
        std::thread::spawn(|| {
            assert_eq!(message(), "");
            assert_eq!(answer(Err(Failure::invalid("seven \0 is odd"))), 1);
            assert_eq!(message(), "seven \u{fffd} is odd");
            assert_eq!(answer(Ok(())), 0);
            std::thread::spawn(|| assert_eq!(message(), ""))
                .join()
                .unwrap();
        })
        .join()
        .unwrap();
    }

    #[test]
    fn errors_keep_their_status_and_message() {
        let failure = Failure::from(RangeError::Pinned { offset: 4096 });
        assert_eq!(failure.status, Status::Pinned);
        assert!(failure.message.contains("offset 4096"), "{failure:?}");
    }
}
