//! The types with which the table describes a system call.

/// The most arguments that a system call has.
pub const ARGUMENTS: usize = 6;

/// One system call.
#[derive(Debug)]
pub struct Call {
    /// The number of the call on x86-64, which identifies it on every architecture.
    pub number: u16,
    /// The name, as in the system's header.
    pub name: &'static str,
    /// The arguments of the call, first to last. A register beyond the last one may hold anything.
    pub arguments: &'static [Argument],
}

/// One argument of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Argument {
    /// A number, or an address that the kernel does not follow.
    Value,
    /// An address of pages that the call maps, changes or asks about. The kernel reads and writes nothing there.
    Pages,
    /// The address of memory that the kernel touches until the call returns. Zero is not an address.
    Memory(Access, Extent),
    /// The address of memory that the kernel also touches later, until another call withdraws it or the thread ends.
    Kept(Access, Extent),
}

/// What the kernel does with memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// The kernel reads it.
    Reads,
    /// The kernel writes it, and may read it.
    Writes,
}

/// How much memory an argument names. If an extent depends on another argument, `of` is the index of that one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Extent {
    /// This many bytes.
    Bytes(u32),
    /// As many items of `size` bytes as the other argument says.
    Items {
        /// The argument that counts.
        of: u8,
        /// The size of an item in bytes.
        size: u32,
    },
    /// One bit for each of as many things as the other argument says, in whole words of 8 bytes.
    Bits {
        /// The argument that counts.
        of: u8,
    },
    /// One byte for each page of as many bytes as the other argument says.
    PageBytes {
        /// The argument that counts bytes.
        of: u8,
    },
    /// As many bytes as the 4-byte number says to which the other argument points.
    PointedTo {
        /// The argument that points to the number.
        of: u8,
    },
    /// As many bytes as the structure's own 4-byte field at `offset` says, and no less than `least`.
    Sized {
        /// The offset of the field in bytes.
        offset: u32,
        /// The bytes up to the end of the field.
        least: u32,
        /// The bytes that the field does not count.
        plus: u32,
    },
    /// Bytes up to the first zero, and no more than a path or argument may have.
    Text,
    /// Addresses of texts, up to the first zero.
    Texts,
    /// As many `iovec` as the other argument says, and the memory that they name.
    Vector {
        /// The argument that counts.
        of: u8,
    },
    /// A `msghdr`: itself, the address in it, its vector, its control data.
    Message,
    /// As many `mmsghdr` as the other argument says.
    Messages {
        /// The argument that counts.
        of: u8,
    },
    /// Another argument is a command, and the command decides the extent; `touched/by_command.rs` knows the commands.
    ByCommand,
}

impl Call {
    /// The arguments that name memory, one bit each: any of them stops a call. There are none for a call that returns
    /// twice, which cannot be made on the caller's behalf; the memory that `clone` names is touched by the new thread.
    #[must_use]
    pub const fn pointers(&self) -> u8 {
        let mut bits = 0;
        let mut at = 0;
        while at < self.arguments.len() && !self.returns_twice() {
            if self.arguments[at].names_memory() {
                bits |= 1 << at;
            }
            at += 1;
        }
        bits
    }

    /// Whether the call also returns somewhere other than after its instruction: in a child, or where a signal arrived.
    #[must_use]
    pub const fn returns_twice(&self) -> bool {
        const CLONE: u16 = 56;
        const FORK: u16 = 57;
        const VFORK: u16 = 58;
        const CLONE3: u16 = 435;
        matches!(self.number, CLONE | FORK | VFORK | CLONE3)
    }
}

impl Argument {
    /// Whether the argument is the address of memory that the kernel touches, maps, changes or asks about.
    #[must_use]
    pub const fn names_memory(&self) -> bool {
        !matches!(self, Self::Value)
    }
}
