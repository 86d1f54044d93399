//! The memory that a measurement may take. A measurement is worthless if it makes the machine swap, or if it is
//! killed because memory runs out.

use crate::data::PAGE;
use crate::error::Skip;
use millpond_cli::size::Human;
use std::fs;

/// Memory that the machine needs besides: tables, other processes, the page cache of running programs.
const SPARE: u64 = 512 << 20;

/// Checks that there is room for `bytes` if all of them are touched.
///
/// # Errors
/// The reason why there is no room.
pub fn room_for(bytes: u64) -> Result<(), Skip> {
    let path = "/proc/meminfo";
    let text = fs::read_to_string(path).map_err(|error| Skip(format!("{path}: {error}")))?;
    let available = available(&text).ok_or_else(|| Skip(format!("no MemAvailable in {path}")))?;
    // Millpond's or the kernel's tables take less than a fiftieth.
    let needed = bytes + bytes / 50 + SPARE;
    if needed <= available {
        return Ok(());
    }
    Err(Skip(format!(
        "{} of memory are available and {} would be needed",
        Human(available),
        Human(needed)
    )))
}

/// Halves `bytes` repeatedly until there is room for it, and returns that size.
///
/// # Errors
/// When there is not enough room for any size.
pub fn halved_to_fit(bytes: u64) -> Result<u64, Skip> {
    let page = PAGE as u64;
    let mut less = bytes;
    loop {
        less = less / 2 / page * page;
        match room_for(less) {
            Ok(()) => return Ok(less.max(page)),
            Err(why) if less == 0 => return Err(why),
            Err(_) => {}
        }
    }
}

fn available(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn available_memory_is_parsed_and_larger_requests_are_refused() {
        let text = "MemTotal: 3 kB\nMemAvailable:   12 kB\n";
        assert_eq!(available(text), Some(12288));
        assert_eq!(available("MemTotal: 3 kB\n"), None);
        let why = room_for(1 << 60).unwrap_err().to_string();
        assert!(why.contains("would be needed"), "{why}");
        let less = halved_to_fit(1 << 60).unwrap();
        assert!(room_for(less).is_ok() && room_for(less * 2).is_err());
    }
}
