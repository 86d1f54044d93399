//! A program that has much beside its managed memory leaves little for a store in RAM, and nobody knows how much before
//! it runs. python3 with 10.6 MiB of code in a budget of 22 MiB went 1.4 MiB over it, because the store had filled a
//! quarter of the budget and the frames could not go below their least.

mod common;

use common::{Fill, contents, file, ram};
use millpond_core::port::Store;
use millpond_core::swap::SlotId;
use millpond_store::Spill;
use tempfile::TempDir;

const FOLIO: usize = 64 << 10;
const MIB: u64 = 1 << 20;

fn save(store: &Spill, slots: std::ops::Range<u32>) {
    for slot in slots {
        let data = contents(Fill::Text(u64::from(slot)), FOLIO);
        store.save(SlotId(slot), None, &data).unwrap();
    }
}

/// Compressed bytes in RAM.
fn in_ram(store: &Spill) -> u64 {
    store.usages().0.stored_bytes
}

#[test]
fn the_ram_part_follows_the_limit_and_loses_nothing() {
    let directory = TempDir::new().unwrap();
    let store = Spill::new(ram(Some(4 * MIB)), file(directory.path(), None));
    store.limit_ram(MIB);
    save(&store, 0..400);
    let limited = in_ram(&store);
    assert!(limited > MIB / 2 && limited <= MIB, "{limited}");

    store.limit_ram(2 * MIB);
    save(&store, 400..800);
    let raised = in_ram(&store);
    assert!(raised > MIB && raised <= 2 * MIB, "{raised}");

    // Lowered below what is held: that stays, and nothing comes.
    store.limit_ram(MIB);
    save(&store, 800..1000);
    assert_eq!(in_ram(&store), raised);

    // Never beyond what it was made with.
    store.limit_ram(1 << 40);
    save(&store, 1000..2000);
    assert!(in_ram(&store) <= 4 * MIB, "{}", in_ram(&store));

    let mut out = vec![0; FOLIO];
    for slot in 0..2000 {
        store.load(SlotId(slot), 0, &mut out).unwrap();
        assert_eq!(out, contents(Fill::Text(u64::from(slot)), FOLIO), "{slot}");
    }
}
