//! Regions: their memory, pins, lazy free, moves, snapshots.

use crate::group::{Group, group_or_root};
use crate::pond::{Pond, check_process, manager, place, setting};
use crate::sized::{self, Structure};
use crate::status::{Failure, answer, text};
use millpond::{Advice, Contents, Manager, OrderPolicy, PinGuard, Pinned};
use millpond_sync::{HeldRw, Rank, RankedRw, RwLockReadGuard, RwLockWriteGuard};
use std::ffi::{c_char, c_int, c_void};
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::sync::Arc;

/// The type behind `millpond_region`.
pub struct Region(Arc<Shared>);

/// What the handle of a region shares with the handles of its pins.
struct Shared {
    /// The region's manager, which knows without a lock whether this is a forked child.
    manager: Manager,
    /// The region. Calls that need it exclusively take the lock for writing.
    region: RankedRw<millpond::Region>,
}

impl Shared {
    /// Takes the region concurrently with other calls that use it.
    fn read(&self) -> HeldRw<RwLockReadGuard<'_, millpond::Region>> {
        self.region.read()
    }

    /// Like `read`, but never waits: returns `None` while a call has the region exclusively, or waits for that.
    fn try_read(&self) -> Option<HeldRw<RwLockReadGuard<'_, millpond::Region>>> {
        self.region.try_read()
    }

    /// Waits until no other call uses the region, and takes it exclusively.
    fn write(&self) -> HeldRw<RwLockWriteGuard<'_, millpond::Region>> {
        self.region.write()
    }
}

/// The type behind `millpond_pin`.
pub struct Pin {
    shared: Arc<Shared>,
    pinned: ManuallyDrop<Pinned>,
}

/// The layout of `struct millpond_range`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Part {
    pub(crate) offset: usize,
    pub(crate) len: usize,
}

/// The layout of `struct millpond_region_stats`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct RegionStats {
    pub(crate) size: usize,
    pub(crate) resident: u64,
    pub(crate) limbo: u64,
    pub(crate) lazyfree: u64,
    pub(crate) swapped: u64,
    pub(crate) inherited: u64,
    pub(crate) lost: u64,
}

// SAFETY: the structure contains only numbers, with the size first.
unsafe impl Structure for RegionStats {
    const NAME: &'static str = "struct millpond_region_stats";
}

/// # Safety
/// `region` is null, or a region that has not been freed.
unsafe fn shared<'a>(region: *const Region) -> Result<&'a Arc<Shared>, Failure> {
    // SAFETY: the caller's contract.
    let region = unsafe { region.as_ref() };
    let region = region.ok_or_else(|| Failure::invalid("null was passed for a region"))?;
    check_process(&region.0.manager)?;
    Ok(&region.0)
}

/// Calls `act` concurrently with other calls that use the region.
///
/// # Safety
/// As [`shared`].
unsafe fn beside<E: Into<Failure>>(
    region: *const Region,
    act: impl FnOnce(&millpond::Region) -> Result<(), E>,
) -> c_int {
    // SAFETY: the caller's contract.
    let shared = unsafe { shared(region) };
    answer(shared.and_then(|shared| act(&shared.read()).map_err(Into::into)))
}

/// Calls `act` concurrently with other calls that use the region, and writes its result to `there`: whether `act` did
/// what was asked. A call that has the region exclusively moves or drops its contents, which takes time; meanwhile
/// the result is "no", as it is for pages that are not in memory.
///
/// # Safety
/// As [`shared`]; `there` is null or writable.
unsafe fn at_once(
    region: *const Region,
    there: *mut c_int,
    act: impl FnOnce(&Arc<Shared>, &millpond::Region) -> Result<bool, Failure>,
) -> c_int {
    let act = || {
        // SAFETY: the caller's contract.
        let (shared, there) = unsafe { (shared(region)?, self::there(there)?) };
        let done = match shared.try_read() {
            Some(region) => act(shared, &region)?,
            None => false,
        };
        *there = c_int::from(done);
        Ok(())
    };
    answer(act())
}

/// Calls `act` when no other call uses the region.
///
/// # Safety
/// As [`shared`].
unsafe fn alone<E: Into<Failure>>(
    region: *const Region,
    act: impl FnOnce(&mut millpond::Region) -> Result<(), E>,
) -> c_int {
    // SAFETY: the caller's contract.
    let shared = unsafe { shared(region) };
    answer(shared.and_then(|shared| act(&mut shared.write()).map_err(Into::into)))
}

/// Makes a range. A range that overflows ends beyond all regions, so they refuse it.
fn range(offset: usize, len: usize) -> Range<usize> {
    offset..offset.saturating_add(len)
}

fn handle(manager: Manager, region: millpond::Region) -> *mut Region {
    let region = RankedRw::new(Rank::RegionHandle, region);
    Box::into_raw(Box::new(Region(Arc::new(Shared { manager, region }))))
}

/// Converts a value of `enum millpond_advice`.
pub(crate) fn advice_of(advice: c_int) -> Result<Advice, Failure> {
    Ok(match advice {
        0 => Advice::Normal,
        1 => Advice::Sequential,
        2 => Advice::Random,
        3 => Advice::WillNeed,
        4 => Advice::Cold,
        5 => Advice::PageOut,
        other => {
            return Err(Failure::invalid(format!(
                "{other} is no advice: it is 0 (MILLPOND_NORMAL) to 5 (MILLPOND_PAGEOUT)"
            )));
        }
    })
}

/// # Safety
/// Each pointer is null or as the header requires. This applies to all exported functions of this file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_region_new(
    pond: *const Pond,
    len: usize,
    order: *const c_char,
    region: *mut *mut Region,
) -> c_int {
    let make = || {
        // SAFETY: the caller's contract.
        let (manager, order, place) = unsafe {
            (
                manager(pond)?,
                text(order, "the order")?,
                place(region, "region")?,
            )
        };
        let made = match order {
            None => manager.region(len)?,
            Some(order) => manager.region_with(len, setting::<OrderPolicy>(order)?)?,
        };
        *place = handle(manager.clone(), made);
        Ok(())
    };
    answer(make())
}

/// # Safety
/// As [`millpond_region_new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_region_data(region: *const Region) -> *mut c_void {
    // SAFETY: the caller's contract.
    let shared = unsafe { shared(region) };
    shared.map_or(std::ptr::null_mut(), |shared| shared.read().as_ptr().cast())
}

/// # Safety
/// As [`millpond_region_new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_region_size(region: *const Region) -> usize {
    // SAFETY: the caller's contract.
    unsafe { shared(region) }.map_or(0, |shared| shared.read().len())
}

/// # Safety
/// As [`millpond_region_new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_region_free(region: *mut Region) {
    if !region.is_null() {
        // SAFETY: `handle` made the region, and it is no longer used.
        drop(unsafe { Box::from_raw(region) });
    }
}

/// # Safety
/// As [`millpond_region_new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_region_free_async(region: *mut Region) {
    if region.is_null() {
        return;
    }
    // SAFETY: `handle` made the region, and it is no longer used.
    let region = unsafe { Box::from_raw(region) };
    // If pins remain, the last of them frees the region in the usual way.
    if let Some(shared) = Arc::into_inner(region.0) {
        let region = shared.region.into_inner();
        region.free_async();
    }
}

/// # Safety
/// As [`millpond_region_new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_region_stats(
    region: *const Region,
    stats: *mut RegionStats,
) -> c_int {
    let fill = |region: &millpond::Region| {
        let stats = region.stats();
        Ok(RegionStats {
            size: size_of::<RegionStats>(),
            resident: stats.resident,
            limbo: stats.limbo,
            lazyfree: stats.lazyfree,
            swapped: stats.swapped,
            inherited: stats.inherited,
            lost: stats.lost,
        })
    };
    // SAFETY: the caller's contract.
    unsafe { beside(region, |region| sized::write(stats, || fill(region))) }
}

/// # Safety
/// As [`millpond_region_new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_region_advise(
    region: *const Region,
    offset: usize,
    len: usize,
    advice: c_int,
) -> c_int {
    let advise = |region: &millpond::Region| {
        Ok::<_, Failure>(region.advise(range(offset, len), advice_of(advice)?)?)
    };
    // SAFETY: the caller's contract.
    unsafe { beside(region, advise) }
}

/// # Safety
/// As [`millpond_region_new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_region_populate(
    region: *const Region,
    offset: usize,
    len: usize,
) -> c_int {
    // SAFETY: the caller's contract. Advice is refused outside of the region, and does the same as populate inside.
    unsafe {
        beside(region, |region| {
            region.advise(range(offset, len), Advice::WillNeed)
        })
    }
}

/// # Safety
/// As [`millpond_region_new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_region_pin(
    region: *const Region,
    offset: usize,
    len: usize,
    pin: *mut *mut Pin,
) -> c_int {
    let act = || {
        // SAFETY: the caller's contract.
        let (shared, place) = unsafe { (shared(region)?, place(pin, "pin")?) };
        *place = Pin::handle(shared, shared.read().pin(range(offset, len))?);
        Ok(())
    };
    answer(act())
}

/// Converts the pointer to the place for a call's result into a reference.
///
/// # Safety
/// `there` is null, or writable.
unsafe fn there<'a>(there: *mut c_int) -> Result<&'a mut c_int, Failure> {
    // SAFETY: the caller's contract.
    unsafe { there.as_mut() }
        .ok_or_else(|| Failure::invalid("null was passed for where `there` goes"))
}

/// Refuses a copy to or from null, and one that exceeds the region, which the underlying crate treats as a bug.
fn check_copy(
    region: &millpond::Region,
    offset: usize,
    buffer: *const c_void,
    len: usize,
) -> Result<(), Failure> {
    if buffer.is_null() {
        return Err(Failure::invalid("null was passed for a buffer"));
    }
    let range = range(offset, len);
    match range.end <= region.len() {
        true => Ok(()),
        false => Err(Failure::invalid(format!(
            "the range {}..{} is not within the region's {} bytes",
            range.start,
            range.end,
            region.len()
        ))),
    }
}

/// # Safety
/// As [`millpond_region_new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_region_try_read(
    region: *const Region,
    offset: usize,
    buffer: *mut c_void,
    len: usize,
    there: *mut c_int,
) -> c_int {
    let copy = |_: &Arc<Shared>, region: &millpond::Region| {
        check_copy(region, offset, buffer, len)?;
        // SAFETY: the caller's contract.
        let out = unsafe { std::slice::from_raw_parts_mut(buffer.cast(), len) };
        Ok(region.try_read(offset, out))
    };
    // SAFETY: the caller's contract.
    unsafe { at_once(region, there, copy) }
}

/// # Safety
/// As [`millpond_region_new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_region_try_write(
    region: *const Region,
    offset: usize,
    buffer: *const c_void,
    len: usize,
    there: *mut c_int,
) -> c_int {
    let copy = |_: &Arc<Shared>, region: &millpond::Region| {
        check_copy(region, offset, buffer, len)?;
        // SAFETY: the caller's contract; the caller takes care of other threads that use these bytes meanwhile.
        Ok(unsafe {
            let data = std::slice::from_raw_parts(buffer.cast(), len);
            region.try_write_shared(offset, data)
        })
    };
    // SAFETY: the caller's contract.
    unsafe { at_once(region, there, copy) }
}

/// # Safety
/// As [`millpond_region_new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_region_try_pin(
    region: *const Region,
    offset: usize,
    len: usize,
    pin: *mut *mut Pin,
    there: *mut c_int,
) -> c_int {
    let pin_now = |shared: &Arc<Shared>, region: &millpond::Region| {
        // SAFETY: the caller's contract.
        let place = unsafe { place(pin, "pin")? };
        let guard = region.try_pin(range(offset, len))?;
        let pinned = guard.is_some();
        if let Some(guard) = guard {
            *place = Pin::handle(shared, guard);
        }
        Ok(pinned)
    };
    // SAFETY: the caller's contract.
    unsafe { at_once(region, there, pin_now) }
}

/// # Safety
/// As [`millpond_region_new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_region_prefetch(
    region: *const Region,
    offset: usize,
    len: usize,
) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { beside(region, |region| region.prefetch(range(offset, len))) }
}

impl Pin {
    fn handle(shared: &Arc<Shared>, guard: PinGuard<'_>) -> *mut Self {
        Box::into_raw(Box::new(Self {
            shared: Arc::clone(shared),
            pinned: ManuallyDrop::new(guard.leak()),
        }))
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        // SAFETY: the pin is not used after this.
        let pinned = unsafe { ManuallyDrop::take(&mut self.pinned) };
        // In a forked child the lock may be held for ever.
        if check_process(&self.shared.manager).is_ok() {
            self.shared.read().unpin(pinned);
        }
    }
}

/// # Safety
/// As [`millpond_region_new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_pin_free(pin: *mut Pin) {
    if !pin.is_null() {
        // SAFETY: `millpond_region_pin` made the pin, and it is no longer used.
        drop(unsafe { Box::from_raw(pin) });
    }
}

/// # Safety
/// As [`millpond_region_new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_region_discard(
    region: *const Region,
    offset: usize,
    len: usize,
) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { alone(region, |region| region.discard(range(offset, len))) }
}

/// # Safety
/// As [`millpond_region_new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_region_will_overwrite(
    region: *const Region,
    offset: usize,
    len: usize,
) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { alone(region, |region| region.will_overwrite(range(offset, len))) }
}

/// # Safety
/// `ranges` is null, or points to `count` ranges.
unsafe fn ranges(ranges: *const Part, count: usize) -> Result<Vec<Range<usize>>, Failure> {
    if ranges.is_null() {
        return Err(Failure::invalid("null was passed for ranges"));
    }
    // SAFETY: the caller's contract.
    let ranges = unsafe { std::slice::from_raw_parts(ranges, count) };
    Ok(ranges
        .iter()
        .map(|part| range(part.offset, part.len))
        .collect())
}

/// # Safety
/// As [`millpond_region_new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_region_lazy_free(
    region: *const Region,
    parts: *const Part,
    count: usize,
) -> c_int {
    // SAFETY: the caller's contract.
    unsafe {
        alone(region, |region| {
            Ok::<_, Failure>(region.lazy_free_vectored(&ranges(parts, count)?)?)
        })
    }
}

/// # Safety
/// As [`millpond_region_new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_region_lazy_free_shared(
    region: *const Region,
    parts: *const Part,
    count: usize,
) -> c_int {
    // SAFETY: the caller's contract; this makes no reference to the bytes.
    unsafe {
        beside(region, |region| {
            Ok::<_, Failure>(region.lazy_free_shared_vectored(&ranges(parts, count)?)?)
        })
    }
}

/// # Safety
/// As [`millpond_region_new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_region_mark_volatile(
    region: *const Region,
    offset: usize,
    len: usize,
) -> c_int {
    // SAFETY: the caller's contract; no thread uses the bytes until the program asks for them again.
    unsafe { beside(region, |region| region.mark_volatile(range(offset, len))) }
}

/// # Safety
/// As [`millpond_region_new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_region_mark_nonvolatile(
    region: *const Region,
    offset: usize,
    len: usize,
    purged: *mut c_int,
) -> c_int {
    let ask = |region: &millpond::Region| {
        // SAFETY: the caller's contract.
        let purged = unsafe { purged.as_mut() };
        let purged =
            purged.ok_or_else(|| Failure::invalid("null was passed for where `purged` goes"))?;
        let contents = region.mark_nonvolatile(range(offset, len))?;
        *purged = c_int::from(contents == Contents::Purged);
        Ok::<_, Failure>(())
    };
    // SAFETY: the caller's contract.
    unsafe { beside(region, ask) }
}

/// # Safety
/// As [`millpond_region_new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_region_grow(region: *const Region, len: usize) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { alone(region, |region| region.grow(len)) }
}

/// # Safety
/// As [`millpond_region_new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_region_shrink(region: *const Region, len: usize) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { alone(region, |region| region.shrink(len)) }
}

/// # Safety
/// As [`millpond_region_new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_region_move(
    from: *const Region,
    offset: usize,
    len: usize,
    to: *const Region,
    to_offset: usize,
) -> c_int {
    let act = || {
        // SAFETY: the caller's contract.
        let (from, to) = unsafe { (shared(from)?, shared(to)?) };
        if std::ptr::eq(from, to) {
            return Err(Failure::invalid(
                "a region was to be moved into itself: give another one, or copy the bytes",
            ));
        }
        let [mut from, mut to] = from.region.write_both(&to.region);
        Ok(from.remap(range(offset, len), &mut to, to_offset)?)
    };
    answer(act())
}

/// # Safety
/// As [`millpond_region_new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_region_split(
    from: *const Region,
    offset: usize,
    len: usize,
    new_len: usize,
    region: *mut *mut Region,
) -> c_int {
    // SAFETY: the caller's contract.
    unsafe {
        another(from, region, |from| {
            Ok(from.remap_anywhere(range(offset, len), new_len)?)
        })
    }
}

/// # Safety
/// As [`millpond_region_new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_region_snapshot(
    region: *const Region,
    snapshot: *mut *mut Region,
) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { another(region, snapshot, |region| Ok(region.snapshot()?)) }
}

/// Makes a region from another one.
///
/// # Safety
/// As [`millpond_region_new`].
unsafe fn another(
    from: *const Region,
    made: *mut *mut Region,
    make: impl FnOnce(&mut millpond::Region) -> Result<millpond::Region, Failure>,
) -> c_int {
    let act = || {
        // SAFETY: the caller's contract.
        let (shared, place) = unsafe { (shared(from)?, place(made, "region")?) };
        *place = handle(shared.manager.clone(), make(&mut shared.write())?);
        Ok(())
    };
    answer(act())
}

/// # Safety
/// As [`millpond_region_new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_region_set_group(
    region: *const Region,
    to: *const Group,
) -> c_int {
    let act = || {
        // SAFETY: the caller's contract.
        let shared = unsafe { shared(region)? };
        // SAFETY: the caller's contract.
        let to = unsafe { group_or_root(&shared.manager, to)? };
        Ok(shared.read().move_to(&to)?)
    };
    answer(act())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `try_read`, `try_write` and `try_pin` once waited for the handle's lock, which a discard, a growth or a move
    /// holds until it ends: a thread that had asked not to wait waited that long. Here this very thread holds the
    /// lock, so a call that waits never returns.
    #[test]
    fn try_calls_do_not_wait_for_a_holder_of_the_region_lock() {
        let manager = Manager::builder().ram(16 << 20).build().unwrap();
        let mut made = manager.region(4096).unwrap();
        made.as_mut_slice().fill(7);
        let region = handle(manager, made);
        let mut bytes = [0_u8; 8];
        let mut pin = std::ptr::null_mut();
        let mut ask = || {
            let buffer = bytes.as_mut_ptr().cast::<c_void>();
            let mut there = [-1; 3];
            // SAFETY: the region is not freed, and all places are variables of this function.
            let codes = unsafe {
                [
                    millpond_region_try_read(region, 0, buffer, 8, &mut there[0]),
                    millpond_region_try_write(region, 0, buffer, 8, &mut there[1]),
                    millpond_region_try_pin(region, 0, 4096, &mut pin, &mut there[2]),
                ]
            };
            assert_eq!(codes, [0; 3]);
            there
        };
        // SAFETY: the region is not freed.
        let alone = unsafe { shared(region) }.map_err(|_| ()).unwrap().write();
        assert_eq!(ask(), [0; 3]);
        drop(alone);
        assert_eq!(ask(), [1; 3]);
        // SAFETY: the region and the pin were made above, and are no longer used.
        unsafe {
            millpond_pin_free(pin);
            millpond_region_free(region);
        }
    }

    #[test]
    fn overflowing_range_ends_beyond_every_region() {
        assert_eq!(range(4096, usize::MAX), 4096..usize::MAX);
        assert_eq!(range(4096, 4096), 4096..8192);
    }
}
