//! The frame of a signal. The registers are followed by records, each with a mark and a length. One of them contains
//! the exception syndrome ([`syndrome`]).

use crate::arch::syndrome;
use crate::interrupted::{Access, Ended};
use libc::ucontext_t;

/// The number of bytes for records after the registers (`__reserved` of `struct sigcontext`).
const RECORDS: usize = 4096;

pub(crate) fn stack_pointer(context: &ucontext_t) -> usize {
    context.uc_mcontext.sp as usize
}

pub(crate) fn instruction(context: &ucontext_t) -> usize {
    context.uc_mcontext.pc as usize
}

pub(crate) fn go_on_at(context: &mut ucontext_t, instruction: usize) {
    context.uc_mcontext.pc = instruction as u64;
}

pub(crate) fn access(context: &ucontext_t) -> Option<Access> {
    // The records begin at the first multiple of 16 bytes after the last register, and are the structure's last
    // bytes.
    let start =
        (&raw const context.uc_mcontext).addr() + size_of_val(&context.uc_mcontext) - RECORDS;
    // SAFETY: the bytes are part of the context, and the kernel has written its records there.
    let records = unsafe { core::slice::from_raw_parts(start as *const u8, RECORDS) };
    syndrome::find(records).map(syndrome::access)
}

pub(crate) fn stopped_call(context: &ucontext_t) -> (i64, [usize; 6]) {
    let registers = &context.uc_mcontext.regs;
    let arguments = core::array::from_fn(|at| registers[at] as usize);
    (registers[8] as i64, arguments)
}

pub(crate) fn answer(context: &mut ucontext_t, answer: i64) {
    context.uc_mcontext.regs[0] = answer as u64;
}

/// The system call instruction, `svc #0`.
const CALL: [u8; 4] = [0x01, 0x00, 0x00, 0xd4];

pub(crate) fn ended_call(context: &ucontext_t) -> Option<Ended> {
    let (_, arguments) = stopped_call(context);
    // The answer is where the first argument was.
    if arguments[0] as isize != -libc::EINTR as isize {
        return None;
    }
    let before = instruction(context).wrapping_sub(CALL.len());
    let mut code = [0; CALL.len()];
    (crate::touch::read(before, &mut code) && code == CALL).then_some(Ended {
        number: None,
        arguments,
    })
}

pub(crate) fn make_again(context: &mut ucontext_t, number: usize, first: usize) {
    let registers = &mut context.uc_mcontext.regs;
    registers[0] = first as u64;
    registers[8] = number as u64;
    go_on_at(context, instruction(context) - CALL.len());
}
