//! Bodies of exports that need the registers as the caller has left them.

/// Continues in `$to` with the caller's address as the second argument.
macro_rules! caller_as_second {
    ($to:path) => {
        core::arch::naked_asm!("mov rsi, [rsp]", "jmp {}", sym $to)
    };
}

/// Continues in `$to` with the caller's address as the third argument.
macro_rules! caller_as_third {
    ($to:path) => {
        core::arch::naked_asm!("mov rdx, [rsp]", "jmp {}", sym $to)
    };
}

/// Calls `$to` with the caller's address as the seventh argument, which lies on the stack.
macro_rules! caller_as_seventh {
    ($to:path) => {
        core::arch::naked_asm!("push qword ptr [rsp]", "call {to}", "pop rcx", "ret", to = sym $to)
    };
}

/// Clears bits of the second argument and jumps to the address in `$real`.
macro_rules! without_flags_in_second {
    ($flags:expr, $real:path) => {
        core::arch::naked_asm!(
            "and esi, {keep}",
            "jmp qword ptr [rip + {real}]",
            keep = const !$flags,
            real = sym $real,
        )
    };
}

/// Clears bits of the third argument and jumps to the address in `$real`.
macro_rules! without_flags_in_third {
    ($flags:expr, $real:path) => {
        core::arch::naked_asm!(
            "and edx, {keep}",
            "jmp qword ptr [rip + {real}]",
            keep = const !$flags,
            real = sym $real,
        )
    };
}

/// Continues in `$serve` if the first argument is one of the three options or the address in `$real` is 0, and
/// otherwise at that address.
macro_rules! by_option {
    ([$first:expr, $second:expr, $third:expr], $real:path, $serve:path) => {
        core::arch::naked_asm!(
            "cmp edi, {first}",
            "je {serve}",
            "cmp edi, {second}",
            "je {serve}",
            "cmp edi, {third}",
            "je {serve}",
            "mov r11, qword ptr [rip + {real}]",
            "test r11, r11",
            "jz {serve}",
            "jmp r11",
            first = const $first,
            second = const $second,
            third = const $third,
            real = sym $real,
            serve = sym $serve,
        )
    };
}

/// Continues in `$serve` if the first argument is a number below `$numbers` that has a bit in `$is_served`, or the
/// address in `$real` is 0, and otherwise at that address. Of the calls that make a child, it serves those that share
/// nothing of `$sharing` and start where their parent is.
macro_rules! by_number {
    ($numbers:expr, $is_served:path, $sharing:expr, $real:path, $serve:path) => {
        core::arch::naked_asm!(
            "cmp rdi, {numbers}",
            "jae 2f",
            "bt qword ptr [rip + {is_served}], rdi",
            "jnc 2f",
            // For calls that make a child, its flags go to rax and its stack to r11. The kernel refuses a structure
            // that is shorter than that of the first `clone3`.
            "cmp edi, {clone}",
            "je 3f",
            "cmp edi, {clone3}",
            "jne {serve}",
            "cmp rdx, 64",
            "jb 2f",
            "mov rax, qword ptr [rsi]",
            "mov r11, qword ptr [rsi + 40]",
            "jmp 4f",
            "3:",
            "mov rax, rsi",
            "mov r11, rdx",
            "4:",
            "test r11, r11",
            "jnz 2f",
            "test eax, {sharing}",
            "jz {serve}",
            "2:",
            "mov r11, qword ptr [rip + {real}]",
            "test r11, r11",
            "jz {serve}",
            "jmp r11",
            clone = const libc::SYS_clone,
            clone3 = const libc::SYS_clone3,
            sharing = const $sharing,
            numbers = const $numbers,
            is_served = sym $is_served,
            real = sym $real,
            serve = sym $serve,
        )
    };
}

pub(crate) use {
    by_number, by_option, caller_as_second, caller_as_seventh, caller_as_third,
    without_flags_in_second, without_flags_in_third,
};
