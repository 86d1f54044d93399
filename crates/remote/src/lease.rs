//! Runs in a store: their names, the sign that one lives, and the removal of what the dead have left.
//!
//! All objects of a run are named `millpond-run-`, 32 hexadecimal digits that were drawn for it, and `/`. The object
//! `lease` under that name says when the run last said that it lives; it is written anew each minute. A run that ends
//! deletes its objects, the lease last. One that was killed leaves them, and [`clean`] removes the objects of runs
//! whose lease is old. An old lease may also be that of a run that could not reach the store for as long: a run that
//! finds its objects gone loses its pages, so the age that counts as old should be longer than any interruption.
//!
//! Redis has no list of keys by prefix that OpenDAL could ask for, so [`clean`] does not work there: it says so, and
//! how to do it with redis-cli.

use crate::client::Client;
use crate::requests::{RemoteError, Requests};
use crate::url::{RemoteUrl, UrlError};
use opendal::{Buffer, ErrorKind, Operator};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const RUN: &str = "millpond-run-";
/// How often the lease is written.
const RENEW: Duration = Duration::from_secs(60);
/// How long the first write of it may take.
const BEGIN: Duration = Duration::from_secs(10);

/// What the names of all objects of a run begin with.
pub(crate) fn prefix(run: &[u8; 16]) -> String {
    let digits: String = run.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{RUN}{digits}/")
}

pub(crate) fn path(prefix: &str) -> String {
    format!("{prefix}lease")
}

fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

fn contents() -> Buffer {
    Buffer::from(format!("millpond lease\nseconds {}\n", now()))
}

/// The time that a lease names, in seconds.
fn seconds(lease: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(lease).ok()?;
    let (first, rest) = text.split_once('\n')?;
    let named = rest.strip_prefix("seconds ")?.trim_end();
    (first == "millpond lease").then_some(())?;
    named.parse().ok()
}

/// Writes the lease, and has the network's thread renew it from then on.
pub(crate) fn begin(client: &Client, prefix: &str) -> Result<(), RemoteError> {
    let (tell, told) = std::sync::mpsc::channel();
    let path = path(prefix);
    client.spawn(|requests: Requests| async move {
        let begun = requests.put_first(&path, contents(), BEGIN).await;
        let goes_on = begun.is_ok() && tell.send(begun.clone()).is_ok();
        if !goes_on {
            // The caller may have given up.
            let _ = tell.send(begun);
            return;
        }
        loop {
            tokio::time::sleep(RENEW).await;
            // A renewal that does not come through is followed by the next.
            let _ = requests.put(&path, contents(), Some(RENEW)).await;
        }
    });
    let away = |_| {
        Err(RemoteError::Away {
            why: "no answer".to_owned(),
        })
    };
    told.recv_timeout(2 * BEGIN).unwrap_or_else(away)
}

/// Why nothing could be cleaned.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CleanError {
    /// The URL names no store.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// The store has no list of what is in it.
    #[error(
        "{url} cannot say what is in it: use redis-cli --scan --pattern '*{RUN}*' | xargs redis-cli del, when no run is alive"
    )]
    NoList {
        /// The store.
        url: String,
    },
    /// The store refused.
    #[error(
        "{url} cannot be cleaned ({why}): check that it is there, and the credentials in the environment"
    )]
    Refused {
        /// The store.
        url: String,
        /// Its answer.
        why: String,
    },
    /// The system gives no runtime.
    #[error("cannot talk to the network ({0}): raise the limit on descriptors (ulimit -n)")]
    System(#[from] std::io::Error),
}

/// What [`clean`] has done.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Cleaned {
    /// The runs that were removed, each with the number of its objects.
    pub removed: Vec<(String, u64)>,
    /// The runs that were left, each with the reason.
    pub left: Vec<(String, String)>,
}

/// Removes the objects of runs whose lease is older than `age`.
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
/// The store has no list, or does not answer. What was removed until then stays removed.
pub fn clean(url: &RemoteUrl, age: Duration) -> Result<Cleaned, CleanError> {
    let operator = url.operator()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime
        .block_on(clean_all(&operator, age))
        .map_err(|error| match error.kind() {
            ErrorKind::Unsupported => CleanError::NoList {
                url: url.to_string(),
            },
            kind => CleanError::Refused {
                url: url.to_string(),
                why: format!("{kind}: {}", error.message()),
            },
        })
}

async fn clean_all(operator: &Operator, age: Duration) -> Result<Cleaned, opendal::Error> {
    let mut cleaned = Cleaned::default();
    for entry in operator.list("/").await? {
        let name = entry.path().to_owned();
        let digits = name
            .strip_prefix(RUN)
            .and_then(|rest| rest.strip_suffix('/'));
        if digits.is_none_or(|digits| digits.len() != 32) {
            continue;
        }
        let lease = match operator.read(&path(&name)).await {
            Ok(bytes) => seconds(&bytes.to_vec()),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                cleaned.left.push((
                    name,
                    "it has no lease: it is ending, or somebody removed that".to_owned(),
                ));
                continue;
            }
            Err(error) => return Err(error),
        };
        let Some(renewed) = lease else {
            cleaned
                .left
                .push((name, "its lease cannot be read".to_owned()));
            continue;
        };
        let old = now().saturating_sub(renewed);
        if old < age.as_secs() {
            cleaned
                .left
                .push((name, format!("it said {old} s ago that it lives")));
            continue;
        }
        let objects = remove(operator, &name).await?;
        cleaned.removed.push((name, objects));
    }
    Ok(cleaned)
}

/// Removes what is under a run's name, the lease last, so that a second try finds what a first one has left.
async fn remove(operator: &Operator, name: &str) -> Result<u64, opendal::Error> {
    let lease = path(name);
    let mut objects = 0;
    let entries = operator.list_with(name).recursive(true).await?;
    for entry in entries
        .iter()
        .filter(|entry| entry.metadata().is_file() && entry.path() != lease)
    {
        operator.delete(entry.path()).await?;
        objects += 1;
    }
    operator.delete(&lease).await?;
    // Where directories are things of their own, the empty ones go too, the inner ones first.
    let mut directories: Vec<&str> = entries
        .iter()
        .filter(|entry| entry.metadata().is_dir())
        .map(|entry| entry.path())
        .collect();
    directories.push(name);
    directories.sort_by_key(|path| std::cmp::Reverse(path.len()));
    for directory in directories {
        operator.delete(directory).await?;
    }
    Ok(objects)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_names_its_time() {
        let written = contents().to_vec();
        assert!(seconds(&written).is_some_and(|seconds| now() - seconds < 5));
        for other in [
            "",
            "millpond lease\n",
            "another\nseconds 5\n",
            "millpond lease\nseconds x\n",
        ] {
            assert_eq!(seconds(other.as_bytes()), None, "{other:?}");
        }
    }
}
