//! Calls about memory: mappings, advice, placement, and the memory of other processes.

use super::{
    PAGES, TEXT, VALUE, bits, items, page_bytes, reads, row, vector, writes, writes_bytes,
};
use crate::call::Call;

// One line per call.
#[rustfmt::skip]
pub(super) const CALLS: &[Call] = &[
    row(9, "mmap", &[PAGES, VALUE, VALUE, VALUE, VALUE, VALUE]),
    row(10, "mprotect", &[PAGES, VALUE, VALUE]),
    row(11, "munmap", &[PAGES, VALUE]),
    row(12, "brk", &[PAGES]),
    row(25, "mremap", &[PAGES, VALUE, VALUE, VALUE, PAGES]),
    row(26, "msync", &[PAGES, VALUE, VALUE]),
    row(27, "mincore", &[PAGES, VALUE, writes(page_bytes(1))]),
    row(28, "madvise", &[PAGES, VALUE, VALUE]),
    row(29, "shmget", &[VALUE, VALUE, VALUE]),
    row(30, "shmat", &[VALUE, PAGES, VALUE]),
    row(31, "shmctl", &[VALUE, VALUE, writes_bytes(112)]),
    row(67, "shmdt", &[PAGES]),
    row(149, "mlock", &[PAGES, VALUE]),
    row(150, "munlock", &[PAGES, VALUE]),
    row(151, "mlockall", &[VALUE]),
    row(152, "munlockall", &[]),
    row(216, "remap_file_pages", &[PAGES, VALUE, VALUE, VALUE, VALUE]),
    row(237, "mbind", &[PAGES, VALUE, VALUE, reads(bits(4)), VALUE, VALUE]),
    row(238, "set_mempolicy", &[VALUE, reads(bits(2)), VALUE]),
    row(239, "get_mempolicy", &[writes_bytes(4), writes(bits(2)), VALUE, PAGES, VALUE]),
    row(256, "migrate_pages", &[VALUE, VALUE, reads(bits(1)), reads(bits(1))]),
    row(279, "move_pages", &[VALUE, VALUE, reads(items(1, 8)), reads(items(1, 4)), writes(items(1, 4)), VALUE]),
    row(310, "process_vm_readv", &[VALUE, writes(vector(2)), VALUE, reads(vector(4)), VALUE, VALUE]),
    row(311, "process_vm_writev", &[VALUE, reads(vector(2)), VALUE, writes(vector(4)), VALUE, VALUE]),
    row(319, "memfd_create", &[TEXT, VALUE]),
    row(325, "mlock2", &[PAGES, VALUE, VALUE]),
    row(329, "pkey_mprotect", &[PAGES, VALUE, VALUE, VALUE]),
    row(330, "pkey_alloc", &[VALUE, VALUE]),
    row(331, "pkey_free", &[VALUE]),
    row(440, "process_madvise", &[VALUE, reads(items(2, 16)), VALUE, VALUE, VALUE]),
    row(447, "memfd_secret", &[VALUE]),
    row(448, "process_mrelease", &[VALUE, VALUE]),
    row(450, "set_mempolicy_home_node", &[PAGES, VALUE, VALUE, VALUE]),
    row(453, "map_shadow_stack", &[PAGES, VALUE, VALUE]),
    row(462, "mseal", &[PAGES, VALUE, VALUE]),
];
