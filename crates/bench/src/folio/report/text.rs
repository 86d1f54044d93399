//! The form for people: a table for each part.

use crate::folio::report::parts::FolioParts;
use millpond_cli::size::Human;
use std::fmt;

/// Writes the tables.
///
/// # Errors
/// When `f` takes no more.
pub fn tables(parts: &FolioParts, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if let Some(part) = &parts.swap {
        let (region, budget) = (Human(part.sizes.pages * 4096), Human(part.sizes.ram));
        part.write(f, &format!("{region} in {budget}, a page or an access"))?;
    }
    if let Some(part) = &parts.mix {
        let threads = part.sizes.threads;
        let heading = "the same by threads, half of them in order";
        part.write(f, &format!("{heading} ({threads}), a page"))?;
    }
    if let Some(part) = &parts.touch {
        let memory = Human(part.sizes.memory_bytes);
        part.write(f, &format!("first touch of {memory}, a page of 4 KiB"))?;
    }
    if let Some(part) = &parts.sparse {
        let (memory, stride) = (
            Human(part.sizes.memory_bytes),
            Human(part.sizes.stride_bytes),
        );
        part.write(f, &format!("one byte each {stride} over {memory}"))?;
    }
    if let Some(part) = &parts.header {
        let block = Human(part.sizes.block_bytes);
        part.write(f, &format!("malloc of {block}, a header, free"))?;
    }
    if let Some(part) = &parts.snapshot {
        let memory = Human(part.sizes.memory_bytes);
        part.write(
            f,
            &format!("image of {memory} (kernel: fork), writing a page"),
        )?;
    }
    if let Some(part) = &parts.latency {
        let (region, budget) = (
            Human(2 * part.sizes.budget_bytes),
            Human(part.sizes.budget_bytes),
        );
        part.write(f, &format!("faults at random over {region} in {budget}"))?;
    }
    Ok(())
}
