//! The jobs of the measured processes.
//!
//! A process gets its job as JSON, in one argument of `millpond-bench worker`, and prints its measurements as JSON.
//! So the sizes and sides of a part are the same values in the benchmark and in the measured process.

use crate::error::{BenchError, Failure};
use crate::millpond_side::{self, How};
use crate::order::BenchOrder;
use crate::phases::{Manner, Work};
use crate::workingset::Place;
use crate::{
    file, fits, folio, free, kernel_swap, lazyfree, remap, run, start, threads, workingset,
};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

/// The job of one measured process.
#[derive(Debug, Serialize, Deserialize)]
pub enum Job {
    /// `swap`, `folio swap`: the phases on Millpond's side.
    Millpond(How, Work, Manner),
    /// The same on the kernel's side, in a memory cgroup.
    KernelSwap(PathBuf, Work, Manner),
    /// `lazyfree cycle`.
    LazyFreeCycle(lazyfree::Side, lazyfree::cycle::Sizes),
    /// `lazyfree workers`, in a memory cgroup if there is one.
    LazyFreeWorkers(lazyfree::Side, Option<PathBuf>, lazyfree::workers::Sizes),
    /// `lazyfree ebizzy`: the program that allocates.
    LazyFreeEbizzy(lazyfree::ebizzy::Run, lazyfree::ebizzy::Program),
    /// `lazyfree rss`, with an order and a number of bytes.
    LazyFreeRss(u8, u64),
    /// `folio mix`, in a memory cgroup if there is one.
    FolioMix(folio::Side, Option<PathBuf>, Work, folio::mix::Sizes),
    /// `folio touch`.
    FolioTouch(folio::Side, folio::touch::Sizes),
    /// `folio sparse`.
    FolioSparse(folio::Side, folio::sparse::Sizes),
    /// `folio header`: the program that uses only headers.
    FolioHeader(folio::header::Sizes),
    /// `folio snapshot`.
    FolioSnapshot(folio::Side, folio::snapshot::Sizes),
    /// `folio latency`.
    FolioLatency(folio::latency::Run, folio::latency::Sizes),
    /// `remap move`, `remap scale`.
    RemapMove(remap::Case, BenchOrder, remap::moving::Sizes),
    /// `remap vec`.
    RemapVec(remap::vec::Side, BenchOrder, remap::vec::Sizes),
    /// `free blocked`.
    FreeBlocked(free::Side, BenchOrder, free::blocked::Sizes),
    /// `free cycle`.
    FreeCycle(free::Side, BenchOrder, free::cycle::Sizes),
    /// `free unmap`: the program that calls `munmap`.
    FreeUnmap(free::unmap::Sizes),
    /// `file`.
    File(file::Task),
    /// `remote`.
    #[cfg(feature = "remote")]
    Remote(crate::remote::Task),
    /// `fits`: starts a part's program on one side, and times it.
    Fits(fits::Task),
    /// `fits heap_reads`: the program, which reads a file this many times.
    FitsHeapReads(PathBuf, u32),
    /// `run`, `programs`: starts the program that the remaining arguments name.
    Run(run::Task),
    /// `threads`.
    Threads(threads::Task),
    /// `start`.
    Start(start::Sizes),
    /// `workingset shift`.
    WorkingsetShift(Place, workingset::shift::Sizes),
    /// `workingset scan`.
    WorkingsetScan(Place, workingset::scan::Sizes),
    /// `workingset groups`.
    WorkingsetGroups(
        workingset::groups::Company,
        BenchOrder,
        workingset::groups::Sizes,
    ),
    /// `workingset metadata`.
    WorkingsetMetadata(BenchOrder, workingset::metadata::Sizes),
    /// `workingset overhead`.
    WorkingsetOverhead(
        workingset::overhead::Detection,
        BenchOrder,
        workingset::overhead::Sizes,
    ),
}

impl Job {
    /// The arguments with which this executable does the job.
    ///
    /// # Errors
    /// When the job cannot be written as JSON, because a path in it is not text.
    pub fn to_arguments(&self) -> Result<[String; 2], BenchError> {
        let job = serde_json::to_string(self);
        let job = job.map_err(|error| BenchError::Start(error.into()))?;
        Ok(["worker".to_owned(), job])
    }

    /// Does the job, and prints what it measured. `program` has the remaining arguments.
    ///
    /// # Errors
    /// When the process cannot get its memory, or print.
    pub fn work(self, program: &[OsString]) -> Result<(), BenchError> {
        match self {
            Self::Millpond(how, work, manner) => say(millpond_side::work(&how, &work, manner)),
            Self::KernelSwap(group, work, manner) => {
                say(kernel_swap::work(&group, &work, manner).map_err(Into::into))
            }
            Self::LazyFreeCycle(side, sizes) => say(lazyfree::cycle::work(side, &sizes)),
            Self::LazyFreeWorkers(side, cgroup, sizes) => {
                say(lazyfree::workers::work(side, &sizes, cgroup.as_deref()))
            }
            Self::LazyFreeEbizzy(run, program) => say(lazyfree::ebizzy::work(run, &program)),
            Self::LazyFreeRss(order, bytes) => say(lazyfree::rss::work(order, bytes)),
            Self::FolioMix(side, cgroup, work, sizes) => {
                say(folio::mix::work(side, cgroup.as_deref(), &work, &sizes))
            }
            Self::FolioTouch(side, sizes) => say(folio::touch::work(side, &sizes)),
            Self::FolioSparse(side, sizes) => say(folio::sparse::work(side, &sizes)),
            Self::FolioHeader(sizes) => say(folio::header::work(&sizes)),
            Self::FolioSnapshot(side, sizes) => say(folio::snapshot::work(side, &sizes)),
            Self::FolioLatency(run, sizes) => say(folio::latency::work(run, &sizes)),
            Self::RemapMove(case, order, sizes) => say(remap::moving::work(case, order, &sizes)),
            Self::RemapVec(side, order, sizes) => say(remap::vec::work(side, order, &sizes)),
            Self::FreeBlocked(side, order, sizes) => say(free::blocked::work(side, order, &sizes)),
            Self::FreeCycle(side, order, sizes) => say(free::cycle::work(side, order, &sizes)),
            Self::FreeUnmap(sizes) => say(free::unmap::work(&sizes)),
            Self::File(task) => say(file::work(&task)),
            #[cfg(feature = "remote")]
            Self::Remote(task) => say(crate::remote::work(&task)),
            Self::Fits(task) => say(fits::work(&task)),
            Self::FitsHeapReads(file, laps) => say(fits::read(&file, laps)),
            Self::Run(task) => say(run::work(&task, program)),
            Self::Threads(task) => say(threads::work(&task)),
            Self::Start(sizes) => say(start::work(&sizes)),
            Self::WorkingsetShift(place, sizes) => say(workingset::shift::work(&place, &sizes)),
            Self::WorkingsetScan(place, sizes) => say(workingset::scan::work(&place, &sizes)),
            Self::WorkingsetGroups(company, order, sizes) => {
                say(workingset::groups::work(company, order, &sizes))
            }
            Self::WorkingsetMetadata(order, sizes) => {
                say(workingset::metadata::work(order, &sizes))
            }
            Self::WorkingsetOverhead(detection, order, sizes) => {
                say(workingset::overhead::work(detection, order, &sizes))
            }
        }
    }
}

/// Prints the measurement.
fn say(measured: Result<impl Serialize, Failure>) -> Result<(), BenchError> {
    let measured = measured.map_err(BenchError::Memory)?;
    serde_json::to_writer(io::stdout(), &measured).map_err(|error| BenchError::Print(error.into()))
}
