//! Objects against whoever keeps them: what was packed comes back, and nothing else is taken for it.

use millpond_remote::format::{
    CHUNK, ChunkName, Damaged, Decoder, Encoder, Pack, Packed, RunKey, TAG, UNIT, open_directory,
};
use proptest::prelude::*;

fn key() -> RunKey {
    RunKey::of(&[7; 32], [9; 16])
}

/// Pages of one of three kinds: random, text-like, all the same.
fn contents(kind: u8, pages: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    match kind {
        0 => (0..pages * 512)
            .flat_map(|_| next().to_le_bytes())
            .collect(),
        1 => (0..pages * 512)
            .flat_map(|_| (next() % 50).to_le_bytes())
            .collect(),
        _ => vec![seed as u8; pages * 4096],
    }
}

fn name(slot: u32) -> ChunkName {
    ChunkName {
        slot,
        generation: 3,
        index: 0,
        pages: 16,
    }
}

fn pack(number: u64, chunks: &[Vec<u8>]) -> Packed {
    let mut encoder = Encoder::new().unwrap();
    let mut pack = Pack::new(number, 0);
    for (slot, data) in chunks.iter().enumerate() {
        pack.push(&key(), name(slot as u32), encoder.encode(data));
    }
    pack.finish(&key())
}

/// The sealed bytes of one chunk, as a request for their range would bring them.
fn range(packed: &Packed, chunk: usize) -> Vec<u8> {
    let at = |index: usize| packed.places[index] as usize * UNIT;
    packed.bytes[at(chunk)..at(chunk + 1)].to_vec()
}

fn open(packed: &Packed, chunk: usize, as_name: ChunkName, len: usize) -> Result<Vec<u8>, Damaged> {
    let mut sealed = range(packed, chunk);
    let body = key().open(packed.number, packed.places[chunk], &as_name, &mut sealed)?;
    let mut out = vec![0; len];
    Decoder::new().unwrap().decode(body, &mut out)?;
    Ok(out)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn each_chunk_comes_back_from_its_range_alone(
        chunks in prop::collection::vec((0u8..3, 1usize..=16, any::<u64>()), 1..12),
        number in any::<u64>())
    {
        let chunks: Vec<Vec<u8>> = chunks.into_iter().map(|(kind, pages, seed)| contents(kind, pages, seed)).collect();
        let packed = pack(number, &chunks);
        for (index, data) in chunks.iter().enumerate() {
            prop_assert_eq!(&open(&packed, index, name(index as u32), data.len()).unwrap(), data);
        }
        prop_assert_eq!(open_directory(&key(), number, &packed.bytes).unwrap(), packed.entries);
    }

    #[test]
    fn one_changed_bit_anywhere_is_noticed(
        kinds in prop::collection::vec(0u8..3, 1..5), at in any::<prop::sample::Index>(), bit in 0u8..8)
    {
        let chunks: Vec<Vec<u8>> = kinds.iter().map(|&kind| contents(kind, 2, 5)).collect();
        let mut packed = pack(1, &chunks);
        let at = at.index(packed.bytes.len());
        packed.bytes[at] ^= 1 << bit;
        let chunk = (0..chunks.len()).find(|&index| {
            (packed.places[index] as usize * UNIT..packed.places[index + 1] as usize * UNIT).contains(&at)
        });
        match chunk {
            Some(hit) => {
                for (index, data) in chunks.iter().enumerate() {
                    let opened = open(&packed, index, name(index as u32), data.len());
                    prop_assert_eq!(opened == Err(Damaged::Seal), index == hit);
                }
            }
            None => prop_assert!(open_directory(&key(), 1, &packed.bytes).is_err()),
        }
    }

    #[test]
    fn bytes_of_any_kind_are_no_object_and_no_chunk(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        prop_assert!(open_directory(&key(), 1, &bytes).is_err());
        prop_assert!(key().open(1, 1, &name(0), &mut bytes.clone()).is_err());
        // What the seal lets through is decoded all the same without a panic, and never into more than was asked for.
        let mut out = vec![0; 4096];
        let _ = Decoder::new().unwrap().decode(&bytes, &mut out);
    }

    #[test]
    fn an_object_that_was_cut_off_is_noticed(len in any::<prop::sample::Index>()) {
        let packed = pack(1, &[contents(1, 4, 1), contents(0, 1, 2)]);
        let len = len.index(packed.bytes.len());
        prop_assert!(open_directory(&key(), 1, &packed.bytes[..len]).is_err());
    }
}

/// Checks that nothing passes for a chunk but the chunk: not the same place of another object, an earlier use of the
/// slot, another slot or part of one, one of another length, another place of its object, nor another run's.
#[test]
fn nothing_passes_for_another() {
    let data = contents(1, 16, 3);
    let [first, second] = [1, 2].map(|number| pack(number, &[data.clone(), data.clone()]));
    assert!(open(&first, 0, name(0), CHUNK).is_ok());
    let swapped = Packed {
        number: 1,
        bytes: second.bytes,
        entries: second.entries,
        places: second.places,
    };
    assert_eq!(open(&swapped, 0, name(0), CHUNK), Err(Damaged::Seal));
    let others = [
        ChunkName {
            generation: 2,
            ..name(0)
        },
        ChunkName {
            index: 1,
            ..name(0)
        },
        ChunkName {
            pages: 17,
            ..name(0)
        },
        name(1),
    ];
    for other in others {
        assert_eq!(
            open(&first, 0, other, CHUNK),
            Err(Damaged::Seal),
            "{other:?}"
        );
    }
    let mut moved = range(&first, 0);
    assert_eq!(
        key().open(1, first.places[1], &name(0), &mut moved),
        Err(Damaged::Seal)
    );
    let mut longer = [range(&first, 0), vec![0; UNIT]].concat();
    assert_eq!(
        key().open(1, first.places[0], &name(0), &mut longer),
        Err(Damaged::Seal)
    );
    for stranger in [RunKey::of(&[7; 32], [8; 16]), RunKey::of(&[8; 32], [9; 16])] {
        let mut sealed = range(&first, 0);
        let opened = stranger.open(1, first.places[0], &name(0), &mut sealed);
        assert_eq!(opened, Err(Damaged::Seal));
        assert!(open_directory(&stranger, 1, &first.bytes).is_err());
    }
}

#[test]
fn a_chunk_takes_hardly_more_than_its_bytes() {
    let packed = pack(1, &[contents(0, 16, 1)]);
    let len = (packed.places[1] - packed.places[0]) as usize * UNIT;
    assert!(len <= CHUNK + 2 * UNIT + TAG, "{len}");
    let packed = pack(1, &[contents(2, 16, 1)]);
    let len = (packed.places[1] - packed.places[0]) as usize * UNIT;
    assert!(len <= 64, "{len}");
}

#[test]
fn the_key_is_not_shown() {
    let shown = format!("{:?} {:?}", key(), RunKey::draw([1; 16]).unwrap());
    assert_eq!(shown, "RunKey { .. } RunKey { .. }");
}
