//! Objects in untrusted hands: what was packed comes back, and nothing else is accepted in its place.

use millpond_remote::format::{
    CHUNK, ChunkName, Damaged, Decoder, Encoder, Pack, Packed, RunKey, TAG, UNIT, open_directory,
};
use proptest::prelude::*;
use std::time::{Duration, Instant};

fn key() -> RunKey {
    RunKey::of(&[7; 32], [9; 16])
}

/// Returns pages of one of three kinds: random, text-like, all the same.
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

/// Returns the sealed bytes of one chunk, as a request for their range would.
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
    fn arbitrary_bytes_do_not_open_as_an_object_or_chunk(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        prop_assert!(open_directory(&key(), 1, &bytes).is_err());
        prop_assert!(key().open(1, 1, &name(0), &mut bytes.clone()).is_err());
        // Anything that the seal allows is decoded without a panic, and never into more bytes than requested.
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

/// Checks that nothing else passes for a chunk: not the same place of another object, an earlier use of the slot,
/// another slot or part of one, one of another length, another place of its object, nor a chunk of another run.
#[test]
fn no_chunk_passes_for_another() {
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

/// Returns how long the mutations run: MILLPOND_STRESS_SECS, or 3 seconds.
fn stress_time() -> Duration {
    let seconds = std::env::var("MILLPOND_STRESS_SECS").ok();
    Duration::from_secs(seconds.and_then(|text| text.parse().ok()).unwrap_or(3))
}

/// Random numbers that decide what a mutation does.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((bits ^ (bits >> 31)) % end.max(1) as u64) as usize
    }

    /// Returns a length from short to long, each order of magnitude with equal probability.
    fn length(&mut self, most: usize) -> usize {
        let bits = self.below(usize::BITS as usize - most.leading_zeros() as usize + 1);
        self.below((1 << bits).min(most + 1))
    }
}

/// Changes `bytes` as an attacker might who also has `other`: bits, words, pieces copied from elsewhere, cut out or
/// inserted.
fn mutate(bytes: &mut Vec<u8>, other: &[u8], dice: &mut Dice) {
    let at = dice.below(bytes.len());
    match dice.below(8) {
        0 if !bytes.is_empty() => bytes[at] ^= 1 << dice.below(8),
        1 if !bytes.is_empty() => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][dice.below(5)],
        // Words that look like counts.
        2 if bytes.len() >= 16 => {
            let value =
                [0, 1, u32::MAX, 1 << 20, 1 << 31, dice.below(1 << 22) as u32][dice.below(6)];
            let at = [12, bytes.len() - 16, at.min(bytes.len() - 4) & !3][dice.below(3)];
            bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        }
        3 => bytes.truncate(at),
        4 => {
            let len = dice.length(300);
            bytes.splice(at..at, std::iter::repeat_n(0, len));
        }
        5 => {
            let len = dice.length(bytes.len() - at);
            bytes.drain(at..at + len);
        }
        // Bytes from the same place, or any place, of `other`.
        6 if !other.is_empty() => {
            let from = if dice.below(2) == 0 {
                at.min(other.len() - 1)
            } else {
                dice.below(other.len())
            };
            let len = dice.length((other.len() - from).min(bytes.len() - at));
            bytes[at..at + len].copy_from_slice(&other[from..from + len]);
        }
        _ => {
            let len = dice.length(bytes.len() - at);
            let piece = bytes[at..at + len].to_vec();
            let to = dice.below(bytes.len() + 1);
            bytes.splice(to..to, piece);
        }
    }
}

/// Makes chunks of all kinds and of some lengths, which are the same in all objects of one number.
fn mixed(number: u64) -> Packed {
    let chunks: Vec<Vec<u8>> = (0..5)
        .map(|chunk| {
            contents(
                (chunk % 3) as u8,
                [16, 16, 3, 1, 16][chunk],
                number * 8 + chunk as u64,
            )
        })
        .collect();
    pack(number, &chunks)
}

/// Seeded mutations of whole objects, for as long as the stress time: the directory opens only if no byte that it
/// names has changed or moved, a chunk opens where and as it was, and nothing else does.
#[test]
fn mutated_objects_open_only_where_they_are_as_they_were() {
    let objects = [mixed(1), mixed(2)];
    let end = Instant::now() + stress_time();
    let mut decoder = Decoder::new().unwrap();
    let (mut seed, mut opened, mut refused) = (0, 0_u64, 0_u64);
    while Instant::now() < end || seed < 200 {
        seed += 1;
        let mut dice = Dice(seed);
        let (object, other) = (&objects[dice.below(2)], &objects[dice.below(2)]);
        let mut bytes = object.bytes.clone();
        (0..=dice.length(6)).for_each(|_| mutate(&mut bytes, &other.bytes, &mut dice));
        if let Ok(entries) = open_directory(&key(), object.number, &bytes) {
            assert_eq!(entries, object.entries, "seed {seed}");
            assert_eq!(bytes.len(), object.bytes.len(), "seed {seed}");
        }
        for (index, entry) in object.entries.iter().enumerate() {
            let at = |index: usize| object.places[index] as usize * UNIT;
            let Some(sealed) = bytes.get(at(index)..at(index + 1)) else {
                continue;
            };
            let is_same = *sealed == object.bytes[at(index)..at(index + 1)];
            let mut sealed = sealed.to_vec();
            let place = object.places[index];
            let body = key().open(object.number, place, &entry.name, &mut sealed);
            assert_eq!(body.is_ok(), is_same, "seed {seed}, chunk {index}");
            if let Ok(body) = body {
                let mut out = vec![0; [16, 16, 3, 1, 16][index] * 4096];
                assert_eq!(decoder.decode(body, &mut out), Ok(()), "seed {seed}");
            }
            opened += u64::from(is_same);
            refused += u64::from(!is_same);
        }
    }
    assert!(
        opened > 50 && refused > 50,
        "{opened} opened, {refused} refused"
    );
}

/// Seeded mutations of sealed contents. No store can produce these, only a bug of the encoder: no panic, and no byte
/// beyond what was requested.
#[test]
fn mutated_bodies_are_pages_or_an_error() {
    let end = Instant::now() + stress_time();
    let (mut encoder, mut decoder) = (Encoder::new().unwrap(), Decoder::new().unwrap());
    let bodies: Vec<Vec<u8>> = (0..9)
        .map(|number| {
            encoder
                .encode(&contents(
                    number % 3,
                    1 + usize::from(number),
                    u64::from(number),
                ))
                .to_vec()
        })
        .collect();
    let (mut seed, mut decoded) = (0, 0_u64);
    while Instant::now() < end || seed < 200 {
        seed += 1;
        let mut dice = Dice(seed);
        let mut body = bodies[dice.below(9)].clone();
        let other = &bodies[dice.below(9)];
        (0..dice.length(6)).for_each(|_| mutate(&mut body, other, &mut dice));
        let pages = 1 + dice.below(16);
        let mut out = vec![0x5a; (pages + 1) * 4096];
        let asked = pages * 4096;
        decoded += u64::from(decoder.decode(&body, &mut out[..asked]).is_ok());
        assert!(out[asked..].iter().all(|&byte| byte == 0x5a), "seed {seed}");
    }
    assert!(decoded > 5, "{decoded} of {seed}");
}
