//! Bodies of exports that need the registers as the caller has left them. The caller's address is in x30.

/// Continues in `$to` with the caller's address as the second argument.
macro_rules! caller_as_second {
    ($to:path) => {
        core::arch::naked_asm!("mov x1, x30", "b {}", sym $to)
    };
}

/// Continues in `$to` with the caller's address as the third argument.
macro_rules! caller_as_third {
    ($to:path) => {
        core::arch::naked_asm!("mov x2, x30", "b {}", sym $to)
    };
}

/// Continues in `$to` with the caller's address as the seventh argument.
macro_rules! caller_as_seventh {
    ($to:path) => {
        core::arch::naked_asm!("mov x6, x30", "b {}", sym $to)
    };
}

/// Clears bits of the second argument and jumps to the address in `$real`.
macro_rules! without_flags_in_second {
    ($flags:expr, $real:path) => {
        core::arch::naked_asm!(
            "and w1, w1, {keep}",
            "adrp x16, {real}",
            "ldr x16, [x16, :lo12:{real}]",
            "br x16",
            keep = const !$flags,
            real = sym $real,
        )
    };
}

/// Clears bits of the third argument and jumps to the address in `$real`.
macro_rules! without_flags_in_third {
    ($flags:expr, $real:path) => {
        core::arch::naked_asm!(
            "and w2, w2, {keep}",
            "adrp x16, {real}",
            "ldr x16, [x16, :lo12:{real}]",
            "br x16",
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
            "cmp w0, #{first}",
            "b.eq 3f",
            "cmp w0, #{second}",
            "b.eq 3f",
            "cmp w0, #{third}",
            "b.eq 3f",
            "adrp x16, {real}",
            "ldr x16, [x16, :lo12:{real}]",
            "cbz x16, 3f",
            "br x16",
            "3:",
            "b {serve}",
            first = const $first,
            second = const $second,
            third = const $third,
            real = sym $real,
            serve = sym $serve,
        )
    };
}

/// Continues in `$serve` if the first argument is a number below `$numbers` that has a bit in `$is_served`, or the
/// address in `$real` is 0, and otherwise at that address. No call that makes a child has a bit here
/// ([`CHILDREN`](super::CHILDREN)).
macro_rules! by_number {
    ($numbers:expr, $is_served:path, $sharing:expr, $real:path, $serve:path) => {
        core::arch::naked_asm!(
            "cmp x0, #{numbers}",
            "b.hs 2f",
            "adrp x16, {is_served}",
            "add x16, x16, :lo12:{is_served}",
            "lsr x17, x0, #6",
            "ldr x16, [x16, x17, lsl #3]",
            "lsr x16, x16, x0",
            "tbnz x16, #0, 3f",
            "2:",
            "adrp x16, {real}",
            "ldr x16, [x16, :lo12:{real}]",
            "cbz x16, 3f",
            "br x16",
            "3:",
            "b {serve}",
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
