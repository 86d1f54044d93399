//! The ranges that calls touch, against memory in a map of bytes.

use super::*;
use crate::table;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Memory of which only bytes written before can be read, and the ranges that were reported.
#[derive(Default)]
struct Memory {
    bytes: BTreeMap<u64, u8>,
    told: Vec<Range>,
}

impl Memory {
    fn put(&mut self, at: u64, bytes: &[u8]) {
        self.bytes.extend((at..).zip(bytes.iter().copied()));
    }

    fn put_words(&mut self, at: u64, words: &[u64]) {
        for (index, word) in words.iter().enumerate() {
            self.put(at + 8 * index as u64, &word.to_le_bytes());
        }
    }

    /// The ranges that a call touches, without the kind of access.
    fn touched(&mut self, name: &str, arguments: [u64; ARGUMENTS]) -> Vec<(u64, u64)> {
        let call = table::X86_64
            .calls()
            .map(|(_, call)| call)
            .find(|call| call.name == name)
            .unwrap();
        tell(call, &arguments, self);
        let told = self.told.iter().map(|range| (range.start, range.len));
        told.collect()
    }
}

impl Source for Memory {
    fn touch(&mut self, range: Range) {
        self.told.push(range);
    }

    fn read(&mut self, at: u64, into: &mut [u8]) -> bool {
        for (at, byte) in (at..).zip(into.iter_mut()) {
            let is_told = |range: &Range| at >= range.start && at - range.start < range.len;
            assert!(
                self.told.iter().any(is_told),
                "{at:#x} is read and was not told"
            );
            match self.bytes.get(&at) {
                Some(&there) => *byte = there,
                None => return false,
            }
        }
        true
    }
}

const A: u64 = 0x10_0000_0000;
const B: u64 = 0x11_0000_0000;
const C: u64 = 0x12_0000_0000;
const D: u64 = 0x13_0000_0000;

#[test]
fn a_buffer_is_as_long_as_its_count_says() {
    assert_eq!(
        Memory::default().touched("read", [3, A, 512, 0, 0, 0]),
        [(A, 512)]
    );
    assert_eq!(
        Memory::default().touched("poll", [A, 3, 0, 0, 0, 0]),
        [(A, 24)]
    );
    assert_eq!(
        Memory::default().touched("mincore", [A, 8193, B, 0, 0, 0]),
        [(B, 3)]
    );
    assert_eq!(
        Memory::default().touched("select", [65, A, 0, 0, 0, 0]),
        [(A, 16)]
    );
}

#[test]
fn nothing_is_touched_at_address_zero_or_for_a_count_of_zero() {
    assert_eq!(Memory::default().touched("read", [3, 0, 512, 0, 0, 0]), []);
    assert_eq!(Memory::default().touched("read", [3, A, 0, 0, 0, 0]), []);
    assert_eq!(
        Memory::default().touched("ioctl", [3, 0x5401, 0, 0, 0, 0]),
        []
    );
}

#[test]
fn an_excessive_count_ends_at_the_last_address() {
    let told = Memory::default().touched("write", [1, A, u64::MAX, 0, 0, 0]);
    assert_eq!(told, [(A, u64::MAX - A)]);
    let told = Memory::default().touched("poll", [A, u64::MAX, 0, 0, 0, 0]);
    assert_eq!(told, [(A, u64::MAX - A)]);
}

#[test]
fn socket_address_length_is_read_through_its_pointer_argument() {
    let mut memory = Memory::default();
    memory.put(B, &28u32.to_le_bytes());
    let told = memory.touched("accept", [3, A, B, 0, 0, 0]);
    assert_eq!(told, [(B, 4), (A, 28), (B, 4)]);
}

#[test]
fn a_string_is_reported_up_to_the_page_with_its_terminator() {
    let mut memory = Memory::default();
    memory.put(A + 4000, &[b'x'; 200]);
    memory.put(A + 4200, &[0]);
    let told = memory.touched("chdir", [A + 4000, 0, 0, 0, 0, 0]);
    assert_eq!(told, [(A + 4000, 96), (A + 4096, 4096)]);
}

#[test]
fn strings_passed_to_exec_are_reported() {
    let mut memory = Memory::default();
    memory.put(A, b"/bin/true\0");
    memory.put_words(B, &[C, C + 100, 0]);
    memory.put(C, b"true\0");
    memory.put(C + 100, b"-x\0");
    let told = memory.touched("execve", [A, B, 0, 0, 0, 0]);
    let expected = [
        (A, 4096),
        (B, 8),
        (C, 4096),
        (B + 8, 8),
        (C + 100, 3996),
        (B + 16, 8),
    ];
    assert_eq!(told, expected);
}

#[test]
fn a_vector_is_read_and_its_ranges_are_written() {
    let mut memory = Memory::default();
    memory.put_words(A, &[B, 100, C, 0, D, 5000]);
    let told = memory.touched("readv", [3, A, 3, 0, 0, 0]);
    assert_eq!(told, [(A, 48), (B, 100), (D, 5000)]);
    let access: Vec<_> = memory.told.iter().map(|range| range.access).collect();
    assert_eq!(access, [Access::Reads, Access::Writes, Access::Writes]);
}

/// The kernel refuses such a vector before it reads it.
#[test]
fn a_vector_that_is_too_long_is_not_touched() {
    assert_eq!(
        Memory::default().touched("writev", [3, A, 1025, 0, 0, 0]),
        []
    );
}

#[test]
fn a_vector_names_no_more_than_a_call_transfers() {
    let mut memory = Memory::default();
    memory.put_words(A, &[B, u64::MAX, C, 100]);
    let told = memory.touched("writev", [3, A, 2, 0, 0, 0]);
    assert_eq!(told, [(A, 32), (B, 0x7fff_f000)]);
}

#[test]
fn a_message_names_address_vector_and_control_data() {
    let mut memory = Memory::default();
    memory.put_words(A, &[B, 16, A + 100, 1, C, 64, 0]);
    memory.put_words(A + 100, &[D, 1000]);
    let told = memory.touched("recvmsg", [3, A, 0, 0, 0, 0]);
    assert_eq!(told, [(A, 56), (B, 16), (A + 100, 16), (D, 1000), (C, 64)]);
}

#[test]
fn an_alternate_stack_is_kept_unless_it_is_given_up() {
    let mut memory = Memory::default();
    memory.put_words(A, &[B, 0, 8192]);
    assert_eq!(
        memory.touched("sigaltstack", [A, 0, 0, 0, 0, 0]),
        [(A, 24), (B, 8192)]
    );
    assert_eq!(
        memory
            .told
            .iter()
            .map(|range| range.is_kept)
            .collect::<Vec<_>>(),
        [false, true]
    );
    let mut memory = Memory::default();
    memory.put_words(A, &[B, 2, 8192]);
    assert_eq!(memory.touched("sigaltstack", [A, 0, 0, 0, 0, 0]), [(A, 24)]);
}

#[test]
fn words_where_the_kernel_writes_a_thread_id_are_reported() {
    let mut memory = Memory::default();
    memory.put_words(A, &[0, 0, B, C, 0, 0, 0, 0]);
    assert_eq!(
        memory.touched("clone3", [A, 64, 0, 0, 0, 0]),
        [(A, 64), (C, 4), (B, 4)]
    );
    assert!(memory.told[2].is_kept && !memory.told[1].is_kept);
}

#[test]
fn a_command_decides_what_its_argument_names() {
    let touched = |name: &str, arguments| Memory::default().touched(name, arguments);
    // FIONREAD, and a command that says that it has 6000 bytes.
    assert_eq!(touched("ioctl", [3, 0x541b, A, 0, 0, 0]), [(A, 4096)]);
    assert_eq!(
        touched("ioctl", [3, 0x8000_0000 | 6000 << 16, A, 0, 0, 0]),
        [(A, 6000)]
    );
    // F_GETFL has no memory, F_SETLK a lock.
    assert_eq!(touched("fcntl", [3, 3, A, 0, 0, 0]), []);
    assert_eq!(touched("fcntl", [3, 6, A, 0, 0, 0]), [(A, 32)]);
    // PR_SET_NAME; PR_SET_DUMPABLE has a number.
    assert_eq!(touched("prctl", [15, A, 0, 0, 0, 0]), [(A, 16)]);
    assert_eq!(touched("prctl", [4, A, 0, 0, 0, 0]), []);
    assert_eq!(touched("msgsnd", [3, A, 100, 0, 0, 0]), [(A, 108)]);
}

/// Covers calls that state the length of a structure. A structure shorter than the fields that may name memory was read
/// beyond its end, where nothing had been brought in (`bpf` with less than 40 bytes, `clone3` with less than 32).
#[test]
fn a_structure_is_not_read_beyond_its_length() {
    for call in table::X86_64.calls().map(|(_, call)| call) {
        for (len, place) in (0..=96).flat_map(|len| (0..ARGUMENTS).map(move |place| (len, place))) {
            for first in [len, 5] {
                let mut arguments = [len; ARGUMENTS];
                arguments[0] = first;
                arguments[place] = A;
                let mut memory = Memory::default();
                memory.put_words(A, &[0; 16]);
                tell(call, &arguments, &mut memory);
            }
        }
    }
}

proptest! {
    /// No call, whatever its arguments and memory, makes the walk fail, read memory that it has not reported, or run
    /// for long.
    #[test]
    fn a_walk_terminates_and_reads_only_reported_memory(
        number in 0..table::NUMBERS as u64,
        arguments in prop::array::uniform6(prop_oneof![0..40u64, A..A + 64, any::<u64>()]),
        words in prop::collection::vec(prop_oneof![0..40u64, A..A + 64, any::<u64>()], 16),
    ) {
        if let Some(call) = table::call(number) {
            let mut memory = Memory::default();
            memory.put_words(A, &words);
            tell(call, &arguments, &mut memory);
            for range in &memory.told {
                prop_assert!(range.start > 0 && range.len > 0);
                prop_assert!(range.start.checked_add(range.len).is_some());
            }
        }
    }
}
