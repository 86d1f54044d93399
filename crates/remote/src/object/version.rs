//! One version of an object: what it is known by, and how its bytes are read and no others.
//!
//! An object is read piece by piece, for as long as a program runs, and whoever owns it may put another in its place
//! between two pieces. So the version that is there at first is *pinned*:
//!
//! - *By its ETag*, where the service gives one: S3 makes a new one for each put. A request is conditional on it
//!   (`If-Match`), so a service that has another version sends no bytes at all. The answer's own ETag is looked at as
//!   well, because not every server knows the condition. A weak ETag (`W/"..."`) fulfils no condition; there only the
//!   answer's is looked at.
//! - *By its length and the time of its last change* otherwise, as in a directory. These are asked for again after each
//!   read: if they still are the pinned ones, what was read between is of the pinned version. A file's time is as fine
//!   as the kernel's tick, so a change within one tick of another does not show. A file that has changed within the
//!   last twenty milliseconds is therefore not pinned before these are over. (Who changes a file and sets its time back
//!   deceives this.)
//!
//! The answer's length must be that of the range. Of one that is longer, as of a server that does not know ranges and
//! sends the whole object, no more is taken than shows that.

use futures_core::Stream;
use opendal::options::ReaderOptions;
use opendal::{Error, ErrorKind, Metadata, Operator, Reader};
use std::ops::Range;
use std::pin::pin;
use std::time::{Duration, SystemTime};

/// Two ticks of a kernel that counts a hundred a second.
const TICKS: Duration = Duration::from_millis(20);

/// A version of an object. See the [module](self).
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Version {
    /// Bytes of the object.
    pub(crate) length: u64,
    mark: Mark,
}

/// What tells a version from others.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Mark {
    ETag(String),
    Changed(SystemTime),
}

/// What a read of a version came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    /// All bytes are here.
    Whole,
    /// The service has another version.
    Changed,
    /// The version is right, but these are not so many bytes as were asked for. (Of an answer that is too long it is a
    /// part.)
    Length(usize),
}

impl Version {
    /// The version that the object has now.
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

    /// Whether a change could still come that does not show.
    fn is_fresh(&self) -> bool {
        match &self.mark {
            Mark::ETag(_) => false,
            // A time that is still to come is another clock's, and no wait would help.
            Mark::Changed(time) => time.elapsed().is_ok_and(|age| age < TICKS),
        }
    }

    /// What a request is conditional on, if the service knows that.
    fn condition(&self, operator: &Operator) -> Option<String> {
        match &self.mark {
            Mark::ETag(etag) if !etag.starts_with("W/") => {
                let can = operator.info().capability().read_with_if_match;
                can.then(|| etag.clone())
            }
            _ => None,
        }
    }

    /// Reads a range of the version's bytes into `out`, whatever is in it before.
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
        // An answer that fails may do so because the object has become shorter.
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

    /// Receives the answer, and stops where it is longer than the range or another version's.
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
