//! `futex`: which addresses each operation has.
//!
//! Most operations have one address, and programs pass no more than the operation needs: the other registers hold
//! whatever was in them. A thread that wakes another one must not be stopped because of those. It may have all signals
//! blocked, as the C library's threads do when they begin and end, and would be killed.

/// The call's number.
pub const NUMBER: u16 = 202;

/// The bits of the second argument that hold the operation. The others are flags.
pub const OPERATION: u32 = 0x7f;

const WAIT: u32 = 0;
const REQUEUE: u32 = 3;
const CMP_REQUEUE: u32 = 4;
const WAKE_OP: u32 = 5;
const LOCK_PI: u32 = 6;
const WAIT_BITSET: u32 = 9;
const WAIT_REQUEUE_PI: u32 = 11;
const CMP_REQUEUE_PI: u32 = 12;
const LOCK_PI2: u32 = 13;

/// The word alone; with a time limit (the fourth argument); with a second word (the fifth).
pub const WORD: u8 = 1;
const LIMIT: u8 = 1 << 3;
const SECOND: u8 = 1 << 4;

/// The operations that have more addresses than the word, and the registers of all their addresses.
pub const WITH_MORE: [(u32, u8); 9] = [
    (WAIT, WORD | LIMIT),
    (WAIT_BITSET, WORD | LIMIT),
    (LOCK_PI, WORD | LIMIT),
    (LOCK_PI2, WORD | LIMIT),
    (REQUEUE, WORD | SECOND),
    (CMP_REQUEUE, WORD | SECOND),
    (CMP_REQUEUE_PI, WORD | SECOND),
    (WAKE_OP, WORD | SECOND),
    (WAIT_REQUEUE_PI, WORD | LIMIT | SECOND),
];

/// The registers of an operation's addresses, one bit each.
pub fn registers(second: u32) -> u8 {
    let asked = second & OPERATION;
    let more = WITH_MORE.iter().find(|(operation, _)| *operation == asked);
    more.map_or(WORD, |(_, registers)| *registers)
}
