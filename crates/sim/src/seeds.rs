//! The seeds that every change is run against.
//!
//! The first seeds are arbitrary and provide breadth. A seed that has found a bug is added with a word about it and
//! stays forever. (A later change of the simulator gives every seed a different history; the bug's own test belongs in
//! core.)

/// The fixed list.
pub const FIXED: [u64; 103] = [
    1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24,
    // A thread that wants to drop a region waited for one that stays under siege: the simulator's own mistake.
    11_028_227,
    // Much lazily freed memory in a pool that is short of places; volatile ranges that are purged while a thread pins.
    33, 162, 134, 171,
    // A group whose pages the kernel all holds, next to a protected one: the judge's own mistake.
    29_422_893,
    // An overwrite announced for what was being read, when the read failed.
    13_178_127, // Poison beside a vectored free of ranges that overlap: the oracle's own mistake.
    1048,       // A merge that waits for places in the pool, with memory to spare.
    18_102_944, // Such a merge of a large base, abandoned although it went on: the simulator's own mistake.
    489_093,    // Bases that end one after the other.
    257, 294, // Moves of losses, beside what is given back, and of what is pinned.
    57, 59, 97, 130, 204, 25, 50, 376, 394, // Pins that outlast a purge.
    62, 150, 151, 214, // With groups, and some with nodes.
    16_777_217, 16_777_218, 16_777_219, 16_777_220, 16_777_221, 16_777_222, 16_777_223, 16_777_224,
    16_777_225, 16_777_227, 16_777_239, 16_777_244, // With files, too.
    33_554_434, 33_554_435, 33_554_436, 33_554_437, 33_554_438, 33_554_439, 33_554_441, 33_554_448,
    33_554_449,
    // A sync that comes to a folio that cannot be read; private pages and a full store.
    33_554_453, 33_554_457,
    33_554_474, // Leaves that leave by their tables; the first one is the answer of a leaf that others went on with.
    50_331_650, 50_331_651, 50_331_652, 50_331_654, 50_331_658, 50_331_659, 50_331_661, 50_331_664,
    50_331_665, 50_331_668, // Streams that have leaves whole.
    67_108_864, 67_108_865, 67_108_866, 67_108_867, 67_108_868, 67_108_869,
    // Windows of a whole leaf; the first two are folios that changed their part while they were listed (KMeans).
    83_886_082, 83_886_086, 83_886_080, 83_886_081, 83_886_083, 83_886_084, 83_886_085, 83_886_087,
    // Adopted memory. (A list of longer numbers would have one in each line.)
    0x600_0000, 0x600_0001, 0x600_0002, 0x600_0003, 0x600_0004, 0x600_0005,
];
