//! A region over an object in a remote store: [`Manager::map_object`].

use crate::error::RegionError;
use crate::file::FileRegion;
use crate::manager::{Manager, Pond};
use millpond_core::Kind;
use millpond_driver::signals::SignalsBlocked;
use millpond_remote::{ObjectConfig, ObjectError, ObjectReader, RemoteUrl};
use std::sync::Arc;
use thiserror::Error;

/// The order policy limits a folio to this fraction of the budget, so no read is longer.
const READ_SHARE: u64 = 64;
/// Data fetched along with something else is kept up to this fraction of the budget.
const KEPT_SHARE: u64 = 128;

/// Why an object was not mapped.
///
/// ```
/// use millpond::{Manager, MapObjectError, ObjectError};
///
/// let manager = Manager::builder().ram(16 << 20).build()?;
/// let refused = manager.map_object("fs:///nowhere/numbers").unwrap_err();
/// assert!(matches!(refused, MapObjectError::Object(ObjectError::Missing { .. })));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MapObjectError {
    /// The object cannot be opened.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// The manager has no region for it.
    #[error(transparent)]
    Region(#[from] RegionError),
}

impl Manager {
    /// Maps the object at `url` for reading: `s3://BUCKET/NAME?endpoint=URL&region=NAME` for S3 and compatible
    /// services, `fs:///DIRECTORY/NAME` for a file on another machine's file system. `docs/remote.md` says where
    /// credentials come from.
    ///
    /// Ranges of it are fetched when they are touched, and ahead of the touches in a stream, and leave memory without
    /// being kept anywhere else. Only the version that exists when this is called is read. If the object is replaced,
    /// pages that are not in memory can no longer be read: a call that needs one returns
    /// [`FileError::Changed`](crate::FileError::Changed), and a touch raises SIGBUS. The same happens if the object is
    /// deleted, or the service is unreachable for two minutes; then a later touch or call asks again.
    ///
    /// # Errors
    /// The URL names no object, the object does not exist or is empty, the service does not answer, or the manager has
    /// no addresses left. Objects in Redis and `memory://` cannot be mapped.
    ///
    /// ```
    /// use millpond::{FileError, Manager};
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("numbers");
    /// std::fs::write(&path, [7; 1_000_000])?;
    /// let manager = Manager::builder().ram(16 << 20).build()?;
    /// let object = manager.map_object(&format!("fs://{}", path.display()))?;
    /// assert_eq!(object.len(), 1_000_000);
    /// assert!(object.as_slice()[..100_000].iter().all(|&byte| byte == 7));
    ///
    /// std::fs::write(&path, [8; 1_000_000])?;
    /// let mut bytes = [0; 10];
    /// let changed = object.read_at(900_000, &mut bytes);
    /// assert!(matches!(changed, Err(FileError::Changed { .. })));
    /// object.read_at(0, &mut bytes)?; // in memory, and still what it was
    /// assert_eq!(bytes, [7; 10]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn map_object(&self, url: &str) -> Result<FileRegion, MapObjectError> {
        let url: RemoteUrl = url.parse().map_err(ObjectError::from)?;
        let object = self.pond().objects()?.open(&url)?;
        let len = usize::try_from(object.len()).map_err(|_| RegionError::TooLong {
            count: usize::MAX,
            size: 1,
        })?;
        let object = Arc::new(object);
        let region = self.file_region(len, Kind::File, Arc::clone(&object) as _)?;
        Ok(FileRegion::of_object(region, object))
    }
}

impl Pond {
    /// The thread that reads objects, which begins with the first of them.
    fn objects(&self) -> Result<&Arc<ObjectReader>, ObjectError> {
        // In a forked child this panics, where the thread does not exist.
        let ram = self.driver().most_ram();
        if let Some(reader) = self.objects.get() {
            return Ok(reader);
        }
        let share = |part: u64| (ram / part) as usize;
        let config = ObjectConfig {
            read_bytes: share(READ_SHARE).min(ObjectConfig::default().read_bytes),
            kept_bytes: share(KEPT_SHARE).min(ObjectConfig::default().kept_bytes),
            ..ObjectConfig::default()
        };
        // The thread has the mask of this one: a handler of the program's that ran there could touch a page of an
        // object, and wait for the thread that it runs on.
        let _quiet = SignalsBlocked::new();
        let started = ObjectReader::start(config)?;
        // Of two threads that begin at once one is used, and the other one ends.
        Ok(self.objects.get_or_init(|| started))
    }
}
