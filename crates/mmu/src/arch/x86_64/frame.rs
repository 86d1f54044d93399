//! The frame of a signal. The error code of a page fault is among the registers (`REG_ERR`).

use crate::interrupted::{Access, Ended};
use libc::ucontext_t;

fn register(context: &ucontext_t, register: i32) -> usize {
    context.uc_mcontext.gregs[register as usize] as usize
}

pub(crate) fn stack_pointer(context: &ucontext_t) -> usize {
    register(context, libc::REG_RSP)
}

pub(crate) fn instruction(context: &ucontext_t) -> usize {
    register(context, libc::REG_RIP)
}

pub(crate) fn go_on_at(context: &mut ucontext_t, instruction: usize) {
    context.uc_mcontext.gregs[libc::REG_RIP as usize] = instruction as i64;
}

pub(crate) fn access(context: &ucontext_t) -> Option<Access> {
    const WRITE: usize = 1 << 1;
    const FETCH: usize = 1 << 4;
    let error = register(context, libc::REG_ERR);
    Some(match () {
        () if error & FETCH != 0 => Access::Run,
        () if error & WRITE != 0 => Access::Write,
        () => Access::Read,
    })
}

pub(crate) fn stopped_call(context: &ucontext_t) -> (i64, [usize; 6]) {
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

pub(crate) fn answer(context: &mut ucontext_t, answer: i64) {
    context.uc_mcontext.gregs[libc::REG_RAX as usize] = answer;
}

/// The system call instruction.
const CALL: [u8; 2] = [0x0f, 0x05];

pub(crate) fn ended_call(context: &ucontext_t) -> Option<Ended> {
    let (answer, arguments) = stopped_call(context);
    if answer != -i64::from(libc::EINTR) {
        return None;
    }
    // Nearly all code sets the number by the instruction before, `mov eax, NUMBER`.
    const MOVE: u8 = 0xb8;
    let mut code = [0; 5 + CALL.len()];
    let before = instruction(context).wrapping_sub(code.len());
    if !crate::touch::read(before, &mut code) || code[5..] != CALL {
        return None;
    }
    let [first, number @ .., _, _] = code;
    Some(Ended {
        number: (first == MOVE).then_some(u32::from_le_bytes(number) as usize),
        arguments,
    })
}

pub(crate) fn make_again(context: &mut ucontext_t, number: usize, first: usize) {
    answer(context, number as i64);
    context.uc_mcontext.gregs[libc::REG_RDI as usize] = first as i64;
    go_on_at(context, instruction(context) - CALL.len());
}
