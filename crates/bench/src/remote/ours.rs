//! Millpond's side: a region that exceeds the budget and the file in front.

use crate::data::{self, Contents, PAGE};
use crate::error::Failure;
use crate::remote::work::{Outcome, Task};
use millpond::{Advice, Delivery, Manager, StoreKind};

/// Fills the region, reads what left first in order, and reads what left last at random.
///
/// # Errors
/// When the process cannot get its memory, or the service does not answer.
pub fn work(task: &Task) -> Result<Outcome, Failure> {
    let (within, beyond) = (task.within(), task.beyond());
    let store = StoreKind::Remote {
        url: task.url()?,
        directory: None,
        file_bytes: task.sizes.file_bytes,
        max_bytes: None,
    };
    let settings = Manager::builder().ram(task.sizes.budget_bytes).store(store);
    let manager = settings.delivery(Delivery::InThread).build()?;
    let mut region = manager.region((within + beyond) * PAGE)?;
    let fill = |memory: &mut [u8], first: usize| {
        for (number, page) in memory.chunks_exact_mut(PAGE).enumerate() {
            Contents::Noise.fill(page, first + number);
        }
    };
    let (front, rest) = region.as_mut_slice().split_at_mut(within * PAGE);
    fill(front, 0);
    let clocks = task.start()?;
    fill(rest, within);
    let filled = clocks.stop(beyond)?;

    let mut wrong_pages = 0;
    let memory = region.as_slice();
    let clocks = task.start()?;
    for page in 0..beyond {
        wrong_pages += u64::from(!is_right(memory, page));
    }
    let read = clocks.stop(beyond)?;

    // Pages that were not read since the fill are only in the store: those that were read have taken the budget and
    // the file.
    region.advise(0..memory.len(), Advice::Random)?;
    let accesses = task.sizes.accesses as usize;
    let far = data::random_pages(within.min(beyond), 7).take(accesses);
    let clocks = task.start()?;
    for page in far {
        wrong_pages += u64::from(!is_right(memory, beyond + page));
    }
    let random = clocks.stop(accesses)?;
    Ok(Outcome {
        fill: filled,
        read,
        random,
        store_failures: manager.stats().store_failures,
        wrong_pages,
        ..Outcome::default()
    })
}

fn is_right(memory: &[u8], page: usize) -> bool {
    Contents::Noise.matches(&memory[page * PAGE..][..PAGE], page, 0)
}
