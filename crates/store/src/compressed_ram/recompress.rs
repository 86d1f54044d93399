//! Blocks that were not wanted for a while are compressed again, by zstd.
//!
//! # What it is for
//! Data that does not fit in compressed RAM goes to a file, which answers in 50 to 80 µs. With zstd the same RAM holds
//! half as much again, up to twice as much, and a page comes back only some µs later. So compressed RAM that is nearly
//! full is made denser first. LZ4 is used before that, because an evicted page is compressed by a thread that waits,
//! and is often wanted again soon.
//!
//! # Which blocks
//! A hand cycles through all slots by their numbers, like the second-chance algorithm of a page cache. A block is
//! *young* when it is saved, and when it is loaded. The hand makes it old, and compresses it if it is still old a round
//! later. The caller ensures that a round takes a while. A block whose object would shrink by less than an eighth stays
//! unchanged, is marked, and is not tried again.
//!
//! Streams are still those of single pages (`paged.rs`), with the same checksums: only the compressor differs. So pages
//! are loaded individually, and forgotten, as before.
//!
//! # Concurrency
//! Compressing takes a hundred microseconds, and nobody waits for it:
//!
//! 1. The slot is pinned while the block's bytes are copied.
//! 2. The copy is decompressed, checked, and compressed again. A damaged block stays, for its owner to find.
//! 3. The new bytes go to an object of their own.
//! 4. The record is changed as for forgotten pages ([`SlotTable::rewrite`](crate::slot_table::SlotTable::rewrite)), if
//!    it is unchanged. Otherwise the new object is dropped: the slot was released, or a page of it forgotten. A thread
//!    that wants the slot waits for some nanoseconds.
//!
//! The new object is allocated before the old one is freed, so a full arena lends it memory
//! ([`Arena::alloc_to_shrink`]).
//!
//! # When there is no room
//! Objects that became smaller leave places of their old class, between those of young blocks. The next saves fill
//! them, and the new class never gets more than the arena lends. So when there is no room, the hand makes one round to
//! *gather*: it copies objects unchanged from spans with many free places to spans with fewer, which empties spans for
//! any class. Saves during that round go elsewhere. Without gathering, recompression of a half young store stopped
//! after a thirtieth of it had become denser.

use crate::arena::Arena;
use crate::codec::{Codec, PageSums, Stored, block_sum};
use crate::compressed_ram::gather::Copied;
use crate::compressed_ram::{CompressedRam, Place};
use crate::image::RAM_BLOCK;
use crate::mem::{Mapping, PAGE};
use crate::paged::{kept_sums, recode};
use crate::slot_table::{Block, Kind};
use crate::zstd::Packer;
use millpond_core::SlotId;
use millpond_core::port::{Recompress, Recompressed};
use millpond_sync::{Rank, Ranked};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The most blocks that one call compresses.
const AT_ONCE: usize = 8;
/// The most blocks that one call gathers.
const GATHERED_AT_ONCE: usize = 256;
/// Number of blocks and empty slots that one call examines.
const LOOKED_AT: usize = 2048;
/// Part of the limit, as a divisor, that a round of gathering has to free for another one to follow.
const WORTH_IT: u64 = 128;
/// The most bytes that a block takes, including its checksums.
const LONGEST: usize = RAM_BLOCK + PAGE;

/// The state of the hand, and counts of work done.
pub(super) struct Recompression {
    /// One thread at a time has its turn. Others do not wait for it.
    turn: Ranked<Turn>,
    bytes: AtomicU64,
    saved: AtomicU64,
    left: AtomicU64,
    ram: AtomicU64,
}

#[derive(Default)]
struct Turn {
    /// The slot and the block to examine next.
    slot: u32,
    block: usize,
    tools: Option<Tools>,
    gather: Option<Gather>,
}

/// A round in which objects are gathered.
struct Gather {
    /// Number of slots still to examine.
    slots: u32,
    /// RAM in use before the round.
    taken: u64,
}

/// The tools of a turn, made when they are first needed.
struct Tools {
    packer: Packer,
    rooms: Mapping,
}

/// Room for a block in its present form, for one in its new form, and for a page.
struct Rooms<'a> {
    old: &'a mut [u8],
    new: &'a mut [u8],
    page: &'a mut [u8],
}

impl Tools {
    const ROOMS: usize = 2 * LONGEST + PAGE;

    fn new() -> Option<Self> {
        Some(Self {
            packer: Packer::new().ok()?,
            rooms: Mapping::new(Self::ROOMS).ok()?,
        })
    }

    fn parts(&mut self) -> (&mut Packer, Rooms<'_>) {
        // SAFETY: the mapping belongs to these tools, is readable and writable, and `&mut self` hands it out once at a
        // time.
        let rooms = unsafe { std::slice::from_raw_parts_mut(self.rooms.as_ptr(), Self::ROOMS) };
        let (old, rest) = rooms.split_at_mut(LONGEST);
        let (new, page) = rest.split_at_mut(LONGEST);
        (&mut self.packer, Rooms { old, new, page })
    }
}

/// What happened to the block at the hand.
enum Looked {
    /// It was compressed, or an attempt was made.
    Tried,
    /// It is young, or already in its final form.
    Passed,
    /// There is no such block: the hand moves on to the next slot.
    NoBlock,
    /// There is no room for another object.
    NoRoom,
}

impl Recompression {
    pub(super) fn new() -> Self {
        Self {
            turn: Ranked::new(Rank::Recompression, Turn::default()),
            bytes: AtomicU64::new(0),
            saved: AtomicU64::new(0),
            left: AtomicU64::new(0),
            ram: AtomicU64::new(0),
        }
    }

    /// RAM that the tools take.
    pub(super) fn ram_bytes(&self) -> u64 {
        self.ram.load(Relaxed)
    }

    pub(super) fn so_far(&self) -> Recompressed {
        Recompressed {
            bytes: self.bytes.load(Relaxed),
            saved: self.saved.load(Relaxed),
            left: self.left.load(Relaxed),
        }
    }
}

impl CompressedRam {
    /// Compresses some blocks again, if RAM is short or `worth_it`
    /// ([`Upkeep::recompress`](millpond_core::port::Upkeep::recompress)).
    pub(super) fn recompress_some(&self, worth_it: bool) -> Recompress {
        if !(worth_it || self.is_short()) || self.arena.is_draining() {
            return Recompress::Idle;
        }
        let most = self.arena.max_ram();
        if self.gather_some() {
            return Recompress::More;
        }
        let Some(mut turn) = self.recompression.turn.try_lock() else {
            return Recompress::Idle;
        };
        let turn = &mut *turn;
        if turn.tools.is_none() {
            turn.tools = Tools::new();
        }
        let Some(tools) = &turn.tools else {
            return Recompress::Idle;
        };
        let own = tools.packer.ram_bytes() + Tools::ROOMS as u64;
        self.recompression.ram.store(own, Relaxed);
        let (mut tried, top) = (0, self.top());
        for _ in 0..LOOKED_AT {
            if turn.gather.is_some() {
                match self.gather_at(turn, top) {
                    Some(true) => tried += AT_ONCE,
                    Some(false) => {}
                    None if self.end_gather(turn, most) => {}
                    None => return Recompress::RoundOver,
                }
            } else if turn.slot >= top {
                (turn.slot, turn.block) = (0, 0);
                return Recompress::RoundOver;
            } else {
                let tools = turn.tools.as_mut().expect("they were just made");
                match self.look_at(SlotId(turn.slot), turn.block, tools) {
                    Looked::NoRoom => self.begin_gather(turn, top),
                    Looked::NoBlock => (turn.slot, turn.block) = (turn.slot + 1, 0),
                    Looked::Passed => turn.block += 1,
                    Looked::Tried => {
                        turn.block += 1;
                        tried += GATHERED_AT_ONCE;
                    }
                }
            }
            if tried >= AT_ONCE * GATHERED_AT_ONCE {
                break;
            }
        }
        Recompress::More
    }

    fn begin_gather(&self, turn: &mut Turn, top: u32) {
        turn.block = 0;
        turn.gather = Some(Gather {
            slots: top,
            taken: self.arena.taken_bytes(),
        });
        self.arena.set_gathers(true);
    }

    /// Ends a round of gathering. Returns whether it freed enough for compressing to continue.
    fn end_gather(&self, turn: &mut Turn, most: u64) -> bool {
        self.arena.set_gathers(false);
        let before = turn.gather.take().map_or(0, |gather| gather.taken);
        before.saturating_sub(self.arena.taken_bytes()) >= most / WORTH_IT
    }

    /// Examines one block in a round of gathering. Returns whether it was copied, or `None` if the round is over.
    fn gather_at(&self, turn: &mut Turn, top: u32) -> Option<bool> {
        let gather = turn.gather.as_mut()?;
        if turn.slot >= top {
            (turn.slot, turn.block) = (0, 0);
        }
        if gather.slots == 0 {
            return None;
        }
        let slot = SlotId(turn.slot);
        let Some(looked) = self.gather_block(slot, turn.block) else {
            (turn.slot, turn.block) = (turn.slot + 1, 0);
            gather.slots -= 1;
            return Some(false);
        };
        turn.block += 1;
        Some(looked)
    }

    fn look_at(&self, slot: SlotId, number: usize, tools: &mut Tools) -> Looked {
        let (packer, mut rooms) = tools.parts();
        let copied = match self.copy_block(slot, number, rooms.old) {
            Ok(copied) => copied,
            Err(looked) => return looked,
        };
        let sums = kept_sums(copied.len);
        let before = Arena::taken_by(copied.bytes);
        let size = self.denser(&copied, packer, &mut rooms);
        let after = size.map(|size| sums + size);
        let Some(after) = after.filter(|&after| Arena::taken_by(after) * 8 <= before * 7) else {
            self.replace(slot, &copied, |block| Block {
                place: Place::of(&block).settled().bits(),
                ..block
            });
            self.recompression
                .left
                .fetch_add(copied.len as u64, Relaxed);
            return Looked::Tried;
        };
        let Ok(object) = self.arena.alloc_to_shrink(after) else {
            return Looked::NoRoom;
        };
        rooms.new[..sums].copy_from_slice(&rooms.old[..sums]);
        // SAFETY: the object is new, so no other thread knows it, and it has room for these bytes.
        unsafe {
            let to = self.arena.address(object);
            to.copy_from_nonoverlapping(rooms.new.as_ptr(), after);
        }
        let replaced = self.replace(slot, &copied, |block| Block {
            place: Place::of(&block).as_zstd(object).bits(),
            size: (after - sums) as u16,
            ..block
        });
        let gone = match replaced {
            true => Place::of(&copied.block).object(),
            false => Some(object),
        };
        gone.into_iter().for_each(|object| self.arena.free(object));
        if replaced {
            let saved = before - Arena::taken_by(after);
            self.recompression
                .bytes
                .fetch_add(copied.len as u64, Relaxed);
            self.recompression.saved.fetch_add(saved as u64, Relaxed);
        }
        Looked::Tried
    }

    /// Copies block `number` of a slot with its checksums to `room`, if it should be compressed again.
    fn copy_block(&self, slot: SlotId, number: usize, room: &mut [u8]) -> Result<Copied, Looked> {
        let pinned = self.table.pin(slot).ok_or(Looked::NoBlock)?;
        let (block, at, len) = pinned.block(number).ok_or(Looked::NoBlock)?;
        if pinned.ages(number) || block.kind != Kind::Packed {
            return Err(Looked::Passed);
        }
        let place = Place::of(&block);
        if place.is_settled() || place.object().is_none() {
            return Err(Looked::Passed);
        }
        // SAFETY: the slot is pinned.
        let Stored { bytes, pages, .. } = unsafe { self.stored(&block, len) };
        let sums = pages.unwrap_or_default().as_flattened();
        room[..sums.len()].copy_from_slice(sums);
        let end = sums.len() + bytes.len();
        room[sums.len()..end].copy_from_slice(bytes);
        Ok(Copied {
            block,
            at,
            len,
            bytes: end,
        })
    }

    /// Compresses the copy of a block again, after the room for its checksums. Returns how many bytes that took, or
    /// `None` if the block is damaged.
    fn denser(&self, copied: &Copied, packer: &mut Packer, rooms: &mut Rooms<'_>) -> Option<usize> {
        let Rooms { old, new, page } = rooms;
        let sums = kept_sums(copied.len);
        let (sums_of_pages, bytes) = old[..copied.bytes].split_at(sums);
        let kept: &PageSums = sums_of_pages.as_chunks().0;
        if !kept.is_empty() && block_sum(kept, &self.sums) != copied.block.sum {
            return None;
        }
        let pages = copied.len / PAGE;
        let dropped = Place::of(&copied.block).forgotten();
        let mut lz4 = Codec::Lz4.open();
        let out = &mut new[sums..];
        recode(bytes, pages, dropped, out, |number, stream, out| {
            match stream.len() {
                PAGE => page.copy_from_slice(stream),
                _ => lz4.decompress(stream, page).ok()?,
            }
            let expected = match kept.get(number) {
                Some(sum) => u128::from_le_bytes(*sum),
                None => copied.block.sum,
            };
            if self.sums.of(page) != expected {
                return None;
            }
            // A stream as long as a page is the page itself.
            if let Some(size) = packer.pack(page, out.get_mut(..PAGE - 1)?) {
                return Some(size);
            }
            out.get_mut(..PAGE)?.copy_from_slice(page);
            Some(PAGE)
        })
    }
}
