//! A remote store behind another one: which of the two has a slot, and how it gets from one to the other.
//!
//! Everything is saved in the store in front (*local*: compressed RAM, a file, or both). When what it holds comes near
//! its room, a thread of this store's (`packer.rs`) takes the slots that were saved first, packs them, and has them
//! sent. Only when the store has answered are they released in front: at each moment a slot is in a place that it can
//! be read from. A save that finds no room waits for that thread, as long as it makes room at least once in
//! [`PATIENCE`], unless the store is away: then the answer is that there is no room, as it would be without a remote
//! store.
//!
//! A slot that is read from the remote store stays there. When its pages leave memory again they are saved in front
//! like new ones, and the old slot dies. So what is used again is near, and what is not used stays far.
//!
//! Pages that came with a stream are another matter. To have them again costs a part of a request, and to save them
//! again would put all that a scan reads into new objects: a put costs ten times what a get does. So they stay far if
//! they leave as they came, which their checksums show ([`Sums`]). A page that was lost there meanwhile is saved.
//!
//! Pages of a slot that nobody will read again ([`Store::forget`]) keep their room in front until the slot is released:
//! a slot with holes could not be packed as a whole.
//!
//! A forked child has no thread that talks to the network, and cannot have this store.

use crate::client::{Client, Wanted};
use crate::format::{CHUNK_PAGES, ChunkName, RunKey, SLOT_CHUNKS, chunks_of, fill_at_random};
use crate::health::Health;
use crate::lease;
use crate::objects::{Objects, Spot};
use crate::packer::{self, Notes};
use crate::requests::{RemoteError, Requests, TimeLimits};
use crate::seats::Fetched;
use crate::url::{RemoteUrl, UrlError};
use millpond_core::port::{
    Beyond, LoadError, Recompress, Recompressed, SaveError, Saved, Store, StoreUsage, Tiers,
};
use millpond_core::{LEAF_PAGES, PAGE_SIZE, SlotId, SlotPart};
use millpond_store::{SlotPlaces, SlotState, SlotWord, Sums};
use millpond_sync::{Condvar, OwnThread, Rank, Ranked};
use opendal::Operator;
use rustix::io::Errno;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// How long a save waits while no room is made in front.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// How long the store may be away before a save no longer waits for it.
const AWAY: Duration = Duration::from_secs(1);
/// Objects for which there is room in what was fetched ahead.
const AHEAD: usize = 3;
/// The packing thread looks at the room in front after so many bytes were saved.
const LOOK_EVERY: u64 = 256 << 10;

/// The settings of a [`RemoteStore`].
#[derive(Clone, Debug)]
pub struct RemoteConfig {
    /// Where the objects go.
    pub url: RemoteUrl,
    /// Bytes that the store in front has room for, beside RAM of which it says itself how much that may be
    /// ([`Tiers::ram_most`]). Slots leave it from seven eighths of all of that on.
    pub local_room: u64,
    /// Most bytes that all objects may take.
    pub max_bytes: Option<u64>,
    /// Bytes of an object. One that is being filled, and those that are being sent, are in RAM.
    pub object_bytes: usize,
    /// Objects that may be sent at once.
    pub sending: usize,
    /// Bytes that may be kept of what was fetched ahead. With none, nothing is fetched ahead.
    pub ahead_bytes: usize,
    /// Bytes of RAM that what is loaded goes to. Of so much it is known whether it has changed when it leaves; all else
    /// counts as changed.
    pub memory_bytes: u64,
    /// Limits of time.
    pub limits: TimeLimits,
}

impl RemoteConfig {
    /// The usual settings: objects of 4 MiB, two sent at once, 12 MiB fetched ahead, no limit of room.
    #[must_use]
    pub fn new(url: RemoteUrl, local_room: u64) -> Self {
        Self {
            url,
            local_room,
            max_bytes: None,
            object_bytes: 4 << 20,
            sending: 2,
            ahead_bytes: AHEAD * (4 << 20),
            memory_bytes: 0,
            limits: TimeLimits::default(),
        }
    }

    /// The settings for a budget of `ram` bytes. What is packed and sent is in RAM, so objects are small where the
    /// budget is: a thirty-second of it, and 512 KiB to 4 MiB.
    #[must_use]
    pub fn for_budget(url: RemoteUrl, local_room: u64, ram: u64) -> Self {
        let object_bytes = (ram / 32).clamp(512 << 10, 4 << 20) as usize;
        Self {
            object_bytes,
            ahead_bytes: AHEAD * object_bytes,
            memory_bytes: ram,
            ..Self::new(url, local_room)
        }
    }
}

/// Why a remote store could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RemoteOpenError {
    /// The URL names no store.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// The store does not take an object.
    #[error(
        "{url} takes no objects: {error}; check that it is there, and the credentials in the environment"
    )]
    Refused {
        /// The store.
        url: String,
        /// What it answered.
        error: RemoteError,
    },
    /// The system gives no memory, no random bytes or no thread.
    #[error(
        "the remote store cannot start ({0}): raise the limits on memory and threads (ulimit -v, ulimit -u)"
    )]
    System(#[from] std::io::Error),
}

/// What a remote store has done, in numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RemoteStats {
    /// Slots that are only in the remote store.
    pub slots: u64,
    /// Bytes of their pages.
    pub logical_bytes: u64,
    /// Objects.
    pub objects: u64,
    /// Bytes that the objects take.
    pub object_bytes: u64,
    /// Loads from the remote store.
    pub loads: u64,
    /// Bytes that were fetched.
    pub fetched_bytes: u64,
    /// Bytes that were sent, rewritten ones too.
    pub sent_bytes: u64,
    /// Attempts that failed.
    pub failures: u64,
    /// Loads that got no page: the store was away for too long, or had lost or damaged it.
    pub lost_loads: u64,
    /// How long the store has been away, if it is.
    pub away_for: Option<Duration>,
}

/// Counters of the store.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) slots: AtomicU64,
    pub(crate) logical: AtomicU64,
    pub(crate) sent: AtomicU64,
    /// RAM of objects that are being filled or sent.
    pub(crate) packing: AtomicU64,
    loads: AtomicU64,
    lost_loads: AtomicU64,
    saved: AtomicU64,
}

/// What the threads of a store share.
pub(crate) struct Inner {
    pub(crate) local: Box<dyn Store>,
    pub(crate) table: SlotPlaces,
    /// What the pages in memory were that came with a stream, by [`numbers`].
    streamed: Sums,
    pub(crate) objects: Ranked<Objects>,
    pub(crate) client: Client,
    pub(crate) config: RemoteConfig,
    pub(crate) notes: Ranked<Notes>,
    /// The packing thread has something to do.
    pub(crate) work: Condvar,
    /// Slots were released in front.
    pub(crate) room: Condvar,
    pub(crate) counters: Counters,
    pub(crate) prefix: String,
}

/// Another store with a remote one behind it. The module's documentation describes it.
///
/// ```
/// use millpond_core::{SlotId, port::{Saved, Store}};
/// use millpond_remote::{RemoteConfig, RemoteStore};
/// use millpond_store::{CompressedRam, CompressedRamConfig};
///
/// let local = CompressedRam::new(CompressedRamConfig { max_bytes: Some(8 << 20) })?;
/// let config = RemoteConfig::new("memory://".parse()?, 8 << 20);
/// let store = RemoteStore::open(Box::new(local), config)?;
/// let page: Vec<u8> = (0..4096).map(|i| (i / 50) as u8).collect();
/// assert_eq!(store.save(SlotId(7), None, &page), Ok(Saved::Stored));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct RemoteStore {
    inner: Arc<Inner>,
    packer: Option<OwnThread>,
}

impl RemoteStore {
    /// Puts the store at `config.url` behind `local`, which must be empty. An object is written there at once, which
    /// says that the run is alive.
    ///
    /// # Errors
    /// The store takes nothing, or the system refuses memory or a thread.
    pub fn open(local: Box<dyn Store>, config: RemoteConfig) -> Result<Self, RemoteOpenError> {
        let mut run = [0; 16];
        fill_at_random(&mut run).map_err(std::io::Error::from)?;
        let key = RunKey::draw(run).map_err(std::io::Error::from)?;
        let operator = config.url.operator()?;
        Self::open_at(operator, &lease::prefix(&run), key, local, config)
    }

    /// Opens the store at `operator`, which is what the URL of the settings names, for a run whose objects' names begin
    /// with `prefix`.
    pub(crate) fn open_at(
        operator: Operator,
        prefix: &str,
        key: RunKey,
        local: Box<dyn Store>,
        config: RemoteConfig,
    ) -> Result<Self, RemoteOpenError> {
        let prefix = prefix.to_owned();
        let memory_pages = config.memory_bytes / PAGE_SIZE as u64;
        let requests = Requests {
            operator,
            limits: config.limits,
            health: Arc::new(Health::of_store()),
        };
        let client = Client::start(
            requests,
            key,
            prefix.clone(),
            config.ahead_bytes,
            config.object_bytes,
        )?;
        lease::begin(&client, &prefix).map_err(|error| RemoteOpenError::Refused {
            url: config.url.to_string(),
            error,
        })?;
        let inner = Arc::new(Inner {
            local,
            table: SlotPlaces::new().map_err(std::io::Error::from)?,
            streamed: Sums::new(memory_pages as usize).map_err(std::io::Error::from)?,
            objects: Ranked::new(Rank::RemoteObjects, Objects::default()),
            client,
            config,
            notes: Ranked::new(Rank::RemotePacker, Notes::default()),
            work: Condvar::new(),
            room: Condvar::new(),
            counters: Counters::default(),
            prefix,
        });
        let packer = packer::start(Arc::clone(&inner))?;
        Ok(Self {
            inner,
            packer: Some(packer),
        })
    }

    /// A description of the store in one line, for reports.
    #[must_use]
    pub fn describe(&self) -> String {
        format!(
            "then objects of {} KiB at {}",
            self.inner.config.object_bytes >> 10,
            self.inner.config.url
        )
    }

    /// What the store has done.
    #[must_use]
    pub fn stats(&self) -> RemoteStats {
        let inner = &self.inner;
        let (objects, object_bytes) = {
            let objects = inner.objects.lock();
            (objects.count() as u64, objects.bytes)
        };
        RemoteStats {
            slots: inner.counters.slots.load(Relaxed),
            logical_bytes: inner.counters.logical.load(Relaxed),
            objects,
            object_bytes,
            loads: inner.counters.loads.load(Relaxed),
            fetched_bytes: inner.client.fetched_bytes(),
            sent_bytes: inner.counters.sent.load(Relaxed),
            failures: inner.client.health().failures(),
            lost_loads: inner.counters.lost_loads.load(Relaxed),
            away_for: inner.client.health().away_for(),
        }
    }

    /// The beginning of the names of this run's objects.
    #[must_use]
    pub fn prefix(&self) -> &str {
        &self.inner.prefix
    }
}

impl Drop for RemoteStore {
    fn drop(&mut self) {
        self.inner.notes.lock().stop = true;
        self.inner.work.notify_all();
        if let Some(packer) = self.packer.take() {
            packer.join();
        }
        packer::delete_all(&self.inner);
    }
}

/// The numbers of pages of a slot in [`Inner::streamed`].
fn numbers(slot: SlotId, first: u16, pages: usize) -> Range<u64> {
    let first = u64::from(slot.0) * u64::from(LEAF_PAGES) + u64::from(first);
    first..first + pages as u64
}

impl Inner {
    /// Waits until slots were released in front since `seen`. The answer is whether that was so before `until`.
    fn wait_for_room(&self, seen: u64, until: Instant) -> bool {
        let mut notes = self.notes.lock();
        notes.wanted = true;
        notes.is_hopeless = false;
        self.work.notify_all();
        while notes.released == seen {
            let is_away = self
                .client
                .health()
                .away_for()
                .is_some_and(|away| away > AWAY);
            let left = until.saturating_duration_since(Instant::now());
            if is_away || left.is_zero() || notes.is_hopeless {
                return false;
            }
            notes = notes.wait_timeout(&self.room, left.min(AWAY / 2));
        }
        true
    }

    fn load_far(
        &self,
        slot: SlotId,
        word: SlotWord,
        first_page: u16,
        out: &mut [u8],
    ) -> Result<(), LoadError> {
        let pages = out.len() / PAGE_SIZE;
        let (first, end) = (usize::from(first_page), usize::from(first_page) + pages);
        if pages == 0 || end > usize::from(word.pages()) {
            return Err(LoadError::Missing);
        }
        let (first_chunk, end_chunk) = (first / CHUNK_PAGES, chunks_of(end));
        let end_page = (end_chunk * CHUNK_PAGES).min(usize::from(word.pages()));
        let is_part = pages < end_page - first_chunk * CHUNK_PAGES;
        self.counters.loads.fetch_add(1, Relaxed);
        loop {
            let (spot, wanted) = self.find(slot, word, first_chunk, end_chunk)?;
            let wanted = Wanted { is_part, ..wanted };
            let fetched = self.client.fetch(&wanted, |bytes| {
                let start = (first - first_chunk * CHUNK_PAGES) * PAGE_SIZE;
                out.copy_from_slice(&bytes[start..start + out.len()]);
            });
            if fetched == Fetched::WithStream && self.config.memory_bytes > 0 {
                self.streamed
                    .set(numbers(slot, first_page, pages).start, out);
            }
            if fetched.is_here() {
                return Ok(());
            }
            let mut objects = self.objects.lock();
            if self.table.place(slot) != u64::from(spot) {
                // It was rewritten meanwhile, and the old object was deleted.
                continue;
            }
            self.counters.lost_loads.fetch_add(1, Relaxed);
            return Err(match fetched {
                Fetched::Lost => {
                    if let Some(object) = objects.get_mut(spot.object) {
                        object.lost = true;
                    }
                    objects.lost = true;
                    drop(objects);
                    self.work.notify_all();
                    LoadError::Io(Errno::NODATA.raw_os_error())
                }
                Fetched::Damaged | Fetched::Changed => LoadError::Corrupt,
                Fetched::Away | Fetched::Here | Fetched::WithStream => {
                    LoadError::Io(Errno::TIMEDOUT.raw_os_error())
                }
            });
        }
    }

    /// Forgets pages that leave memory. The answer is whether they are what came of them with a stream, and can be had
    /// again.
    fn leaves_as_it_came(&self, part: SlotPart, data: &[u8]) -> bool {
        if self.table.word(part.slot).state() != SlotState::Remote {
            return false;
        }
        let pages = numbers(part.slot, part.first, data.len() / PAGE_SIZE);
        let is_as_it_came = self.streamed.are(pages.start, data);
        self.streamed.forget(pages);
        if !is_as_it_came {
            return false;
        }
        let objects = self.objects.lock();
        let spot = Spot::from(self.table.place(part.slot));
        objects.get(spot.object).is_some_and(|object| !object.lost)
    }

    /// The place of some chunks of a slot that is remote.
    fn find(
        &self,
        slot: SlotId,
        word: SlotWord,
        first: usize,
        end: usize,
    ) -> Result<(Spot, Wanted), LoadError> {
        let objects = self.objects.lock();
        let spot = Spot::from(self.table.place(slot));
        let object = objects.get(spot.object).ok_or(LoadError::Missing)?;
        if object.lost {
            self.counters.lost_loads.fetch_add(1, Relaxed);
            return Err(LoadError::Io(Errno::NODATA.raw_os_error()));
        }
        let found = object.places(spot.chunk + first as u32, end - first);
        let found = found.ok_or(LoadError::Missing)?;
        let mut places = [0; SLOT_CHUNKS + 1];
        places[..found.len()].copy_from_slice(found);
        let first = ChunkName {
            slot: slot.0,
            generation: word.generation(),
            index: first as u16,
            pages: word.pages(),
        };
        let wanted = Wanted {
            object: object.number,
            first,
            count: found.len() - 1,
            places,
            end: object.end(),
            is_part: false,
        };
        Ok((spot, wanted))
    }
}

impl Store for RemoteStore {
    fn save(
        &self,
        slot: SlotId,
        previous: Option<SlotPart>,
        data: &[u8],
    ) -> Result<Saved, SaveError> {
        let inner = &self.inner;
        if previous.is_some_and(|part| inner.leaves_as_it_came(part, data)) {
            return Ok(Saved::Unchanged);
        }
        if !inner.table.make_room(slot) {
            return Err(SaveError::Full);
        }
        loop {
            let seen = inner.notes.lock().released;
            match inner.local.save(slot, previous, data) {
                // As long as objects arrive, this one's turn will come.
                Err(SaveError::Full) if inner.wait_for_room(seen, Instant::now() + PATIENCE) => {}
                Ok(Saved::Stored) => {
                    inner.table.saved(slot, (data.len() / PAGE_SIZE) as u16);
                    let bytes = data.len() as u64;
                    let before = inner.counters.saved.fetch_add(bytes, Relaxed);
                    if before / LOOK_EVERY != (before + bytes) / LOOK_EVERY {
                        inner.notes.lock().look = true;
                        inner.work.notify_all();
                    }
                    return Ok(Saved::Stored);
                }
                other => return other,
            }
        }
    }

    fn load(&self, slot: SlotId, first_page: u16, out: &mut [u8]) -> Result<(), LoadError> {
        let inner = &self.inner;
        match inner.table.load(&*inner.local, slot, first_page, out)? {
            Some(word) => inner.load_far(slot, word, first_page, out),
            None => Ok(()),
        }
    }

    fn expect(&self, page: SlotPart) {
        self.inner.local.expect(page);
    }

    fn expect_bytes(&self, page: SlotPart) {
        self.inner.local.expect_bytes(page);
    }

    fn release(&self, slot: SlotId) {
        let inner = &self.inner;
        while let Some(word) = inner.table.release(&*inner.local, slot) {
            // It may have been rewritten since the look at its word; its place is looked at under the lock.
            let mut objects = inner.objects.lock();
            let spot = Spot::from(inner.table.place(slot));
            if inner.table.end(slot, word) {
                let pages = usize::from(word.pages());
                inner.streamed.forget(numbers(slot, 0, pages));
                objects.died(spot, chunks_of(pages));
                inner.counters.slots.fetch_sub(1, Relaxed);
                let bytes = (pages * PAGE_SIZE) as u64;
                inner.counters.logical.fetch_sub(bytes, Relaxed);
                return;
            }
        }
    }

    fn usage(&self) -> StoreUsage {
        let inner = &self.inner;
        let local = inner.local.usage();
        let (live, objects_ram) = {
            let objects = inner.objects.lock();
            (objects.live, objects.ram_bytes())
        };
        let ahead = inner.config.ahead_bytes as u64;
        let tables = inner.table.ram_bytes() + inner.streamed.ram_bytes() + objects_ram;
        let ram = tables + inner.client.ram_bytes() + ahead;
        StoreUsage {
            slots: local.slots + inner.counters.slots.load(Relaxed),
            logical_bytes: local.logical_bytes + inner.counters.logical.load(Relaxed),
            stored_bytes: local.stored_bytes + live,
            ram_bytes: local.ram_bytes + ram + inner.counters.packing.load(Relaxed),
            ..local
        }
    }

    fn beyond(&self) -> Beyond {
        let inner = &self.inner;
        let away = inner.client.health().away_for().unwrap_or_default();
        Beyond {
            bytes: inner.counters.logical.load(Relaxed),
            loads: inner.counters.loads.load(Relaxed),
            lost_loads: inner.counters.lost_loads.load(Relaxed),
            away_ms: away.as_millis() as u64,
        }
    }

    fn limit_ram(&self, bytes: u64) {
        self.inner.local.limit_ram(bytes);
    }

    fn trim_ram(&self) -> bool {
        let inner = &self.inner;
        let moves = inner.local.trim_ram();
        if !moves && inner.local.tiers().is_some_and(|tiers| tiers.moves) {
            // What is behind RAM in front has no room either.
            inner.notes.lock().wanted = true;
            inner.work.notify_all();
        }
        moves
    }

    fn give_room_back(&self) -> bool {
        self.inner.local.give_room_back()
    }

    fn recompress(&self, worth_it: bool) -> Recompress {
        self.inner.local.recompress(worth_it)
    }

    fn recompressed(&self) -> Recompressed {
        self.inner.local.recompressed()
    }

    fn tiers(&self) -> Option<Tiers> {
        self.inner.local.tiers()
    }

    fn stay_awake(&self, on: bool) {
        self.inner.local.stay_awake(on);
    }

    fn write_behind(&self) {
        self.inner.local.write_behind();
    }

    fn descriptors(&self, keep: &mut dyn FnMut(i32)) {
        self.inner.local.descriptors(keep);
    }

    fn after_fork_in_child(&self) -> Result<(), i32> {
        Err(Errno::OPNOTSUPP.raw_os_error())
    }

    fn before_fork(&self, child: u64) {
        self.inner.local.before_fork(child);
    }

    fn child_gone(&self, child: u64) {
        self.inner.local.child_gone(child);
    }
}
