//! Memory nodes (NUMA): which nodes exist, and from which one the new pages of a range come.

use std::path::Path;

use rustix::io::Errno;

use super::gate;

/// The number of nodes that can be named: the bits of one word of the kernel's mask.
const MOST: u32 = u64::BITS;

/// `MPOL_PREFERRED`: pages come from this node, and from others if it has none.
const PREFERRED: usize = 1;

/// Returns the numbers of the nodes that have memory and are online; `[0]` if the kernel does not tell.
#[must_use]
pub fn online_nodes() -> Vec<u32> {
    let read = |name| {
        let path = Path::new("/sys/devices/system/node").join(name);
        std::fs::read_to_string(path).ok()
    };
    let nodes = |name| read(name).and_then(|text| parse_list(&text));
    let mut nodes = nodes("has_memory")
        .or_else(|| nodes("online"))
        .unwrap_or_default();
    nodes.retain(|&node| node < MOST);
    if nodes.is_empty() { vec![0] } else { nodes }
}

/// Parses a list as the kernel writes it: `0`, `0-3`, `0-1,4,6-7`. Returns `None` for anything else.
fn parse_list(text: &str) -> Option<Vec<u32>> {
    let mut nodes = Vec::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        if last < first || last - first >= 4096 {
            return None;
        }
        nodes.extend(first..=last);
    }
    Some(nodes)
}

/// Takes new pages of these addresses from `node` from now on, as long as the node has any. The addresses are whole
/// pages; pages that are already there do not move.
pub(crate) fn prefer(start: usize, len: usize, node: u32) -> Result<(), Errno> {
    let mask: u64 = 1_u64.checked_shl(node).ok_or(Errno::INVAL)?;
    const NR: usize = linux_raw_sys::general::__NR_mbind as usize;
    let bits = MOST as usize + 1;
    let mask = &raw const mask as usize;
    // SAFETY: the call only changes where the kernel takes new pages from; the mask outlives it. The kernel subtracts
    // one from the number of bits.
    gate::check(unsafe { gate::syscall(NR, [start, len, PREFERRED, mask, bits, 0]) }).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_lists_of_nodes_are_parsed() {
        assert_eq!(parse_list("0\n"), Some(vec![0]));
        assert_eq!(parse_list("0-3\n"), Some(vec![0, 1, 2, 3]));
        assert_eq!(parse_list("0-1,4,6-7"), Some(vec![0, 1, 4, 6, 7]));
        for bad in ["", "\n", "a", "1-", "-1", "3-1", "0,,1", "0-99999"] {
            assert_eq!(parse_list(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn this_machine_has_a_node() {
        assert!(!online_nodes().is_empty());
    }
}
