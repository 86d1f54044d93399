//! The ways to free lazily, as the tests go through them.

use super::{PAGE, page_is, small, ways};
use millpond::{ManagerBuilder, RangeError, Region};
use std::ops::Range;

/// The two contracts: the caller alone uses the bytes, or any thread may.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Free {
    Exclusive,
    Shared,
}

impl Free {
    pub fn try_vector(
        self,
        region: &mut Region,
        ranges: &[Range<usize>],
    ) -> Result<(), RangeError> {
        match self {
            Self::Exclusive => region.lazy_free_vectored(ranges),
            // SAFETY: the region is borrowed: nothing refers to its bytes.
            Self::Shared => unsafe { region.lazy_free_shared_vectored(ranges) },
        }
    }

    pub fn try_one(self, region: &mut Region, range: Range<usize>) -> Result<(), RangeError> {
        match self {
            Self::Exclusive => region.lazy_free(range),
            // SAFETY: the region is borrowed: nothing refers to its bytes.
            Self::Shared => unsafe { region.lazy_free_shared(range) },
        }
    }

    pub fn one(self, region: &mut Region, range: Range<usize>) {
        self.try_one(region, range).unwrap();
    }
}

/// A way to run, with its name for messages.
pub struct Case {
    pub free: Free,
    pub order: u8,
    pub name: String,
}

/// Runs with both contracts, both deliveries and both ways of taking out, each with these orders.
pub fn each_case(orders: &[u8], mut run: impl FnMut(ManagerBuilder, &Case)) {
    for (delivery, method) in ways() {
        for free in [Free::Exclusive, Free::Shared] {
            for &order in orders {
                let name = format!("{delivery:?} {method:?} {free:?} order {order}");
                let builder = small().delivery(delivery).take_out(method);
                run(builder, &Case { free, order, name });
            }
        }
    }
}

/// Checks that each page of `range` is as [`fill`](super::fill) wrote it, or zeros. Returns how many are zeros; `None`
/// if a page is neither.
pub fn old_or_zeros(region: &Region, range: Range<usize>, salt: u64) -> Option<usize> {
    let mut zeros = 0;
    for (n, page) in region.as_slice()[range].chunks(PAGE).enumerate() {
        if page.iter().all(|&byte| byte == 0) {
            zeros += 1;
        } else if !page_is(page, salt + n as u64) {
            return None;
        }
    }
    Some(zeros)
}

/// Waits until the manager knows of all faults: a fault ends for the program a moment before a handler has told the
/// manager so.
pub fn settle(region: &Region) {
    region.populate(0..region.len()).unwrap();
}
