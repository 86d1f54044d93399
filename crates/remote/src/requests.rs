//! Requests to the store, each until it is answered or given up.
//!
//! A store is elsewhere: it is restarted, is slow, sends less than it was asked for, or says that there are too many
//! requests. So each attempt has a limit of time, and what fails is tried again after a pause that doubles, up to two
//! seconds, and that chance makes up to a half longer, so that many processes do not come back at one moment.
//!
//! What an answer means is told apart in five ways:
//!
//! - *Refused*: the store does not take these credentials, or has no such request. Whoever opens something hears of it
//!   at once. Later it counts as away, because credentials are renewed while a run lives.
//! - *Away*: nothing was learned about the bytes. Reads try until their deadline, because a thread waits for them.
//!   Writes try for as long as the store lives: what they carry is still in the store in front, nothing waits for
//!   them, and nothing new is sent while they are not through.
//! - *Lost*: the store says that there is no such object. It is asked three times in all, then believed.
//! - *Damaged*: the bytes are not those that were put. A disturbance on the way passes, so they are read three times.
//! - *Changed*: the store has another version of an object than the one whose bytes are wanted (`object/version.rs`).
//!   That is no disturbance, so it is believed at once.

use crate::format::Damaged;
use crate::health::Health;
use crate::object::version::{Answer, Version};
use opendal::{Buffer, ErrorKind, Operator};
use std::ops::Range;
use std::time::{Duration, Instant};

/// First pause between two attempts. The simulator's are short, because its faults are many.
const FIRST_PAUSE: Duration = match cfg!(test) {
    false => Duration::from_millis(20),
    true => Duration::from_micros(200),
};
/// Longest pause, before chance makes it longer.
const LONGEST_PAUSE: Duration = Duration::from_millis(if cfg!(test) { 5 } else { 2000 });
/// Attempts after which it is believed that bytes are lost or damaged.
const BELIEVED: u32 = 3;

/// Why the store did not do what it was asked for.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RemoteError {
    /// The store was not to be had within the time there was: try again later.
    #[error("the remote store does not answer ({why})")]
    Away {
        /// What the last attempt met.
        why: String,
    },
    /// The store answers, and refuses: asking again changes nothing before its settings, or those here, do.
    #[error("the remote store refuses that ({why})")]
    Refused {
        /// What it answered.
        why: String,
    },
    /// The store answers, and has no such object: what was in it is lost.
    #[error("the remote store no longer has {object}")]
    Lost {
        /// The object's name.
        object: String,
    },
    /// The store gives other bytes than were put there. They are not used.
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

/// Limits of time.
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

/// The way to a store.
#[derive(Clone)]
pub(crate) struct Requests {
    pub(crate) operator: Operator,
    pub(crate) limits: TimeLimits,
    pub(crate) health: std::sync::Arc<Health>,
}

/// What becomes of a request that the store refuses.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Refusals {
    /// It has failed.
    Believed,
    /// It is made again, as after any other error.
    Passing,
}

/// A pause that doubles.
struct Pause(Duration);

impl Pause {
    async fn pass(&mut self) {
        let mut chance = [0; 2];
        // Without chance the pause is a plain one.
        let _ = crate::format::fill_at_random(&mut chance);
        let more = self.0 * u32::from(u16::from_le_bytes(chance)) / (2 * u32::from(u16::MAX));
        tokio::time::sleep(self.0 + more).await;
        self.0 = (self.0 * 2).min(LONGEST_PAUSE);
    }
}

/// How often a read was tried, and how.
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

    /// Pauses before the next try, or says that `error` is believed, or that there was time enough.
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

/// Whether the store has understood a request and refuses it, as with wrong credentials.
fn is_refusal(error: &opendal::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::PermissionDenied | ErrorKind::ConfigInvalid | ErrorKind::Unsupported
    )
}

impl Requests {
    /// One attempt, which ends by the limit of time at the latest.
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

    /// Makes a request that answers nothing until it is answered, or has not been for as long as `deadline`; without
    /// one, until the future is dropped. `refusals` says whether a refusal is believed at once.
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

    /// Writes an object. Without a deadline it is tried until the future is dropped, also while the store refuses:
    /// what the object carries is needed, and credentials are renewed elsewhere.
    pub(crate) async fn put(
        &self,
        path: &str,
        bytes: Buffer,
        deadline: Option<Duration>,
    ) -> Result<(), RemoteError> {
        self.write(path, bytes, deadline, Refusals::Passing).await
    }

    /// Writes the first object of a run. A refusal is believed at once: whoever opens the store is there to hear it.
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

    /// Reads a range of an object's bytes, and has `check` look at them.
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
                    // Some services do not say that a range is beyond an object's end, but only that it failed.
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

    /// Reads a range of the bytes of one version of an object into `out`, whatever is in it before.
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

    /// The version that an object has now. What the store refuses is not asked for again.
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

    /// Bytes of an object, if the store says that.
    async fn length(&self, path: &str) -> Option<u64> {
        let stat = self.attempt(self.operator.stat(path)).await.ok()?;
        Some(stat.content_length())
    }

    /// Deletes an object. One that is not there is no error.
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
