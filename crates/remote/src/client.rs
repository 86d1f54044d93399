//! The thread that talks to the store: it fetches, checks and decompresses what faults request at their
//! [seats](Seats).

use crate::ahead::Ahead;
use crate::format::{CHUNK, ChunkName, Damaged, Decoder, RunKey, SLOT_CHUNKS, UNIT};
use crate::health::Health;
use crate::network::Network;
use crate::requests::{RemoteError, Requests};
use crate::seats::{Fetched, Seats};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tokio::task::AbortHandle;

/// A fault's request: some adjacent chunks of a slot in one object.
#[derive(Clone, Copy)]
pub(crate) struct Wanted {
    /// The number of the object.
    pub(crate) object: u64,
    /// The name of the first chunk.
    pub(crate) first: ChunkName,
    /// Number of chunks.
    pub(crate) count: usize,
    /// The places of the chunks, in units, and the place after the last.
    pub(crate) places: [u32; SLOT_CHUNKS + 1],
    /// The place after the last chunk of the object.
    pub(crate) end: u32,
    /// Whether the chunks also contain pages that are not wanted now.
    pub(crate) is_part: bool,
}

struct Shared {
    requests: Requests,
    key: RunKey,
    /// The beginning of all objects' names.
    prefix: String,
    /// The seats of faults, which wait for twice the deadline.
    seats: Arc<Seats<Wanted>>,
    fetched: AtomicU64,
}

/// The network thread, as seen by other threads.
pub(crate) struct Client {
    shared: Arc<Shared>,
    network: Network<Wanted>,
}

impl Client {
    /// Starts the thread. It keeps up to `ahead` bytes that no fault has asked for yet, and fetches up to `widest` of
    /// them at a time.
    pub(crate) fn start(
        requests: Requests,
        key: RunKey,
        prefix: String,
        ahead: usize,
        widest: usize,
    ) -> std::io::Result<Self> {
        let patience = 2 * requests.limits.deadline;
        let shared = Arc::new(Shared {
            requests,
            key,
            prefix,
            seats: Arc::new(Seats::new(patience)),
            fetched: AtomicU64::new(0),
        });
        let desk = Arc::new(std::sync::Mutex::new(Desk {
            ahead: Ahead::new(ahead, widest),
            decoder: Decoder::new()?,
        }));
        let of_thread = Arc::clone(&shared);
        let work = move |wanted: Wanted, mut buffer: Vec<u8>| {
            let (shared, desk) = (Arc::clone(&of_thread), Arc::clone(&desk));
            async move {
                let fetched = shared.fetch(&wanted, &mut buffer, &desk).await;
                (fetched, buffer)
            }
        };
        let network = Network::start(c"millpond-remote", &shared.seats, work)?;
        Ok(Self { shared, network })
    }

    pub(crate) fn key(&self) -> &RunKey {
        &self.shared.key
    }

    pub(crate) fn health(&self) -> &Health {
        &self.shared.requests.health
    }

    /// Returns the number of bytes read from the store.
    pub(crate) fn fetched_bytes(&self) -> u64 {
        self.shared.fetched.load(Relaxed)
    }

    /// Returns the RAM of the seats.
    pub(crate) fn ram_bytes(&self) -> u64 {
        self.shared.seats.ram_bytes()
    }

    pub(crate) fn path(&self, object: u64) -> String {
        object_path(&self.shared.prefix, object)
    }

    /// Makes the network thread do something concurrently with everything else.
    pub(crate) fn spawn<F>(&self, work: impl FnOnce(Requests) -> F) -> AbortHandle
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.network
            .handle()
            .spawn(work(self.shared.requests.clone()))
            .abort_handle()
    }

    /// Fetches the pages of some chunks, and passes them to `take`. Called by threads that fault.
    pub(crate) fn fetch(&self, wanted: &Wanted, take: impl FnOnce(&[u8])) -> Fetched {
        self.shared.seats.fetch(*wanted, take)
    }

    /// Reads a whole object, for the packing thread. Returns `None` while the network thread ends.
    pub(crate) fn read_all(&self, object: u64, bytes: u64) -> Option<Result<Vec<u8>, RemoteError>> {
        let (tell, told) = std::sync::mpsc::channel();
        let path = self.path(object);
        self.spawn(move |requests| async move {
            let read = requests.get(&path, 0..bytes, Ok::<_, Damaged>).await;
            // The thread that asked may have ended.
            let _ = tell.send(read);
        });
        self.shared.fetched.fetch_add(bytes, Relaxed);
        told.recv().ok()
    }
}

/// Returns the name of an object.
pub(crate) fn object_path(prefix: &str, object: u64) -> String {
    format!("{prefix}o/{object:016x}")
}

/// What the tasks that serve faults share. All of them run on one thread.
struct Desk {
    ahead: Ahead,
    decoder: Decoder,
}

type SharedDesk = Arc<std::sync::Mutex<Desk>>;

fn desk(desk: &SharedDesk) -> std::sync::MutexGuard<'_, Desk> {
    desk.lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl Shared {
    /// Brings the wanted pages into `buffer`, either from what was fetched ahead or from the store.
    async fn fetch(&self, wanted: &Wanted, buffer: &mut Vec<u8>, with: &SharedDesk) -> Fetched {
        let units = wanted.places[0]..wanted.places[wanted.count];
        let object = wanted.object;
        let kept = desk(with).ahead.find(object, &units);
        if let Some(mut sealed) = kept {
            let desk = &mut *desk(with);
            if self
                .open(wanted, &mut sealed, buffer, &mut desk.decoder)
                .is_ok()
            {
                return Fetched::here(desk.ahead.passed(object, &units));
            }
            desk.ahead.forget(object);
        }
        let (plan, is_stream) = desk(with).ahead.plan(object, &units, wanted.end);
        let path = object_path(&self.prefix, object);
        let bytes = u64::from(plan.start) * UNIT as u64..u64::from(plan.end) * UNIT as u64;
        let len = bytes.end - bytes.start;
        let read = self.requests.get(&path, bytes, |all| {
            let before = (units.start - plan.start) as usize * UNIT;
            let mut sealed = all[before..before + units.len() * UNIT].to_vec();
            self.open(wanted, &mut sealed, buffer, &mut desk(with).decoder)?;
            Ok(all)
        });
        match read.await {
            Ok(mut all) => {
                self.fetched.fetch_add(len, Relaxed);
                // The other pages of a chunk are likely to be wanted next, and the whole chunk is here.
                let start = if plan.start < units.start {
                    plan.start
                } else if wanted.is_part {
                    units.start
                } else {
                    units.end
                };
                let rest = all.split_off((start - plan.start) as usize * UNIT);
                let kept: Range<u32> = start..plan.end;
                if !kept.is_empty() {
                    desk(with).ahead.keep(object, kept, rest);
                }
                Fetched::here(is_stream)
            }
            Err(error) => error.into(),
        }
    }

    /// Opens and decompresses all chunks of `sealed` into `buffer`.
    fn open(
        &self,
        wanted: &Wanted,
        sealed: &mut [u8],
        buffer: &mut Vec<u8>,
        decoder: &mut Decoder,
    ) -> Result<(), Damaged> {
        let pages = usize::from(wanted.first.pages);
        let slot = pages * millpond_core::PAGE_SIZE;
        let start = usize::from(wanted.first.index) * CHUNK;
        let len = (slot - start).min(wanted.count * CHUNK);
        buffer.resize(len, 0);
        let mut rest = sealed;
        for (number, out) in buffer.chunks_mut(CHUNK).enumerate() {
            let (place, next) = (wanted.places[number], wanted.places[number + 1]);
            let (chunk, others) = rest.split_at_mut((next - place) as usize * UNIT);
            rest = others;
            let index = wanted.first.index + number as u16;
            let name = ChunkName {
                index,
                ..wanted.first
            };
            let body = self.key.open(wanted.object, place, &name, chunk)?;
            decoder.decode(body, out)?;
        }
        Ok(())
    }
}

/// The maximum time that an ending thread waits for its last requests.
pub(crate) const LAST_REQUESTS: Duration = Duration::from_secs(10);
