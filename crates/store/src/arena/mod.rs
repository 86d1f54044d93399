//! The arena: objects of 1 byte to 64 KiB, packed, in memory that comes from the kernel and goes
//! back to it.
//!
//! Compressed blocks have arbitrary lengths, so an allocator that rounds to powers of two would waste a third of the
//! gain. Here, as in the kernel's zsmalloc, pages are grouped into *spans*, each of which holds objects of nearly the
//! same size ([`class`]), and spans lie in *chunks* of 2 MiB ([`chunk`]). A span without objects is dissolved
//! immediately, and its pages can serve any class. A chunk without spans goes back to the kernel; one such chunk is
//! kept, so that a workload at the edge of a chunk does not map and unmap in turns.
//!
//! Spans are made in the lowest chunk that has room. That empties high chunks, and makes the search short: for each
//! span length there is a chunk below which no such run exists, moved up by searches and down by frees.
//!
//! When the limit falls below the present amount by more than a little, the highest chunks are *drained*: no new
//! objects are placed in them, and the caller, which knows the objects' owners, moves the existing ones
//! ([`Arena::drain`]). Moving arbitrary objects would not work: a chunk with one object left still takes all of its
//! memory, and new objects took the room of the moved ones as fast as these went.
//!
//! Objects freed here and there leave spans with many free places, which serve only their own class. A caller that
//! makes objects smaller needs room for another class, and gathers those of the old one ([`Arena::alloc_to_gather`]).
//!
//! One lock guards all bookkeeping and is held for tens of nanoseconds, a few microseconds when pages get RAM. Bytes
//! are copied outside it: an object belongs to the caller that allocated it.

pub(crate) mod chunk;
pub(crate) mod class;

use crate::mem::{Mapping, PAGE};
use chunk::{CHUNK_BYTES, HEADER_BYTES, Header, NoRun, Span};
use class::{CLASSES, MAX_SPAN, class, class_of};
use millpond_sync::{Held, Rank, Ranked};
use rustix::io::Errno;
use std::ptr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::*};
use std::time::{Duration, Instant};

/// The most chunks: 1 TiB of objects.
const MAX_CHUNKS: usize = 1 << 19;
/// The number of bits of a span's number that hold its first page. The bits above hold the chunk's number.
const PAGE_BITS: u32 = 9;
const PAGE_MASK: u32 = (1 << PAGE_BITS) - 1;
/// A chunk gets all its RAM at once if it is at most this part of the store's RAM, as a divisor. The unused part of the
/// chunk is wasted: with a divisor of eight, more than a tenth of a store of 46 MB was unused in three runs of five.
const AT_ONCE: u64 = 32;
/// A whole chunk that takes longer than this is slower than batches, for example because the host has to find the
/// memory.
const SLOW: Duration = Duration::from_micros(800);
/// Number of chunks that get their RAM in batches after a slow one.
const REST: u32 = 31;

const _: () = assert!(CHUNK_BYTES / PAGE == 1 << PAGE_BITS);
const NONE: u32 = u32::MAX;

/// The handle of an object: chunk number and byte offset in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Handle(pub(crate) u64);

impl Handle {
    fn new(chunk: usize, offset: usize) -> Self {
        Self((chunk * CHUNK_BYTES + offset) as u64)
    }

    /// The number of the object's chunk.
    pub(crate) fn chunk(self) -> usize {
        self.0 as usize / CHUNK_BYTES
    }

    fn offset(self) -> usize {
        self.0 as usize % CHUNK_BYTES
    }
}

struct State {
    /// The number of the first span with room, for each class.
    roomy: [u32; CLASSES],
    /// For each length, the lowest chunk that may have a run of that many pages.
    lowest: [u32; MAX_SPAN + 1],
    /// One more than the highest chunk number ever used.
    end: u32,
    /// The first of the chunk numbers below `end` without memory.
    vacant: u32,
    /// Number of chunks that have memory.
    mapped: u32,
    /// The kept chunk without spans.
    spare: u32,
    /// The first of the drained chunks.
    keep: u32,
    /// Number of bytes of RAM.
    ram: u64,
    /// Number of bytes of RAM that are in spans.
    spans: u64,
    /// Whether objects are being gathered.
    gathers: bool,
    /// Number of chunks that will still get their RAM in batches, even if the store is large.
    resting: u32,
}

impl State {
    /// Bytes of RAM that are in use.
    fn taken(&self) -> u64 {
        self.spans + u64::from(self.mapped) * HEADER_BYTES as u64
    }
}

/// The arena. The module's documentation describes it.
pub(crate) struct Arena {
    /// A pointer to each chunk. The entry of a vacant number is twice the next vacant number, plus one.
    directory: Mapping,
    state: Ranked<State>,
    max_ram: AtomicU64,
    live: AtomicU64,
    freed: AtomicU64,
}

/// An allocation may exceed the limit by this part of it, as a divisor, if its owner frees a larger object right after.
const LENT: u64 = 32;
/// A span's objects are gathered elsewhere if at least this part of its places, as a divisor, is free.
const SPARSE: u32 = 4;
/// Bytes of free pages that go back to the kernel together when RAM is short.
const GIVEN_BACK: u64 = 128 << 10;
/// The part of the arena's RAM, as a divisor, that free pages may have in addition to that.
const UNUSED: u64 = 32;
/// Number of spans that are examined for a better place of an object.
const LOOKED_AT: usize = 16;
/// The part of the limit, as a divisor, by which the RAM may exceed it before chunks are drained: the limit moves a
/// little all the time.
const SLACK: u64 = 8;

/// Whether `ram` exceeds the limit `most` by so much that the arena must be [drained](Arena::drain).
pub(crate) fn is_too_much(ram: u64, most: u64) -> bool {
    ram > most.saturating_add(most / SLACK)
}

/// The limit is reached, or the kernel has no more memory.
#[derive(Debug)]
pub(crate) struct Full;

impl Arena {
    /// Makes an arena that takes at most `max_ram` bytes.
    pub(crate) fn new(max_ram: u64) -> Result<Self, Errno> {
        Ok(Self {
            directory: Mapping::new(MAX_CHUNKS * size_of::<AtomicUsize>())?,
            state: Ranked::new(
                Rank::Arena,
                State {
                    roomy: [NONE; CLASSES],
                    lowest: [0; MAX_SPAN + 1],
                    end: 0,
                    vacant: NONE,
                    mapped: 0,
                    spare: NONE,
                    keep: NONE,
                    ram: 0,
                    spans: 0,
                    gathers: false,
                    resting: 0,
                },
            ),
            max_ram: AtomicU64::new(max_ram),
            live: AtomicU64::new(0),
            freed: AtomicU64::new(0),
        })
    }

    fn lock(&self) -> Held<'_, State> {
        self.state.lock()
    }

    fn entry(&self, chunk: usize) -> &AtomicUsize {
        assert!(chunk < MAX_CHUNKS);
        // SAFETY: the directory has `MAX_CHUNKS` entries, initially zero, only used as atomics.
        unsafe { &*self.directory.as_ptr().cast::<AtomicUsize>().add(chunk) }
    }

    fn header(&self, chunk: u32) -> Option<*mut Header> {
        let entry = self.entry(chunk as usize).load(Acquire);
        (entry & 1 == 0 && entry != 0).then(|| ptr::with_exposed_provenance_mut(entry))
    }

    /// The header of a chunk that must be mapped.
    ///
    /// The lock makes the header exclusively ours: it is only ever reached through this function, which takes the
    /// state.
    fn chunk<'s>(&self, _state: &'s mut State, chunk: u32) -> &'s mut Header {
        let header = self.header(chunk).expect("the chunk is mapped");
        // SAFETY: a chunk in the directory is mapped, zeros are a valid header, and `_state` shows
        // that the lock is held and no other header is borrowed.
        unsafe { &mut *header }
    }

    fn span<'s>(&self, state: &'s mut State, span: u32) -> &'s mut Span {
        &mut self.chunk(state, span >> PAGE_BITS).spans[(span & PAGE_MASK) as usize]
    }

    /// The address of an object. The object has the bytes of its class, and belongs to its owner until
    /// [`Arena::free`].
    pub(crate) fn address(&self, handle: Handle) -> *mut u8 {
        let base = self
            .header(handle.chunk() as u32)
            .expect("an object's chunk is mapped");
        base.cast::<u8>()
            .wrapping_add(HEADER_BYTES + handle.offset())
    }

    /// Allocates `len` bytes (1 to 64 Ki), whose contents are arbitrary.
    pub(crate) fn alloc(&self, len: usize) -> Result<Handle, Full> {
        let most = self.max_ram();
        let state = self.lock();
        // Memory that is being freed is not for new objects.
        if state.gathers && state.taken() > most - most / LENT {
            return Err(Full);
        }
        self.alloc_within(state, len, most)
    }

    /// Whether there is room for `len` bytes (1 to 64 Ki) now.
    pub(crate) fn has_room(&self, len: usize) -> bool {
        self.alloc(len).map(|object| self.free(object)).is_ok()
    }

    /// Allocates `len` bytes for contents that take more in an object which the caller frees right after. A full arena
    /// has room for that: it may exceed its limit a little.
    pub(crate) fn alloc_to_shrink(&self, len: usize) -> Result<Handle, Full> {
        let most = self.max_ram();
        self.alloc_within(self.lock(), len, most.saturating_add(most / LENT))
    }

    fn alloc_within(
        &self,
        mut state: Held<'_, State>,
        len: usize,
        most: u64,
    ) -> Result<Handle, Full> {
        let number = class_of(len);
        let mut at = state.roomy[number];
        if at == NONE || at >> PAGE_BITS >= state.keep {
            at = self.new_span(&mut state, number, most)?;
            self.link(&mut state, number, at);
        }
        Ok(self.take_object(&mut state, number, at))
    }

    /// Whether an object of `len` bytes takes less than one of `than` bytes.
    pub(crate) fn is_smaller(len: usize, than: usize) -> bool {
        class_of(len) < class_of(than)
    }

    /// The bytes that an object of `len` bytes takes.
    pub(crate) fn taken_by(len: usize) -> usize {
        class(class_of(len)).size as usize
    }

    /// Frees the object at `handle`.
    ///
    /// # Panics
    /// If there is no object at `handle`, or it is already free.
    pub(crate) fn free(&self, handle: Handle) {
        let mut state = self.lock();
        let page = handle.offset() / PAGE;
        let header = self.chunk(&mut state, handle.chunk() as u32);
        let start = page - usize::from(header.spans[page].back);
        let span = &mut header.spans[start];
        let number = usize::from(span.class);
        let class = class(number);
        let object = (handle.offset() - start * PAGE) / class.size as usize;
        let was_full = span.free == 0;
        assert!(
            span.free >> object & 1 == 0,
            "the object at {:#x} is freed twice",
            handle.0
        );
        span.free |= 1 << object;
        let unused = span.free == u64::MAX >> (64 - class.objects);
        let at = (handle.chunk() << PAGE_BITS | start) as u32;
        let mut gone = [ptr::null_mut(); 2];
        match (was_full, unused) {
            (true, false) => self.link(&mut state, number, at),
            (false, true) => {
                self.unlink(&mut state, number, at);
                gone = self.free_span(&mut state, number, at);
            }
            (true, true) => gone = self.free_span(&mut state, number, at),
            (false, false) => {}
        }
        drop(state);
        self.live.fetch_sub(u64::from(class.size), Relaxed);
        self.freed.fetch_add(u64::from(class.size), Relaxed);
        for chunk in gone.into_iter().filter(|chunk| !chunk.is_null()) {
            // SAFETY: `free_span` took the chunk out of the directory, and it holds no object.
            unsafe { Header::unmap(chunk) };
        }
    }

    fn link(&self, state: &mut State, class: usize, at: u32) {
        let next = std::mem::replace(&mut state.roomy[class], at);
        if next != NONE {
            self.span(state, next).prev = at;
        }
        let span = self.span(state, at);
        (span.prev, span.next) = (NONE, next);
    }

    fn unlink(&self, state: &mut State, class: usize, at: u32) {
        let Span { prev, next, .. } = *self.span(state, at);
        match prev {
            NONE => state.roomy[class] = next,
            prev => self.span(state, prev).next = next,
        }
        if next != NONE {
            self.span(state, next).prev = prev;
        }
    }

    /// Limits the arena to `max_ram` bytes from now on, and returns the previous limit. RAM that the arena already has
    /// stays until the arena is [drained](Arena::drain).
    pub(crate) fn set_max_ram(&self, max_ram: u64) -> u64 {
        self.max_ram.swap(max_ram, Relaxed)
    }

    /// The most bytes that the arena may take.
    pub(crate) fn max_ram(&self) -> u64 {
        self.max_ram.load(Relaxed)
    }

    /// The chunk from which on objects have to go, if the arena has to give memory back. Draining begins when the arena
    /// exceeds its limit by more than a little, and ends when it no longer exceeds it. Until then no object is placed
    /// in these chunks.
    pub(crate) fn drain(&self) -> Option<u32> {
        let most = self.max_ram();
        let mut state = self.lock();
        if state.ram <= most {
            state.keep = NONE;
        }
        if state.keep != NONE || !is_too_much(state.ram, most) {
            return (state.keep != NONE).then_some(state.keep);
        }
        let (mut keep, mut left) = (state.end, state.ram);
        while left > most && keep > 0 {
            keep -= 1;
            if self.header(keep).is_some() {
                left -= self.chunk(&mut state, keep).ram();
            }
        }
        state.keep = keep;
        let spare = state.spare;
        let gone = (spare != NONE && spare >= keep).then(|| {
            state.spare = NONE;
            self.forget_chunk(&mut state, spare)
        });
        drop(state);
        if let Some(chunk) = gone {
            // SAFETY: the spare chunk holds no object, and is out of the directory.
            unsafe { Header::unmap(chunk) };
        }
        Some(keep)
    }

    /// Stops draining, because there is no room elsewhere for the objects. Draining starts again with the next
    /// [`Arena::drain`].
    pub(crate) fn stop_draining(&self) {
        self.lock().keep = NONE;
    }

    /// Allocates room for a copy of the object at `handle`, of `len` bytes, in another span that has no more free
    /// places than the object's own. `None` if there is none among the first spans, or the object's own has few free
    /// places. Each copy concentrates free places (the sum of their squares grows), so copying ends.
    pub(crate) fn alloc_to_gather(&self, handle: Handle, len: usize) -> Option<Handle> {
        let number = class_of(len);
        let class = class(number);
        let mut state = self.lock();
        let header = self.chunk(&mut state, handle.chunk() as u32);
        let page = handle.offset() / PAGE;
        let start = page - usize::from(header.spans[page].back);
        let own = (handle.chunk() << PAGE_BITS | start) as u32;
        let free = header.spans[start].free.count_ones();
        if usize::from(header.spans[start].class) != number || free * SPARSE < class.objects.into()
        {
            return None;
        }
        let mut at = state.roomy[number];
        for _ in 0..LOOKED_AT {
            if at == NONE {
                return None;
            }
            let span = self.span(&mut state, at);
            let (here, next) = (span.free.count_ones(), span.next);
            if at != own && here <= free {
                return Some(self.take_object(&mut state, number, at));
            }
            at = next;
        }
        None
    }

    /// Sets whether objects are being gathered: a nearly full arena then accepts nothing new. Otherwise new objects
    /// would fill the places that the gathered ones leave, and no span would ever become empty.
    pub(crate) fn set_gathers(&self, gathers: bool) {
        self.lock().gathers = gathers;
    }

    /// Bytes of RAM that are in use, excluding free pages that chunks keep.
    pub(crate) fn taken_bytes(&self) -> u64 {
        self.lock().taken()
    }

    /// Takes a free object of the span `at`, which has one.
    fn take_object(&self, state: &mut State, number: usize, at: u32) -> Handle {
        let class = class(number);
        let span = self.span(state, at);
        let object = span.free.trailing_zeros() as usize;
        span.free &= span.free - 1;
        if span.free == 0 {
            self.unlink(state, number, at);
        }
        self.live.fetch_add(u64::from(class.size), Relaxed);
        Handle::new(
            (at >> PAGE_BITS) as usize,
            (at & PAGE_MASK) as usize * PAGE + object * class.size as usize,
        )
    }

    /// Whether chunks are being drained.
    pub(crate) fn is_draining(&self) -> bool {
        self.lock().keep != NONE
    }

    /// Makes a span, in the lowest chunk that has room or in a new one. The total RAM stays within `most` bytes.
    fn new_span(&self, state: &mut State, number: usize, most: u64) -> Result<u32, Full> {
        let class = class(number);
        let pages = usize::from(class.pages);
        let bytes = (pages * PAGE) as u64;
        if state.taken() + bytes > most {
            return Err(Full);
        }
        match self.place_span(state, number, most) {
            Err(Full) if self.give_pages_back(state, bytes, most) => {
                self.place_span(state, number, most)
            }
            placed => placed,
        }
    }

    /// Returns RAM of free pages to the kernel, so that `bytes` may be taken elsewhere: no run of these pages was long
    /// enough. Returns whether there is room now.
    fn give_pages_back(&self, state: &mut State, bytes: u64, most: u64) -> bool {
        let wanted = bytes.max(GIVEN_BACK);
        for chunk in (0..state.end).rev() {
            let short = (state.ram + wanted).saturating_sub(most) as usize;
            if short == 0 {
                break;
            }
            if self.header(chunk).is_some() {
                let gave = self.chunk(state, chunk).give_back(short.div_ceil(PAGE));
                state.ram -= gave;
            }
        }
        state.ram + bytes <= most
    }

    /// Makes a span in an existing run, or in a new chunk.
    fn place_span(&self, state: &mut State, number: usize, most: u64) -> Result<u32, Full> {
        let class = class(number);
        let pages = usize::from(class.pages);
        let bytes = (pages * PAGE) as u64;
        let mut lowest = None;
        let end = state.end.min(state.keep);
        for chunk in state.lowest[pages].min(end)..end {
            if self.header(chunk).is_none() {
                continue;
            }
            let room = most.saturating_sub(state.ram);
            match self.chunk(state, chunk).new_span(number as u8, class, room) {
                Ok((page, took)) => {
                    state.ram += took;
                    state.spans += bytes;
                    state.lowest[pages] = lowest.unwrap_or(chunk);
                    if state.spare == chunk {
                        state.spare = NONE;
                    }
                    return Ok(chunk << PAGE_BITS | page as u32);
                }
                Err(NoRun::Fragmented) => {}
                Err(NoRun::Limit) => lowest = lowest.or(Some(chunk)),
            }
        }
        state.lowest[pages] = lowest.unwrap_or(end);
        let room = most.saturating_sub(state.ram);
        if end < state.end || room < (HEADER_BYTES + pages * PAGE) as u64 {
            return Err(Full);
        }
        let much = room.min(state.ram / AT_ONCE) >= CHUNK_BYTES as u64;
        let at_once = much && state.resting == 0;
        state.resting -= u32::from(much && !at_once);
        let chunk = self.map_chunk(state, at_once)?;
        let room = most.saturating_sub(state.ram);
        let span = self.chunk(state, chunk).new_span(number as u8, class, room);
        let Ok((page, took)) = span else {
            unreachable!("an empty chunk holds any span")
        };
        state.ram += took;
        state.spans += bytes;
        state.lowest[pages] = state.lowest[pages].min(chunk);
        Ok(chunk << PAGE_BITS | page as u32)
    }

    fn map_chunk(&self, state: &mut State, at_once: bool) -> Result<u32, Full> {
        if state.vacant == NONE && state.end as usize == MAX_CHUNKS {
            return Err(Full);
        }
        let since = at_once.then(Instant::now);
        let header = Header::map(at_once).map_err(|_| Full)?;
        if since.is_some_and(|since| since.elapsed() > SLOW) {
            state.resting = REST;
        }
        let chunk = match state.vacant {
            NONE => {
                state.end += 1;
                state.end - 1
            }
            chunk => {
                state.vacant = (self.entry(chunk as usize).load(Relaxed) >> 1) as u32;
                chunk
            }
        };
        self.entry(chunk as usize)
            .store(header.expose_provenance(), Release);
        state.mapped += 1;
        state.ram += self.chunk(state, chunk).ram();
        for lowest in &mut state.lowest {
            *lowest = chunk.min(*lowest);
        }
        Ok(chunk)
    }

    /// Dissolves a span. Returns the chunks that the caller must unmap after it has released the lock.
    fn free_span(&self, state: &mut State, number: usize, at: u32) -> [*mut Header; 2] {
        let chunk = at >> PAGE_BITS;
        let header = self.chunk(state, chunk);
        header.free_span((at & PAGE_MASK) as usize, class(number));
        let freed = usize::from(class(number).pages) * PAGE;
        let (longest, empty) = (header.longest_run(), header.is_empty());
        state.spans -= freed as u64;
        // Memory that the store does not use soon should serve the program.
        let unused = state.ram - state.taken();
        if unused > GIVEN_BACK + state.ram / UNUSED && !empty {
            let gave = self
                .chunk(state, chunk)
                .give_back(GIVEN_BACK as usize / PAGE);
            state.ram -= gave;
        }
        for lowest in &mut state.lowest[..=longest] {
            *lowest = chunk.min(*lowest);
        }
        let mut gone = [ptr::null_mut(); 2];
        if empty {
            if state.spare == NONE && state.mapped > 1 && chunk < state.keep {
                state.spare = chunk;
            } else {
                gone[0] = self.forget_chunk(state, chunk);
            }
            if state.mapped == 1 && state.spare != NONE {
                let spare = std::mem::replace(&mut state.spare, NONE);
                gone[1] = self.forget_chunk(state, spare);
            }
        }
        gone
    }

    fn forget_chunk(&self, state: &mut State, chunk: u32) -> *mut Header {
        state.ram -= self.chunk(state, chunk).ram();
        state.mapped -= 1;
        let header = self.header(chunk).expect("the chunk is mapped");
        self.entry(chunk as usize)
            .store((state.vacant as usize) << 1 | 1, Release);
        state.vacant = chunk;
        header
    }

    /// Bytes of RAM that the arena takes now.
    pub(crate) fn ram_bytes(&self) -> u64 {
        self.lock().ram
    }

    /// Bytes of all objects, rounded up to their classes.
    pub(crate) fn live_bytes(&self) -> u64 {
        self.live.load(Relaxed)
    }

    /// Bytes ever freed.
    pub(crate) fn freed_bytes(&self) -> u64 {
        self.freed.load(Relaxed)
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        let end = self.lock().end;
        for chunk in (0..end).filter_map(|chunk| self.header(chunk)) {
            // SAFETY: the chunk is mapped and its objects are no longer reachable.
            unsafe { Header::unmap(chunk) };
        }
    }
}

#[cfg(test)]
mod tests;
