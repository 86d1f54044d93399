//! Groups: budgets within the pond's, and how long threads wait for memory.

use crate::pond::{Pond, check_process, manager, place};
use crate::sized::{self, Structure};
use crate::status::{Failure, answer, text};
use millpond::{GroupLimits, Manager, PressureLine};
use std::ffi::{c_char, c_int};

/// The type behind `millpond_group`.
pub struct Group {
    /// The group's manager, which knows without a lock whether this is a forked child.
    manager: Manager,
    group: millpond::Group,
}

/// The layout of `struct millpond_limits`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Limits {
    pub(crate) size: usize,
    pub(crate) min: u64,
    pub(crate) low: u64,
    pub(crate) high: u64,
    pub(crate) max: u64,
    pub(crate) lazyfree_max: u64,
}

/// The layout of `struct millpond_group_stats`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct GroupStats {
    pub(crate) size: usize,
    pub(crate) usage: u64,
    pub(crate) resident: u64,
    pub(crate) lazyfree: u64,
    pub(crate) stored: u64,
    pub(crate) pgmajfault: u64,
}

/// The layout of `struct millpond_pressure`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Pressure {
    pub(crate) size: usize,
    pub(crate) some: [f64; 3],
    pub(crate) full: [f64; 3],
    pub(crate) some_total_us: u64,
    pub(crate) full_total_us: u64,
}

// SAFETY: the structure contains only numbers, with the size first.
unsafe impl Structure for Limits {
    const NAME: &'static str = "struct millpond_limits";
}

// SAFETY: the structure contains only numbers, with the size first.
unsafe impl Structure for GroupStats {
    const NAME: &'static str = "struct millpond_group_stats";
}

// SAFETY: the structure contains only numbers, with the size first.
unsafe impl Structure for Pressure {
    const NAME: &'static str = "struct millpond_pressure";
}

impl From<Limits> for GroupLimits {
    fn from(limits: Limits) -> Self {
        let mut made = Self::new().min(limits.min).low(limits.low);
        if limits.high > 0 {
            made = made.high(limits.high);
        }
        if limits.max > 0 {
            made = made.max(limits.max);
        }
        if limits.lazyfree_max > 0 {
            made = made.lazyfree_max(limits.lazyfree_max);
        }
        made
    }
}

/// # Safety
/// `group` is null, or a group that has not been freed.
unsafe fn group<'a>(group: *const Group) -> Result<&'a millpond::Group, Failure> {
    // SAFETY: the caller's contract.
    let group = unsafe { group.as_ref() };
    let group = group.ok_or_else(|| Failure::invalid("null was passed for a group"))?;
    check_process(&group.manager)?;
    Ok(&group.group)
}

/// Returns a group, or the pond's own if `group` is null.
///
/// # Safety
/// As [`group`].
pub(crate) unsafe fn group_or_root(
    manager: &Manager,
    group: *const Group,
) -> Result<millpond::Group, Failure> {
    match group.is_null() {
        true => Ok(manager.root()),
        // SAFETY: the caller's contract.
        false => unsafe { self::group(group) }.cloned(),
    }
}

/// # Safety
/// Each pointer is null or as the header requires. This applies to all exported functions of this file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_group_new(
    pond: *const Pond,
    parent: *const Group,
    name: *const c_char,
    limits: *const Limits,
    group: *mut *mut Group,
) -> c_int {
    let make = || {
        // SAFETY: the caller's contract.
        let (manager, name, place) = unsafe {
            (
                manager(pond)?,
                text(name, "the group's name")?.unwrap_or_default(),
                place(group, "group")?,
            )
        };
        // SAFETY: the caller's contract.
        let parent = unsafe { group_or_root(manager, parent)? };
        let limits = match limits.is_null() {
            true => GroupLimits::new(),
            // SAFETY: the caller's contract.
            false => unsafe { sized::read(limits)? }.into(),
        };
        let group = manager.group(&parent, name, limits)?;
        *place = Box::into_raw(Box::new(Group {
            manager: manager.clone(),
            group,
        }));
        Ok(())
    };
    answer(make())
}

/// # Safety
/// As [`millpond_group_new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_group_set_limits(
    group: *const Group,
    limits: *const Limits,
) -> c_int {
    let set = || {
        // SAFETY: the caller's contract.
        let (group, limits) = unsafe { (self::group(group)?, sized::read(limits)?) };
        Ok(group.set_limits(limits.into())?)
    };
    answer(set())
}

/// # Safety
/// As [`millpond_group_new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_group_remove(group: *const Group) -> c_int {
    // SAFETY: the caller's contract.
    let group = unsafe { self::group(group) };
    answer(group.and_then(|group| Ok(group.clone().remove()?)))
}

/// # Safety
/// As [`millpond_group_new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_group_free(group: *mut Group) {
    if !group.is_null() {
        // SAFETY: `millpond_group_new` made the group, and it is no longer used.
        drop(unsafe { Box::from_raw(group) });
    }
}

/// # Safety
/// As [`millpond_group_new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_group_stats(
    group: *const Group,
    stats: *mut GroupStats,
) -> c_int {
    let fill = |group: &millpond::Group| {
        let stats = group.stats()?;
        Ok(GroupStats {
            size: size_of::<GroupStats>(),
            usage: stats.usage,
            resident: stats.resident,
            lazyfree: stats.lazyfree,
            stored: stats.stored,
            pgmajfault: stats.vm.pgmajfault,
        })
    };
    // SAFETY: the caller's contract.
    let group = unsafe { self::group(group) };
    // SAFETY: the caller's contract.
    answer(group.and_then(|group| unsafe { sized::write(stats, || fill(group)) }))
}

/// # Safety
/// As [`millpond_group_new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_pressure(
    pond: *const Pond,
    group: *const Group,
    pressure: *mut Pressure,
) -> c_int {
    let averages = |line: PressureLine| [line.avg10, line.avg60, line.avg300];
    let micros = |line: PressureLine| u64::try_from(line.total.as_micros()).unwrap_or(u64::MAX);
    let look = || {
        // SAFETY: the caller's contract.
        let group = unsafe { group_or_root(manager(pond)?, group)? };
        let fill = || {
            let now = group.pressure();
            Ok(Pressure {
                size: size_of::<Pressure>(),
                some: averages(now.some),
                full: averages(now.full),
                some_total_us: micros(now.some),
                full_total_us: micros(now.full),
            })
        };
        // SAFETY: the caller's contract.
        unsafe { sized::write(pressure, fill) }
    };
    answer(look())
}
