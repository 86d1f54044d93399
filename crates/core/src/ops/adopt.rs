//! Adopting memory that is mapped already.
//!
//! A process may run for a while with the kernel alone behind its memory. When its memory comes near the budget, what
//! the kernel has mapped by then becomes folios, in place: nothing is moved and nothing is installed. At most spare
//! frames are given back. The caller has found the pages in the page tables, and sees to it that no thread touches the
//! range meanwhile.
//!
//! Adopted memory may exceed the limit, as it is in memory whether or not it is counted. Reclaim then begins as after
//! any other lowering of the limit.

use crate::addr::{Order, PageRange};
use crate::command::Commands;
use crate::event::{Refusal, Reply};
use crate::machine::Core;

impl Core {
    /// Makes a resident folio of the block `at`, whose pages are mapped and of which the core knows nothing. It is no
    /// larger than the region's folios may be.
    pub(crate) fn adopt(&mut self, at: PageRange, out: &mut Commands) -> Reply {
        if !self.range_ok(at) || at.first_block(Order::MAX) != at {
            return Reply::Refused(Refusal::BadRange);
        }
        let Some(region) = self.regions.of(at.start).filter(|region| !region.ending) else {
            return Reply::Refused(Refusal::OutsideRegion);
        };
        if !region.range.covers(at) {
            return Reply::Refused(Refusal::OutsideRegion);
        }
        if at.len > region.order.largest().pages() {
            return Reply::Refused(Refusal::BadRange);
        }
        if self.is_of_file(at.start) {
            return Reply::Refused(Refusal::FileBacked);
        }
        let Some(0) = self.blank(at) else {
            return Reply::Refused(Refusal::RegionInUse);
        };
        let Some(id) = self.admit(at, None, false) else {
            return Reply::Refused(Refusal::OutOfRecords);
        };
        self.hold(at.start, at.len.0);
        self.flights -= 1;
        let list = self.list_of(id);
        self.now_resident(id, list);
        // The pages did not come from the pool, whose spare frames are now too many.
        self.trim(out);
        Reply::Done
    }
}
