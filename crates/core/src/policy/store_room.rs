//! What is known about the room in the store (`ops/store_full.rs`).

/// The known facts about the room in the store.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct StoreRoom {
    /// Pages that the store held when it last had no room; zero if it always had room.
    pub(crate) full_at: u32,
    /// Whether the store accepts nothing because it has no room.
    pub(crate) full: bool,
    /// Pages that the store has yet to forget before it may have room for what it refused.
    pub(crate) wanted: u32,
    /// Whether RAM is worth more than the savings from a copy of a page that is in memory.
    pub(crate) once: bool,
    /// Whether a mapped folio may have a slot that the sweep has not seen.
    pub(crate) held_twice: bool,
    /// Records that have yet to be searched for slots, from this one down.
    pub(crate) sweep: u32,
}

impl StoreRoom {
    /// Whether a store that holds `pages` is nearly full.
    pub(crate) fn is_tight(self, pages: u32) -> bool {
        self.full_at > 0 && pages > self.full_at / 4 * 3
    }

    /// Notes that the store holds `pages` now. A store that has accepted an eighth more than it held when it refused
    /// has grown.
    pub(crate) fn took(&mut self, pages: u32) {
        if self.full_at > 0 && pages > self.full_at.saturating_add(self.full_at / 8) {
            self.full_at = 0;
        }
    }
}
