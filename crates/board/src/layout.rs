//! The bytes of the board: one header page and then the slots, made of atomics only.

use crate::fields::{FIELD_ROOM, Fields};
use crate::latency::{FaultWay, LATENCY_BUCKETS};
use crate::{SlotReading, State};
use core::hint::spin_loop;
use core::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
    fence,
};

/// Most processes for which one board has room.
pub const SLOTS: usize = 512;
/// Most bytes of a program's name that are kept.
pub const NAME_BYTES: usize = 64;

/// Most bytes of last words that are kept.
const LAST_WORDS: usize = 512;

pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"MillBord");
pub(crate) const VERSION: u32 = 7;

/// Rounds to wait for a writer. A writer needs a microsecond; a killed writer never ends.
const PATIENCE: u32 = 100_000;

/// The whole file.
#[repr(C, align(4096))]
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) magic: AtomicU64,
    pub(crate) version: AtomicU32,
    /// The process that made the board.
    pub(crate) owner: AtomicU32,
    name: Name,
    /// The reason why the first process stopped in which the library could not continue.
    last_words: LastWords,
    /// One more than the highest number of a slot that ever had a claim.
    claimed: AtomicU32,
    slots: [Slot; SLOTS],
}

/// Text of up to [`NAME_BYTES`] bytes, padded with zeros.
#[derive(Debug)]
pub(crate) struct Name([AtomicU64; NAME_BYTES / 8]);

/// A line that is written once, and read after its writer's death.
#[derive(Debug)]
struct LastWords {
    /// The process that changes this from zero writes the line.
    writer: AtomicU32,
    /// Zero until the line is complete.
    len: AtomicU32,
    line: [AtomicU64; LAST_WORDS / 8],
}

impl LastWords {
    fn set(&self, pid: u32, line: &[u8]) {
        let claim = self.writer.compare_exchange(0, pid, Acquire, Relaxed);
        if claim.is_err() || line.is_empty() {
            return;
        }
        for (word, chunk) in self.line.iter().zip(line.chunks(8)) {
            let mut bytes = [0; 8];
            bytes[..chunk.len()].copy_from_slice(chunk);
            word.store(u64::from_ne_bytes(bytes), Relaxed);
        }
        self.len.store(line.len().min(LAST_WORDS) as u32, Release);
    }

    fn get(&self) -> Option<(u32, String)> {
        // Any process of this user may have written any number there.
        let len = (self.len.load(Acquire) as usize).min(LAST_WORDS);
        let words = self.line.iter();
        let bytes: Vec<u8> = words.flat_map(|w| w.load(Relaxed).to_ne_bytes()).collect();
        let line = String::from_utf8_lossy(&bytes[..len]).into_owned();
        (len > 0).then(|| (self.writer.load(Relaxed), line))
    }
}

impl Name {
    pub(crate) fn set(&self, name: &str) {
        let mut bytes = [0u8; NAME_BYTES];
        let end = (0..=name.len().min(NAME_BYTES))
            .rev()
            .find(|&n| name.is_char_boundary(n));
        let end = end.unwrap_or(0);
        bytes[..end].copy_from_slice(&name.as_bytes()[..end]);
        for (word, chunk) in self.0.iter().zip(bytes.chunks_exact(8)) {
            word.store(
                u64::from_ne_bytes(chunk.try_into().unwrap_or_default()),
                Relaxed,
            );
        }
    }

    pub(crate) fn get(&self) -> String {
        let words = self.0.iter();
        let bytes: Vec<u8> = words.flat_map(|w| w.load(Relaxed).to_ne_bytes()).collect();
        let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
        String::from_utf8_lossy(&bytes[..end]).into_owned()
    }
}

impl Page {
    /// The slots that may have a claim. Most boards have few processes, and reading the other slots would cost each
    /// starting process the page faults of a dozen pages.
    pub(crate) fn slots(&self) -> &[Slot] {
        // Any process of this user may have written any number there.
        let claimed = (self.claimed.load(Acquire) as usize).min(SLOTS);
        &self.slots[..claimed]
    }

    /// Claims the first free slot.
    pub(crate) fn claim(&self, pid: u32) -> Option<&Slot> {
        let free = |slot: &Slot| {
            slot.owner
                .compare_exchange(0, pid, Acquire, Relaxed)
                .is_ok()
        };
        let number = self.slots.iter().position(free)?;
        self.claimed.fetch_max(number as u32 + 1, Release);
        Some(&self.slots[number])
    }

    /// The number of one of the slots.
    pub(crate) fn number_of(&self, slot: &Slot) -> usize {
        (slot as *const Slot as usize - self.slots.as_ptr() as usize) / size_of::<Slot>()
    }

    pub(crate) fn set_name(&self, name: &str) {
        self.name.set(name);
    }

    pub(crate) fn name(&self) -> String {
        self.name.get()
    }

    pub(crate) fn set_last_words(&self, pid: u32, line: &[u8]) {
        self.last_words.set(pid, line);
    }

    pub(crate) fn last_words(&self) -> Option<(u32, String)> {
        self.last_words.get()
    }
}

/// The slot of one process.
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct Slot {
    /// The process that changes this from zero owns the slot.
    pub(crate) owner: AtomicU32,
    /// Zero until the slot's description is complete.
    pub(crate) pid: AtomicU32,
    pub(crate) state: AtomicU32,
    /// One more than the number of the parent's slot; zero without one.
    pub(crate) parent: AtomicU32,
    pub(crate) claimed_ns: AtomicU64,
    pub(crate) published_ns: AtomicU64,
    /// Odd while the counters are being written.
    sequence: AtomicU64,
    name: Name,
    fields: [AtomicU64; FIELD_ROOM],
    latency: [[AtomicU64; LATENCY_BUCKETS]; FaultWay::ALL.len()],
}

impl Slot {
    pub(crate) fn set_name(&self, name: &str) {
        self.name.set(name);
    }

    pub(crate) fn name(&self) -> String {
        self.name.get()
    }

    pub(crate) fn write(&self, state: State, fields: &Fields, now_ns: u64) -> bool {
        let mut patience = PATIENCE;
        let before = loop {
            let seen = self.sequence.load(Relaxed);
            if seen.is_multiple_of(2)
                && self
                    .sequence
                    .compare_exchange(seen, seen + 1, Acquire, Relaxed)
                    .is_ok()
            {
                break seen;
            }
            patience -= 1;
            if patience == 0 {
                return false;
            }
            spin_loop();
        };
        fence(Release);
        let latency = self.latency.as_flattened().iter();
        let latency = latency.zip(fields.latency.as_flattened());
        for (word, &value) in self.fields.iter().zip(&fields.values).chain(latency) {
            word.store(value, Relaxed);
        }
        self.state.store(state as u32, Relaxed);
        self.published_ns.store(now_ns, Relaxed);
        self.sequence.store(before + 2, Release);
        true
    }

    pub(crate) fn read_slot(&self, number: usize) -> SlotReading {
        let mut fields = Fields::default();
        let mut torn = true;
        for _ in 0..PATIENCE {
            let before = self.sequence.load(Acquire);
            let latency = fields.latency.as_flattened_mut().iter_mut();
            let latency = latency.zip(self.latency.as_flattened());
            for (value, word) in fields.values.iter_mut().zip(&self.fields).chain(latency) {
                *value = word.load(Relaxed);
            }
            fence(Acquire);
            if before.is_multiple_of(2) && self.sequence.load(Relaxed) == before {
                torn = false;
                break;
            }
            spin_loop();
        }
        let state = match self.state.load(Relaxed) {
            2 => State::Exited,
            3 => State::Execed,
            4 => State::Failed,
            _ => State::Running,
        };
        SlotReading {
            number,
            pid: self.pid.load(Relaxed),
            parent: self.parent.load(Relaxed).checked_sub(1).map(|n| n as usize),
            name: self.name(),
            state,
            claimed_ns: self.claimed_ns.load(Relaxed),
            published_ns: self.published_ns.load(Relaxed),
            fields,
            torn,
        }
    }
}
