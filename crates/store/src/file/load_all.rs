//! How several parts come back together: their reads are in flight at the same time.
//!
//! A folded folio (`core/src/tables/fold.rs`) comes from up to sixteen slots, which were written at different times and
//! lie anywhere in the file. Read one after the other they take sixteen times as long as one, whereas a device does
//! eight small reads in the time of three. So the necessary reads are planned first, as single loads would plan them,
//! and submitted together ([`awake`](super::awake)).
//!
//! Only small extents are read this way: a large one keeps the device busy alone. Two parts in one cluster need only
//! one read, which also serves the second part afterwards. A read that cannot be submitted, or comes back short or with
//! an error, is repeated as a single load, and that load reports the error.

use super::FileStore;
use super::alloc::FILE_BLOCK;
use super::awake::{OneRead, SEVERAL};
use super::clusters::{Clusters, Plan};
use arrayvec::ArrayVec;
use millpond_core::port::{Load, LoadError};
use std::ops::Range;

/// A planned read for one of the loads.
struct Planned {
    /// The load's index.
    load: usize,
    file: usize,
    /// The blocks that are needed.
    blocks: Range<u64>,
    /// The blocks that are read.
    read: Range<u64>,
    /// How to keep what is read, if it is to be kept.
    plan: Option<Plan>,
}

impl Planned {
    fn bytes(&self) -> usize {
        (self.read.end - self.read.start) as usize * FILE_BLOCK
    }

    /// The range of the needed blocks' bytes in those that are read.
    fn needed(&self) -> Range<usize> {
        let from = (self.blocks.start - self.read.start) as usize * FILE_BLOCK;
        from..from + (self.blocks.end - self.blocks.start) as usize * FILE_BLOCK
    }
}

type Plans = ArrayVec<Planned, SEVERAL>;

impl FileStore {
    /// Reads several parts.
    pub(crate) fn get_all(&self, loads: &mut [Load<'_>]) -> Result<(), LoadError> {
        for loads in loads.chunks_mut(SEVERAL) {
            let served = self.get_at_once(loads)?;
            for (at, load) in loads.iter_mut().enumerate() {
                if served >> at & 1 == 0 {
                    self.get(load.slot, load.first_page, load.out)?;
                }
            }
        }
        Ok(())
    }

    /// Serves some of the loads by reads that are in flight at the same time. Returns a bit for each load that was
    /// served.
    fn get_at_once(&self, loads: &mut [Load<'_>]) -> Result<u32, LoadError> {
        let mut plans = Plans::new();
        for (at, load) in loads.iter().enumerate() {
            let planned = self.plan_read(at, load, &plans)?;
            plans.extend(planned);
        }
        if plans.len() < 2 {
            return Ok(0);
        }
        let bytes = plans.iter().map(Planned::bytes).sum();
        let mut scratch = self.scratches.acquire(bytes);
        let parts = scratch.parts();
        let mut reads = ArrayVec::new();
        let mut wire = parts.wire;
        for planned in &plans {
            let (buf, rest) = wire.split_at_mut(planned.bytes());
            wire = rest;
            let Some(fd) = self.file(planned.file) else {
                return Ok(0);
            };
            reads.push(OneRead {
                fd,
                buf,
                offset: planned.read.start * FILE_BLOCK as u64,
                read: None,
            });
        }
        self.awake.read_several(&mut reads);
        let mut served = 0;
        for (planned, read) in plans.iter().zip(&mut reads) {
            let needed = planned.needed();
            let Some(count) = read.read.filter(|&count| count >= needed.end) else {
                continue;
            };
            if let Some(plan) = &planned.plan {
                let whole = count - count % FILE_BLOCK;
                let bytes = &read.buf[..whole];
                self.clusters
                    .keep(planned.file, plan, &planned.blocks, bytes);
            }
            let wire = &mut read.buf[needed];
            self.cipher.open(planned.file, planned.blocks.start, wire);
            let load = &mut loads[planned.load];
            let slot = self.table.pin(load.slot).ok_or(LoadError::Missing)?;
            let wanted = self.wanted(&slot, load.first_page, load.out.len())?;
            // A slot released in the meantime may be a different one by now.
            if wanted.file != planned.file || wanted.blocks != planned.blocks {
                continue;
            }
            self.restore(&wanted, wire, Some(&mut *parts.plain), load.out)?;
            served |= 1 << planned.load;
        }
        Ok(served)
    }

    /// The read that a load needs, if it should be in flight together with others.
    fn plan_read(
        &self,
        at: usize,
        load: &Load<'_>,
        plans: &Plans,
    ) -> Result<Option<Planned>, LoadError> {
        let slot = self.table.pin(load.slot).ok_or(LoadError::Missing)?;
        let wanted = self.wanted(&slot, load.first_page, load.out.len())?;
        let (file, blocks) = (wanted.file, wanted.blocks);
        let is_covered = plans.iter().any(|planned| {
            let read = &planned.read;
            planned.file == file && read.start < blocks.end && blocks.start < read.end
        });
        let is_large = blocks.end - blocks.start > Clusters::SMALL;
        if blocks.is_empty() || is_large || is_covered || self.pending.holds(file, &blocks) {
            return Ok(None);
        }
        let missing = self.clusters.missing(file, &blocks, &wanted.around);
        Ok(missing.map(|plan| Planned {
            load: at,
            file,
            read: plan
                .as_ref()
                .map_or(blocks.clone(), |plan| plan.blocks.clone()),
            blocks,
            plan,
        }))
    }
}

#[cfg(test)]
mod tests;
