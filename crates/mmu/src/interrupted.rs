//! What a signal frame says of the thread that it interrupted: where it was, and what it was about to do.
//!
//! The kernel writes a thread's registers into the frame of a signal, each architecture in a form of its own.
//! Everything else that reads them, for faults and for stopped system calls, asks here.
//!
//! - x86-64 has the error code of a page fault among the registers (`REG_ERR`).
//! - aarch64 appends records to the registers, each with a mark and a length. One of them holds the exception syndrome
//!   register (`ESR_EL1`): its class says whether an instruction was fetched, and one bit whether memory was written.

use libc::ucontext_t;

/// What a thread was about to do when it faulted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// It was about to read.
    Read,
    /// It was about to write.
    Write,
    /// It was about to run an instruction there.
    Run,
}

/// The interrupted thread's stack pointer.
#[must_use]
pub fn stack_pointer(context: &ucontext_t) -> usize {
    sys::stack_pointer(context)
}

/// The address of the interrupted thread's next instruction: in a fault, the one that faulted.
#[must_use]
pub fn instruction(context: &ucontext_t) -> usize {
    sys::instruction(context)
}

/// Has the thread go on elsewhere when the handler returns.
pub fn go_on_at(context: &mut ucontext_t, instruction: usize) {
    sys::go_on_at(context, instruction);
}

/// What the thread was about to do, in the frame of a signal that a fault raised. `None` where the frame does not say
/// it: emulators leave it out.
#[must_use]
pub fn access(context: &ucontext_t) -> Option<Access> {
    sys::access(context)
}

/// The number and the arguments of the system call that a filter stopped (SIGSYS).
#[must_use]
pub fn stopped_call(context: &ucontext_t) -> (i64, [usize; 6]) {
    sys::stopped_call(context)
}

/// Sets what the stopped system call answers.
pub fn answer(context: &mut ucontext_t, answer: i64) {
    sys::answer(context, answer);
}

#[cfg(target_arch = "x86_64")]
mod sys {
    use super::Access;
    use libc::ucontext_t;

    fn register(context: &ucontext_t, register: i32) -> usize {
        context.uc_mcontext.gregs[register as usize] as usize
    }

    pub(super) fn stack_pointer(context: &ucontext_t) -> usize {
        register(context, libc::REG_RSP)
    }

    pub(super) fn instruction(context: &ucontext_t) -> usize {
        register(context, libc::REG_RIP)
    }

    pub(super) fn go_on_at(context: &mut ucontext_t, instruction: usize) {
        context.uc_mcontext.gregs[libc::REG_RIP as usize] = instruction as i64;
    }

    pub(super) fn access(context: &ucontext_t) -> Option<Access> {
        const WRITE: usize = 1 << 1;
        const FETCH: usize = 1 << 4;
        let error = register(context, libc::REG_ERR);
        Some(match () {
            () if error & FETCH != 0 => Access::Run,
            () if error & WRITE != 0 => Access::Write,
            () => Access::Read,
        })
    }

    pub(super) fn stopped_call(context: &ucontext_t) -> (i64, [usize; 6]) {
        let arguments = [
            libc::REG_RDI,
            libc::REG_RSI,
            libc::REG_RDX,
            libc::REG_R10,
            libc::REG_R8,
            libc::REG_R9,
        ];
        let number = register(context, libc::REG_RAX) as i64;
        (number, arguments.map(|at| register(context, at)))
    }

    pub(super) fn answer(context: &mut ucontext_t, answer: i64) {
        context.uc_mcontext.gregs[libc::REG_RAX as usize] = answer;
    }
}

#[cfg(target_arch = "aarch64")]
mod sys {
    use super::{Access, syndrome};
    use libc::ucontext_t;

    /// The bytes of the records behind the registers (`__reserved` of `struct sigcontext`).
    const RECORDS: usize = 4096;

    pub(super) fn stack_pointer(context: &ucontext_t) -> usize {
        context.uc_mcontext.sp as usize
    }

    pub(super) fn instruction(context: &ucontext_t) -> usize {
        context.uc_mcontext.pc as usize
    }

    pub(super) fn go_on_at(context: &mut ucontext_t, instruction: usize) {
        context.uc_mcontext.pc = instruction as u64;
    }

    pub(super) fn access(context: &ucontext_t) -> Option<Access> {
        // The records begin at the first multiple of 16 bytes behind the last register, and are the structure's last
        // bytes.
        let start =
            (&raw const context.uc_mcontext).addr() + size_of_val(&context.uc_mcontext) - RECORDS;
        // SAFETY: the bytes are part of the context, and the kernel has written its records there.
        let records = unsafe { core::slice::from_raw_parts(start as *const u8, RECORDS) };
        syndrome::find(records).map(syndrome::access)
    }

    pub(super) fn stopped_call(context: &ucontext_t) -> (i64, [usize; 6]) {
        let registers = &context.uc_mcontext.regs;
        let arguments = core::array::from_fn(|at| registers[at] as usize);
        (registers[8] as i64, arguments)
    }

    pub(super) fn answer(context: &mut ucontext_t, answer: i64) {
        context.uc_mcontext.regs[0] = answer as u64;
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("signal frames are known for x86-64 and aarch64");

/// aarch64's record of the exception syndrome. It is tested on every architecture.
#[cfg(any(target_arch = "aarch64", test))]
mod syndrome {
    use super::Access;

    /// `ESR_MAGIC`.
    const MARK: u32 = 0x4553_5201;
    /// A record's mark and its length in bytes, both of them counted.
    const HEAD: usize = 8;

    /// The exception syndrome among the records of a frame.
    pub(super) fn find(records: &[u8]) -> Option<u64> {
        let word = |at: usize| -> Option<u32> {
            let bytes = records.get(at..at.checked_add(4)?)?;
            Some(u32::from_le_bytes(bytes.try_into().ok()?))
        };
        let mut at = 0;
        loop {
            let (mark, len) = (word(at)?, word(at + 4)? as usize);
            if mark == MARK {
                let (low, high) = (word(at + HEAD)?, word(at + HEAD + 4)?);
                return Some(u64::from(high) << 32 | u64::from(low));
            }
            // A mark of 0 ends the records.
            if mark == 0 || len < HEAD {
                return None;
            }
            at = at.checked_add(len)?;
        }
    }

    /// What the thread was about to do.
    pub(super) fn access(syndrome: u64) -> Access {
        /// An instruction could not be fetched at the program's level.
        const FETCH: u64 = 0x20;
        /// The bit that says that memory was written, unless it is maintenance of a cache that counts as a write.
        const WRITE: u64 = 1 << 6;
        const MAINTENANCE: u64 = 1 << 8;
        match syndrome >> 26 & 0x3f {
            FETCH => Access::Run,
            _ if syndrome & (WRITE | MAINTENANCE) == WRITE => Access::Write,
            _ => Access::Read,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::syndrome::{access, find};
    use super::*;

    fn record(mark: u32, body: &[u8]) -> Vec<u8> {
        let mut record = mark.to_le_bytes().to_vec();
        record.extend((8 + body.len() as u32).to_le_bytes());
        record.extend(body);
        record
    }

    #[test]
    fn the_syndrome_is_found_behind_other_records() {
        const FPSIMD: u32 = 0x4650_8001;
        let syndrome = record(0x4553_5201, &0x9200_004f_u64.to_le_bytes());
        let mut records = record(FPSIMD, &[0; 520]);
        records.extend(&syndrome);
        records.extend([0; 8]);
        assert_eq!(find(&records), Some(0x9200_004f));
        let without = [record(FPSIMD, &[0; 520]), vec![0; 8]].concat();
        assert_eq!(find(&without), None);
    }

    /// A frame is only believed as far as it goes.
    #[test]
    fn records_that_end_early_or_are_empty_name_no_syndrome() {
        let whole = record(0x4553_5201, &[7; 8]);
        for len in 0..whole.len() {
            assert_eq!(find(&whole[..len]), None, "{len} bytes");
        }
        assert_eq!(find(&record(9, &[])[..]), None);
        assert_eq!(find(&[9, 0, 0, 0, 0, 0, 0, 0]), None);
        assert_eq!(find(&[9, 0, 0, 0, 255, 255, 255, 255]), None);
    }

    #[test]
    fn the_syndrome_tells_reads_writes_and_fetches_apart() {
        assert_eq!(access(0x9200_0007), Access::Read);
        assert_eq!(access(0x9200_0047), Access::Write);
        assert_eq!(access(0x9200_0147), Access::Read);
        assert_eq!(access(0x8200_0007), Access::Run);
    }
}
