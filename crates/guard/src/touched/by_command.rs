//! Calls with a command: what an argument names depends on the command.
//!
//! Commands that are not listed name nothing, or no more than a page if a structure of that size is likely. The memory
//! to which the structure of a driver's own `ioctl` points is not known here, except for the few that ordinary programs
//! use.

use super::{PAGE, Walk};
use crate::call::Access;
use crate::futex;

/// The numbers of calls in the table, by name.
mod number {
    pub use crate::futex::NUMBER as FUTEX;
    pub const IOCTL: u16 = 16;
    pub const SETSOCKOPT: u16 = 54;
    pub const SEMCTL: u16 = 66;
    pub const MSGSND: u16 = 69;
    pub const MSGRCV: u16 = 70;
    pub const FCNTL: u16 = 72;
    pub const PTRACE: u16 = 101;
    pub const SIGALTSTACK: u16 = 131;
    pub const PRCTL: u16 = 157;
    pub const MQ_NOTIFY: u16 = 244;
    pub const KEYCTL: u16 = 250;
    pub const PSELECT6: u16 = 270;
    pub const SECCOMP: u16 = 317;
    pub const BPF: u16 = 321;
    pub const IO_PGETEVENTS: u16 = 333;
    pub const IO_URING_REGISTER: u16 = 427;
    pub const FSCONFIG: u16 = 431;
    pub const CLONE3: u16 = 435;
    pub const FUTEX_WAITV: u16 = 449;
    pub const FUTEX_REQUEUE: u16 = 456;
    pub const SETXATTRAT: u16 = 463;
    pub const GETXATTRAT: u16 = 464;
}

impl Walk<'_> {
    /// Reports the memory that argument `index` of the call names.
    ///
    /// # Panics
    /// According to the table, a command decides for this call, but nothing here decides.
    pub(super) fn by_command(&mut self, call: u16, index: usize) {
        let at = self.arguments[index];
        if at == 0 {
            return;
        }
        let [first, second, third, fourth, _, sixth] = *self.arguments;
        match call {
            number::FUTEX if futex::registers(second as u32) >> index & 1 == 0 => {}
            number::FUTEX if index == 3 => self.bytes(at, 16),
            number::FUTEX => self.bytes(at, 4),
            number::IOCTL => self.ioctl(second as u32, at),
            number::FCNTL => self.fcntl(second as u32, at),
            number::SETSOCKOPT => self.setsockopt(at),
            number::SEMCTL => self.semctl(third as u32, at),
            number::MSGSND | number::MSGRCV => self.bytes(at, third.saturating_add(8)),
            number::PTRACE => self.ptrace(first as u32, index, at),
            number::SIGALTSTACK => self.sigaltstack(at),
            number::PRCTL => self.prctl(first as u32, index, at),
            number::MQ_NOTIFY => self.mq_notify(at),
            number::KEYCTL => self.keyctl(first as u32, index, at),
            number::PSELECT6 | number::IO_PGETEVENTS => self.signal_set(at),
            number::SECCOMP if first == 1 => self.program(at),
            number::SECCOMP => self.bytes(at, PAGE),
            number::BPF => self.bpf(first as u32, third, at),
            number::IO_URING_REGISTER => self.bytes(at, u64::from(fourth as u32) * 64),
            number::FSCONFIG if second == 2 => self.bytes(at, u64::from(self.arguments[4] as u32)),
            number::FSCONFIG => self.text(at),
            number::CLONE3 => self.clone3(at, second),
            number::FUTEX_WAITV => self.futexes(at, second.min(128)),
            number::FUTEX_REQUEUE => self.futexes(at, 2),
            number::SETXATTRAT | number::GETXATTRAT => self.attribute(at, sixth),
            other => unreachable!("call {other} has no command"),
        }
    }

    /// The structure of a device's command. Commands in the present format encode its size; older ones have less than a
    /// page.
    fn ioctl(&mut self, command: u32, at: u64) {
        const SIOCGIFCONF: u32 = 0x8912;
        const SIOCETHTOOL: u32 = 0x8946;
        const SG_IO: u32 = 0x2285;
        const FIEMAP: u32 = 0xc020_660b;
        const PAGEMAP_SCAN: u32 = 0xc060_6610;
        const PROCMAP_QUERY: u32 = 0xc068_6611;
        let size = command >> 16 & 0x3fff;
        self.bytes(at, u64::from(size).max(PAGE));
        match command {
            SIOCGIFCONF => {
                if let Some([len, buffer]) = self.words(at) {
                    self.bytes(buffer, u64::from(len as u32));
                }
            }
            SIOCETHTOOL => {
                if let Some([_, _, data]) = self.words(at) {
                    self.bytes(data, PAGE);
                }
            }
            SG_IO => {
                if let Some([_, lengths, data, command, sense]) = self.words(at) {
                    match lengths >> 16 & 0xffff {
                        0 => self.bytes(data, lengths >> 32),
                        ranges => self.vector(data, ranges),
                    }
                    self.bytes(command, lengths & 0xff);
                    self.bytes(sense, lengths >> 8 & 0xff);
                }
            }
            PAGEMAP_SCAN => {
                if let Some([_, _, _, _, _, ranges, count]) = self.words(at) {
                    self.bytes(ranges, count.saturating_mul(24));
                }
            }
            PROCMAP_QUERY => {
                if let Some([lengths, name, build]) = self.words(at.wrapping_add(80)) {
                    self.bytes(name, lengths & 0xffff_ffff);
                    self.bytes(build, lengths >> 32);
                }
            }
            FIEMAP => {
                if let Some([_, _, _, counts]) = self.words(at) {
                    self.bytes(at, 32 + 56 * (counts & 0xffff_ffff));
                }
            }
            _ => {}
        }
    }

    fn fcntl(&mut self, command: u32, at: u64) {
        match command {
            // The locks of a process and of an open file.
            5..=7 | 36..=38 => self.bytes(at, 32),
            // The owner of signals, and hints about lifetimes.
            15..=17 | 1035..=1038 => self.bytes(at, 8),
            _ => {}
        }
    }

    fn setsockopt(&mut self, at: u64) {
        const SOL_SOCKET: u64 = 1;
        const SO_ATTACH_FILTER: u64 = 26;
        const SO_ATTACH_REUSEPORT_CBPF: u64 = 51;
        let [_, level, option, _, len, _] = *self.arguments;
        match (level, option) {
            (SOL_SOCKET, SO_ATTACH_FILTER | SO_ATTACH_REUSEPORT_CBPF) => self.program(at),
            _ => self.bytes(at, u64::from(len as u32)),
        }
    }

    fn semctl(&mut self, command: u32, at: u64) {
        const GETALL: u32 = 13;
        const SETVAL: u32 = 16;
        const SETALL: u32 = 17;
        /// The most semaphores of a set (`SEMMSL`).
        const MOST: u64 = 32000;
        match command {
            GETALL | SETALL => self.bytes(at, 2 * MOST),
            SETVAL => {}
            _ => self.bytes(at, 104),
        }
    }

    /// The tracer's own memory. The third argument is an address of the other process, except with one command.
    fn ptrace(&mut self, command: u32, index: usize, at: u64) {
        const PEEKSIGINFO: u32 = 0x4209;
        const GETREGSET: u32 = 0x4204;
        const SETREGSET: u32 = 0x4205;
        match (command, index) {
            (PEEKSIGINFO, 2) => self.bytes(at, 24),
            (_, 2) => {}
            (PEEKSIGINFO, _) => self.bytes(at, 32 * PAGE),
            (GETREGSET | SETREGSET, _) => {
                self.bytes_as(Access::Writes, at, 16);
                self.vector(at, 1);
            }
            _ => self.bytes(at, PAGE),
        }
    }

    /// The description of a stack, and the stack, on which the kernel later puts the frames of signals.
    fn sigaltstack(&mut self, at: u64) {
        const SS_DISABLE: u64 = 2;
        self.is_kept = false;
        self.bytes_as(Access::Reads, at, 24);
        self.is_kept = true;
        if let Some([stack, flags, size]) = self.words(at)
            && flags & SS_DISABLE == 0
        {
            self.bytes(stack, size);
        }
    }

    fn prctl(&mut self, command: u32, index: usize, at: u64) {
        const SET_SECCOMP: u32 = 22;
        const SET_MM: u32 = 35;
        const SYSCALL_USER_DISPATCH: u32 = 59;
        const SCHED_CORE: u32 = 62;
        const GET_AUXV: u32 = 0x4155_5856;
        const SET_VMA: u32 = 0x5356_4d41;
        let [_, second, third, fourth, ..] = *self.arguments;
        match (command, index) {
            // A number to be written, or the thread's name.
            (2 | 5 | 9 | 11 | 15 | 16 | 19 | 25 | 37 | 40, 1) => self.bytes(at, 16),
            (GET_AUXV, 1) => self.bytes(at, third),
            (SET_SECCOMP, 2) if second == 2 => self.program(at),
            (SET_MM, 2) => self.bytes(at, fourth.clamp(4, PAGE)),
            (SET_VMA, 4) => self.text(at),
            (SCHED_CORE, 4) => self.bytes(at, 8),
            // The kernel reads this byte at each call from now on.
            (SYSCALL_USER_DISPATCH, 4) => {
                self.is_kept = true;
                self.bytes(at, 1);
            }
            _ => {}
        }
    }

    /// A `sigevent`, and the 32 bytes that it names if a thread is to be notified.
    fn mq_notify(&mut self, at: u64) {
        const SIGEV_THREAD: u64 = 2;
        self.bytes(at, 64);
        if let Some([value, how]) = self.words(at)
            && how >> 32 == SIGEV_THREAD
        {
            self.bytes(value, 32);
        }
    }

    fn keyctl(&mut self, command: u32, index: usize, at: u64) {
        let third_counts = self.arguments[3];
        match (command, index) {
            // To join a session, and to search, by name.
            (1, 1) | (10, 2 | 3) => self.text(at),
            // To update, describe, read, instantiate, ask for the label, compute.
            (2 | 6 | 11 | 12 | 17 | 23, 2) => self.bytes(at, third_counts),
            // To instantiate from a vector.
            (20, 2) => self.vector(at, third_counts),
            _ => self.bytes(at, PAGE),
        }
    }

    /// The address and the length of a set of signals, and the set.
    fn signal_set(&mut self, at: u64) {
        self.bytes(at, 16);
        if let Some([set, len]) = self.words(at) {
            self.bytes(set, len.min(128));
        }
    }

    /// The attributes of a command, and a page at each address that may be among them. The loading of a program states
    /// its own count of instructions, and of bytes for the verifier's log.
    fn bpf(&mut self, command: u32, len: u64, at: u64) {
        const PROG_LOAD: u32 = 5;
        const MOST_WORDS: u64 = 18;
        let len = len.min(PAGE);
        self.bytes(at, len);
        for index in 0..(len / 8).min(MOST_WORDS) {
            let Some([word]) = self.words(at.wrapping_add(8 * index)) else {
                return;
            };
            self.bytes(word, PAGE);
        }
        if let (PROG_LOAD, Some([counts, code, _, log, words])) = (command, self.words_of(at, len))
        {
            self.bytes(code, (counts >> 32) * 8);
            self.bytes(words, log >> 32);
        }
    }

    /// A `clone_args`, and the numbers that it names.
    fn clone3(&mut self, at: u64, len: u64) {
        self.bytes_as(Access::Reads, at, len.min(PAGE));
        let Some([_, descriptor, child, parent]) = self.words_of(at, len) else {
            return;
        };
        self.bytes(descriptor, 4);
        self.bytes(parent, 4);
        self.is_kept = true;
        self.bytes(child, 4);
        self.is_kept = false;
        if len >= 80
            && let Some([numbers, count]) = self.words(at.wrapping_add(64))
        {
            self.bytes(numbers, 4 * count.min(32));
        }
    }

    /// `futex_waitv` structures, and the words that they name.
    fn futexes(&mut self, at: u64, count: u64) {
        self.bytes(at, 24 * count);
        for index in 0..count {
            let Some([_, word]) = self.words(at.wrapping_add(24 * index)) else {
                return;
            };
            self.bytes(word, 8);
        }
    }

    /// An `xattr_args`, and the value that it names.
    fn attribute(&mut self, at: u64, len: u64) {
        self.bytes_as(Access::Reads, at, len.min(PAGE));
        if let Some([value, size]) = self.words_of(at, len) {
            self.bytes(value, u64::from(size as u32));
        }
    }
}
