//! Counters, with the names that Linux uses in `/proc/vmstat`.

use crate::addr::PageCount;
use std::time::Duration;

/// Counters and gauges of one core. Counters only grow; a page is 4 KiB unless stated otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct VmStat {
    /// Faults of any kind that were resolved.
    pub pgfault: u64,
    /// Of the faults in `pgfault`, those that read from the store, or from a file.
    pub pgmajfault: u64,
    /// Folios scanned by the background reclaimer, in pages.
    pub pgscan_kswapd: u64,
    /// Folios scanned by threads in need of memory, in pages.
    pub pgscan_direct: u64,
    /// Pages of anonymous folios scanned by any reclaimer.
    pub pgscan_anon: u64,
    /// Pages of files' folios scanned by any reclaimer.
    pub pgscan_file: u64,
    /// Pages freed by the background reclaimer.
    pub pgsteal_kswapd: u64,
    /// Pages freed by threads in need of memory.
    pub pgsteal_direct: u64,
    /// Anonymous pages that any reclaimer freed.
    pub pgsteal_anon: u64,
    /// Pages of files that any reclaimer freed.
    pub pgsteal_file: u64,
    /// Number of times that a fault found no memory and reclaimed by itself.
    pub allocstall: u64,
    /// Pages read from the store.
    pub pswpin: u64,
    /// Pages written to the store.
    pub pswpout: u64,
    /// Pages read from files. (Linux counts KiB, and what the store reads, too.)
    pub pgpgin: u64,
    /// Pages written back to files.
    pub pgpgout: u64,
    /// Pages evicted without writing, because the store, or their file, still had them.
    pub pswpout_unchanged: u64,
    /// Pages evicted without writing, because they were zero.
    pub pswpout_zero: u64,
    /// Pages mapped from limbo: they were taken out, and used again before they were evicted.
    pub limbo_rescue: u64,
    /// Pages mapped as fresh zeros.
    pub pgzero: u64,
    /// Pages moved to the active list.
    pub pgactivate: u64,
    /// Pages moved from the active to the inactive list.
    pub pgdeactivate: u64,
    /// Pages given back by discards.
    pub pgdiscard: u64,
    /// Pages lazily freed while they were in memory.
    pub pglazyfree: u64,
    /// Lazily freed pages that were dropped because memory was needed (or the cap was reached).
    pub pglazyfreed: u64,
    /// Lazily freed pages that were used again before they were dropped.
    pub pglazyfree_reused: u64,
    /// Leaves whose remaining pages were evicted so that a stream got the leaves in one piece.
    pub leaf_evicted: u64,
    /// Pages taken out with their leaf, by its table.
    pub takeout_leaf: u64,
    /// Pages that were due to be taken out with their leaf and stayed, because a page of their leaf had to stay.
    pub takeout_leaf_stayed: u64,
    /// Take-outs that the kernel refused because a page was in use for I/O.
    pub takeout_busy: u64,
    /// Folios found immovable because of their mapping.
    pub takeout_immovable: u64,
    /// Saves that failed or found the store full.
    pub store_failed: u64,
    /// Loads that failed; their pages are poisoned.
    pub load_failed: u64,
    /// Faults that were served above the limit because the store could accept nothing.
    pub over_limit: u64,
    /// Folios split because only a part of them was needed or could move.
    pub folio_split: u64,
    /// Folios that stayed whole although a part of them was freed: they are split when memory is needed.
    pub deferred_split: u64,
    /// Folios that were brought in from several slots.
    pub folio_fold: u64,
    /// Anonymous pages that came back from the store, or were dropped, and had left a shadow.
    pub workingset_refault_anon: u64,
    /// Of the pages in `workingset_refault_anon`, those that became active at once: they were used more recently than
    /// the oldest active folio.
    pub workingset_activate_anon: u64,
    /// Of the pages in `workingset_activate_anon`, those that had been active before they left.
    pub workingset_restore_anon: u64,
    /// Pages of files that came back and had left a shadow.
    pub workingset_refault_file: u64,
    /// Of the pages in `workingset_refault_file`, those that became active at once.
    pub workingset_activate_file: u64,
    /// Of the pages in `workingset_activate_file`, those that had been active before they left.
    pub workingset_restore_file: u64,
    /// Tables of entries that held only shadows and were dropped.
    pub workingset_nodereclaim: u64,
    /// Of a sample of the faults on pages that were in memory before: how many there would have been in memory of other
    /// sizes ([`curve::MORE`](crate::policy::curve::MORE)), the present size first. [`VmStat::avoided`] evaluates them.
    pub refaults_at: [u64; crate::policy::curve::SIZES],
    /// Pages that a stream longer than memory has left behind: they are reclaimed first.
    pub drop_behind: u64,
    /// Snapshots taken.
    pub snapshots: u64,
    /// Pages copied because a snapshot and its source share them.
    pub snapshot_copy: u64,
    /// Gauge: pages mapped in the program now (on their way in or out included).
    pub nr_mapped: u64,
    /// Gauge: pages of dropped ranges that are on their way back to the kernel.
    pub nr_unhooked: u64,
    /// Gauge: pages in limbo now.
    pub nr_limbo: u64,
    /// Gauge: pages that were lazily freed and, as far as is known, not used since. They are also counted where they
    /// are: mapped or in limbo.
    pub nr_lazyfree: u64,
    /// Gauge: of the pages in `nr_lazyfree`, the ones that are mapped.
    pub nr_lazyfree_mapped: u64,
    /// Gauge: populated frames that hold nothing, in pages.
    pub nr_free_frames: u64,
    /// Gauge: pages that are in the store now.
    pub nr_swapped: u64,
    /// Gauge: pages on the active list.
    pub nr_active: u64,
    /// Gauge: pages on the inactive list.
    pub nr_inactive: u64,
    /// Gauge: of the pages on the active list, those of files.
    pub nr_active_file: u64,
    /// Gauge: of the pages on the inactive list, those of files.
    pub nr_inactive_file: u64,
    /// Gauge: pages of files in memory, mapped or in limbo, that may leave.
    pub nr_file_pages: u64,
    /// Gauge: pages of files that are known to differ from what the file has. User space sees no dirty bit, so this
    /// counts only pages in limbo whose write has failed.
    pub nr_dirty: u64,
    /// Gauge: leaving pages of files that are being compared with what was read, and written if they differ.
    pub nr_writeback: u64,
    /// Gauge: pages that cannot be reclaimed (pinned, or their mapping forbids it).
    pub nr_unevictable: u64,
    /// Gauge: tables of entries that hold only shadows, of 4 KiB each.
    pub workingset_nodes: u64,
    /// Gauge: the limit, in pages.
    pub nr_limit: u64,
    /// Highest number of pages mapped, in limbo and spare at once.
    pub peak_frames: u64,
    /// Pages ever touched, each counted once until it is discarded.
    pub touched: u64,
}

/// Applies the same operation to each counter.
macro_rules! each_counter {
    ($change:ident) => {
        $change!(pgfault);
        $change!(pgmajfault);
        $change!(pgscan_kswapd);
        $change!(pgscan_direct);
        $change!(pgscan_anon);
        $change!(pgscan_file);
        $change!(pgsteal_anon);
        $change!(pgsteal_file);
        $change!(pgpgin);
        $change!(pgpgout);
        $change!(pgsteal_kswapd);
        $change!(pgsteal_direct);
        $change!(allocstall);
        $change!(pswpin);
        $change!(pswpout);
        $change!(pswpout_unchanged);
        $change!(pswpout_zero);
        $change!(limbo_rescue);
        $change!(pgzero);
        $change!(pgactivate);
        $change!(pgdeactivate);
        $change!(pgdiscard);
        $change!(pglazyfree);
        $change!(pglazyfreed);
        $change!(pglazyfree_reused);
        $change!(leaf_evicted);
        $change!(takeout_leaf);
        $change!(takeout_leaf_stayed);
        $change!(takeout_busy);
        $change!(takeout_immovable);
        $change!(store_failed);
        $change!(load_failed);
        $change!(over_limit);
        $change!(folio_split);
        $change!(deferred_split);
        $change!(folio_fold);
        $change!(workingset_refault_anon);
        $change!(workingset_activate_anon);
        $change!(workingset_restore_anon);
        $change!(workingset_refault_file);
        $change!(workingset_activate_file);
        $change!(workingset_restore_file);
        $change!(workingset_nodereclaim);
        $change!(drop_behind);
        $change!(snapshots);
        $change!(snapshot_copy);
    };
}

fn each_second(count: u64, over: Duration) -> f64 {
    match over.is_zero() {
        true => 0.0,
        false => count as f64 / over.as_secs_f64(),
    }
}

impl VmStat {
    /// The counts since `before`. Gauges and peaks keep their current values.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let mut since = *self;
        macro_rules! subtract {
            ($counter:ident) => {
                since.$counter -= before.$counter
            };
        }
        each_counter!(subtract);
        for (count, before) in since.refaults_at.iter_mut().zip(before.refaults_at) {
            *count -= before;
        }
        since
    }

    /// Pages that reclaim has freed per page that it scanned; `None` if it scanned none. Near 1, reclaim finds its
    /// victims at once; a low value means that it scans many pages that it cannot free. For an interval, apply it to
    /// the difference that [`VmStat::since`] returns.
    ///
    /// ```
    /// use millpond_core::VmStat;
    ///
    /// let stat = VmStat {
    ///     pgscan_kswapd: 300,
    ///     pgscan_direct: 100,
    ///     pgsteal_kswapd: 200,
    ///     pgsteal_direct: 100,
    ///     ..VmStat::default()
    /// };
    /// assert_eq!(stat.efficiency(), Some(0.75));
    /// assert_eq!(VmStat::default().efficiency(), None);
    /// ```
    #[must_use]
    pub fn efficiency(&self) -> Option<f64> {
        let scanned = self.pgscan_kswapd + self.pgscan_direct;
        let stolen = self.pgsteal_kswapd + self.pgsteal_direct;
        (scanned > 0).then(|| stolen as f64 / scanned as f64)
    }

    /// Pages that reclaim scanned per second, in the background and in threads in need, if these counters cover the
    /// time `over`; 0 if `over` is zero. If this is high and [`efficiency`](Self::efficiency) is low, reclaim costs
    /// time and gains little.
    ///
    /// ```
    /// use millpond_core::VmStat;
    /// use std::time::Duration;
    ///
    /// let before = VmStat { pgscan_kswapd: 1000, ..VmStat::default() };
    /// let now = VmStat { pgscan_kswapd: 1200, pgscan_direct: 50, ..VmStat::default() };
    /// assert_eq!(now.since(&before).velocity(Duration::from_millis(500)), 500.0);
    /// assert_eq!(now.velocity(Duration::ZERO), 0.0);
    /// ```
    #[must_use]
    pub fn velocity(&self, over: Duration) -> f64 {
        each_second(self.pgscan_kswapd + self.pgscan_direct, over)
    }

    /// How often per second a fault found no memory and reclaimed by itself, if these counters cover the time `over`; 0
    /// if `over` is zero.
    ///
    /// ```
    /// use millpond_core::VmStat;
    /// use std::time::Duration;
    ///
    /// let stat = VmStat { allocstall: 8, ..VmStat::default() };
    /// assert_eq!(stat.stalls(Duration::from_secs(2)), 4.0);
    /// ```
    #[must_use]
    pub fn stalls(&self, over: Duration) -> f64 {
        each_second(self.allocstall, over)
    }

    /// The share of major faults, 0 to 1, that would not have happened with `more` pages beyond the limit; `None` while
    /// there were too few to tell. See [`curve`](crate::policy::curve).
    ///
    /// ```
    /// use millpond_core::{PageCount, VmStat};
    ///
    /// let stat = VmStat {
    ///     nr_limit: 4000,
    ///     refaults_at: [80, 40, 20, 0, 0],
    ///     ..VmStat::default()
    /// };
    /// assert_eq!(stat.avoided(PageCount(1000)), Some(0.5));
    /// assert_eq!(VmStat::default().avoided(PageCount(1000)), None);
    /// ```
    #[must_use]
    pub fn avoided(&self, more: PageCount) -> Option<f64> {
        crate::policy::curve::avoided(&self.refaults_at, self.nr_limit, u64::from(more.0))
    }

    /// Adds the counters of `other`, not its gauges and peaks.
    pub(crate) fn add(&mut self, other: &Self) {
        macro_rules! add {
            ($counter:ident) => {
                self.$counter += other.$counter
            };
        }
        each_counter!(add);
        for (count, other) in self.refaults_at.iter_mut().zip(other.refaults_at) {
            *count += other;
        }
    }
}

/// Pages that could not leave when memory was needed, by reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Excess {
    /// Pages that are pinned, locked, or in a mapping that does not let them move.
    pub stays: PageCount,
    /// Pages refused by the kernel, which held them for itself.
    pub refused: PageCount,
}
