//! One version of an object: what identifies it, and how its bytes, and no others, are read.
//!
//! An object is read piece by piece, for as long as a program runs, and its owner may replace it between two pieces.
//! So the first version is *pinned*:
//!
//! - *By its ETag*, if the service provides one: S3 makes a new one for each put. Requests are conditional on it
//!   (`If-Match`), so a service that has another version sends no bytes at all. We also check the answer's own ETag,
//!   because not every server knows the condition. A weak ETag (`W/"..."`) satisfies no condition; in that case we
//!   only check the answer's.
//! - *By its length and modification time* otherwise, as in a directory. These are queried again after each read: if
//!   they still match the pinned ones, the bytes read in between belong to the pinned version. A file's time is only
//!   as fine as the kernel's tick, so a change within one tick of another is invisible. A file that has changed
//!   within the last twenty milliseconds is therefore not pinned before these are over. (Changing a file and setting
//!   its time back defeats this.)
//!
//! The answer must be as long as the range. If it is longer, for example from a server that does not support ranges
//! and sends the whole object, we read only as much as is needed to detect that.

use futures_core::Stream;
use opendal::options::ReaderOptions;
use opendal::{Error, ErrorKind, Metadata, Operator, Reader};
use std::ops::Range;
use std::pin::pin;
use std::time::{Duration, SystemTime};

/// Two ticks of a kernel with a hundred ticks per second.
const TICKS: Duration = Duration::from_millis(20);

/// A version of an object. See the [module](self).
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Version {
    /// The number of bytes in the object.
    pub(crate) length: u64,
    mark: Mark,
}

/// What distinguishes a version from others.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Mark {
    ETag(String),
    Changed(SystemTime),
}

/// The result of reading a version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    /// All bytes are here.
    Whole,
    /// The service has another version.
    Changed,
    /// The version is right, but the number of bytes is not the requested one. (If the answer is too long, this is
    /// only a part of its length.)
    Length(usize),
}

impl Version {
    /// Returns the object's current version.
    pub(crate) async fn now(operator: &Operator, path: &str) -> Result<Self, Error> {
        loop {
            let found = operator.stat(path).await?;
            if !found.is_file() {
                return Err(Error::new(ErrorKind::IsADirectory, "it is a directory"));
            }
            let version = Self::of(&found).ok_or_else(|| {
                let why = "it has neither an ETag nor a time of its last change";
                Error::new(ErrorKind::Unsupported, why)
            })?;
            match version.is_fresh() {
                true => tokio::time::sleep(TICKS).await,
                false => return Ok(version),
            }
        }
    }

    fn of(found: &Metadata) -> Option<Self> {
        let etag = found.etag().filter(|etag| !etag.is_empty());
        let mark = match etag {
            Some(etag) => Mark::ETag(etag.to_owned()),
            None => Mark::Changed(found.last_modified()?.into()),
        };
        Some(Self {
            length: found.content_length(),
            mark,
        })
    }

    /// Whether a change could still happen that would be invisible.
    fn is_fresh(&self) -> bool {
        match &self.mark {
            Mark::ETag(_) => false,
            // A time in the future comes from another clock, and waiting would not help.
            Mark::Changed(time) => time.elapsed().is_ok_and(|age| age < TICKS),
        }
    }

    /// Returns the condition for requests, if the service supports it.
    fn condition(&self, operator: &Operator) -> Option<String> {
        match &self.mark {
            Mark::ETag(etag) if !etag.starts_with("W/") => {
                let can = operator.info().capability().read_with_if_match;
                can.then(|| etag.clone())
            }
            _ => None,
        }
    }

    /// Reads a range of the version's bytes into `out`, whatever it contained before.
    pub(crate) async fn read(
        &self,
        operator: &Operator,
        path: &str,
        range: Range<u64>,
        out: &mut Vec<u8>,
    ) -> Result<Answer, Error> {
        let options = ReaderOptions {
            if_match: self.condition(operator),
            ..ReaderOptions::default()
        };
        let want = (range.end - range.start) as usize;
        let reader = operator.reader_options(path, options).await?;
        let read = match self.receive(&reader, range, out).await {
            Err(error) if error.kind() == ErrorKind::ConditionNotMatch => {
                return Ok(Answer::Changed);
            }
            Err(error) if error.kind() == ErrorKind::NotFound => return Err(error),
            read => read,
        };
        // An answer may fail because the object has become shorter.
        let is_this = match reader.metadata().and_then(Metadata::etag) {
            Some(etag) => self.mark == Mark::ETag(etag.to_owned()),
            None => Self::of(&operator.stat(path).await?).as_ref() == Some(self),
        };
        if !is_this {
            return Ok(Answer::Changed);
        }
        read?;
        Ok(match out.len() == want {
            true => Answer::Whole,
            false => Answer::Length(out.len()),
        })
    }

    /// Receives the answer, and stops if it is longer than the range or belongs to another version.
    async fn receive(
        &self,
        reader: &Reader,
        range: Range<u64>,
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let want = (range.end - range.start) as usize;
        out.clear();
        out.reserve_exact(want);
        let mut parts = pin!(reader.clone().into_stream(range).await?);
        while let Some(part) =
            std::future::poll_fn(|context| parts.as_mut().poll_next(context)).await
        {
            for bytes in part? {
                let room = want + 1 - out.len().min(want);
                out.extend_from_slice(&bytes[..bytes.len().min(room)]);
            }
            let other = reader.metadata().and_then(Metadata::etag);
            let is_other = other.is_some_and(|etag| self.mark != Mark::ETag(etag.to_owned()));
            if out.len() > want || is_other {
                break;
            }
        }
        Ok(())
    }
}
