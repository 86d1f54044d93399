//! Traces in the formats of other programs, from files, compressed and not.

use millpond_replay::import::{Access, Format, Reading};
use millpond_replay::{OpenError, TraceError, open};
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const PAGES: [u64; 6] = [5, 6, 5, 1 << 40, 0, 7];

fn deltas(values: &[u64]) -> Vec<u8> {
    let (mut bytes, mut last) = (Vec::new(), 0u64);
    for &value in values {
        let delta = value.wrapping_sub(last) as i64;
        last = value;
        let mut bits = ((delta << 1) ^ (delta >> 63)) as u64;
        while bits >= 0x80 {
            bytes.push(bits as u8 | 0x80);
            bits >>= 7;
        }
        bytes.push(bits as u8);
    }
    bytes
}

fn words(values: &[u64]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect()
}

fn oracle(values: &[u64]) -> Vec<u8> {
    let record = |(time, object): (usize, &u64)| {
        let mut record = (time as u32).to_le_bytes().to_vec();
        record.extend(object.to_le_bytes());
        record.extend(100_u32.to_le_bytes());
        record.extend((-1_i64).to_le_bytes());
        record
    };
    values.iter().enumerate().flat_map(record).collect()
}

fn text(values: &[u64]) -> Vec<u8> {
    let line = |value: &u64| format!("{value:#x}\n");
    values.iter().map(line).collect::<String>().into_bytes()
}

fn lackey(values: &[u64]) -> Vec<u8> {
    let line = |value: &u64| format!("I  00400000,3\n L {:x},8\n", value << 12);
    let lines: String = values.iter().map(line).collect();
    format!("==12== Lackey\n{lines}").into_bytes()
}

struct Files(TempDir);

impl Files {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    fn put(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    }
}

fn pages(path: &Path, format: Option<Format>) -> Result<Vec<u64>, String> {
    let (accesses, _) =
        open::open(path, format, Reading::default()).map_err(|error| error.to_string())?;
    accesses
        .map(|access| access.map(|access| access.page))
        .collect::<Result<_, TraceError>>()
        .map_err(|error| error.to_string())
}

#[test]
fn names_and_contents_identify_the_format_of_a_file() {
    let files = Files::new();
    for (name, bytes) in [
        ("a.vz", deltas(&PAGES)),
        ("b.u64", words(&PAGES)),
        ("c.oracleGeneral.bin", oracle(&PAGES)),
        ("d.oracleGeneral", oracle(&PAGES)),
        ("e.txt", text(&PAGES)),
        ("f", lackey(&PAGES)),
        ("g.lackey", lackey(&PAGES)),
    ] {
        let plain = files.put(name, &bytes);
        assert_eq!(pages(&plain, None).unwrap(), PAGES, "{name}");
        let packed = zstd::encode_all(&bytes[..], 3).unwrap();
        let packed = files.put(&format!("{name}.zst"), &packed);
        assert_eq!(pages(&packed, None).unwrap(), PAGES, "{name}.zst");
    }
}

#[test]
fn an_explicit_format_overrides_name_and_contents() {
    let files = Files::new();
    for (format, bytes) in [
        ("vz", deltas(&PAGES)),
        ("u64", words(&PAGES)),
        ("oracleGeneral", oracle(&PAGES)),
        ("plain", text(&PAGES)),
        ("lackey", lackey(&PAGES)),
    ] {
        let path = files.put("misnamed.u64", &bytes);
        let format = Some(format.parse().unwrap());
        assert_eq!(pages(&path, format).unwrap(), PAGES);
    }
    let error = "tape".parse::<Format>().unwrap_err();
    assert!(
        error.contains("\"tape\"") && error.contains("lackey"),
        "{error}"
    );
}

#[test]
fn bit_0_is_the_write_flag_where_the_user_says_so() {
    let files = Files::new();
    let path = files.put("a.u64", &words(&[7 << 1 | 1, 9 << 1]));
    let read = |write_bit| {
        let reading = Reading {
            write_bit,
            ..Reading::default()
        };
        let (accesses, has_writes) = open::open(&path, None, reading).unwrap();
        (accesses.map(Result::unwrap).collect::<Vec<_>>(), has_writes)
    };
    let write = |page| Access { page, write: true };
    assert_eq!(read(true), (vec![write(7), Access::read(9)], true));
    assert_eq!(
        read(false),
        (vec![Access::read(15), Access::read(18)], false)
    );
}

#[test]
fn an_unidentified_file_asks_for_its_format() {
    let files = Files::new();
    let path = files.put("thing", b"\x01\x02 what is this?");
    let error = pages(&path, None).unwrap_err();
    assert!(
        error.contains("thing") && error.contains("--format"),
        "{error}"
    );
    let missing = files.0.path().join("missing");
    let error = open::load(&missing, None, Reading::default()).unwrap_err();
    assert!(matches!(error, OpenError::Open { .. }));
}

#[test]
fn files_that_end_in_the_middle_say_where() {
    let files = Files::new();
    let short = |bytes: Vec<u8>| bytes[..bytes.len() - 1].to_vec();
    for (name, bytes, offset) in [
        ("a.u64", short(words(&PAGES)), 47),
        ("b.oracleGeneral", short(oracle(&PAGES)), 143),
        ("c.vz", vec![2, 2, 0x80], 3),
        (
            "d.u64.zst",
            short(zstd::encode_all(&words(&PAGES)[..], 3).unwrap()),
            0,
        ),
    ] {
        let error = pages(&files.put(name, &bytes), None).unwrap_err();
        assert!(error.contains("ends in the middle"), "{name}: {error}");
        let at = format!("byte {offset} ");
        assert!(offset == 0 || error.contains(&at), "{name}: {error}");
    }
    let error = open::load(&files.put("e.u64", b""), None, Reading::default()).unwrap_err();
    assert!(error.to_string().contains("no accesses"), "{error}");
}

#[test]
fn damage_is_not_read_as_something_else() {
    let files = Files::new();
    let mut packed = zstd::encode_all(&text(&[7; 4000])[..], 3).unwrap();
    let middle = packed.len() / 2;
    packed[middle] ^= 0x55;
    let error = pages(&files.put("a.txt.zst", &packed), Some(Format::Plain)).unwrap_err();
    assert!(error.contains("byte"), "{error}");
    // Bit 64 alone is one bit too many.
    let mut bit_64 = [0xff; 10];
    bit_64[9] = 2;
    for (name, bytes) in [("b.vz", &[0xff; 12][..]), ("c.vz", &bit_64)] {
        let error = pages(&files.put(name, bytes), None).unwrap_err();
        assert!(error.contains("more than 64 bits"), "{error}");
    }
}
