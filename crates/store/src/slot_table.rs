//! The slot table says where the bytes of each slot are: one record of 32 bytes per block, found by slot number.
//!
//! Slot numbers are dense, so the table is an array, in pieces of 4,096 records that are mapped when first needed and
//! never move: readers need no lock to find a record. The record at a slot's own number is its *head* and describes its
//! first block. Longer slots have a *run* of further, contiguous records from a pool. (The records used to be a chain.
//! Finding one page of a slot of 2 MiB then took 64 records, a tenth of a random read.) The length of a run is a power
//! of two, like that of a slot, so a run has one record too many. A free run can be split, but is never merged again.
//!
//! The core promises not to use a slot for two things at once. If it broke that promise, a load could read memory that
//! a release has just freed. So the head also counts its readers: a release waits for them, and a slot that is being
//! written looks empty. That costs two uncontended atomic operations per call. When some of a slot's pages are
//! forgotten, it is rewritten in place: readers and releases wait for that, which takes about a microsecond.

use crate::checksum::KeptSum;
use crate::image::MAX_BLOCKS;
use crate::mem::{PAGE, prefetch};
use crate::pieces::{Entry, PIECE, Pieces};
use millpond_core::SlotId;
use millpond_core::SlotPart;
use millpond_core::port::StoreUsage;
use millpond_sync::{Rank, Ranked};
use rustix::io::Errno;
use rustix::thread::Timespec;
use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering::*};

/// The form in which a block is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// The block exists only in the record: `place` is the word that it repeats.
    Fill = 1,
    /// The block is stored uncompressed.
    Raw = 2,
    /// The block is stored as `size` compressed bytes. Its medium knows the format: files use only LZ4.
    Packed = 3,
}

/// One block of a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Block {
    pub(crate) kind: Kind,
    /// The place of the bytes, as the medium defines it.
    pub(crate) place: u64,
    /// Number of compressed bytes, below 64 Ki; otherwise unused.
    pub(crate) size: u16,
    pub(crate) sum: u128,
}

impl Block {
    /// A placeholder with which arrays are initialized.
    pub(crate) const NONE: Self = Self {
        kind: Kind::Fill,
        place: 0,
        size: 0,
        sum: 0,
    };
}

/// The record of one block. `meta` is, from the lowest bit: readers (7), whether the block is young (1), kind (2, 0 =
/// empty), pages of the slot (10), size (16), and the number of the first record of the run plus one (28). In a free
/// run this last number is that of the next free run.
#[repr(C)]
struct Record {
    sum: KeptSum,
    place: AtomicU64,
    meta: AtomicU64,
}

const READERS: u64 = 0x7f;
/// Replaces the number of readers while a thread writes the slot.
const WRITER: u64 = 0x7f;
/// Replaces the number of readers while a thread rewrites the slot, which keeps its contents. Fewer readers than this
/// are admitted at once.
const REWRITER: u64 = 0x7e;
/// A block is young from when it is saved or loaded until it is next passed by ([`Pinned::ages`]).
const YOUNG: u64 = 1 << 7;
const KIND_SHIFT: u32 = 8;
const PAGES_SHIFT: u32 = 10;
const SIZE_SHIFT: u32 = 20;
const NEXT_SHIFT: u32 = 36;
const MAX_EXTRA: u32 = (1 << 28) - 2;

impl Record {
    /// Writes the record except for `meta`. Returns the new `meta`, without readers, of a block that is not young.
    fn fill_in(&self, block: &Block, pages: u16, next: u32) -> u64 {
        self.sum.set(block.sum);
        self.place.store(block.place, Relaxed);
        (block.kind as u64) << KIND_SHIFT
            | u64::from(pages) << PAGES_SHIFT
            | u64::from(block.size) << SIZE_SHIFT
            | u64::from(next) << NEXT_SHIFT
    }

    fn block(&self) -> Block {
        let meta = self.meta.load(Relaxed);
        Block {
            kind: match meta >> KIND_SHIFT & 3 {
                2 => Kind::Raw,
                3 => Kind::Packed,
                _ => Kind::Fill,
            },
            place: self.place.load(Relaxed),
            size: (meta >> SIZE_SHIFT) as u16,
            sum: self.sum.get(),
        }
    }

    fn next(&self) -> u32 {
        (self.meta.load(Relaxed) >> NEXT_SHIFT) as u32
    }

    fn pages(&self) -> u16 {
        (self.meta.load(Relaxed) >> PAGES_SHIFT & 0x3ff) as u16
    }
}

// SAFETY: a record is made of atomics, for which zeros are valid and which any thread may use.
unsafe impl Entry for Record {}

/// The maximum number of slots, and of further records.
const RECORDS: u64 = 1 << 32;

/// Number of lengths of runs, which are powers of two with exponents below this.
const RUNS: usize = 8;
const _: () = assert!(MAX_BLOCKS - 1 <= 1 << (RUNS - 1) && PIECE.is_power_of_two());

/// The free runs of the pool.
struct Spare {
    /// The number of the first free run of each length, plus one.
    heads: [u32; RUNS],
    /// Number of records ever used.
    end: u32,
}

/// The length of the shortest run for this many records, as an exponent of two.
fn run_for(records: usize) -> usize {
    records.next_power_of_two().ilog2() as usize
}

/// The table of slots. The module's documentation describes it.
pub(crate) struct SlotTable {
    /// Bytes in a block.
    block: usize,
    heads: Pieces<Record>,
    extra: Pieces<Record>,
    spare: Ranked<Spare>,
    slots: AtomicU64,
    pages: AtomicU64,
    same_filled: AtomicU64,
    incompressible: AtomicU64,
}

/// The wait for readers of a slot. Most readers only copy a page. But a thread that moves a slot elsewhere also writes
/// it while reading, and might need the processor of a higher-priority thread that only yields; so the wait sleeps
/// after a while.
#[derive(Default)]
struct Patience(u32);

impl Patience {
    const YIELDS: u32 = 32;
    const SLEEP: Timespec = Timespec {
        tv_sec: 0,
        tv_nsec: 20_000,
    };

    fn wait(&mut self) {
        if self.0 < Self::YIELDS {
            self.0 += 1;
            rustix::thread::sched_yield();
        } else {
            let _ = rustix::thread::nanosleep(&Self::SLEEP);
        }
    }
}

/// The kernel has no memory for records.
#[derive(Debug)]
pub(crate) struct NoMemory;

/// The reason why a slot cannot be written.
#[derive(Debug)]
pub(crate) enum ClaimError {
    /// The slot holds something, or a thread is writing it.
    Taken,
    /// There is no memory for the slot's record.
    NoMemory,
}

impl SlotTable {
    /// Makes an empty table for slots in blocks of `block` bytes.
    pub(crate) fn new(block: usize) -> Result<Self, Errno> {
        Ok(Self {
            block,
            heads: Pieces::new(RECORDS)?,
            extra: Pieces::new(RECORDS)?,
            spare: Ranked::new(
                Rank::SlotRecords,
                Spare {
                    heads: [0; RUNS],
                    end: 0,
                },
            ),
            slots: AtomicU64::new(0),
            pages: AtomicU64::new(0),
            same_filled: AtomicU64::new(0),
            incompressible: AtomicU64::new(0),
        })
    }

    /// Claims the empty `slot` for writing.
    pub(crate) fn claim(&self, slot: SlotId) -> Result<Claim<'_>, ClaimError> {
        let head = self
            .heads
            .get_or_grow(slot.0.into())
            .ok_or(ClaimError::NoMemory)?;
        match head.meta.compare_exchange(0, WRITER, Acquire, Relaxed) {
            Ok(_) => Ok(Claim { table: self, head }),
            Err(_) => Err(ClaimError::Taken),
        }
    }

    /// Pins `slot` for reading, if it holds anything.
    pub(crate) fn pin(&self, slot: SlotId) -> Option<Pinned<'_>> {
        let head = self.heads.get(slot.0.into())?;
        let mut meta = head.meta.load(Relaxed);
        let mut patience = Patience::default();
        loop {
            if meta & READERS == WRITER || meta == 0 {
                return None;
            }
            if meta & READERS >= REWRITER - 1 {
                patience.wait();
                meta = head.meta.load(Relaxed);
                continue;
            }
            match head
                .meta
                .compare_exchange_weak(meta, meta + 1, Acquire, Relaxed)
            {
                Ok(_) => return Some(Pinned { table: self, head }),
                Err(now) => meta = now,
            }
        }
    }

    /// Takes `slot` out, if it holds anything, once no thread reads it. A thread that finds it being taken out waits
    /// until it is empty: its number may be reused afterwards.
    pub(crate) fn take(&self, slot: SlotId) -> Option<Taken<'_>> {
        let head = self.heads.get(slot.0.into())?;
        self.take_from(head, 0)
    }

    /// Takes the slot of `head` out once its only readers are the caller's, `own` in number.
    fn take_from<'a>(&'a self, head: &'a Record, own: u64) -> Option<Taken<'a>> {
        let mut patience = Patience::default();
        loop {
            let meta = head.meta.load(Acquire);
            if meta == 0 {
                return None;
            }
            if meta & READERS != own {
                patience.wait();
            } else if head
                .meta
                .compare_exchange_weak(meta, meta | WRITER, Acquire, Relaxed)
                .is_ok()
            {
                return Some(Taken { table: self, head });
            }
        }
    }

    /// Takes `slot` for a change of its records, if it holds anything, once no thread reads it. Threads that want to
    /// read it or take it out wait for the change. The caller must not have the slot pinned: two threads that wait with
    /// a pin each would wait for each other.
    pub(crate) fn rewrite(&self, slot: SlotId) -> Option<Rewriting<'_>> {
        let head = self.heads.get(slot.0.into())?;
        let mut patience = Patience::default();
        loop {
            let meta = head.meta.load(Acquire);
            if meta == 0 {
                return None;
            }
            if meta & READERS != 0 {
                patience.wait();
            } else if head
                .meta
                .compare_exchange_weak(meta, meta | REWRITER, Acquire, Relaxed)
                .is_ok()
            {
                return Some(Rewriting { table: self, head });
            }
        }
    }

    /// The number of records of the slot of `head`.
    fn count_of(&self, head: &Record) -> usize {
        match head.next() {
            0 => 1,
            _ => (usize::from(head.pages()) * PAGE).div_ceil(self.block),
        }
    }

    /// Some or all of the slot's records.
    fn records<'a>(
        &'a self,
        head: &'a Record,
        which: Range<usize>,
    ) -> impl Iterator<Item = &'a Record> + 'a {
        which.filter_map(move |i| self.record(head, i))
    }

    fn record<'a>(&'a self, head: &'a Record, which: usize) -> Option<&'a Record> {
        match which {
            0 => Some(head),
            i => self
                .extra
                .get(u64::from(head.next().checked_sub(1)?) + i as u64 - 1),
        }
    }

    /// Prefetches the record that says where a page is, if there is one.
    pub(crate) fn expect(&self, page: SlotPart) {
        let block = usize::from(page.first) * PAGE / self.block;
        let head = self.heads.get(page.slot.0.into());
        if let Some(record) = head.and_then(|head| self.record(head, block)) {
            prefetch(ptr::from_ref(record).cast());
        }
    }

    /// The records of the blocks that overlap `len` bytes from page `first_page` of the slot of `head`, each with its
    /// block's start in the slot and its length. Returns `None` if the slot is shorter than that.
    fn records_of<'a>(
        &'a self,
        head: &'a Record,
        first_page: u16,
        len: usize,
    ) -> Option<impl Iterator<Item = (&'a Record, usize, usize)> + 'a> {
        let start = usize::from(first_page) * PAGE;
        let slot = usize::from(head.pages()) * PAGE;
        if len == 0 || start + len > slot {
            return None;
        }
        let size = if head.next() == 0 { slot } else { self.block };
        let skip = start / size;
        let records = self.records(head, skip..(start + len).div_ceil(size));
        Some(records.enumerate().map(move |(i, record)| {
            let at = (skip + i) * size;
            (record, at, size.min(slot - at))
        }))
    }

    fn all_records<'a>(&'a self, head: &'a Record) -> impl Iterator<Item = &'a Record> + 'a {
        self.records(head, 0..self.count_of(head))
    }

    /// Takes a free run for `records` records. Returns the number of its first record plus one.
    fn new_run(&self, records: usize) -> Option<u32> {
        let length = run_for(records);
        let mut spare = self.spare.lock();
        // A longer free run is split.
        if let Some(found) = (length..RUNS).find(|&length| spare.heads[length] != 0) {
            let index = spare.heads[found] - 1;
            spare.heads[found] = self.extra.get(index.into())?.next();
            for half in length..found {
                self.put_free(&mut spare, index + (1 << half), half);
            }
            return Some(index + 1);
        }
        // A run begins at a multiple of its length, so that it lies in one piece. Skipped records become free runs.
        while !spare.end.is_multiple_of(1 << length) {
            let (index, passed) = (spare.end, spare.end.trailing_zeros());
            self.extra.get_or_grow(index.into())?;
            spare.end += 1 << passed;
            self.put_free(&mut spare, index, passed as usize);
        }
        let index = spare.end;
        if index > MAX_EXTRA - (1 << length) {
            return None;
        }
        self.extra.get_or_grow(index.into())?;
        spare.end += 1 << length;
        Some(index + 1)
    }

    fn put_free(&self, spare: &mut Spare, index: u32, length: usize) {
        if let Some(first) = self.extra.get(index.into()) {
            let next = u64::from(spare.heads[length]) << NEXT_SHIFT;
            first.meta.store(next, Relaxed);
            spare.heads[length] = index + 1;
        }
    }

    /// Returns the run `run` of `records` records to the pool.
    fn free_run(&self, run: u32, records: usize) {
        if let Some(index) = run.checked_sub(1) {
            let mut spare = self.spare.lock();
            self.put_free(&mut spare, index, run_for(records));
        }
    }

    /// All counts but `stored_bytes`; `ram_bytes` is the table's own.
    pub(crate) fn usage(&self) -> StoreUsage {
        StoreUsage {
            slots: self.slots.load(Relaxed),
            logical_bytes: self.pages.load(Relaxed) * PAGE as u64,
            stored_bytes: 0,
            ram_bytes: self.heads.ram_bytes() + self.extra.ram_bytes(),
            same_filled: self.same_filled.load(Relaxed),
            incompressible: self.incompressible.load(Relaxed),
        }
    }

    fn count(&self, pages: u16, blocks: impl Iterator<Item = Block>, add: fn(&AtomicU64, u64)) {
        let (mut filled, mut packed) = (true, false);
        for block in blocks {
            filled &= block.kind == Kind::Fill;
            packed |= block.kind == Kind::Packed;
        }
        add(&self.slots, 1);
        add(&self.pages, u64::from(pages));
        add(&self.same_filled, u64::from(filled));
        add(&self.incompressible, u64::from(!filled && !packed));
    }
}

/// An empty slot that is being written. If it is dropped unpublished, the slot is empty again.
pub(crate) struct Claim<'a> {
    table: &'a SlotTable,
    head: &'a Record,
}

impl Claim<'_> {
    /// Publishes the slot's contents: at least one block.
    pub(crate) fn publish(self, pages: u16, blocks: &[Block]) -> Result<(), NoMemory> {
        let (first, rest) = blocks.split_first().expect("a slot has a block");
        let mut run = 0;
        if !rest.is_empty() {
            run = self.table.new_run(rest.len()).ok_or(NoMemory)?;
            for (index, block) in (run - 1..).zip(rest) {
                let record = self.table.extra.get(index.into());
                let record = record.expect("a record of the pool exists");
                let meta = record.fill_in(block, pages, 0);
                record.meta.store(meta | YOUNG, Relaxed);
            }
        }
        self.table
            .count(pages, blocks.iter().copied(), |counter, n| {
                counter.fetch_add(n, Relaxed);
            });
        let meta = self.head.fill_in(first, pages, run);
        self.head.meta.store(meta | YOUNG, Release);
        std::mem::forget(self);
        Ok(())
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.head.meta.store(0, Release);
    }
}

/// A slot that holds something, and cannot be taken out while this value lives.
pub(crate) struct Pinned<'a> {
    table: &'a SlotTable,
    head: &'a Record,
}

impl Pinned<'_> {
    /// Number of pages of the slot.
    pub(crate) fn pages(&self) -> u16 {
        self.head.pages()
    }

    /// The slot's blocks, in order. A slot that is filled by one word has a single block.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = Block> {
        self.table.all_records(self.head).map(Record::block)
    }

    /// The blocks that overlap `len` bytes from page `first_page`: each with its start in the slot and its length.
    /// Returns `None` if the slot is shorter than that.
    pub(crate) fn blocks_of(
        &self,
        first_page: u16,
        len: usize,
    ) -> Option<impl Iterator<Item = (Block, usize, usize)>> {
        let records = self.table.records_of(self.head, first_page, len)?;
        Some(records.map(|(record, at, len)| (record.block(), at, len)))
    }

    /// Records that the blocks that overlap `len` bytes from page `first_page` were wanted: they are young again.
    pub(crate) fn note_use(&self, first_page: u16, len: usize) {
        let records = self.table.records_of(self.head, first_page, len);
        for (record, ..) in records.into_iter().flatten() {
            // Most are young already, and a load is cheaper than a store.
            if record.meta.load(Relaxed) & YOUNG == 0 {
                record.meta.fetch_or(YOUNG, Relaxed);
            }
        }
    }

    /// Block `number` of the slot, with its start and length.
    pub(crate) fn block(&self, number: usize) -> Option<(Block, usize, usize)> {
        if number >= self.table.count_of(self.head) {
            return None;
        }
        let first_page = number * self.table.block / PAGE;
        self.blocks_of(first_page as u16, 1)?.next()
    }

    /// Makes block `number` old, and returns whether it was young.
    pub(crate) fn ages(&self, number: usize) -> bool {
        let Some(record) = self.table.record(self.head, number) else {
            return false;
        };
        let young = record.meta.load(Relaxed) & YOUNG != 0;
        if young {
            record.meta.fetch_and(!YOUNG, Relaxed);
        }
        young
    }
}

impl<'a> Pinned<'a> {
    /// Takes the slot out once no other thread reads it. A thread that waits to release it then finds it empty.
    pub(crate) fn take(self) -> Taken<'a> {
        let pinned = std::mem::ManuallyDrop::new(self);
        let taken = pinned.table.take_from(pinned.head, 1);
        taken.expect("a slot that is pinned holds something")
    }
}

impl Drop for Pinned<'_> {
    fn drop(&mut self) {
        self.head.meta.fetch_sub(1, Release);
    }
}

/// A slot whose records are being changed. When this value is dropped, threads that wait for the slot continue.
pub(crate) struct Rewriting<'a> {
    table: &'a SlotTable,
    head: &'a Record,
}

impl Rewriting<'_> {
    /// Lets `change` change each block that overlaps `len` bytes from page `first_page`. It receives the block's start
    /// in the slot and its length. Nothing happens if the slot is shorter than that.
    pub(crate) fn change(
        &self,
        first_page: u16,
        len: usize,
        mut change: impl FnMut(Block, usize, usize) -> Block,
    ) {
        let records = self.table.records_of(self.head, first_page, len);
        for (record, at, len) in records.into_iter().flatten() {
            let block = change(record.block(), at, len);
            let stays = record.meta.load(Relaxed) & (READERS | YOUNG);
            let meta = record.fill_in(&block, record.pages(), record.next());
            record.meta.store(meta | stays, Relaxed);
        }
    }
}

impl Drop for Rewriting<'_> {
    fn drop(&mut self) {
        self.head.meta.fetch_and(!READERS, Release);
    }
}

/// A slot on its way out. When this value is dropped, the slot is empty.
pub(crate) struct Taken<'a> {
    table: &'a SlotTable,
    head: &'a Record,
}

impl Taken<'_> {
    /// The blocks that the slot held, each with its length.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = (Block, usize)> {
        let slot = usize::from(self.head.pages()) * PAGE;
        let size = if self.head.next() == 0 {
            slot
        } else {
            self.table.block
        };
        let blocks = self.table.all_records(self.head).enumerate();
        blocks.map(move |(i, record)| (record.block(), size.min(slot - i * size)))
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let blocks = self.table.all_records(self.head).map(Record::block);
        self.table.count(self.head.pages(), blocks, |counter, n| {
            counter.fetch_sub(n, Relaxed);
        });
        let records = self.table.count_of(self.head) - 1;
        self.table.free_run(self.head.next(), records);
        self.head.meta.store(0, Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::{BLOCK, RAM_BLOCK};

    fn block(place: u64) -> Block {
        Block {
            kind: Kind::Packed,
            place,
            size: 100,
            sum: u128::from(place) << 70,
        }
    }

    #[test]
    fn runs_come_back_in_order_and_are_used_again() {
        let table = SlotTable::new(BLOCK).unwrap();
        for round in 0..3 {
            for slot in [0, 4095, 4096, 1_000_000, u32::MAX] {
                let blocks: Vec<Block> = (0..32).map(|i| block(i + u64::from(slot))).collect();
                table
                    .claim(SlotId(slot))
                    .unwrap()
                    .publish(512, &blocks)
                    .unwrap();
                assert!(
                    table.claim(SlotId(slot)).is_err(),
                    "taken twice in round {round}"
                );
                let pinned = table.pin(SlotId(slot)).unwrap();
                let places: Vec<u64> = pinned.blocks().map(|block| block.place).collect();
                assert_eq!(
                    places,
                    blocks.iter().map(|block| block.place).collect::<Vec<_>>()
                );
                assert!(
                    pinned
                        .blocks()
                        .zip(&blocks)
                        .all(|(a, b)| a.sum == b.sum && a.size == b.size)
                );
                let part: Vec<_> = pinned.blocks_of(40, 8 * PAGE).unwrap().collect();
                assert_eq!((part.len(), part[0].1, part[0].2), (1, 2 * BLOCK, BLOCK));
            }
            assert_eq!(table.usage().slots, 5);
            for slot in [0, 4095, 4096, 1_000_000, u32::MAX] {
                assert_eq!(table.take(SlotId(slot)).unwrap().blocks().count(), 32);
                assert!(table.pin(SlotId(slot)).is_none());
            }
            assert_eq!(table.spare.lock().end, 5 * 32);
        }
        assert_eq!(table.usage().logical_bytes, 0);
    }

    /// Checks, for runs of many lengths in turn, that no two share a record and that skipped records are used.
    #[test]
    fn runs_of_all_lengths_do_not_overlap() {
        let table = SlotTable::new(RAM_BLOCK).unwrap();
        let lengths: Vec<usize> = (0..600).map(|n| [1, 3, 127, 7, 2, 63, 4][n % 7]).collect();
        for _ in 0..2 {
            let mut used = std::collections::BTreeSet::new();
            let runs: Vec<_> = lengths
                .iter()
                .map(|&records| table.new_run(records).unwrap() - 1)
                .collect();
            for (&run, &records) in runs.iter().zip(&lengths) {
                for index in run..run + records as u32 {
                    assert!(used.insert(index), "record {index} twice");
                    assert!(table.extra.get(index.into()).is_some());
                }
            }
            let wanted: usize = lengths.iter().map(|n| n.next_power_of_two()).sum();
            let end = table.spare.lock().end as usize;
            assert!(end <= wanted + 256, "{end} records for {wanted}");
            for (run, records) in runs.into_iter().zip(&lengths) {
                table.free_run(run + 1, *records);
            }
        }
    }

    #[test]
    fn a_claim_given_up_leaves_nothing() {
        let table = SlotTable::new(BLOCK).unwrap();
        drop(table.claim(SlotId(3)).unwrap());
        assert!(table.pin(SlotId(3)).is_none());
        assert!(table.claim(SlotId(3)).is_ok());
    }

    #[test]
    fn readers_and_releases_wait_for_a_change() {
        let table = SlotTable::new(RAM_BLOCK).unwrap();
        let blocks: Vec<Block> = (0..4).map(block).collect();
        let claim = table.claim(SlotId(1)).unwrap();
        claim.publish(16, &blocks).unwrap();
        let change = table.rewrite(SlotId(1)).unwrap();
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let pinned = table.pin(SlotId(1)).unwrap();
                pinned.blocks().map(|block| block.place).collect::<Vec<_>>()
            });
            std::thread::sleep(std::time::Duration::from_millis(20));
            let releaser = scope.spawn(|| drop(table.take(SlotId(1)).unwrap()));
            std::thread::sleep(std::time::Duration::from_millis(20));
            assert!(!reader.is_finished() && !releaser.is_finished());
            change.change(0, 5 * PAGE, |block, at, len| {
                assert_eq!((at, len), (block.place as usize * RAM_BLOCK, RAM_BLOCK));
                Block {
                    place: block.place + 10,
                    ..block
                }
            });
            // One of the two comes first; a reader that comes second finds nothing.
            drop(change);
            if let Ok(places) = reader.join() {
                assert_eq!(places, [10, 11, 2, 3]);
            }
        });
        assert!(table.pin(SlotId(1)).is_none() && table.rewrite(SlotId(1)).is_none());
    }

    #[test]
    fn a_block_is_young_until_it_was_passed_by_and_again_when_it_is_used() {
        let table = SlotTable::new(RAM_BLOCK).unwrap();
        let blocks: Vec<Block> = (0..4).map(block).collect();
        table
            .claim(SlotId(1))
            .unwrap()
            .publish(15, &blocks)
            .unwrap();
        let ages = || {
            let pinned = table.pin(SlotId(1)).unwrap();
            [0, 1, 2, 3].map(|number| pinned.ages(number))
        };
        assert_eq!((ages(), ages()), ([true; 4], [false; 4]));
        // The first and the third block are used, and a change does not affect ages.
        let pinned = table.pin(SlotId(1)).unwrap();
        pinned.note_use(0, PAGE);
        pinned.note_use(9, PAGE);
        drop(pinned);
        let rewriting = table.rewrite(SlotId(1)).unwrap();
        rewriting.change(0, 15 * PAGE, |block, _, _| block);
        drop(rewriting);
        assert_eq!((ages(), ages()), ([true, false, true, false], [false; 4]));
        let pinned = table.pin(SlotId(1)).unwrap();
        for (number, len) in [RAM_BLOCK, RAM_BLOCK, RAM_BLOCK, 3 * PAGE]
            .into_iter()
            .enumerate()
        {
            let (block, at, is) = pinned.block(number).unwrap();
            assert_eq!(
                (block.place, at, is),
                (number as u64, number * RAM_BLOCK, len)
            );
        }
        assert!(pinned.block(4).is_none() && !pinned.ages(200));
        drop(pinned);
        assert!(table.take(SlotId(1)).is_some() && table.pin(SlotId(1)).is_none());
    }

    #[test]
    fn a_release_waits_for_readers() {
        let table = SlotTable::new(BLOCK).unwrap();
        table
            .claim(SlotId(1))
            .unwrap()
            .publish(1, &[block(9)])
            .unwrap();
        let pinned = table.pin(SlotId(1)).unwrap();
        std::thread::scope(|scope| {
            let releaser = scope.spawn(|| drop(table.take(SlotId(1)).unwrap()));
            std::thread::sleep(std::time::Duration::from_millis(20));
            assert!(!releaser.is_finished());
            drop(pinned);
        });
        assert!(table.pin(SlotId(1)).is_none());
    }
}
