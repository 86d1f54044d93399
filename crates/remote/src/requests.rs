//! Requests to the store, each repeated until it is answered or abandoned.
//!
//! A store is remote: it is restarted, is slow, sends less than it was asked for, or complains about too many
//! requests. So each attempt has a time limit, and a failed one is retried after a pause. The pause doubles each
//! time, up to two seconds, and is randomly extended by up to a half, so that many processes do not come back at the
//! same moment.
//!
//! We distinguish five kinds of failure:
//!
//! - *Refused*: the store does not accept these credentials, or does not support such a request. Whoever opens
//!   something is told at once. Later it counts as away, because credentials are renewed while a run lives.
//! - *Away*: nothing was learned about the bytes. Reads are retried until their deadline, because a thread waits for
//!   them. Writes are retried for as long as the store lives: their data is still in the store in front, nothing
//!   waits for them, and nothing new is sent until they succeed.
//! - *Lost*: the store says that there is no such object. It is asked three times in all, then believed.
//! - *Damaged*: the bytes differ from what was written. A disturbance on the way is temporary, so they are read three
//!   times.
//! - *Changed*: the store has another version of an object than the one whose bytes are wanted (`object/version.rs`).
//!   That is not a disturbance, so it is believed at once.

use crate::format::Damaged;
use crate::health::Health;
use crate::object::version::{Answer, Version};
use opendal::{Buffer, ErrorKind, Operator};
use std::ops::Range;
use std::time::{Duration, Instant};

/// The first pause between two attempts. The simulator's are short, because it has many faults.
const FIRST_PAUSE: Duration = match cfg!(test) {
    false => Duration::from_millis(20),
    true => Duration::from_micros(200),
};
/// The longest pause, before it is randomly extended.
const LONGEST_PAUSE: Duration = Duration::from_millis(if cfg!(test) { 5 } else { 2000 });
/// The number of attempts after which a loss or damage is believed.
const BELIEVED: u32 = 3;

/// Why the store did not do what it was asked.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RemoteError {
    /// The store could not be reached in time: try again later.
    #[error("the remote store does not answer ({why})")]
    Away {
        /// How the last attempt failed.
        why: String,
    },
    /// The store answers, and refuses: retrying does not help until its settings, or those here, change.
    #[error("the remote store refuses that ({why})")]
    Refused {
        /// Its answer.
        why: String,
    },
    /// The store answers, and has no such object: its contents are lost.
    #[error("the remote store no longer has {object}")]
    Lost {
        /// The object's name.
        object: String,
    },
    /// The store returns other bytes than were written. They are not used.
    #[error("the remote store has damaged {object} ({damaged})")]
    Damaged {
        /// The object's name.
        object: String,
        /// What is wrong.
        damaged: Damaged,
    },
    /// The store has another version of the object than the one whose bytes are wanted.
    #[error("{object} has changed since it was opened: open it again to read what it is now")]
    Changed {
        /// The object's name.
        object: String,
    },
}

/// Time limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TimeLimits {
    /// How long a page waits for a store that is away, before it counts as lost.
    pub deadline: Duration,
    /// How long one attempt may take.
    pub attempt: Duration,
}

impl Default for TimeLimits {
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(60),
            attempt: Duration::from_secs(10),
        }
    }
}

/// The connection to a store.
#[derive(Clone)]
pub(crate) struct Requests {
    pub(crate) operator: Operator,
    pub(crate) limits: TimeLimits,
    pub(crate) health: std::sync::Arc<Health>,
}

/// How to treat a request that the store refuses.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Refusals {
    /// The refusal is final.
    Believed,
    /// The request is retried, as after any other error.
    Passing,
}

/// A pause that doubles.
struct Pause(Duration);

impl Pause {
    async fn pass(&mut self) {
        let mut chance = [0; 2];
        // Without random bytes the pause is not extended.
        let _ = crate::format::fill_at_random(&mut chance);
        let more = self.0 * u32::from(u16::from_le_bytes(chance)) / (2 * u32::from(u16::MAX));
        tokio::time::sleep(self.0 + more).await;
        self.0 = (self.0 * 2).min(LONGEST_PAUSE);
    }
}

/// How many times a read was tried, and with what result.
struct Tries {
    begun: Instant,
    pause: Pause,
    lost: u32,
    damaged: u32,
}

impl Tries {
    fn new() -> Self {
        Self {
            begun: Instant::now(),
            pause: Pause(FIRST_PAUSE),
            lost: 0,
            damaged: 0,
        }
    }

    /// Pauses before the next attempt. Returns an error if `error` is believed, or if time is up.
    async fn again(&mut self, error: RemoteError, deadline: Duration) -> Result<(), RemoteError> {
        match error {
            RemoteError::Lost { .. } => self.lost += 1,
            RemoteError::Damaged { .. } => self.damaged += 1,
            RemoteError::Away { .. }
            | RemoteError::Refused { .. }
            | RemoteError::Changed { .. } => {}
        }
        let is_believed = self.lost >= BELIEVED || self.damaged >= BELIEVED;
        if is_believed || self.begun.elapsed() >= deadline {
            return Err(error);
        }
        self.pause.pass().await;
        Ok(())
    }
}

pub(crate) fn why(error: &opendal::Error) -> String {
    format!("{}: {}", error.kind(), error.message())
}

/// Whether the store has understood a request and refuses it, for example because of wrong credentials.
fn is_refusal(error: &opendal::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::PermissionDenied | ErrorKind::ConfigInvalid | ErrorKind::Unsupported
    )
}

impl Requests {
    /// Makes one attempt, which ends at the time limit at the latest.
    async fn attempt<T>(
        &self,
        request: impl Future<Output = Result<T, opendal::Error>>,
    ) -> Result<T, opendal::Error> {
        let limit = self.limits.attempt;
        match tokio::time::timeout(limit, request).await {
            Ok(answer) => answer,
            Err(_) => Err(opendal::Error::new(
                ErrorKind::Unexpected,
                format!("no answer within {} ms", limit.as_millis()),
            )),
        }
    }

    /// Repeats a request without a result until it is answered, or `deadline` has passed; without a deadline, until
    /// the future is dropped. `refusals` says whether a refusal is final.
    async fn repeat<R: Future<Output = Result<(), opendal::Error>>>(
        &self,
        deadline: Option<Duration>,
        refusals: Refusals,
        request: impl Fn() -> R,
    ) -> Result<(), RemoteError> {
        let begun = Instant::now();
        let mut pause = Pause(FIRST_PAUSE);
        loop {
            let Err(error) = self.attempt(request()).await else {
                self.health.answered();
                return Ok(());
            };
            if refusals == Refusals::Believed && is_refusal(&error) {
                return Err(RemoteError::Refused { why: why(&error) });
            }
            self.health.failed(&why(&error));
            if deadline.is_some_and(|deadline| begun.elapsed() >= deadline) {
                return Err(RemoteError::Away { why: why(&error) });
            }
            pause.pass().await;
        }
    }

    /// Writes an object. Without a deadline it is retried until the future is dropped, even while the store refuses:
    /// the object's data is needed, and credentials are renewed elsewhere.
    pub(crate) async fn put(
        &self,
        path: &str,
        bytes: Buffer,
        deadline: Option<Duration>,
    ) -> Result<(), RemoteError> {
        self.write(path, bytes, deadline, Refusals::Passing).await
    }

    /// Writes the first object of a run. A refusal is final: whoever opens the store is there to hear it.
    pub(crate) async fn put_first(
        &self,
        path: &str,
        bytes: Buffer,
        deadline: Duration,
    ) -> Result<(), RemoteError> {
        self.write(path, bytes, Some(deadline), Refusals::Believed)
            .await
    }

    async fn write(
        &self,
        path: &str,
        bytes: Buffer,
        deadline: Option<Duration>,
        refusals: Refusals,
    ) -> Result<(), RemoteError> {
        let (operator, bytes) = (&self.operator, &bytes);
        let write = || async move { operator.write(path, bytes.clone()).await.map(drop) };
        self.repeat(deadline, refusals, write).await
    }

    /// Reads a range of an object's bytes, and passes them to `check`.
    pub(crate) async fn get<T>(
        &self,
        path: &str,
        range: Range<u64>,
        mut check: impl FnMut(Vec<u8>) -> Result<T, Damaged>,
    ) -> Result<T, RemoteError> {
        let (mut tries, mut failed) = (Tries::new(), 0);
        loop {
            let read = async { self.operator.read_with(path).range(range.clone()).await };
            let last = match self.attempt(read).await {
                Ok(bytes) if bytes.len() as u64 == range.end - range.start => {
                    self.health.answered();
                    match check(bytes.to_vec()) {
                        Ok(checked) => return Ok(checked),
                        Err(damaged) => RemoteError::Damaged {
                            object: path.to_owned(),
                            damaged,
                        },
                    }
                }
                Ok(bytes) => {
                    let (got, want) = (bytes.len(), (range.end - range.start) as usize);
                    let (object, damaged) = (path.to_owned(), Damaged::Length { got, want });
                    RemoteError::Damaged { object, damaged }
                }
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    self.health.answered();
                    RemoteError::Lost {
                        object: path.to_owned(),
                    }
                }
                Err(error) => {
                    // Some services do not say that a range exceeds the object's end, but only that it failed.
                    failed += 1;
                    let length = if failed % BELIEVED == 0 {
                        self.length(path).await
                    } else {
                        None
                    };
                    if let Some(got) = length.filter(|&length| length < range.end) {
                        let (got, want) = (got as usize, range.end as usize);
                        let (object, damaged) = (path.to_owned(), Damaged::Length { got, want });
                        return Err(RemoteError::Damaged { object, damaged });
                    }
                    self.health.failed(&why(&error));
                    RemoteError::Away { why: why(&error) }
                }
            };
            tries.again(last, self.limits.deadline).await?;
        }
    }

    /// Reads a range of the bytes of one version of an object into `out`, whatever it contained before.
    pub(crate) async fn get_version(
        &self,
        path: &str,
        version: &Version,
        range: Range<u64>,
        out: &mut Vec<u8>,
    ) -> Result<(), RemoteError> {
        let mut tries = Tries::new();
        loop {
            let object = || path.to_owned();
            let read = version.read(&self.operator, path, range.clone(), out);
            let last = match self.attempt(read).await {
                Ok(Answer::Whole) => {
                    self.health.answered();
                    return Ok(());
                }
                Ok(Answer::Changed) => {
                    self.health.answered();
                    return Err(RemoteError::Changed { object: object() });
                }
                Ok(Answer::Length(got)) => {
                    self.health.answered();
                    let want = (range.end - range.start) as usize;
                    RemoteError::Damaged {
                        object: object(),
                        damaged: Damaged::Length { got, want },
                    }
                }
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    self.health.answered();
                    RemoteError::Lost { object: object() }
                }
                Err(error) => {
                    self.health.failed(&why(&error));
                    RemoteError::Away { why: why(&error) }
                }
            };
            tries.again(last, self.limits.deadline).await?;
        }
    }

    /// Returns an object's current version. A refusal is not retried.
    pub(crate) async fn version(
        &self,
        path: &str,
        limit: Duration,
    ) -> Result<Version, opendal::Error> {
        let begun = Instant::now();
        let mut pause = Pause(FIRST_PAUSE);
        loop {
            let error = match self.attempt(Version::now(&self.operator, path)).await {
                Ok(version) => return Ok(version),
                Err(error) => error,
            };
            let is_none = matches!(error.kind(), ErrorKind::NotFound | ErrorKind::IsADirectory);
            if is_none || is_refusal(&error) || begun.elapsed() >= limit {
                return Err(error);
            }
            pause.pass().await;
        }
    }

    /// Returns the number of bytes in an object, if the store tells.
    async fn length(&self, path: &str) -> Option<u64> {
        let stat = self.attempt(self.operator.stat(path)).await.ok()?;
        Some(stat.content_length())
    }

    /// Deletes an object. A missing object is not an error.
    pub(crate) async fn delete(&self, path: &str) -> Result<(), RemoteError> {
        let operator = &self.operator;
        let delete = || async move {
            match operator.delete(path).await {
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
                answer => answer,
            }
        };
        let deadline = Some(self.limits.deadline);
        self.repeat(deadline, Refusals::Passing, delete).await
    }
}
