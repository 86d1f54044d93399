//! Measures what a page costs that is read back from a file together with others: microseconds a page, for sixteen
//! pages from all over the file that are loaded one after the other, and for sixteen that are loaded together.
//!
//! `cargo run --release -p millpond-store --example load_together DIRECTORY` runs both ways in turns, and prints the
//! medians of the rounds.

use millpond_core::SlotId;
use millpond_core::port::{Load, Saved, Slots, Upkeep};
use millpond_store::{FileStore, FileStoreConfig};
use std::time::Instant;

const SLOTS: u32 = 64 << 10;
const TOGETHER: usize = 16;
const ROUNDS: usize = 7;
/// Folios of sixteen pages in a round.
const FOLIOS: u32 = 200;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = std::env::args_os().nth(1).ok_or("name a directory")?;
    let store = FileStore::create(&FileStoreConfig::in_directory(directory))?;
    let mut state = 1_u64;
    let mut random = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed ^ mixed >> 27
    };
    let mut page = [0; 4096];
    for slot in 0..SLOTS {
        for word in page.chunks_exact_mut(8) {
            word.copy_from_slice(&random().to_ne_bytes());
        }
        assert_eq!(store.save(SlotId(slot), None, &page), Ok(Saved::Stored));
    }
    println!("{}", store.describe());
    for awake in [false, true] {
        store.stay_awake(awake);
        let mut times = [Vec::new(), Vec::new()];
        for _ in 0..ROUNDS {
            for (together, times) in [false, true].into_iter().zip(&mut times) {
                let start = Instant::now();
                for _ in 0..FOLIOS {
                    let slots =
                        [(); TOGETHER].map(|()| SlotId((random() % u64::from(SLOTS)) as u32));
                    load(&store, slots, together);
                }
                let pages = f64::from(FOLIOS) * TOGETHER as f64;
                times.push(start.elapsed().as_secs_f64() * 1e6 / pages);
            }
        }
        let [alone, together] = times.map(|mut times| {
            times.sort_by(f64::total_cmp);
            times[ROUNDS / 2]
        });
        let way = if awake { "awake" } else { "asleep" };
        println!("{way:<8} one after the other {alone:6.1}   together {together:6.1} us/page");
    }
    Ok(())
}

fn load(store: &FileStore, slots: [SlotId; TOGETHER], together: bool) {
    let mut room = [[0; 4096]; TOGETHER];
    let mut slots = slots.into_iter();
    let mut loads = room.each_mut().map(|out| Load {
        slot: slots.next().expect("one for each"),
        first_page: 0,
        out,
    });
    let loaded = match together {
        true => store.load_all(&mut loads),
        false => loads
            .iter_mut()
            .try_for_each(|load| store.load(load.slot, load.first_page, load.out)),
    };
    assert_eq!(loaded, Ok(()));
}
