//! The sign that a run lives, and the names of its objects.
//!
//! All objects of a run are named `millpond-run-`, 32 random hexadecimal digits, and `/`. The object `lease` under
//! that name contains the time at which the run last reported that it lives; it is rewritten each minute. A run that
//! ends deletes its objects, the lease last. One that was killed leaves them to `clean.rs`.

use crate::client::Client;
use crate::requests::{RemoteError, Requests};
use opendal::Buffer;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The beginning of all runs' names.
pub(crate) const RUN: &str = "millpond-run-";
/// How often the lease is written.
const RENEW: Duration = Duration::from_secs(60);
/// The maximum time for the first write of the lease.
const BEGIN: Duration = Duration::from_secs(10);

/// Returns the beginning of all names of a run's objects.
pub(crate) fn prefix(run: &[u8; 16]) -> String {
    let digits: String = run.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{RUN}{digits}/")
}

pub(crate) fn path(prefix: &str) -> String {
    format!("{prefix}lease")
}

/// Returns the seconds since the epoch.
pub(crate) fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

fn contents() -> Buffer {
    Buffer::from(format!("millpond lease\nseconds {}\n", now()))
}

/// Returns the time in a lease, in seconds.
pub(crate) fn seconds(lease: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(lease).ok()?;
    let (first, rest) = text.split_once('\n')?;
    let named = rest.strip_prefix("seconds ")?.trim_end();
    (first == "millpond lease").then_some(())?;
    named.parse().ok()
}

/// Writes the lease, and makes the network thread renew it from then on.
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
            // If a renewal fails, the next one follows.
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
