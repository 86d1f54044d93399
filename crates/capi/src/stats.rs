//! Statistics: a structure with the most wanted figures, and all others by name.

use crate::pond::{Pond, manager};
use crate::sized::{self, Structure};
use crate::status::{Failure, answer, text};
use millpond::Manager;
use millpond::publish::{StorePeaks, fields, resident};
use millpond_board::Fields;
use millpond_board::counters::{self, Counter};
use millpond_sync::OnceBox;
use std::ffi::{CString, c_char, c_int};

/// The layout of `struct millpond_stats`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct Stats {
    pub(crate) size: usize,
    pub(crate) ram: u64,
    pub(crate) resident: u64,
    pub(crate) limbo: u64,
    pub(crate) lazyfree: u64,
    pub(crate) stored: u64,
    pub(crate) store_bytes: u64,
    pub(crate) store_ram: u64,
    pub(crate) metadata: u64,
    pub(crate) peak: u64,
    pub(crate) pgfault: u64,
    pub(crate) pgmajfault: u64,
    pub(crate) pswpin: u64,
    pub(crate) pswpout: u64,
    pub(crate) store_failures: u64,
    pub(crate) fault_p50_ns: u64,
    pub(crate) fault_p99_ns: u64,
    pub(crate) fault_max_ns: u64,
}

// SAFETY: the structure contains only numbers, with the size first.
unsafe impl Structure for Stats {
    const NAME: &'static str = "struct millpond_stats";
}

impl From<millpond::Stats> for Stats {
    fn from(stats: millpond::Stats) -> Self {
        Self {
            size: size_of::<Self>(),
            ram: stats.ram,
            resident: stats.resident_bytes(),
            limbo: stats.limbo_bytes(),
            lazyfree: stats.lazyfree_bytes(),
            stored: stats.store.logical_bytes,
            store_bytes: stats.store.stored_bytes,
            store_ram: stats.store.ram_bytes,
            metadata: stats.metadata_bytes,
            peak: stats.peak_bytes,
            pgfault: stats.vm.pgfault,
            pgmajfault: stats.vm.pgmajfault,
            pswpin: stats.vm.pswpin,
            pswpout: stats.vm.pswpout,
            store_failures: stats.store_failures,
            fault_p50_ns: stats.latency.p50_ns,
            fault_p99_ns: stats.latency.p99_ns,
            fault_max_ns: stats.latency.max_ns,
        }
    }
}

/// # Safety
/// Each pointer is null or as the header requires. This applies to all exported functions of this file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_stats(pond: *const Pond, stats: *mut Stats) -> c_int {
    // SAFETY: the caller's contract.
    let manager = unsafe { manager(pond) };
    // SAFETY: the caller's contract.
    answer(
        manager.and_then(|manager| unsafe { sized::write(stats, || Ok(manager.stats().into())) }),
    )
}

/// Returns the current fields that all counters are computed from.
fn counted(manager: &Manager) -> Fields {
    let mut fields = fields(&manager.stats(), &StorePeaks::new());
    resident().write_to(&mut fields);
    fields
}

/// # Safety
/// As [`millpond_stats`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_counters(
    pond: *const Pond,
    values: *mut u64,
    count: usize,
) -> c_int {
    let look = || {
        // SAFETY: the caller's contract.
        let manager = unsafe { manager(pond)? };
        if values.is_null() {
            return Err(Failure::invalid("null was passed for where the values go"));
        }
        // SAFETY: the caller's contract; the pointer is not null.
        let values = unsafe { std::slice::from_raw_parts_mut(values, count) };
        let fields = counted(manager);
        for (value, counter) in values.iter_mut().zip(&counters::ALL) {
            *value = counter.of(&fields);
        }
        Ok(())
    };
    answer(look())
}

/// # Safety
/// As [`millpond_stats`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_counter(
    pond: *const Pond,
    name: *const c_char,
    value: *mut u64,
) -> c_int {
    let look = || {
        // SAFETY: the caller's contract.
        let (manager, name, value) = unsafe {
            (
                manager(pond)?,
                text(name, "the counter's name")?.unwrap_or_default(),
                value.as_mut(),
            )
        };
        let unknown = || {
            Failure::invalid(format!(
                "`{name}` is no counter: millpond_counter_name has their names"
            ))
        };
        let counter = counters::named(name).ok_or_else(unknown)?;
        let value =
            value.ok_or_else(|| Failure::invalid("null was passed for where the value goes"))?;
        *value = counter.of(&counted(manager));
        Ok(())
    };
    answer(look())
}

/// Returns the name of the counter with this index.
#[unsafe(no_mangle)]
pub extern "C" fn millpond_counter_name(index: usize) -> *const c_char {
    static NAMES: OnceBox<Vec<CString>> = OnceBox::new();
    let name = |counter: &Counter| CString::new(counter.name).expect("names have no zeros");
    let names = NAMES.get_or_init(|| Box::new(counters::ALL.iter().map(name).collect()));
    names
        .get(index)
        .map_or(std::ptr::null(), |name| name.as_ptr())
}

/// # Safety
/// As [`millpond_stats`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_avoided(pond: *const Pond, more: u64, share: *mut f64) -> c_int {
    let look = || {
        // SAFETY: the caller's contract.
        let (manager, share) = unsafe { (manager(pond)?, share.as_mut()) };
        let share =
            share.ok_or_else(|| Failure::invalid("null was passed for where the share goes"))?;
        *share = manager.stats().avoided(more).unwrap_or(-1.0);
        Ok(())
    };
    answer(look())
}
