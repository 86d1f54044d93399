//! The seccomp program that stops calls whose memory lies in the arena.
//!
//! The program first checks the architecture, then finds the call's number by binary search, and then checks the
//! registers of those arguments that point to memory, and no others: a register that the call does not use may hold
//! anything, even an address in the arena. Which arguments a futex has depends on its operation (`futex.rs`). The arena
//! begins and ends at multiples of 4 GiB, so that the upper half of a register tells whether it lies inside.
//!
//! Calls that name no memory of the arena are allowed. The kernel determines on its own which numbers are always
//! allowed, and does not run the program for them (`seccomp_cache_prepare`). A stopped call raises SIGSYS. The handler
//! repeats it from one instruction whose address the program knows, and from which every call is allowed. A call that
//! [`table`](crate::table) does not know is answered with `ENOSYS` if it names memory of the arena, as by a kernel that
//! lacks the call.
//!
//! A process that inherits a filter detects it with [`PROBE`], a call that no kernel has: the program answers it with
//! [`PROBED`] if its argument lies in the arena.
//!
//! The program stays with a process that executes another program, and with all its children. If they have no handler,
//! they must not have memory in the arena either: so it has to lie where no ordinary program maps anything.

use crate::call::ARGUMENTS;
use crate::futex;
use crate::table::{HERE, Machine, NUMBERS};
use arrayvec::ArrayVec;

/// The most instructions that the kernel accepts (`BPF_MAXINSNS`).
pub const MOST: usize = 4096;

/// A program, to be passed in a `struct sock_fprog`.
pub type Program = ArrayVec<Instruction, MOST>;

/// One instruction (`struct sock_filter`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Instruction {
    /// The operation.
    pub code: u16,
    /// Instructions that are skipped if a condition holds.
    pub jt: u8,
    /// Instructions that are skipped if it does not hold.
    pub jf: u8,
    /// The operand.
    pub k: u32,
}

/// `SECCOMP_RET_ALLOW`.
pub const ALLOW: u32 = 0x7fff_0000;
/// The `si_errno` of a SIGSYS from this filter: a program may have filters of its own that also raise it.
pub const MARK: u16 = 0x6d70;
/// `SECCOMP_RET_TRAP`, with the mark.
pub const TRAP: u32 = 0x0003_0000 | MARK as u32;
/// `SECCOMP_RET_ERRNO` with `ENOSYS`.
pub const UNKNOWN: u32 = 0x0005_0000 | 38;

/// An unused call number, by which a process asks whether it has this filter.
pub const PROBE: u32 = 511;
/// The error that answers [`PROBE`]: no kernel uses it. It differs between versions of the program.
pub const PROBED: u16 = 3002;
/// `SECCOMP_RET_ERRNO` with [`PROBED`].
const IS_THERE: u32 = 0x0005_0000 | PROBED as u32;

const LOAD: u16 = 0x20;
const JUMP: u16 = 0x05;
const IF_EQUAL: u16 = 0x15;
const IF_AT_LEAST: u16 = 0x35;
const AND: u16 = 0x54;
const RETURN: u16 = 0x06;

/// Offsets in `struct seccomp_data`.
const NUMBER_AT: u32 = 0;
const ARCHITECTURE_AT: u32 = 4;
const INSTRUCTION_AT: u32 = 8;
const ARGUMENTS_AT: u32 = 16;

/// All six registers, for unknown calls.
const ALL: u8 = (1 << ARGUMENTS) - 1;

/// Why there is no filter for an arena.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ArenaError {
    /// The address is not a multiple of 4 GiB.
    #[error("{0:#x} is no multiple of 4 GiB")]
    Unaligned(u64),
    /// The arena is empty, or ends before it begins.
    #[error("the arena is empty")]
    Empty,
}

/// The program for an arena from `start` to `end`, which allows everything for calls that return to `exempt`.
///
/// # Errors
/// The arena does not begin and end at multiples of 4 GiB, or is empty.
///
/// ```
/// use millpond_guard::filter;
/// let program = filter::program(0x100_0000_0000, 0x200_0000_0000, 0x5000_1002).unwrap();
/// assert!(program.len() < filter::MOST);
/// ```
pub fn program(start: u64, end: u64, exempt: u64) -> Result<Program, ArenaError> {
    program_for(HERE, start, end, exempt)
}

fn program_for(
    machine: &'static Machine,
    start: u64,
    end: u64,
    exempt: u64,
) -> Result<Program, ArenaError> {
    for at in [start, end] {
        if at as u32 != 0 {
            return Err(ArenaError::Unaligned(at));
        }
    }
    if start >= end {
        return Err(ArenaError::Empty);
    }
    let mut maker = Maker {
        machine,
        program: Program::new(),
        blocks: ArrayVec::new(),
        jumps: ArrayVec::new(),
        first: (start >> 32) as u32,
        behind: (end >> 32) as u32,
        exempt,
    };
    maker.make();
    Ok(maker.program)
}

/// Numbers from `first` up to the next run, whose calls are treated alike.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Run {
    first: u32,
    is: Treated,
}

/// The treatment of a call.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Treated {
    /// The registers that are checked, one bit each.
    pointers: u8,
    /// The answer if one of them lies in the arena.
    answer: u32,
    /// Whether the registers depend on the operation of a futex.
    by_operation: bool,
}

impl Treated {
    const ALLOWED: Self = Self {
        pointers: 0,
        answer: ALLOW,
        by_operation: false,
    };

    const fn stopped(pointers: u8, answer: u32) -> Self {
        Self {
            pointers,
            answer,
            by_operation: false,
        }
    }
}

type Runs = ArrayVec<Run, { NUMBERS + 2 }>;

fn runs(machine: &Machine) -> Runs {
    let mut runs = Runs::new();
    let mut add = |first, is| {
        if runs.last().is_none_or(|last: &Run| last.is != is) {
            runs.push(Run { first, is });
        }
    };
    for number in 0..=NUMBERS as u32 {
        let call = machine.call(number.into());
        let (pointers, answer) = match call {
            Some(call) => (call.pointers(), TRAP),
            None if number == PROBE => (1, IS_THERE),
            None => (ALL, UNKNOWN),
        };
        match pointers {
            0 => add(number, Treated::ALLOWED),
            _ => add(
                number,
                Treated {
                    by_operation: call.is_some_and(|call| call.number == futex::NUMBER),
                    ..Treated::stopped(pointers, answer)
                },
            ),
        }
    }
    if let Some(narrow) = machine.narrow_from {
        add(narrow, Treated::ALLOWED);
    }
    runs
}

/// The most different treatments: one for each set of registers, one for unknown calls, one for the probe.
const BLOCKS: usize = (1 << ARGUMENTS) + 2;

struct Maker {
    machine: &'static Machine,
    program: Program,
    /// The treatments that are needed, and where each begins.
    blocks: ArrayVec<(Treated, usize), BLOCKS>,
    /// Jumps to a treatment: their place, and the treatment's index.
    jumps: ArrayVec<(usize, usize), { NUMBERS + 2 + futex::WITH_MORE.len() + 1 }>,
    first: u32,
    behind: u32,
    exempt: u64,
}

impl Maker {
    fn make(&mut self) {
        self.load(ARCHITECTURE_AT);
        self.condition(IF_EQUAL, self.machine.architecture, 1, 0);
        self.answer(ALLOW);
        self.load(NUMBER_AT);
        self.find(&runs(self.machine));
        for index in 0..self.blocks.len() {
            self.blocks[index].1 = self.program.len();
            self.look(self.blocks[index].0);
        }
        for (from, block) in std::mem::take(&mut self.jumps) {
            self.program[from].k = (self.blocks[block].1 - from - 1) as u32;
        }
    }

    /// Finds the run of the number by binary search.
    fn find(&mut self, runs: &[Run]) {
        if let [run] = runs {
            return self.treat(run.is);
        }
        let (lower, upper) = runs.split_at(runs.len() / 2);
        // The upper half may be farther away than a conditional jump can reach.
        self.condition(IF_AT_LEAST, upper[0].first, 0, 1);
        let jump = self.program.len();
        self.push(JUMP, 0, 0, 0);
        self.find(lower);
        self.program[jump].k = (self.program.len() - jump - 1) as u32;
        self.find(upper);
    }

    /// Jumps to the code for a treatment, which comes after all runs.
    fn treat(&mut self, is: Treated) {
        if is.pointers == 0 {
            return self.answer(ALLOW);
        }
        if is.by_operation {
            return self.find_operation(is.answer);
        }
        let known = self.blocks.iter().position(|(other, _)| *other == is);
        let block = known.unwrap_or_else(|| {
            self.blocks.push((is, 0));
            self.blocks.len() - 1
        });
        self.jumps.push((self.program.len(), block));
        self.push(JUMP, 0, 0, 0);
    }

    /// Finds the operation of a futex.
    fn find_operation(&mut self, answer: u32) {
        self.load(ARGUMENTS_AT + 8);
        self.push(AND, 0, 0, futex::OPERATION);
        for (operation, registers) in futex::WITH_MORE {
            // Any other operation skips the jump to this one's treatment.
            self.condition(IF_EQUAL, operation, 0, 1);
            self.treat(Treated::stopped(registers, answer));
        }
        self.treat(Treated::stopped(futex::WORD, answer));
    }

    /// Checks the registers of a treatment, and answers.
    fn look(&mut self, is: Treated) {
        let mut left = is.pointers.count_ones() as u8;
        for register in (0..ARGUMENTS as u32).filter(|bit| is.pointers >> bit & 1 == 1) {
            left -= 1;
            self.load(ARGUMENTS_AT + 8 * register + 4);
            self.condition(IF_AT_LEAST, self.first, 0, 1);
            // Inside the arena: skip the three instructions for each of the other registers, and the answer for none.
            self.condition(IF_AT_LEAST, self.behind, 0, 3 * left + 1);
        }
        self.answer(ALLOW);
        for (at, half) in [(0, self.exempt as u32), (4, (self.exempt >> 32) as u32)] {
            self.load(INSTRUCTION_AT + at);
            let to_answer = if at == 0 { 3 } else { 1 };
            self.condition(IF_EQUAL, half, 0, to_answer);
        }
        self.answer(ALLOW);
        self.answer(is.answer);
    }

    fn load(&mut self, offset: u32) {
        self.push(LOAD, 0, 0, offset);
    }

    fn condition(&mut self, code: u16, k: u32, jt: u8, jf: u8) {
        self.push(code, jt, jf, k);
    }

    fn answer(&mut self, answer: u32) {
        self.push(RETURN, 0, 0, answer);
    }

    fn push(&mut self, code: u16, jt: u8, jf: u8, k: u32) {
        self.program.push(Instruction { code, jt, jf, k });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{self, AARCH64, X86_64};
    use proptest::prelude::*;

    const START: u64 = 0x100_0000_0000;
    const END: u64 = 0x2c0_0000_0000;
    const EXEMPT: u64 = 0x7fff_1234_5678;

    /// A call as the kernel presents it to a program (`struct seccomp_data`).
    #[derive(Clone, Copy)]
    struct Data {
        number: u32,
        architecture: u32,
        instruction: u64,
        arguments: [u64; ARGUMENTS],
    }

    impl Data {
        fn of(number: u32, arguments: [u64; ARGUMENTS]) -> Self {
            Self {
                number,
                architecture: HERE.architecture,
                instruction: 0x40_1000,
                arguments,
            }
        }

        fn word(&self, offset: u32) -> u32 {
            let mut bytes = Vec::new();
            bytes.extend(self.number.to_le_bytes());
            bytes.extend(self.architecture.to_le_bytes());
            bytes.extend(self.instruction.to_le_bytes());
            bytes.extend(self.arguments.iter().flat_map(|word| word.to_le_bytes()));
            let at = offset as usize;
            u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
        }
    }

    /// The kernel's side: runs the program, and counts the instructions.
    fn run(program: &Program, data: &Data) -> (u32, usize) {
        let (mut at, mut accumulator, mut steps) = (0, 0, 0);
        loop {
            let Instruction { code, jt, jf, k } = program[at];
            at += 1;
            steps += 1;
            let to = |holds: bool| usize::from(if holds { jt } else { jf });
            match code {
                LOAD => accumulator = data.word(k),
                AND => accumulator &= k,
                JUMP => at += k as usize,
                IF_EQUAL => at += to(accumulator == k),
                IF_AT_LEAST => at += to(accumulator >= k),
                RETURN => return (k, steps),
                other => panic!("instruction {other:#x}"),
            }
        }
    }

    /// The registers of a call that are checked.
    fn looked_at(call: &crate::call::Call, arguments: &[u64; ARGUMENTS]) -> u8 {
        match call.number {
            futex::NUMBER => futex::registers(arguments[1] as u32),
            _ => call.pointers(),
        }
    }

    fn answer(data: &Data) -> u32 {
        run(&program(START, END, EXEMPT).unwrap(), data).0
    }

    #[test]
    fn a_call_is_stopped_by_each_of_its_pointers_and_by_no_other_register() {
        for machine in [&X86_64, &AARCH64] {
            each_pointer_stops(machine);
        }
    }

    fn each_pointer_stops(machine: &'static Machine) {
        let program = program_for(machine, START, END, EXEMPT).unwrap();
        let of = |number: u16, arguments| Data {
            architecture: machine.architecture,
            ..Data::of(number.into(), arguments)
        };
        for (number, call) in machine.calls() {
            for register in 0..ARGUMENTS {
                let mut arguments = [0x7000_0000_0000; ARGUMENTS];
                for at in [START, START + 1, (START + END) / 2, END - 1] {
                    arguments[register] = at;
                    let is_pointer = looked_at(call, &arguments) >> register & 1 == 1;
                    let (answer, steps) = run(&program, &of(number, arguments));
                    let expected = if is_pointer { TRAP } else { ALLOW };
                    assert_eq!(answer, expected, "{} {register} {at:#x}", call.name);
                    assert!(steps < 70, "{}: {steps} instructions", call.name);
                }
                for at in [0, START - 1, END, u64::MAX] {
                    arguments[register] = at;
                    let (answer, _) = run(&program, &of(number, arguments));
                    assert_eq!(answer, ALLOW, "{} {register} {at:#x}", call.name);
                }
            }
        }
    }

    /// Covers threads that were killed: they woke another thread with all signals blocked, and a register that the call
    /// does not use held an address of the arena.
    #[test]
    fn a_futex_is_stopped_by_the_registers_of_its_operation() {
        let futex_here = table::HERE.calls().find(|(_, call)| call.name == "futex");
        let (futex_here, _) = futex_here.unwrap();
        for (operation, registers) in
            futex::WITH_MORE
                .into_iter()
                .chain([(1, 1), (7, 1), (8, 1), (10, 1)])
        {
            for flags in [0, 128, 256, 384] {
                for register in [0, 2, 3, 4, 5] {
                    let mut arguments = [0; ARGUMENTS];
                    arguments[1] = u64::from(operation | flags) | 7 << 32;
                    arguments[register] = START;
                    let expected = if registers >> register & 1 == 1 {
                        TRAP
                    } else {
                        ALLOW
                    };
                    let data = Data::of(u32::from(futex_here), arguments);
                    assert_eq!(answer(&data), expected, "{operation} {flags} {register}");
                }
            }
        }
    }

    #[test]
    fn the_exempt_instruction_may_do_everything() {
        let mut data = Data::of(0, [START; ARGUMENTS]);
        assert_eq!(answer(&data), TRAP);
        data.instruction = EXEMPT;
        assert_eq!(answer(&data), ALLOW);
        for near in [EXEMPT + 1, EXEMPT ^ 1 << 32, EXEMPT & 0xffff_ffff] {
            data.instruction = near;
            assert_eq!(answer(&data), TRAP);
        }
    }

    #[test]
    fn calls_of_other_architectures_and_sizes_pass() {
        let mut data = Data::of(0, [START; ARGUMENTS]);
        data.architecture = 0x4000_0003;
        assert_eq!(answer(&data), ALLOW);
        if let Some(narrow) = HERE.narrow_from {
            assert_eq!(answer(&Data::of(narrow, [START; ARGUMENTS])), ALLOW);
        }
    }

    #[test]
    fn an_arena_must_be_whole_blocks_of_4_gib() {
        let middle = START + (1 << 31);
        assert_eq!(program(middle, END, 0), Err(ArenaError::Unaligned(middle)));
        assert_eq!(program(END, START, 0), Err(ArenaError::Empty));
    }

    proptest! {
        /// A call of any number with any registers is answered as the table says.
        #[test]
        fn any_call_is_answered_by_the_table(
            number in prop_oneof![0..600u32, any::<u32>()],
            arguments in prop::array::uniform6(prop_oneof![any::<u64>(), START - 5..START + 5, START..END]),
        ) {
            let (pointers, stopped) = match table::call(number.into()) {
                Some(call) => (looked_at(call, &arguments), TRAP),
                None if number == PROBE => (1, IS_THERE),
                None if HERE.narrow_from.is_some_and(|from| number >= from) => (0, ALLOW),
                None => (ALL, UNKNOWN),
            };
            let inside = (0..ARGUMENTS)
                .any(|at| pointers >> at & 1 == 1 && (START..END).contains(&arguments[at]));
            let expected = if inside { stopped } else { ALLOW };
            prop_assert_eq!(answer(&Data::of(number, arguments)), expected);
        }
    }
}
