//! Invariants of the whole state, for the simulator and for tests. docs/INVARIANTS.md states each in a sentence.

mod backing;
mod entries;
mod folios;
mod lists;

use crate::addr::{PageIndex, PageRange};
use crate::ids::FolioId;
use crate::machine::Core;
use crate::tables::folio::State;
use crate::tables::leaf::Entry;
use core::fmt;

/// The state of a page, seen from outside.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PageState {
    /// The page reads as zeros.
    Empty,
    /// The page is mapped.
    Resident,
    /// The page is in flight: a fault there waits.
    InFlight,
    /// The page is in RAM, not mapped.
    Limbo,
    /// The page was lazily freed and is not known to have been used since.
    LazyFree {
        /// Whether the page is mapped. If not, it is in limbo.
        mapped: bool,
    },
    /// The page is in the store.
    Swapped,
    /// The page is in a snapshot's base: when it is touched, it is copied, or its slot is shared.
    Inherited,
    /// The contents of the page are lost.
    Poisoned,
}

/// What the core knows about a waiting fault. It prints as one line.
#[derive(Clone, Copy, Debug)]
pub struct Standing {
    page: PageState,
    leaves: bool,
    folio: Option<(State, u8)>,
    flights: u32,
    available: u32,
    limbo: u64,
    mapped: u64,
    unevictable: u64,
    refused: u32,
    store_blocked: bool,
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the page is {:?}", self.page)?;
        if let Some((state, order)) = self.folio {
            write!(f, ", its folio of order {order} {state:?}")?;
        }
        if self.leaves {
            write!(f, ", its leaf on its way out")?;
        }
        write!(
            f,
            "; {} commands are out; pages: {} available, {} mapped, {} in limbo, {} unevictable; {} refused",
            self.flights, self.available, self.mapped, self.limbo, self.unevictable, self.refused
        )?;
        match self.store_blocked {
            true => write!(f, "; the store takes nothing"),
            false => Ok(()),
        }
    }
}

macro_rules! ensure {
    ($holds:expr, $($message:tt)+) => {
        if !$holds {
            return Err(format!($($message)+));
        }
    };
}
use ensure;

impl Core {
    /// The state of `page`, seen from outside.
    #[must_use]
    pub fn page_state(&self, page: PageIndex) -> PageState {
        match self.leaves.get(page) {
            Entry::Empty if self.inherited(page).is_some() => PageState::Inherited,
            Entry::Empty | Entry::Zero => PageState::Empty,
            Entry::Swapped { .. } => PageState::Swapped,
            Entry::Poisoned => PageState::Poisoned,
            Entry::Folio(id) => match self.folios.get(id).state {
                state @ (State::Resident | State::Limbo) if self.folios.get(id).lazy => {
                    PageState::LazyFree {
                        mapped: state.is_mapped(),
                    }
                }
                State::Resident if self.is_in_freed_part(id, page) => {
                    PageState::LazyFree { mapped: true }
                }
                State::Resident => PageState::Resident,
                State::Limbo => PageState::Limbo,
                _ => PageState::InFlight,
            },
        }
    }

    /// What a fault at `page` waits for, in words, for a person who examines a hanging program.
    #[must_use]
    pub fn standing(&self, page: PageIndex) -> Standing {
        let folio = self.folio_of(page).map(|id| *self.folios.get(id));
        let stats = self.stats();
        Standing {
            page: self.page_state(page),
            leaves: self.is_leaving(page),
            folio: folio.map(|folio| (folio.state, folio.order.get())),
            flights: self.flights,
            available: self.available().0,
            limbo: stats.nr_limbo,
            mapped: stats.nr_mapped,
            unevictable: stats.nr_unevictable,
            refused: self.refused_folios(),
            store_blocked: self.store_blocked,
        }
    }

    /// Whether faults at `page` wait because its leaf leaves as a whole.
    #[must_use]
    pub fn is_leaving(&self, page: PageIndex) -> bool {
        self.leaving.holds_up(page)
    }

    /// The pages of the folio, in memory or on its way, that contains `page`.
    #[must_use]
    pub fn folio_at(&self, page: PageIndex) -> Option<PageRange> {
        self.folio_of(page).map(|id| self.at(id))
    }

    /// The folio that contains `page`.
    #[must_use]
    pub fn folio_of(&self, page: PageIndex) -> Option<FolioId> {
        match self.leaves.get(page) {
            Entry::Folio(id) => Some(id),
            _ => None,
        }
    }

    /// Pages of folios that are in flight now: the frames may exceed the limit by this many.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.folios
            .iter()
            .filter(|(_, f)| f.in_flight())
            .map(|(_, f)| f.order.pages().0)
            .sum()
    }

    /// Checks that the whole state is consistent. The check takes time in proportion to the size of the state.
    ///
    /// # Errors
    /// The first invariant that does not hold, in words.
    pub fn check(&self) -> Result<(), String> {
        let by_slot = self.check_entries()?;
        self.check_folios()?;
        self.check_lists()?;
        self.check_frames()?;
        self.check_slots(by_slot)?;
        self.check_bases()
    }
}
