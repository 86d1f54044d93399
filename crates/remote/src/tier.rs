//! Remote objects as the place behind a store: how slots get there, and how pages come back.
//!
//! Everything is first saved in the store in front (compressed RAM, a file, or both), and `tiered.rs` of
//! `millpond-store` has the rules by which the two places work together. When the contents of the front approach its
//! capacity, a thread of this place (`packer.rs`) takes the slots that were saved first, packs them, and sends them.
//! They are only released in front once the store has answered. A save that finds no room waits for that thread, as
//! long as it makes room at least once in [`PATIENCE`], unless the store is away: then the save fails for lack of
//! room, as it would without a remote store.
//!
//! A slot that is read from the remote store stays there, and its pages are saved in front when they leave again.
//! Pages that came with a stream are an exception. Fetching them again costs a fraction of a request, and saving them
//! again would put everything that a scan reads into new objects: a put costs ten times as much as a get. So they
//! stay remote if they leave unchanged, which their checksums show ([`Sums`]). A page that has meanwhile been lost
//! there is saved.
//!
//! A forked child has no thread that talks to the network, and cannot use this store.

use crate::client::{Client, Wanted};
use crate::config::{RemoteConfig, RemoteOpenError};
use crate::format::{CHUNK_PAGES, ChunkName, RunKey, SLOT_CHUNKS, chunks_of, fill_at_random};
use crate::health::Health;
use crate::lease;
use crate::objects::{Objects, Spot};
use crate::packer::{self, Notes};
use crate::requests::Requests;
use crate::seats::Fetched;
use millpond_core::port::{Forks, LoadError, Store, StoreUsage};
use millpond_core::{LEAF_PAGES, PAGE_SIZE, SlotId, SlotPart};
use millpond_store::{Front, Place, Refused, SlotState, SlotWord, Sums, Tiered};
use millpond_sync::{Condvar, OwnThread, Rank, Ranked};
use opendal::Operator;
use rustix::io::Errno;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// How long a save waits if no room is made in front.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// How long the store may be away before saves no longer wait for it.
const AWAY: Duration = Duration::from_secs(1);
/// The packing thread checks the room in front each time this many bytes were saved.
const LOOK_EVERY: u64 = 256 << 10;

/// Statistics of a remote store.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RemoteStats {
    /// The number of slots that are only in the remote store.
    pub slots: u64,
    /// Bytes of their pages.
    pub logical_bytes: u64,
    /// The number of objects.
    pub objects: u64,
    /// Bytes that the objects take.
    pub object_bytes: u64,
    /// The number of loads from the remote store.
    pub loads: u64,
    /// Bytes fetched.
    pub fetched_bytes: u64,
    /// Bytes sent, including rewritten ones.
    pub sent_bytes: u64,
    /// The number of failed attempts.
    pub failures: u64,
    /// The number of loads that got no page: the store was away for too long, or had lost or damaged it.
    pub lost_loads: u64,
    /// How long the store has been away, if it is.
    pub away_for: Option<Duration>,
}

/// Counters of the store.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) sent: AtomicU64,
    /// RAM of objects that are being filled or sent.
    pub(crate) packing: AtomicU64,
    saved: AtomicU64,
}

/// What the threads of a remote store share, apart from the store in front.
pub(crate) struct Inner {
    /// The checksums of pages in memory that came with a stream, indexed by [`numbers`].
    streamed: Sums,
    pub(crate) objects: Ranked<Objects>,
    pub(crate) client: Client,
    pub(crate) config: RemoteConfig,
    pub(crate) notes: Ranked<Notes>,
    /// Notified when the packing thread has something to do.
    pub(crate) work: Condvar,
    /// Notified when slots were released in front.
    pub(crate) room: Condvar,
    pub(crate) counters: Counters,
    pub(crate) prefix: String,
}

/// Another store with a remote one behind it. The file of this type explains how the two work together.
///
/// ```
/// use millpond_core::{SlotId, port::{Saved, Slots}};
/// use millpond_remote::{Remote, RemoteConfig};
/// use millpond_store::{CompressedRam, CompressedRamConfig};
///
/// let local = CompressedRam::new(CompressedRamConfig { max_bytes: Some(8 << 20) })?;
/// let config = RemoteConfig::new("memory://".parse()?, 8 << 20);
/// let store = Remote::behind(Box::new(local), config)?;
/// let page: Vec<u8> = (0..4096).map(|i| (i / 50) as u8).collect();
/// assert_eq!(store.save(SlotId(7), None, &page), Ok(Saved::Stored));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub type RemoteStore = Tiered<Remote>;

/// A remote store as the place behind another one, with its packing thread.
pub struct Remote {
    inner: Arc<Inner>,
    packer: Option<OwnThread>,
}

impl Remote {
    /// Puts the store at `config.url` behind `front`, which must be empty. This immediately writes an object there,
    /// which shows that the run is alive.
    ///
    /// # Errors
    /// The store accepts nothing, or the system refuses memory or a thread.
    pub fn behind(
        front: Box<dyn Store>,
        config: RemoteConfig,
    ) -> Result<RemoteStore, RemoteOpenError> {
        let mut run = [0; 16];
        fill_at_random(&mut run).map_err(std::io::Error::from)?;
        let key = RunKey::draw(run).map_err(std::io::Error::from)?;
        let operator = config.url.operator()?;
        Self::open_at(operator, &lease::prefix(&run), key, front, config)
    }

    /// Opens the store at `operator`, which the URL of the settings names, for a run whose objects' names begin with
    /// `prefix`.
    pub(crate) fn open_at(
        operator: Operator,
        prefix: &str,
        key: RunKey,
        front: Box<dyn Store>,
        config: RemoteConfig,
    ) -> Result<RemoteStore, RemoteOpenError> {
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
        let front = Front::new(front, config.local_room).map_err(std::io::Error::from)?;
        let inner = Arc::new(Inner {
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
        let packer = packer::start(Arc::clone(&front), Arc::clone(&inner))?;
        let remote = Self {
            inner,
            packer: Some(packer),
        };
        Ok(Tiered::new(front, remote))
    }

    /// Returns a description of the store in one line, for reports.
    #[must_use]
    pub fn describe(&self) -> String {
        format!(
            "then objects of {} KiB at {}",
            self.inner.config.object_bytes >> 10,
            self.inner.config.url
        )
    }

    /// Returns the beginning of the names of this run's objects.
    #[must_use]
    pub fn prefix(&self) -> &str {
        &self.inner.prefix
    }
}

impl RemoteStats {
    /// Returns the statistics of `store`.
    #[must_use]
    pub fn of(store: &RemoteStore) -> Self {
        let inner = &store.back().inner;
        let (objects, object_bytes) = {
            let objects = inner.objects.lock();
            (objects.count() as u64, objects.bytes)
        };
        let (slots, logical_bytes) = store.front().behind();
        let (loads, lost_loads) = store.front().loads_behind();
        Self {
            slots,
            logical_bytes,
            objects,
            object_bytes,
            loads,
            fetched_bytes: inner.client.fetched_bytes(),
            sent_bytes: inner.counters.sent.load(Relaxed),
            failures: inner.client.health().failures(),
            lost_loads,
            away_for: inner.client.health().away_for(),
        }
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        self.inner.notes.lock().stop = true;
        self.inner.work.notify_all();
        if let Some(packer) = self.packer.take() {
            packer.join();
        }
        packer::delete_all(&self.inner);
    }
}

/// Returns the numbers of a slot's pages in [`Inner::streamed`].
fn numbers(slot: SlotId, first: u16, pages: usize) -> Range<u64> {
    let first = u64::from(slot.0) * u64::from(LEAF_PAGES) + u64::from(first);
    first..first + pages as u64
}

impl Inner {
    /// Waits until slots have been released in front since `seen`. Returns whether that happened before `until`.
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

    fn load(
        &self,
        front: &Front,
        slot: SlotId,
        word: SlotWord,
        first_page: u16,
        out: &mut [u8],
    ) -> Result<(), LoadError> {
        let pages = out.len() / PAGE_SIZE;
        let (first, end) = (usize::from(first_page), usize::from(first_page) + pages);
        let (first_chunk, end_chunk) = (first / CHUNK_PAGES, chunks_of(end));
        let end_page = (end_chunk * CHUNK_PAGES).min(usize::from(word.pages()));
        let is_part = pages < end_page - first_chunk * CHUNK_PAGES;
        loop {
            let (spot, wanted) = self.find(front, slot, word, first_chunk, end_chunk)?;
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
            if front.slots().place(slot) != u64::from(spot) {
                // The slot was meanwhile rewritten, and the old object was deleted.
                continue;
            }
            front.note_lost();
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

    /// Forgets pages that leave memory. Returns whether they came with a stream, are unchanged, and can be fetched
    /// again.
    fn leaves_as_it_came(&self, front: &Front, part: SlotPart, data: &[u8]) -> bool {
        if front.slots().word(part.slot).state() != SlotState::Remote {
            return false;
        }
        let pages = numbers(part.slot, part.first, data.len() / PAGE_SIZE);
        let is_as_it_came = self.streamed.are(pages.start, data);
        self.streamed.forget(pages);
        if !is_as_it_came {
            return false;
        }
        let objects = self.objects.lock();
        let spot = Spot::from(front.slots().place(part.slot));
        objects.get(spot.object).is_some_and(|object| !object.lost)
    }

    /// Finds the place of some chunks of a remote slot.
    fn find(
        &self,
        front: &Front,
        slot: SlotId,
        word: SlotWord,
        first: usize,
        end: usize,
    ) -> Result<(Spot, Wanted), LoadError> {
        let objects = self.objects.lock();
        let spot = Spot::from(front.slots().place(slot));
        let object = objects.get(spot.object).ok_or(LoadError::Missing)?;
        if object.lost {
            front.note_lost();
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

impl Place for Remote {
    fn still_holds(&self, front: &Front, part: SlotPart, data: &[u8]) -> bool {
        self.inner.leaves_as_it_came(front, part, data)
    }

    fn departures(&self) -> u64 {
        self.inner.notes.lock().released
    }

    /// As long as objects arrive, this save will get its turn.
    fn make_room(&self, _: &Front, refused: &Refused) -> bool {
        let until = Instant::now() + PATIENCE;
        self.inner.wait_for_room(refused.seen, until)
    }

    fn saved(&self, bytes: u64) {
        let inner = &self.inner;
        let before = inner.counters.saved.fetch_add(bytes, Relaxed);
        if before / LOOK_EVERY != (before + bytes) / LOOK_EVERY {
            inner.notes.lock().look = true;
            inner.work.notify_all();
        }
    }

    fn load(
        &self,
        front: &Front,
        slot: SlotId,
        word: SlotWord,
        first_page: u16,
        out: &mut [u8],
    ) -> Result<(), LoadError> {
        self.inner.load(front, slot, word, first_page, out)
    }

    /// A slot may have been rewritten since its word was read, so its place is read under the lock.
    fn free(&self, front: &Front, slot: SlotId, word: SlotWord) -> bool {
        let inner = &self.inner;
        let mut objects = inner.objects.lock();
        let Some(place) = front.end(slot, word) else {
            return false;
        };
        let pages = usize::from(word.pages());
        inner.streamed.forget(numbers(slot, 0, pages));
        objects.died(Spot::from(place), chunks_of(pages));
        true
    }

    fn usage(&self) -> StoreUsage {
        let inner = &self.inner;
        let (live, objects_ram) = {
            let objects = inner.objects.lock();
            (objects.live, objects.ram_bytes())
        };
        let ahead = inner.config.ahead_bytes as u64;
        let tables = inner.streamed.ram_bytes() + objects_ram;
        let buffers = inner.client.ram_bytes() + ahead + inner.counters.packing.load(Relaxed);
        StoreUsage {
            stored_bytes: live,
            ram_bytes: tables + buffers,
            ..StoreUsage::default()
        }
    }

    fn away_ms(&self) -> u64 {
        let away = self.inner.client.health().away_for().unwrap_or_default();
        away.as_millis() as u64
    }

    /// Wakes the packing thread.
    fn relieve(&self, _: &Front) -> bool {
        self.inner.notes.lock().wanted = true;
        self.inner.work.notify_all();
        false
    }
}

/// A forked child has no thread that talks to the network, and cannot use this place.
impl Forks for Remote {
    fn before_fork(&self, _: u64) {}

    fn after_fork_in_child(&self) -> Result<(), i32> {
        Err(Errno::OPNOTSUPP.raw_os_error())
    }

    fn child_gone(&self, _: u64) {}
}
