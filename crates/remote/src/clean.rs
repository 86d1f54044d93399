//! Removes what killed runs have left in a store.
//!
//! [`clean`] looks for the names of runs, reads the lease of each (`lease.rs`), and removes the objects of runs whose
//! lease is old. The lease is removed last, so that a second call finds what an interrupted first one left.
//!
//! An old lease may also belong to a run that could not reach the store for that long. A run whose objects disappear
//! loses its pages, so the age that counts as old should be longer than any interruption. A run without a lease is
//! just ending, or has ended while one of its objects was still on its way, which then arrived and stays: the run's
//! objects are removed once the youngest of them is old enough.
//!
//! Redis has a list of keys, but OpenDAL's Redis service does not support it (as of 0.59), so nothing can be cleaned
//! there: [`CleanError::NoList`] says so, and how to do it with redis-cli.

use crate::lease;
use crate::url::{RemoteUrl, UrlError};
use futures_core::Stream;
use opendal::{Entry, ErrorKind, Operator};
use std::pin::Pin;
use std::time::{Duration, SystemTime};

/// The maximum time for each answer of the store.
const ANSWER: Duration = Duration::from_secs(30);

/// Why nothing could be cleaned, or not everything.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CleanError {
    /// The URL does not name a store.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// The store cannot list its contents.
    #[error(
        "{url} cannot say what is in it: use redis-cli --scan --pattern '*{run}*' | xargs redis-cli del, when no run is \
         alive",
        run = lease::RUN
    )]
    NoList {
        /// The store.
        url: String,
    },
    /// The store refused, or did not answer.
    #[error(
        "{url} cannot be cleaned ({why}): check that it is there, and the credentials in the environment"
    )]
    Refused {
        /// The store.
        url: String,
        /// Its answer.
        why: String,
    },
    /// The system refuses a runtime.
    #[error("cannot talk to the network ({0}): raise the limit on descriptors (ulimit -n)")]
    System(#[from] std::io::Error),
}

/// What [`clean`] has done, or would do.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Cleaned {
    /// The runs whose objects were removed.
    pub removed: Vec<RemovedRun>,
    /// The runs that were left alone.
    pub left: Vec<LeftRun>,
}

/// A run whose objects were removed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RemovedRun {
    /// The beginning of its objects' names.
    pub name: String,
    /// The number of its objects, excluding the lease.
    pub objects: u64,
    /// The bytes of these objects.
    pub bytes: u64,
}

/// A run whose objects were left alone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeftRun {
    /// The beginning of its objects' names.
    pub name: String,
    /// Why they were left alone.
    pub why: String,
}

/// Removes the objects of runs whose lease is at least as old as `age`.
///
/// ```
/// use std::time::Duration;
///
/// let directory = std::env::temp_dir().join("millpond-clean");
/// std::fs::create_dir_all(&directory)?;
/// let url = format!("fs://{}", directory.display()).parse()?;
/// let cleaned = millpond_remote::clean(&url, Duration::from_secs(24 * 3600))?;
/// assert!(cleaned.removed.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The store cannot list its contents, refuses, or does not answer within 30 seconds. What was removed until then
/// stays removed.
pub fn clean(url: &RemoteUrl, age: Duration) -> Result<Cleaned, CleanError> {
    look_at_runs(url, age, Manner::Remove)
}

/// Returns what [`clean`] would remove now, and removes nothing.
///
/// ```
/// # use std::time::Duration;
/// let cleaned = millpond_remote::clean_dry_run(&"memory://".parse()?, Duration::from_secs(3600))?;
/// assert_eq!(cleaned, millpond_remote::Cleaned::default());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// Those of [`clean`].
pub fn clean_dry_run(url: &RemoteUrl, age: Duration) -> Result<Cleaned, CleanError> {
    look_at_runs(url, age, Manner::DryRun)
}

/// Whether anything is removed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Manner {
    Remove,
    DryRun,
}

fn look_at_runs(url: &RemoteUrl, age: Duration, manner: Manner) -> Result<Cleaned, CleanError> {
    let refused = |why: String| CleanError::Refused {
        url: url.to_string(),
        why,
    };
    if url.is_absent_directory() {
        return Err(refused("there is no such directory".to_owned()));
    }
    let operator = url.operator()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let looked = runtime.block_on(look_at_each(&operator, age, manner));
    looked.map_err(|error| match error.kind() {
        ErrorKind::Unsupported => CleanError::NoList {
            url: url.to_string(),
        },
        kind => refused(format!("{kind}: {}", error.message())),
    })
}

async fn look_at_each(
    operator: &Operator,
    age: Duration,
    manner: Manner,
) -> Result<Cleaned, opendal::Error> {
    let mut cleaned = Cleaned::default();
    for entry in list(operator, "/", false).await? {
        let name = entry.path().to_owned();
        let digits = name
            .strip_prefix(lease::RUN)
            .and_then(|rest| rest.strip_suffix('/'));
        if digits.is_none_or(|digits| digits.len() != 32) {
            continue;
        }
        match why_left(operator, &name, age).await? {
            Some(why) => cleaned.left.push(LeftRun { name, why }),
            None => cleaned.removed.push(remove(operator, name, manner).await?),
        }
    }
    Ok(cleaned)
}

/// Returns why a run's objects must not be removed; `None` if they may be.
async fn why_left(
    operator: &Operator,
    name: &str,
    age: Duration,
) -> Result<Option<String>, opendal::Error> {
    let read = within_limit(async { operator.read(&lease::path(name)).await });
    let renewed = match read.await {
        Ok(bytes) => lease::seconds(&bytes.to_vec()),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Ok(match youngest(operator, name).await? {
                Some(old) if old >= age => None,
                Some(old) => Some(format!(
                    "it has no lease, and an object of {} s ago: it may be ending",
                    old.as_secs()
                )),
                None => Some("it has no lease, and its objects no date".to_owned()),
            });
        }
        Err(error) => return Err(error),
    };
    let Some(renewed) = renewed else {
        return Ok(Some("its lease cannot be read".to_owned()));
    };
    let old = lease::now().saturating_sub(renewed);
    Ok((old < age.as_secs()).then(|| format!("it said {old} s ago that it lives")))
}

/// Returns the age of a run's youngest object; `None` if it has none, or the store has no dates.
async fn youngest(operator: &Operator, name: &str) -> Result<Option<Duration>, opendal::Error> {
    let mut youngest = None;
    for entry in list(operator, name, true).await? {
        if !entry.metadata().is_file() {
            continue;
        }
        let stat = within_limit(async { operator.stat(entry.path()).await });
        let Some(written) = stat.await?.last_modified() else {
            return Ok(None);
        };
        let age = SystemTime::from(written).elapsed().unwrap_or_default();
        youngest = Some(youngest.map_or(age, |before: Duration| before.min(age)));
    }
    Ok(youngest)
}

/// Removes everything under a run's name, the lease last, or only counts it.
async fn remove(
    operator: &Operator,
    name: String,
    manner: Manner,
) -> Result<RemovedRun, opendal::Error> {
    let lease = lease::path(&name);
    let entries = list(operator, &name, true).await?;
    let objects: Vec<&Entry> = entries
        .iter()
        .filter(|entry| entry.metadata().is_file() && entry.path() != lease)
        .collect();
    let sizes = objects
        .iter()
        .map(|entry| entry.metadata().content_length());
    let removed = RemovedRun {
        objects: objects.len() as u64,
        bytes: sizes.sum(),
        name,
    };
    if manner == Manner::DryRun {
        return Ok(removed);
    }
    for object in objects {
        delete(operator, object.path()).await?;
    }
    delete(operator, &lease).await?;
    // Where directories are entries of their own, the empty ones are also removed, the inner ones first.
    let mut directories: Vec<&str> = entries
        .iter()
        .filter(|entry| entry.metadata().is_dir())
        .map(Entry::path)
        .collect();
    directories.push(&removed.name);
    directories.sort_by_key(|path| std::cmp::Reverse(path.len()));
    for directory in directories {
        delete(operator, directory).await?;
    }
    Ok(removed)
}

async fn delete(operator: &Operator, path: &str) -> Result<(), opendal::Error> {
    within_limit(async { operator.delete(path).await }).await
}

/// Lists everything below `path`. A long list takes many answers, so the time limit applies to each entry.
async fn list(
    operator: &Operator,
    path: &str,
    is_recursive: bool,
) -> Result<Vec<Entry>, opendal::Error> {
    let begun = async { operator.lister_with(path).recursive(is_recursive).await };
    let mut lister = within_limit(begun).await?;
    let mut entries = Vec::new();
    loop {
        let next = std::future::poll_fn(|context| Pin::new(&mut lister).poll_next(context));
        match within_limit(async { next.await.transpose() }).await? {
            Some(entry) => entries.push(entry),
            None => return Ok(entries),
        }
    }
}

/// Waits for one answer, up to the time limit.
async fn within_limit<T>(
    answer: impl Future<Output = Result<T, opendal::Error>>,
) -> Result<T, opendal::Error> {
    let late = |_| {
        let why = format!("no answer within {} s", ANSWER.as_secs());
        Err(opendal::Error::new(ErrorKind::Unexpected, why))
    };
    tokio::time::timeout(ANSWER, answer)
        .await
        .unwrap_or_else(late)
}
