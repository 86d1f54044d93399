//! The frame of a signal. The error code of a page fault is among the registers (`REG_ERR`).

use crate::interrupted::Access;
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
