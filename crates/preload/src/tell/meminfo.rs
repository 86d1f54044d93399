//! `/proc/meminfo` with the budget as the machine's memory. We change the lines that concern more than one process's
//! memory and are read by programs that size themselves; all others stay as they are.

use crate::words::{Text, number};

/// Maximum number of bytes of the file that are read. It has 1.6 KiB on Linux 6.18.
pub const MOST: usize = 4096;

/// Adds the file's text to `out`, with the budget and what is left of it, in bytes.
pub fn rewrite(text: &[u8], budget: u64, left: u64, out: &mut Text<MOST>) {
    for line in text.split_inclusive(|&byte| byte == b'\n') {
        match changed(line, budget >> 10, left >> 10) {
            Some((name, width, kib)) => {
                out.add(name);
                out.add_number_at_right(kib, width);
                out.add(b" kB\n");
            }
            None => out.add(line),
        }
    }
}

/// Returns a line's name with its colon, the width of its number, and the new number, or `None` for a line that
/// stays.
fn changed(line: &[u8], budget: u64, left: u64) -> Option<(&[u8], usize, u64)> {
    let colon = line.iter().position(|&byte| byte == b':')?;
    let (name, rest) = line.split_at(colon + 1);
    let value = rest.strip_suffix(b" kB\n")?;
    let now = number(value)?;
    let kib = match name {
        b"MemTotal:" => now.min(budget),
        b"MemFree:" | b"MemAvailable:" => now.min(left),
        b"Buffers:" | b"Cached:" | b"SReclaimable:" | b"SwapCached:" | b"SwapTotal:"
        | b"SwapFree:" => 0,
        _ => return None,
    };
    Some((name, value.len(), kib))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(text: &str, budget: u64, left: u64) -> String {
        let mut out = Text::new();
        rewrite(text.as_bytes(), budget, left, &mut out);
        String::from_utf8(out.bytes().to_vec()).unwrap()
    }

    #[test]
    fn the_lines_keep_their_form() {
        let text = "MemTotal:       24543164 kB\nMemFree:        20000000 kB\nMemAvailable:   22000000 kB\n\
                    Buffers:           12345 kB\nDirty:               100 kB\nHugePages_Total:       0\nSwapTotal:       1048572 kB\n";
        let expected = "MemTotal:          65536 kB\nMemFree:           16384 kB\nMemAvailable:      16384 kB\n\
                        Buffers:               0 kB\nDirty:               100 kB\nHugePages_Total:       0\nSwapTotal:             0 kB\n";
        assert_eq!(rewritten(text, 64 << 20, 16 << 20), expected);
    }

    #[test]
    fn no_figure_is_larger_than_the_machine_has() {
        let text = "MemTotal:           1000 kB\nMemAvailable:        300 kB\n";
        assert_eq!(rewritten(text, 64 << 20, 63 << 20), text);
    }

    #[test]
    fn lines_that_are_not_understood_stay() {
        for text in [
            "",
            "MemTotal",
            "MemTotal: many kB\n",
            "MemTotal: 5 pages\n",
            "\n\n",
        ] {
            assert_eq!(rewritten(text, 1 << 20, 1 << 19), text);
        }
    }
}
