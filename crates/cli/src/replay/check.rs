//! `--check-curve` compares the prediction of a run's refault-distance curve for more memory with a replay in that much
//! memory.
//!
//! Prediction and replay are both shares of the run's major faults: loads of pages that had been in memory before.
//! First touches happen with any amount of memory and count for neither.

use millpond_replay::core_policy::{CoreError, CorePolicy};
use millpond_replay::policies::{Misses, Policy};
use millpond_replay::trace::Trace;
use serde::Serialize;

/// Quarters of a run's memory that are added to it: the sizes that the core predicts, and one in between.
const QUARTERS: [u32; 5] = [1, 2, 4, 6, 8];

/// A prediction and the actual result.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct CurveCheck {
    /// Memory of the predicting run.
    pub pages: u32,
    /// Pages that are added to that memory.
    pub more_pages: u32,
    /// The share of major faults that would not have happened, as predicted by the curve.
    pub predicted: f64,
    /// The share of major faults that do not happen in a replay.
    pub replayed: f64,
}

/// Checks the curves among `results`, up to where the whole trace fits.
///
/// # Errors
/// When the core does not accept a size.
pub fn check_curves(
    trace: &Trace,
    results: &[(Policy, Vec<Misses>)],
) -> Result<Vec<CurveCheck>, CoreError> {
    let mut checks = Vec::new();
    for run in results.iter().flat_map(|(_, runs)| runs) {
        let Some(curve) = &run.curve else { continue };
        let room = trace.footprint().saturating_sub(run.pages);
        for quarters in QUARTERS {
            let more_pages = run.pages / 4 * quarters;
            if more_pages == 0 || more_pages >= room || curve.faults() == 0 {
                continue;
            }
            let larger = CorePolicy::replay(trace, run.pages + more_pages)?;
            checks.push(CurveCheck {
                pages: run.pages,
                more_pages,
                predicted: curve.avoided(u64::from(more_pages)),
                replayed: 1.0 - larger.counts().refaults as f64 / curve.faults() as f64,
            });
        }
    }
    Ok(checks)
}
