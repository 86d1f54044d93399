//! An OpenDAL service that keeps objects in memory, and subjects requests to their fates.

use super::faults::{Ask, Dice, Fault, Faults, Plan};
use opendal::raw::{
    OpCopy, OpCreateDir, OpDelete, OpList, OpPresign, OpRead, OpRename, OpStat, OpWrite,
    RpCreateDir, RpPresign, RpRead, RpRename, RpStat, Service, ServiceInfo, oio,
};
use opendal::{
    Buffer, BytesRange, Capability, Error, ErrorKind, Metadata, MetadataBuilder, OperationContext,
    Operator, Result,
};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long after its answer a late write is carried out.
const LATE: Duration = Duration::from_millis(30);

struct State {
    faults: Faults,
    /// The service's current contents.
    objects: BTreeMap<String, Vec<u8>>,
    /// Everything that it ever received, in order.
    history: Vec<(String, Vec<u8>)>,
    /// The names of late writes.
    late: BTreeSet<String>,
}

/// The service. Clones share its state.
#[derive(Clone)]
pub(super) struct SimService(Arc<Mutex<State>>);

impl fmt::Debug for SimService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimService").finish_non_exhaustive()
    }
}

impl SimService {
    pub(super) fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(State {
            faults: Faults::new(seed),
            objects: BTreeMap::new(),
            history: Vec::new(),
            late: BTreeSet::new(),
        })))
    }

    pub(super) fn operator(&self) -> Operator {
        Operator::from_parts(OperationContext::new(), Arc::new(self.clone()))
    }

    /// Sets what goes wrong from now on.
    pub(super) fn follow(&self, plan: Plan) {
        self.state().faults.plan = plan;
    }

    /// Returns how many times each fault happened.
    pub(super) fn happened(&self) -> BTreeMap<Fault, u64> {
        self.state().faults.happened.clone()
    }

    /// Returns the names of the remaining objects, except for late writes, which nobody can know about.
    pub(super) fn left(&self) -> Vec<String> {
        let state = self.state();
        let names = state.objects.keys();
        names
            .filter(|name| !state.late.contains(*name))
            .cloned()
            .collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies the fault injected into this request, if it prevents an answer. Otherwise returns the fault, if any.
    async fn fate(&self, ask: Ask, path: &str) -> Result<(Option<Fault>, Dice)> {
        let (fault, dice) = self.state().faults.fate(ask, path);
        match fault {
            Some(Fault::Refused) => Err(failure("connection refused")),
            Some(Fault::Failed) => Err(failure("500 Internal Server Error")),
            Some(Fault::SlowDown) => {
                Err(Error::new(ErrorKind::RateLimited, "503 Slow Down").set_temporary())
            }
            Some(Fault::Forbidden) => Err(Error::new(ErrorKind::PermissionDenied, "403 Forbidden")),
            Some(Fault::Gone) => Err(Error::new(ErrorKind::NotFound, "404 Not Found")),
            Some(Fault::Silent) => std::future::pending().await,
            other => Ok((other, dice)),
        }
    }

    async fn get(&self, path: &str, range: BytesRange) -> Result<Vec<u8>> {
        let (fault, mut dice) = self.fate(Ask::Get, path).await?;
        let state = self.state();
        let object = state.objects.get(path).ok_or_else(nothing)?;
        let start = range.offset() as usize;
        let end = range
            .size()
            .map_or(object.len(), |size| start + size as usize);
        let beyond = || Error::new(ErrorKind::RangeNotSatisfied, "416 Range Not Satisfiable");
        let mut bytes = object.get(start..end).ok_or_else(beyond)?.to_vec();
        match fault {
            Some(Fault::Cut) => bytes.truncate(dice.below(bytes.len().max(1))),
            Some(Fault::Other) => {
                let fits = |other: &&(String, Vec<u8>)| other.0 != path && other.1.len() >= end;
                let others: Vec<_> = state.history.iter().filter(fits).collect();
                match others.len() {
                    0 => flip(&mut bytes, &mut dice),
                    count => bytes.copy_from_slice(&others[dice.below(count)].1[start..end]),
                }
            }
            Some(Fault::Flipped) => flip(&mut bytes, &mut dice),
            _ => {}
        }
        Ok(bytes)
    }

    async fn put(&self, path: &str, bytes: Vec<u8>) -> Result<()> {
        let (fault, _) = self.fate(Ask::Put, path).await?;
        if fault == Some(Fault::Late) {
            let (this, path) = (self.clone(), path.to_owned());
            tokio::spawn(async move {
                tokio::time::sleep(LATE).await;
                this.state().late.insert(path.clone());
                this.keep(path, bytes);
            });
            return Err(failure("504 Gateway Timeout"));
        }
        self.keep(path.to_owned(), bytes);
        after(fault).await
    }

    fn keep(&self, path: String, bytes: Vec<u8>) {
        let mut state = self.state();
        state.history.push((path.clone(), bytes.clone()));
        state.objects.insert(path, bytes);
    }

    async fn remove(&self, path: &str) -> Result<()> {
        let (fault, _) = self.fate(Ask::Delete, path).await?;
        self.state().objects.remove(path);
        after(fault).await
    }
}

/// Returns the answer to a request that was carried out.
async fn after(fault: Option<Fault>) -> Result<()> {
    match fault {
        Some(Fault::DoneButFailed) => Err(failure("500 Internal Server Error")),
        Some(Fault::DoneButSilent) => std::future::pending().await,
        _ => Ok(()),
    }
}

fn flip(bytes: &mut [u8], dice: &mut Dice) {
    if !bytes.is_empty() {
        let at = dice.below(bytes.len());
        bytes[at] ^= 1 << dice.below(8);
    }
}

fn failure(why: &'static str) -> Error {
    Error::new(ErrorKind::Unexpected, why).set_temporary()
}

fn nothing() -> Error {
    Error::new(ErrorKind::NotFound, "there is no such object")
}

fn unsupported() -> Error {
    Error::new(
        ErrorKind::Unsupported,
        "the simulated service cannot do that",
    )
}

impl Service for SimService {
    type Reader = SimReader;
    type Writer = SimWriter;
    type Lister = ();
    type Deleter = oio::OneShotDeleter<SimService>;
    type Copier = ();
    type Composer = ();

    fn info(&self) -> ServiceInfo {
        ServiceInfo::with_scheme("sim")
    }

    fn capability(&self) -> Capability {
        Capability {
            read: true,
            write: true,
            delete: true,
            stat: true,
            ..Capability::default()
        }
    }

    async fn create_dir(
        &self,
        _: &OperationContext,
        _: &str,
        _: OpCreateDir,
    ) -> Result<RpCreateDir> {
        Err(unsupported())
    }

    async fn stat(&self, _: &OperationContext, path: &str, _: OpStat) -> Result<RpStat> {
        self.fate(Ask::Stat, path).await?;
        let state = self.state();
        let object = state.objects.get(path).ok_or_else(nothing)?;
        let found = MetadataBuilder::file(object.len() as u64).build();
        Ok(RpStat::new(found))
    }

    fn read(&self, _: &OperationContext, path: &str, _: OpRead) -> Result<SimReader> {
        let (service, path) = (self.clone(), path.to_owned());
        Ok(SimReader { service, path })
    }

    fn write(&self, _: &OperationContext, path: &str, _: OpWrite) -> Result<SimWriter> {
        Ok(SimWriter {
            service: self.clone(),
            path: path.to_owned(),
            bytes: Vec::new(),
        })
    }

    fn delete(&self, _: &OperationContext) -> Result<Self::Deleter> {
        Ok(oio::OneShotDeleter::new(self.clone()))
    }

    fn list(&self, _: &OperationContext, _: &str, _: OpList) -> Result<()> {
        Err(unsupported())
    }

    fn copy(&self, _: &OperationContext, _: &str, _: &str, _: OpCopy) -> Result<()> {
        Err(unsupported())
    }

    async fn rename(
        &self,
        _: &OperationContext,
        _: &str,
        _: &str,
        _: OpRename,
    ) -> Result<RpRename> {
        Err(unsupported())
    }

    async fn presign(&self, _: &OperationContext, _: &str, _: OpPresign) -> Result<RpPresign> {
        Err(unsupported())
    }
}

/// A reader of one object.
pub(super) struct SimReader {
    service: SimService,
    path: String,
}

impl oio::Read for SimReader {
    async fn open(&self, range: BytesRange) -> Result<(RpRead, Box<dyn oio::ReadStreamDyn>)> {
        let (answer, bytes) = oio::Read::read(self, range).await?;
        Ok((answer, Box::new(bytes)))
    }

    async fn read(&self, range: BytesRange) -> Result<(RpRead, Buffer)> {
        let bytes = self.service.get(&self.path, range).await?;
        Ok((RpRead::default(), Buffer::from(bytes)))
    }
}

/// A writer of one object.
pub(super) struct SimWriter {
    service: SimService,
    path: String,
    bytes: Vec<u8>,
}

impl oio::Write for SimWriter {
    async fn write(&mut self, bytes: Buffer) -> Result<()> {
        self.bytes.extend_from_slice(&bytes.to_vec());
        Ok(())
    }

    async fn close(&mut self) -> Result<Metadata> {
        let len = self.bytes.len() as u64;
        self.service.put(&self.path, self.bytes.clone()).await?;
        Ok(MetadataBuilder::file(len).build())
    }

    async fn abort(&mut self) -> Result<()> {
        Ok(())
    }
}

impl oio::OneShotDelete for SimService {
    async fn delete_once(&self, path: String, _: OpDelete) -> Result<()> {
        self.remove(&path).await
    }
}
