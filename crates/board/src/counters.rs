//! The counters under Linux's names, derived from a board's fields.
//!
//! Names are those of `/proc/vmstat` where Linux has such a counter. Counters that only Millpond has are named in the
//! same manner; each field says what its counter means.
//!
//! ```
//! use millpond_board::counters;
//! use millpond_board::{Field, Fields};
//!
//! let mut fields = Fields::default();
//! fields.set(Field::MinorFaults, 5);
//! fields.set(Field::MajorFaults, 2);
//! assert_eq!(counters::named("pgfault").unwrap().of(&fields), 7);
//! assert!(counters::named("pgmagic").is_none());
//! ```

use crate::{Field, Fields};

/// Bytes in a page.
const PAGE: u64 = 4096;

/// A counter of events, or a gauge of a present amount.
#[derive(Clone, Copy, Debug)]
pub struct Counter {
    /// The counter's name.
    pub name: &'static str,
    from: From,
    /// One line that says what the counter means.
    pub about: &'static str,
    /// Whether the counter only grows, so that it has a rate.
    pub grows: bool,
}

#[derive(Clone, Copy, Debug)]
enum From {
    /// The value of a field.
    Field(Field),
    /// The value in pages of a field in bytes.
    Pages(Field),
    /// The sum of two fields.
    Sum(Field, Field),
}

impl Counter {
    const fn counts(field: Field) -> Self {
        Self {
            name: field.key(),
            about: field.about(),
            from: From::Field(field),
            grows: true,
        }
    }

    const fn named(name: &'static str, from: From, about: &'static str) -> Self {
        Self {
            name,
            about,
            from,
            grows: true,
        }
    }

    const fn gauge(field: Field) -> Self {
        Self {
            name: field.key(),
            about: field.about(),
            from: From::Field(field),
            grows: false,
        }
    }

    /// The counter's value among `fields`.
    #[must_use]
    pub fn of(&self, fields: &Fields) -> u64 {
        match self.from {
            From::Field(field) => fields.get(field),
            From::Pages(field) => fields.get(field) / PAGE,
            From::Sum(one, other) => fields.get(one) + fields.get(other),
        }
    }

    /// Whether a gauge of several processes is their highest value and not their sum: latencies cannot be added, nor
    /// can settings that all processes share, and peaks of several processes do not coincide.
    #[must_use]
    pub fn is_highest(&self) -> bool {
        matches!(
            self.from,
            From::Field(
                Field::FaultP50
                    | Field::FaultP99
                    | Field::FaultMax
                    | Field::PeakRss
                    | Field::RemoteAway
                    | Field::FreeThreshold
                    | Field::FreeChunk
            )
        )
    }
}

/// The counter of this name.
#[must_use]
pub fn named(name: &str) -> Option<&'static Counter> {
    ALL.iter().find(|counter| counter.name == name)
}

/// All counters, in the order in which they are printed.
pub static ALL: [Counter; 90] = [
    Counter::gauge(Field::Budget),
    Counter::gauge(Field::Rss),
    Counter::gauge(Field::Metadata),
    Counter::gauge(Field::NrLimit),
    Counter::gauge(Field::NrMapped),
    Counter::gauge(Field::NrActive),
    Counter::gauge(Field::NrInactive),
    Counter::gauge(Field::NrActiveFile),
    Counter::gauge(Field::NrInactiveFile),
    Counter::gauge(Field::NrFilePages),
    Counter::gauge(Field::NrDirty),
    Counter::gauge(Field::NrWriteback),
    Counter::gauge(Field::WorkingsetNodes),
    Counter::gauge(Field::NrUnevictable),
    Counter::gauge(Field::NrLimbo),
    Counter::gauge(Field::NrFreeFrames),
    Counter::gauge(Field::LazyFree),
    Counter::gauge(Field::NrSwapped),
    Counter::gauge(Field::StoreLogical),
    Counter::gauge(Field::StoreStored),
    Counter::gauge(Field::StoreRam),
    Counter::gauge(Field::RemoteBytes),
    Counter::gauge(Field::RemoteAway),
    Counter::named(
        "pgfault",
        From::Sum(Field::MinorFaults, Field::MajorFaults),
        "Faults.",
    ),
    Counter::named(
        "pgmajfault",
        From::Field(Field::MajorFaults),
        "Faults that read from the store, or from a file.",
    ),
    Counter::counts(Field::RemoteLoads),
    Counter::counts(Field::RemoteLost),
    Counter::counts(Field::PgScanKswapd),
    Counter::counts(Field::PgScanDirect),
    Counter::counts(Field::PgStealKswapd),
    Counter::counts(Field::PgStealDirect),
    Counter::counts(Field::PgScanAnon),
    Counter::counts(Field::PgScanFile),
    Counter::counts(Field::PgStealAnon),
    Counter::counts(Field::PgStealFile),
    Counter::named(
        "allocstall",
        From::Field(Field::DirectReclaims),
        "Faults that found no memory and reclaimed by themselves.",
    ),
    Counter::counts(Field::PgPgIn),
    Counter::counts(Field::PgPgOut),
    Counter::named(
        "pswpin",
        From::Pages(Field::BytesIn),
        "Pages read from the store.",
    ),
    Counter::named(
        "pswpout",
        From::Pages(Field::BytesOut),
        "Pages written to the store.",
    ),
    Counter::counts(Field::PswpOutUnchanged),
    Counter::counts(Field::PswpOutZero),
    Counter::named(
        "limbo_rescue",
        From::Pages(Field::Rescued),
        "Pages mapped again from limbo, taken out but not yet evicted.",
    ),
    Counter::counts(Field::PgZero),
    Counter::counts(Field::WorkingsetRefaultAnon),
    Counter::counts(Field::WorkingsetRefaultFile),
    Counter::counts(Field::WorkingsetActivateAnon),
    Counter::counts(Field::WorkingsetActivateFile),
    Counter::counts(Field::WorkingsetRestoreAnon),
    Counter::counts(Field::WorkingsetRestoreFile),
    Counter::counts(Field::WorkingsetNodereclaim),
    Counter::counts(Field::PgActivate),
    Counter::counts(Field::PgDeactivate),
    Counter::counts(Field::RefaultsAt100),
    Counter::counts(Field::RefaultsAt125),
    Counter::counts(Field::RefaultsAt150),
    Counter::counts(Field::RefaultsAt200),
    Counter::counts(Field::RefaultsAt300),
    Counter::counts(Field::PgDiscard),
    Counter::counts(Field::PgLazyFree),
    Counter::counts(Field::PgLazyFreed),
    Counter::counts(Field::PgLazyFreeReused),
    Counter::counts(Field::FolioSplit),
    Counter::counts(Field::DeferredSplit),
    Counter::counts(Field::FolioFold),
    Counter::counts(Field::DropBehind),
    Counter::counts(Field::Snapshots),
    Counter::counts(Field::SnapshotCopy),
    Counter::counts(Field::TakeOutBusy),
    Counter::counts(Field::TakeOutImmovable),
    Counter::counts(Field::StoreFailed),
    Counter::counts(Field::LoadFailed),
    Counter::counts(Field::OverLimit),
    Counter::gauge(Field::FaultP50),
    Counter::gauge(Field::FaultP99),
    Counter::gauge(Field::FaultMax),
    Counter::counts(Field::Reclaim),
    Counter::counts(Field::ReclaimDirect),
    Counter::gauge(Field::FreeWorkers),
    Counter::gauge(Field::FreeThreshold),
    Counter::gauge(Field::FreeChunk),
    Counter::gauge(Field::FreeQueued),
    Counter::counts(Field::FreeBatches),
    Counter::counts(Field::FreeByWorkers),
    Counter::counts(Field::FreeBytes),
    Counter::counts(Field::FreeTime),
    Counter::gauge(Field::PeakRss),
    Counter::counts(Field::Recompress),
    Counter::counts(Field::RecompressBytes),
    Counter::counts(Field::RecompressSaved),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counter_names_are_unique_and_values_match_the_fields() {
        let mut names: Vec<_> = ALL.iter().map(|counter| counter.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ALL.len());
        let mut fields = Fields::default();
        fields.set(Field::MinorFaults, 5);
        fields.set(Field::MajorFaults, 2);
        fields.set(Field::BytesIn, 3 * PAGE);
        let of = |name| named(name).expect("a counter of this name").of(&fields);
        assert_eq!((of("pgfault"), of("pgmajfault"), of("pswpin")), (7, 2, 3));
    }
}
