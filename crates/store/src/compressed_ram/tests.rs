//! Tests of compressed RAM that use its internals.

use super::*;
use millpond_core::Order;

/// Words that zstd makes smaller than LZ4 does: addresses that begin alike, and small numbers.
fn words(len: usize) -> Vec<u8> {
    let mut draw = 88_172_645_463_325_252_u64;
    let object = |_| {
        draw = draw.wrapping_mul(6364136223846793005).wrapping_add(1);
        [
            0x7f31_0000_0000 | draw >> 44,
            draw >> 58,
            5,
            0x7f31_4444_0010,
        ]
    };
    let words = (0..len / 32).flat_map(object);
    words.flat_map(u64::to_ne_bytes).collect()
}

/// A store that is nearly full with `text` as slot 1.
fn holding(text: &[u8]) -> CompressedRam {
    let store = CompressedRam::new(CompressedRamConfig::default()).unwrap();
    store.save(SlotId(1), None, text).unwrap();
    let ram = store.arena.ram_bytes();
    store.limit_ram(ram + ram / 16);
    store
}

/// Two rounds: what was just saved ages, and is compressed again.
fn recompress(store: &CompressedRam) {
    for _ in 0..2 {
        while store.recompress(false) == Recompress::More {}
    }
}

fn expect_zstd(store: &CompressedRam, zstd: bool) {
    let pinned = store.table.pin(SlotId(1)).unwrap();
    assert!((pinned.blocks()).all(|block| Place::of(&block).is_zstd() == zstd));
}

/// Bytes that do not compress to less than nine tenths, made from `seed`.
fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut draw = seed;
    let word = |_| {
        draw = draw.wrapping_mul(6364136223846793005).wrapping_add(1);
        draw >> 8
    };
    (0..len / 8).map(word).flat_map(u64::to_ne_bytes).collect()
}

/// 40 % of a program's time went into compressing data that had been refused before.
#[test]
fn refused_data_is_compressed_again_when_there_is_room_for_it() {
    let most = Some(1 << 20);
    let store = CompressedRam::new(CompressedRamConfig { max_bytes: most }).unwrap();
    let page = |slot: u32| noise(16 << 10, slot.into());
    let save = |slot: u32| store.save(SlotId(slot), None, &page(slot));
    let full = (0..).find(|&slot| save(slot).is_err()).unwrap();
    let may_fit = |data: &[u8]| {
        let room = &mut [0; MAX_BLOCKS];
        match image::Image::of(data, RAM_BLOCK, &store.sums, room) {
            Some(image::Contents::Image(image)) => store.may_fit(&image),
            _ => unreachable!("it is noise"),
        }
    };
    assert!(!may_fit(&page(full)), "it is known how long it is");
    assert!(may_fit(&page(full + 1)), "nothing is known of this one");
    store.release(SlotId(0));
    assert!(may_fit(&page(full)));
    assert_eq!(save(full), Ok(Saved::Stored));
    let mut out = vec![0; 16 << 10];
    for slot in 1..=full {
        store.load(SlotId(slot), 0, &mut out).unwrap();
        assert_eq!(out, page(slot), "{slot}");
    }
}

/// If there is no other place, refused data stays in memory above the budget.
#[test]
fn data_that_does_not_fit_with_lz4_is_kept_with_zstd() {
    let most = Some(1 << 20);
    let store = CompressedRam::new(CompressedRamConfig { max_bytes: most }).unwrap();
    let text = |slot: u32| {
        let mut text = words(16 << 10);
        text[..4].copy_from_slice(&slot.to_ne_bytes());
        text
    };
    let mut slots = (0..).take_while(|&slot| {
        let saved = store.save(SlotId(slot), None, &text(slot));
        saved == Ok(Saved::Stored)
    });
    let kept = slots.by_ref().count() as u32;
    let by_zstd = |slot: &u32| {
        let pinned = store.table.pin(SlotId(*slot)).unwrap();
        pinned.blocks().all(|block| Place::of(&block).is_zstd())
    };
    let dense = (0..kept).filter(by_zstd).count();
    assert!(dense > 10 && !by_zstd(&0), "{dense} of {kept}");
    let mut out = vec![0; 16 << 10];
    for slot in 0..kept {
        store.load(SlotId(slot), 0, &mut out).unwrap();
        assert_eq!(out, text(slot), "{slot}");
    }
}

#[test]
fn a_store_without_another_place_uses_what_the_budget_leaves() {
    let store = CompressedRam::new(CompressedRamConfig::default()).unwrap();
    // Tables and buffers grow as slots come, and the budget is checked repeatedly.
    let save = |slot: u32, most| {
        Upkeep::limit_ram(&store, most);
        store.save(SlotId(slot), None, &noise(16 << 10, slot.into()))
    };
    let full = (0..).find(|&slot| save(slot, 4 << 20).is_err()).unwrap();
    let ram = store.usage().ram_bytes;
    assert!(ram > 3 << 20 && ram <= 4 << 20, "{ram} after {full} slots");
    assert_eq!(save(full, 8 << 20), Ok(Saved::Stored));
}

#[test]
fn a_flipped_bit_is_noticed() {
    [false, true].into_iter().for_each(notices_a_flipped_bit);
}

fn notices_a_flipped_bit(zstd: bool) {
    let text = words(1 << 17);
    let store = holding(&text);
    if zstd {
        recompress(&store);
    }
    expect_zstd(&store, zstd);
    let block = store.table.pin(SlotId(1)).unwrap().blocks().nth(1).unwrap();
    let place = Place::of(&block).object().unwrap();
    let flip = |at| {
        // SAFETY: the object holds more than 110 bytes, and there is no other thread.
        unsafe { *store.arena.address(place).add(at) ^= 4 };
    };
    let mut out = vec![0; 4096];
    let mut all = vec![0; 1 << 17];
    // The first flip is in the compressed bytes, after the checksums of four pages.
    flip(64 + 40);
    assert_eq!(store.load(SlotId(1), 0, &mut out), Ok(()));
    assert_eq!(out, text[..4096]);
    let mut pages = (4..8).map(|page| store.load(SlotId(1), page, &mut out));
    assert!(pages.any(|loaded| loaded == Err(LoadError::Corrupt)));
    assert_eq!(store.load(SlotId(1), 0, &mut all), Err(LoadError::Corrupt));
    flip(64 + 40);
    assert_eq!(store.load(SlotId(1), 0, &mut all), Ok(()));
    // The second flip is in the checksum of page 5 itself.
    flip(16);
    assert_eq!(store.load(SlotId(1), 5, &mut out), Err(LoadError::Corrupt));
    let page = SlotPart {
        slot: SlotId(1),
        first: 5,
        order: Order::ZERO,
    };
    let saved = store.save(SlotId(2), Some(page), &text[5 << 12..6 << 12]);
    assert_eq!(saved, Ok(Saved::Stored));
}

/// Every byte of every block is damaged in turn, by one bit: no load returns bytes other than those saved.
#[test]
fn no_damage_gives_other_bytes() {
    for (zstd, len) in [(false, 12), (true, 12), (false, 4), (true, 4)] {
        let text = words(len << 10);
        let store = holding(&text);
        if zstd {
            recompress(&store);
        }
        expect_zstd(&store, zstd);
        let block = store.table.pin(SlotId(1)).unwrap().blocks().next().unwrap();
        let object = Place::of(&block).object().unwrap();
        let mut noticed = 0;
        for at in 0..kept_sums(text.len()) + usize::from(block.size) {
            // SAFETY: the object holds this many bytes, and there is no other thread.
            let byte = unsafe { &mut *store.arena.address(object).add(at) };
            *byte ^= 1 << (at % 8);
            for page in 0..len / 4 {
                let mut out = vec![0; PAGE];
                match store.load(SlotId(1), page as u16, &mut out) {
                    Ok(()) => assert_eq!(out, text[page * PAGE..][..PAGE], "byte {at}"),
                    Err(error) => {
                        assert_eq!(error, LoadError::Corrupt);
                        noticed += 1;
                    }
                }
            }
            *byte ^= 1 << (at % 8);
        }
        assert!(noticed > usize::from(block.size) / 2, "{noticed}");
        assert_eq!(store.load(SlotId(1), 0, &mut vec![0; text.len()]), Ok(()));
    }
}

#[test]
fn damaged_data_is_not_compressed_again() {
    let text = words(1 << 16);
    let store = CompressedRam::new(CompressedRamConfig::default()).unwrap();
    for slot in [1, 2] {
        store.save(SlotId(slot), None, &text).unwrap();
    }
    store.limit_ram(store.arena.ram_bytes());
    store.damage(SlotId(1));
    recompress(&store);
    let done = store.recompressed();
    assert_eq!((done.bytes, done.left), (1 << 16, 1 << 16));
    expect_zstd(&store, false);
    let mut out = vec![0; text.len()];
    assert_eq!(store.load(SlotId(1), 0, &mut out), Err(LoadError::Corrupt));
}
