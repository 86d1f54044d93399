//! The packing thread: packs slots from the store in front into objects, and repacks the live part of dying objects.
//!
//! The thread has no memory except for one object that is being filled, and those that are being sent: at most
//! [`RemoteConfig::sending`](crate::RemoteConfig) of them. While the store is away these stay as they are and are
//! resent automatically; the thread starts nothing new. Anything on its way is still in the store in front, or in the
//! object that it was in before.
//!
//! A rewritten object is deleted once the object with its slots has arrived, and not before.

use crate::format::{
    BODY_MOST, CHUNK, ChunkEntry, ChunkName, Encoder, Pack, TAG, chunks_of, open_directory,
};
use crate::lease;
use crate::objects::{Fate, Spot};
use crate::requests::RemoteError;
use crate::tier::Inner;
use millpond_core::port::Slots;
use millpond_core::{PAGE_SIZE, SlotId};
use millpond_store::{Front, SlotState, SlotWord};
use millpond_sync::OwnThread;
use opendal::Buffer;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use tokio::task::AbortHandle;

/// How long the thread rests if nobody wakes it. In the simulator the store is away often, but never for long.
const REST: Duration = Duration::from_millis(if cfg!(test) { 5 } else { 500 });
/// The length of the longest slot.
const SLOT: usize = PAGE_SIZE << millpond_core::addr::MAX_ORDER;

/// What the packing thread is told, and what it reports.
#[derive(Default)]
pub(crate) struct Notes {
    /// The store is ending.
    pub(crate) stop: bool,
    /// A save found no room in front.
    pub(crate) wanted: bool,
    /// Enough was saved that the room in front should be checked.
    pub(crate) look: bool,
    /// How many times slots were released in front.
    pub(crate) released: u64,
    /// There is nothing that could be moved.
    pub(crate) is_hopeless: bool,
    /// What the network thread has done.
    done: Vec<Done>,
}

enum Done {
    /// The object with this index has arrived.
    Sent(u32),
    /// The object with this index was deleted, or could not be.
    Deleted(u32, bool),
}

/// A slot in an object that is being filled or sent.
struct Member {
    slot: SlotId,
    word: SlotWord,
    /// The number of its first chunk there.
    chunk: u32,
    /// Where it came from: another object, or the store in front.
    from: Option<Spot>,
}

/// An object that is on its way.
struct Sending {
    index: u32,
    members: Vec<Member>,
    /// Objects that were rewritten into it: index in the table, and number.
    rewritten: Vec<(u32, u64)>,
    /// Bytes in RAM.
    bytes: u64,
    task: AbortHandle,
}

struct Packer {
    front: Arc<Front>,
    inner: Arc<Inner>,
    encoder: Encoder,
    buffer: Vec<u8>,
    /// The number of the next object.
    next: u64,
    open: Option<Pack>,
    members: Vec<Member>,
    rewritten: Vec<(u32, u64)>,
    sending: Vec<Sending>,
    /// The number of deletions in progress.
    deleting: usize,
    /// An object should be sent although it is not full.
    flush: bool,
    /// A save has found no room, and nothing could be done yet because the store was away.
    wanted: bool,
}

/// Starts the thread.
pub(crate) fn start(front: Arc<Front>, inner: Arc<Inner>) -> std::io::Result<OwnThread> {
    let mut packer = Packer {
        front,
        inner,
        encoder: Encoder::new()?,
        buffer: vec![0; SLOT],
        next: 0,
        open: None,
        members: Vec::new(),
        rewritten: Vec::new(),
        sending: Vec::new(),
        deleting: 0,
        flush: false,
        wanted: false,
    };
    OwnThread::start(c"millpond-pack", move || packer.run())
}

impl Packer {
    fn run(&mut self) {
        loop {
            let (wanted, done) = {
                let mut notes = self.inner.notes.lock();
                if !notes.stop && !notes.wanted && !notes.look && notes.done.is_empty() {
                    notes = notes.wait_timeout(&self.inner.work, REST);
                }
                if notes.stop {
                    break;
                }
                notes.look = false;
                (
                    std::mem::take(&mut notes.wanted),
                    std::mem::take(&mut notes.done),
                )
            };
            for done in done {
                self.finish(done);
            }
            self.tell_lost();
            self.wanted |= wanted;
            let is_away = self.inner.client.health().away_for().is_some();
            if !is_away {
                self.bury();
                let wanted = std::mem::take(&mut self.wanted);
                self.make_room(wanted);
            }
            let open = self.open.as_ref().map_or(0, |pack| pack.len() as u64);
            let sending: u64 = self.sending.iter().map(|sending| sending.bytes).sum();
            let buffer = self.buffer.len() as u64;
            self.inner
                .counters
                .packing
                .store(open + sending + buffer, Relaxed);
        }
        // Whatever has not arrived yet is no longer needed.
        self.sending.iter().for_each(|sending| sending.task.abort());
    }

    fn tell_lost(&self) {
        let inner = &self.inner;
        inner.objects.lock().tell_lost(|number, bytes| {
            eprintln!(
                "millpond: the remote store no longer has {}: the pages in it ({} KiB of them, compressed) are lost, and no others",
                inner.client.path(number),
                bytes >> 10
            );
        });
    }

    /// Moves slots out of the store in front while it contains more than it should, or a save has found no room.
    fn make_room(&mut self, wanted: bool) {
        let room = self.front.room();
        let (begin, end) = (room / 8 * 7, room / 4 * 3);
        let mut due = if wanted {
            self.inner.config.object_bytes as u64
        } else {
            0
        };
        let mut moves =
            self.on_the_way() < due || self.front.stored_bytes() > begin + self.on_the_way();
        due = due.saturating_sub(self.on_the_way());
        while moves && self.may_send() {
            let Some((slot, word)) = self.front.slots().take_oldest() else {
                self.flush = wanted;
                break;
            };
            let before = self.on_the_way();
            self.take(slot, word);
            due = due.saturating_sub(self.on_the_way().saturating_sub(before));
            moves = due > 0 || self.front.stored_bytes() > end + self.on_the_way();
        }
        if self.flush && self.may_send() {
            self.send();
        }
        let nothing = wanted && self.sending.is_empty() && self.open.is_none();
        let full = wanted && !self.has_room() && self.sending.is_empty();
        let mut notes = self.inner.notes.lock();
        notes.is_hopeless = nothing || full;
        if notes.is_hopeless {
            self.inner.room.notify_all();
        }
    }

    /// Returns the compressed bytes of slots that are still in front and will leave it.
    fn on_the_way(&self) -> u64 {
        let open = self.open.as_ref().map_or(0, |pack| pack.len() as u64);
        open + self
            .sending
            .iter()
            .map(|sending| sending.bytes)
            .sum::<u64>()
    }

    fn may_send(&self) -> bool {
        self.sending.len() < self.inner.config.sending.max(1) && self.has_room()
    }

    /// Whether the store may take one more object.
    fn has_room(&self) -> bool {
        let Some(most) = self.inner.config.max_bytes else {
            return true;
        };
        self.inner.objects.lock().bytes + (self.inner.config.object_bytes + SLOT) as u64 <= most
    }

    /// Puts a slot that is in front into the open object.
    fn take(&mut self, slot: SlotId, word: SlotWord) {
        let len = usize::from(word.pages()) * PAGE_SIZE;
        let buffer = &mut self.buffer[..len];
        let read = |store: &dyn Slots| store.load(slot, 0, buffer);
        if !self.front.read_taken(slot, word, read) {
            return;
        }
        self.open_for(chunks_of(usize::from(word.pages())));
        let Some(pack) = &mut self.open else { return };
        let chunk = pack.chunks() as u32;
        for (index, data) in self.buffer[..len].chunks(CHUNK).enumerate() {
            let name = ChunkName {
                slot: slot.0,
                generation: word.generation(),
                index: index as u16,
                pages: word.pages(),
            };
            pack.push(self.inner.client.key(), name, self.encoder.encode(data));
        }
        self.members.push(Member {
            slot,
            word,
            chunk,
            from: None,
        });
        self.send_if_full();
    }

    /// Ensures that there is an open object with room for `chunks` chunks.
    fn open_for(&mut self, chunks: usize) {
        let has_room = |pack: &Pack| pack.has_room(chunks * (BODY_MOST + TAG), chunks);
        if self.open.as_ref().is_some_and(|pack| !has_room(pack)) {
            self.send();
        }
        if self.open.is_none() {
            let room = self.inner.config.object_bytes + (64 << 10);
            self.open = Some(Pack::new(self.next, room));
            self.next += 1;
        }
    }

    fn send_if_full(&mut self) {
        let full = |pack: &Pack| pack.len() >= self.inner.config.object_bytes;
        if self.open.as_ref().is_some_and(full) {
            self.send();
        }
    }

    /// Sends the open object, if it contains anything.
    fn send(&mut self) {
        self.flush = false;
        let Some(pack) = self.open.take() else { return };
        let packed = pack.finish(self.inner.client.key());
        let index = self.inner.objects.lock().add(&packed);
        let bytes = packed.bytes.len() as u64;
        self.inner.counters.sent.fetch_add(bytes, Relaxed);
        let path = self.inner.client.path(packed.number);
        let inner = Arc::downgrade(&self.inner);
        let task = self.inner.client.spawn(|requests| async move {
            // Without a deadline, this only ends when the object has arrived.
            if requests
                .put(&path, Buffer::from(packed.bytes), None)
                .await
                .is_ok()
                && let Some(inner) = inner.upgrade()
            {
                inner.notes.lock().done.push(Done::Sent(index));
                inner.work.notify_all();
            }
        });
        self.sending.push(Sending {
            index,
            members: std::mem::take(&mut self.members),
            rewritten: std::mem::take(&mut self.rewritten),
            bytes,
            task,
        });
    }

    fn finish(&mut self, done: Done) {
        match done {
            Done::Sent(index) => {
                if let Some(at) = self
                    .sending
                    .iter()
                    .position(|sending| sending.index == index)
                {
                    let sending = self.sending.swap_remove(at);
                    self.arrived(sending);
                }
            }
            Done::Deleted(index, is_gone) => {
                self.deleting -= 1;
                let mut objects = self.inner.objects.lock();
                if is_gone {
                    objects.remove(index);
                } else if let Some(object) = objects.get_mut(index) {
                    object.fate = Fate::There;
                    objects.has_dead = true;
                }
            }
        }
    }

    /// Records that an object has arrived: its slots are there from now on, and no longer where they were.
    fn arrived(&self, sending: Sending) {
        let inner = &self.inner;
        if let Some(object) = inner.objects.lock().get_mut(sending.index) {
            object.fate = Fate::There;
        }
        for member in &sending.members {
            let Member {
                slot,
                word,
                chunk,
                from,
            } = *member;
            let spot = Spot {
                object: sending.index,
                chunk,
            };
            match from {
                None => self.settle(slot, word, spot),
                Some(from) => self.rewrite(slot, word, from, spot),
            }
        }
        {
            let mut objects = inner.objects.lock();
            objects.has_dead = true;
            for &(index, number) in &sending.rewritten {
                // It may have died meanwhile, and another may have its index.
                let object = objects
                    .get_mut(index)
                    .filter(|object| object.number == number);
                if let Some(object) = object.filter(|object| object.fate == Fate::Rewriting) {
                    object.fate = Fate::There;
                }
            }
        }
        inner.notes.lock().released += 1;
        inner.room.notify_all();
    }

    /// Releases a slot in front, unless it was already released since it was packed.
    fn settle(&self, slot: SlotId, word: SlotWord, spot: Spot) {
        let Some(settling) = self.front.let_go(slot, word) else {
            return;
        };
        let mut objects = self.inner.objects.lock();
        objects.born(spot, chunks_of(usize::from(word.pages())));
        self.front.arrived(slot, settling, spot.into());
    }

    /// Records the new place of a slot, unless it was released since it was packed.
    fn rewrite(&self, slot: SlotId, word: SlotWord, from: Spot, spot: Spot) {
        let slots = self.front.slots();
        let mut objects = self.inner.objects.lock();
        if slots.word(slot).is_like(word) && slots.place(slot) == u64::from(from) {
            let chunks = chunks_of(usize::from(word.pages()));
            objects.died(from, chunks);
            objects.born(spot, chunks);
            slots.set_place(slot, spot.into());
        }
    }

    /// Deletes objects without live slots, and rewrites those that are less than half alive.
    fn bury(&mut self) {
        while self.deleting < self.inner.config.sending.max(1) {
            let found = {
                let mut objects = self.inner.objects.lock();
                let index = objects.next_dead();
                index.and_then(|index| {
                    let object = objects.get_mut(index)?;
                    let is_dead = object.live == 0;
                    object.fate = if is_dead {
                        Fate::Deleting
                    } else {
                        Fate::Rewriting
                    };
                    Some((index, object.number, object.bytes, is_dead))
                })
            };
            let Some((index, number, bytes, is_dead)) = found else {
                return;
            };
            if is_dead {
                self.delete(index, number);
            } else {
                self.take_living(index, number, bytes);
                return;
            }
        }
    }

    fn delete(&mut self, index: u32, number: u64) {
        self.deleting += 1;
        let path = self.inner.client.path(number);
        let inner = Arc::downgrade(&self.inner);
        self.inner.client.spawn(|requests| async move {
            let is_gone = requests.delete(&path).await.is_ok();
            if let Some(inner) = inner.upgrade() {
                inner.notes.lock().done.push(Done::Deleted(index, is_gone));
                inner.work.notify_all();
            }
        });
    }

    /// Puts the live part of an object into the open one.
    fn take_living(&mut self, index: u32, number: u64, bytes: u64) {
        let read = self.inner.client.read_all(number, bytes);
        let key = self.inner.client.key();
        let opened = match read {
            Some(Ok(object)) => open_directory(key, number, &object)
                .ok()
                .map(|entries| (object, entries)),
            Some(Err(RemoteError::Away { .. })) | None => {
                self.leave(index, false);
                return;
            }
            Some(Err(_)) => None,
        };
        let Some((mut object, entries)) = opened else {
            // Later loads of its pages will find out which of them can still be read.
            self.leave(index, true);
            return;
        };
        let mut place = crate::format::PREAMBLE;
        let (mut at, mut all_read) = (0, true);
        while at < entries.len() {
            let chunks =
                chunks_of(usize::from(entries[at].name.pages)).clamp(1, entries.len() - at);
            let these = &entries[at..at + chunks];
            let len: usize = these
                .iter()
                .map(|entry| entry.units as usize * crate::format::UNIT)
                .sum();
            let spot = Spot {
                object: index,
                chunk: at as u32,
            };
            all_read &= self.take_slot(number, these, spot, place, &mut object[place..place + len]);
            place += len;
            at += chunks;
        }
        if !all_read && let Some(object) = self.inner.objects.lock().get_mut(index) {
            // Otherwise it would be read again and again because of a slot that cannot be moved.
            object.stays = true;
        }
        self.rewritten.push((index, number));
        self.send_if_full();
    }

    /// Puts a slot of another object into the open one, if it lives there. Returns whether it could be read.
    fn take_slot(
        &mut self,
        number: u64,
        entries: &[ChunkEntry],
        spot: Spot,
        place: usize,
        sealed: &mut [u8],
    ) -> bool {
        let name = entries[0].name;
        let slot = SlotId(name.slot);
        let word = self.front.slots().word(slot);
        let lives = word.state() == SlotState::Remote && word.generation() == name.generation && {
            let _objects = self.inner.objects.lock();
            self.front.slots().place(slot) == u64::from(spot)
        };
        if !lives {
            return true;
        }
        self.open_for(entries.len());
        let Some(pack) = &mut self.open else {
            return true;
        };
        let chunk = pack.chunks() as u32;
        let (mut place, mut rest) = (place, sealed);
        for entry in entries {
            let len = entry.units as usize * crate::format::UNIT;
            let (sealed, others) = rest.split_at_mut(len);
            rest = others;
            let unit = (place / crate::format::UNIT) as u32;
            let Ok(body) = self
                .inner
                .client
                .key()
                .open(number, unit, &entry.name, sealed)
            else {
                // The slot stays where it is. Those of its chunks that were already taken are dead in the new object.
                return false;
            };
            pack.push(self.inner.client.key(), entry.name, body);
            place += len;
        }
        self.members.push(Member {
            slot,
            word,
            chunk,
            from: Some(spot),
        });
        true
    }

    /// Leaves an object as it was. `for_good` means that it is not tried again.
    fn leave(&self, index: u32, for_good: bool) {
        let mut objects = self.inner.objects.lock();
        if let Some(object) = objects.get_mut(index) {
            object.fate = Fate::There;
            object.stays |= for_good;
        }
        objects.has_dead = true;
    }
}

/// Deletes all objects of a run that ends, its lease last.
pub(crate) fn delete_all(inner: &Arc<Inner>) {
    let numbers = inner.objects.lock().numbers();
    let objects: Vec<String> = numbers.into_iter().map(|n| inner.client.path(n)).collect();
    let lease = lease::path(&inner.prefix);
    // Where directories are entries of their own, the empty ones are also deleted, the inner one first.
    let directories = match inner.config.url.is_directory() {
        true => vec![format!("{}o/", inner.prefix), inner.prefix.clone()],
        false => Vec::new(),
    };
    let (tell, told) = std::sync::mpsc::channel();
    let count = objects.len() + 1;
    inner.client.spawn(|requests| async move {
        for path in objects {
            if requests.delete(&path).await.is_err() || tell.send(()).is_err() {
                return;
            }
        }
        if requests.delete(&lease).await.is_ok() {
            for directory in &directories {
                // A directory with an object that was still on its way stays until the next cleaning.
                let _ = requests.operator.delete(directory).await;
            }
            // The caller may have given up.
            let _ = tell.send(());
        }
    });
    let until = Instant::now() + crate::client::LAST_REQUESTS;
    let gone = (0..count)
        .take_while(|_| {
            told.recv_timeout(until.saturating_duration_since(Instant::now()))
                .is_ok()
        })
        .count();
    if gone < count {
        eprintln!(
            "millpond: {} objects of the run {} are left in the remote store, which does not answer: `millpond remote \
             clean {}` removes what is left",
            count - gone,
            inner.prefix,
            inner.config.url
        );
    }
}
