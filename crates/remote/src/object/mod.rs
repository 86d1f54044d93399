//! Objects whose pages belong to a region: read in place, piece by piece, and always in the same version.
//!
//! To the driver, a [`MappedObject`] is the same as a mapped file ([`Backing`]): it fills the frame of a fault with a
//! range of the object's bytes. The driver decides what is kept in memory, what leaves, how far ahead a stream is
//! read and how many reads are in progress for it, as for files.
//!
//! ```text
//!   a fault ─▶ read(pages) ─▶ a seat ─▶ the network's thread ─▶ kept?  ─▶ GET range, if it is the pinned version
//!                                sleeps        (all objects)      piece of 64 KiB, or all that was asked for
//! ```
//!
//! - *Which bytes.* The version that exists when the object is opened, or an error ([`version`]). So a program never
//!   sees a mixture of two versions, and its memory does not change.
//! - *What a request is worth.* It takes milliseconds however little it brings. An isolated touch is a fault of one
//!   page, and a stream begins with one: so a read of less than 64 KiB fetches the 64 KiB around it, and surplus
//!   bytes are kept up to a limit ([`kept`]). A longer read fetches what it asks for, up to 2 MiB. Concurrent reads
//!   of one piece wait for a single request.
//! - *Who reads.* One thread for all objects of an [`ObjectReader`], with its own runtime. A fault asks at a seat and
//!   sleeps (`seats.rs`), so there are as many requests in progress as seats. The thread uses the program's
//!   allocator, and its signal mask is that of the thread that starts it.
//! - *What fails.* The same as in the store for cold pages (`requests.rs`): we retry a service that is away until the
//!   deadline, and an object that is gone or has the wrong length three times. The error only concerns the requested
//!   pages: the next touch asks again.
//! - *The end.* A region that ends waits until nobody reads its pages. Requests still in progress for it are
//!   abandoned ([`MappedObject::end`]), because nobody wants them.
//!
//! The cost of a wrong guess: touches that are far apart fetch sixteen pages instead of one.

mod kept;
pub(crate) mod version;

use crate::health::Health;
use crate::network::Network;
use crate::requests::{RemoteError, Requests, TimeLimits, why};
use crate::seats::{Fetched, SEATS, Seats};
use crate::url::{ObjectUrl, RemoteUrl, UrlError};
use kept::{Kept, PIECE};
use millpond_core::{Backing, Descriptors, FileFault, PAGE_SIZE};
use opendal::ErrorKind;
use rustix::io::Errno;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use version::Version;

/// How long opening an object is retried.
const OPENING: Duration = Duration::from_secs(10);

/// Why an object could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ObjectError {
    /// The text is not the URL of a known kind of place.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// The service has no objects that can be read in parts.
    #[error("no object can be mapped from {url}: {remedy}")]
    Service {
        /// The URL.
        url: String,
        /// What to do.
        remedy: &'static str,
    },
    /// The URL does not name a single object.
    #[error("{url} names no object: {why}")]
    Name {
        /// The URL.
        url: String,
        /// What is wrong, and a remedy.
        why: &'static str,
    },
    /// There is no such object.
    #[error("there is no object {url}: check the bucket or directory, and the name behind it")]
    Missing {
        /// The URL.
        url: String,
    },
    /// The service refuses information about the object, or does not answer.
    #[error(
        "{url} cannot be opened ({why}): check that it is there, and the credentials in the environment"
    )]
    Refused {
        /// The URL.
        url: String,
        /// Its answer.
        why: String,
    },
    /// The object has no bytes.
    #[error("{url} has no bytes: map an object that has one at least")]
    Empty {
        /// The URL.
        url: String,
    },
    /// The system refuses a thread, or descriptors for it.
    #[error(
        "objects cannot be read ({0}): raise the limits on threads and descriptors (ulimit -u, -n)"
    )]
    System(#[from] std::io::Error),
}

/// The settings of an [`ObjectReader`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ObjectConfig {
    /// The maximum number of bytes that one read requests. Reading takes no more memory than this for each of eight
    /// concurrent reads.
    pub read_bytes: usize,
    /// The maximum number of surplus bytes that are kept. One piece of 64 KiB is kept in any case.
    pub kept_bytes: usize,
    /// Time limits.
    pub limits: TimeLimits,
}

impl Default for ObjectConfig {
    /// Returns reads of 2 MiB, which is the maximum, and 2 MiB kept.
    fn default() -> Self {
        Self {
            read_bytes: 2 << 20,
            kept_bytes: 2 << 20,
            limits: TimeLimits::default(),
        }
    }
}

/// A fault's request: a range of an object's bytes.
#[derive(Clone, Copy)]
struct Wanted {
    object: u64,
    start: u64,
    end: u64,
}

/// An open object.
struct Open {
    requests: Requests,
    path: String,
    version: Version,
    /// Becomes true when nobody needs the object any more.
    ended: watch::Sender<bool>,
}

struct Shared {
    config: ObjectConfig,
    seats: Arc<Seats<Wanted>>,
    /// The open objects, by number. Faults do not come here.
    open: Mutex<HashMap<u64, Arc<Open>>>,
    kept: Mutex<Kept>,
    fetched: AtomicU64,
}

/// The thread that reads objects. It ends with the last object, and with this value.
pub struct ObjectReader {
    shared: Arc<Shared>,
    network: Network<Wanted>,
    next: AtomicU64,
}

/// An object, as the pages of a region. The module's documentation describes it.
pub struct MappedObject {
    reader: Arc<ObjectReader>,
    number: u64,
    length: u64,
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ObjectReader {
    /// Starts the thread, and one that wakes it. They have the calling thread's signal mask: a signal handler that
    /// touches managed memory should not run there, because the thread would wait for itself.
    ///
    /// # Errors
    /// The system refuses a thread, or descriptors for its runtime.
    pub fn start(config: ObjectConfig) -> Result<Arc<Self>, ObjectError> {
        let shared = Arc::new(Shared {
            config,
            seats: Arc::new(Seats::new(2 * config.limits.deadline)),
            open: Mutex::default(),
            kept: Mutex::new(Kept::new(config.kept_bytes)),
            fetched: AtomicU64::new(0),
        });
        let of_thread = Arc::clone(&shared);
        let work = move |wanted: Wanted, mut buffer: Vec<u8>| {
            let shared = Arc::clone(&of_thread);
            async move {
                let fetched = shared.fetch(wanted, &mut buffer).await;
                (fetched, buffer)
            }
        };
        let network = Network::start(c"millpond-object", &shared.seats, work)?;
        Ok(Arc::new(Self {
            shared,
            network,
            next: AtomicU64::new(0),
        }))
    }

    /// Opens the object at `url` and pins its current version.
    ///
    /// # Errors
    /// The URL does not name an object, there is none, or the service has neither versions nor ranges. A service that
    /// does not answer is retried for ten seconds.
    ///
    /// ```
    /// use millpond_core::{Backing, Descriptors};
    /// use millpond_remote::{ObjectConfig, ObjectReader};
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("numbers");
    /// std::fs::write(&path, [7; 5000])?;
    /// let reader = ObjectReader::start(ObjectConfig::default())?;
    /// let object = reader.open(&format!("fs://{}", path.display()).parse()?)?;
    /// let mut page = [0; 4096];
    /// object.read(1, &mut page, Descriptors::OfProgram).unwrap();
    /// assert_eq!((object.len(), page[903], page[904]), (5000, 7, 0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn open(self: &Arc<Self>, url: &RemoteUrl) -> Result<MappedObject, ObjectError> {
        let ObjectUrl { place, name } = url.object()?;
        if place.is_absent_directory() {
            return Err(ObjectError::Missing {
                url: url.to_string(),
            });
        }
        let requests = Requests {
            operator: place.operator()?,
            limits: self.shared.config.limits,
            health: Arc::new(Health::of_object(&url.to_string())),
        };
        let (tell, told) = std::sync::mpsc::channel();
        let (asking, path) = (requests.clone(), name.clone());
        self.network.handle().spawn(async move {
            // The thread that asked may have ended.
            let _ = tell.send(asking.version(&path, OPENING).await);
        });
        let url = || url.to_string();
        let answer = told.recv().map_err(|_| ObjectError::Refused {
            url: url(),
            why: "the thread that reads objects has ended".to_owned(),
        })?;
        let version = answer.map_err(|error| match error.kind() {
            ErrorKind::NotFound => ObjectError::Missing { url: url() },
            _ => ObjectError::Refused {
                url: url(),
                why: why(&error),
            },
        })?;
        let length = version.length;
        if length == 0 {
            return Err(ObjectError::Empty { url: url() });
        }
        let number = self.next.fetch_add(1, Relaxed);
        let open = Open {
            requests,
            path: name,
            version,
            ended: watch::Sender::new(false),
        };
        held(&self.shared.open).insert(number, Arc::new(open));
        Ok(MappedObject {
            reader: Arc::clone(self),
            number,
            length,
        })
    }

    /// Returns the maximum RAM that reading takes in addition to the pages: what is kept, and a buffer at each seat.
    fn ram_most(&self) -> u64 {
        let config = &self.shared.config;
        (SEATS * config.read_bytes.max(PIECE) + config.kept_bytes.max(PIECE)) as u64
    }

    /// Returns the bytes fetched for all objects, including those that nobody had asked for.
    #[must_use]
    pub fn fetched_bytes(&self) -> u64 {
        self.shared.fetched.load(Relaxed)
    }
}

impl Shared {
    /// Fetches what is wanted into `out`, unless its object ends first.
    async fn fetch(&self, wanted: Wanted, out: &mut Vec<u8>) -> Fetched {
        let open = held(&self.open).get(&wanted.object).cloned();
        let Some(open) = open else {
            return Fetched::Away;
        };
        let mut ended = open.ended.subscribe();
        let bytes = wanted.start..wanted.end;
        let fetch = async {
            match Kept::piece(&bytes) {
                Some(piece) => {
                    self.part_of_piece(wanted.object, &open, piece, bytes, out)
                        .await
                }
                None => self.request(&open, bytes, out).await,
            }
        };
        tokio::select! {
            fetched = fetch => match fetched {
                Ok(()) => Fetched::Here,
                Err(error) => error.into(),
            },
            _ = ended.wait_for(|ended| *ended) => Fetched::Away,
        }
    }

    /// Fetches a part of a piece that is kept, or is kept from now on.
    async fn part_of_piece(
        &self,
        object: u64,
        open: &Open,
        piece: u64,
        bytes: Range<u64>,
        out: &mut Vec<u8>,
    ) -> Result<(), RemoteError> {
        let place = held(&self.kept).place(object, piece);
        let start = piece * PIECE as u64;
        // Others who come meanwhile wait here, instead of making their own request.
        let mut kept = place.lock().await;
        if kept.is_none() {
            let end = (start + PIECE as u64).min(open.version.length);
            let mut read = Vec::new();
            self.request(open, start..end, &mut read).await?;
            *kept = Some(read);
        }
        let kept = kept.as_deref().unwrap_or_default();
        out.clear();
        out.extend_from_slice(&kept[(bytes.start - start) as usize..(bytes.end - start) as usize]);
        Ok(())
    }

    async fn request(
        &self,
        open: &Open,
        bytes: Range<u64>,
        out: &mut Vec<u8>,
    ) -> Result<(), RemoteError> {
        let len = bytes.end - bytes.start;
        let (requests, version) = (&open.requests, &open.version);
        requests
            .get_version(&open.path, version, bytes, out)
            .await?;
        self.fetched.fetch_add(len, Relaxed);
        Ok(())
    }
}

impl MappedObject {
    /// Returns the number of bytes in the object.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.length
    }

    /// Returns false: an empty object cannot be opened.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns the thread that reads the object.
    #[must_use]
    pub fn reader(&self) -> &Arc<ObjectReader> {
        &self.reader
    }

    /// Abandons everything in progress for the object: reads of it fail from now on.
    ///
    /// ```
    /// # use millpond_core::{Backing, Descriptors, FileFault};
    /// # use millpond_remote::{ObjectConfig, ObjectReader};
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("numbers");
    /// # std::fs::write(&path, [7; 5000])?;
    /// # let reader = ObjectReader::start(ObjectConfig::default())?;
    /// let object = reader.open(&format!("fs://{}", path.display()).parse()?)?;
    /// object.end();
    /// let mut page = [0; 4096];
    /// let read = object.read(0, &mut page, Descriptors::OfProgram);
    /// assert!(matches!(read, Err(FileFault::Io(_))));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn end(&self) {
        let shared = &self.reader.shared;
        if let Some(open) = held(&shared.open).remove(&self.number) {
            open.ended.send_replace(true);
        }
        held(&shared.kept).forget(self.number);
    }
}

impl Drop for MappedObject {
    fn drop(&mut self) {
        self.end();
    }
}

impl Backing for MappedObject {
    fn read(&self, first: u32, out: &mut [u8], _: Descriptors) -> Result<(), FileFault> {
        let start = u64::from(first) * PAGE_SIZE as u64;
        let end = (start + out.len() as u64).min(self.length);
        if start >= end || end.next_multiple_of(PAGE_SIZE as u64) < start + out.len() as u64 {
            return Err(FileFault::Ended);
        }
        let object = self.number;
        let wanted = Wanted { object, start, end };
        let fetched = self.reader.shared.seats.fetch(wanted, |bytes| {
            out[..bytes.len()].copy_from_slice(bytes);
            out[bytes.len()..].fill(0);
        });
        let failed = |errno: Errno| Err(FileFault::Io(errno.raw_os_error()));
        match fetched {
            Fetched::Here | Fetched::WithStream => Ok(()),
            Fetched::Changed => Err(FileFault::Changed),
            Fetched::Away => failed(Errno::TIMEDOUT),
            Fetched::Lost => failed(Errno::NOENT),
            Fetched::Damaged => failed(Errno::BADMSG),
        }
    }

    fn ram_bytes(&self) -> u64 {
        let open = held(&self.reader.shared.open).len().max(1);
        self.reader.ram_most() / open as u64
    }
}
