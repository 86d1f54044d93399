//! Millpond's own traces survive a round trip, and no damage goes undetected.

use millpond_replay::TraceError;
use millpond_replay::format::{Header, Reader, Writer};
use millpond_replay::import::{Access, Input};
use proptest::prelude::*;
use std::io::Read;

fn write(accesses: &[Access], header: Header) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), header).unwrap();
    for &access in accesses {
        writer.push(access).unwrap();
    }
    assert_eq!(writer.accesses(), accesses.len() as u64);
    writer.finish().unwrap()
}

fn read(file: &[u8]) -> Result<(Header, Vec<Access>), TraceError> {
    read_from(file)
}

fn read_from<'a>(file: impl Read + 'a) -> Result<(Header, Vec<Access>), TraceError> {
    let reader = Reader::new(Input::new(file))?;
    Ok((reader.header(), reader.collect::<Result<_, _>>()?))
}

/// A few accesses that take numbers of all lengths.
fn few() -> Vec<Access> {
    (0..150)
        .map(|n: u64| Access {
            page: n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (n % 60 + 1),
            write: n.is_multiple_of(3),
        })
        .collect()
}

/// A reader that gives one byte at a time.
struct Drip<'a>(&'a [u8]);

impl Read for Drip<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        let n = bytes.len().min(1);
        self.0.read(&mut bytes[..n])
    }
}

proptest! {
    #[test]
    fn written_traces_read_back_unchanged(
        accesses in prop::collection::vec((0u64..1 << 63, any::<bool>()), 0..500),
        page_shift in 9u8..=30,
        has_writes in any::<bool>(),
    ) {
        let header = Header { page_shift, has_writes };
        let accesses: Vec<_> = accesses
            .into_iter()
            .map(|(page, write)| Access { page, write: write && has_writes })
            .collect();
        let file = write(&accesses, header);
        prop_assert_eq!(read(&file).unwrap(), (header, accesses.clone()));
        prop_assert_eq!(read_from(Drip(&file)).unwrap(), (header, accesses));
    }

    #[test]
    fn arbitrary_bytes_are_read_or_refused_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(read(&bytes).is_err());
        let mut file = write(&[], Header::pages_of_4k(false))[..16].to_vec();
        file.extend(&bytes);
        prop_assert!(read(&file).is_err());
    }
}

#[test]
fn a_long_trace_goes_through_small_buffers() {
    let accesses: Vec<_> = (0..300_000)
        .map(|n: u64| Access::read(n.wrapping_mul(0x9e37_79b9) % 100_000))
        .collect();
    let file = write(&accesses, Header::pages_of_4k(false));
    assert!(file.len() < 3 * accesses.len());
    assert_eq!(read(&file).unwrap().1, accesses);
}

#[test]
fn a_loop_takes_next_to_nothing() {
    let accesses: Vec<_> = (0..1_000_000).map(|n| Access::read(n % 5000)).collect();
    let file = write(&accesses, Header::pages_of_4k(false));
    assert!(file.len() < 10_000, "{} bytes", file.len());
}

/// A few bits have no meaning to zstd (how large a window is); when they change, the trace must be the same.
#[test]
fn a_change_of_any_byte_is_detected_or_has_no_effect() {
    let whole = read(&write(&few(), Header::pages_of_4k(true))).unwrap();
    let file = write(&few(), Header::pages_of_4k(true));
    let mut unseen = 0;
    for at in 0..file.len() {
        for change in [0x01, 0x80, 0xff] {
            let mut file = file.clone();
            file[at] ^= change;
            match read(&file) {
                Ok(same) => {
                    assert_eq!(same, whole, "byte {at} ^ {change:#x} gave another trace");
                    unseen += 1;
                }
                Err(
                    TraceError::Corrupt { .. }
                    | TraceError::Truncated { .. }
                    | TraceError::Unknown { .. },
                ) => {}
                Err(error) => panic!("byte {at} ^ {change:#x}: {error}"),
            }
        }
    }
    assert!(unseen <= 3, "{unseen} changes were not seen");
}

#[test]
fn a_truncation_at_any_length_is_detected_with_its_offset() {
    let file = write(&few(), Header::pages_of_4k(true));
    for len in 0..file.len() {
        match read(&file[..len]).expect_err("a part was read as a whole") {
            TraceError::Truncated { offset, .. } => assert_eq!(offset, len as u64),
            error => panic!("{len} bytes: {error}"),
        }
    }
}

#[test]
fn trailing_bytes_are_detected() {
    let file = write(&few(), Header::pages_of_4k(true));
    for rest in [&b"x"[..], &file[..], &[0; 40]] {
        let mut longer = file.clone();
        longer.extend_from_slice(rest);
        assert!(read(&longer).is_err());
    }
}

#[test]
fn a_newer_version_is_distinguished_from_damage() {
    let mut file = write(&few(), Header::pages_of_4k(true));
    file[8] = 2;
    let sum = twox_hash::XxHash3_128::oneshot(&file[..12]) as u32;
    file[12..16].copy_from_slice(&sum.to_le_bytes());
    let error = read(&file).unwrap_err();
    assert!(matches!(error, TraceError::Unknown { value: 2, .. }));
    assert!(error.to_string().contains("newer"), "{error}");
}
