//! The filter in the kernel: the kernel accepts the program, which stops the calls that name memory of the arena and
//! allows all others. A filter applies to one thread and what that thread creates, so each test has a thread of its
//! own.

#![cfg(target_arch = "x86_64")]

use millpond_guard::filter;
use std::arch::global_asm;
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

/// An arena where nothing of a program is: 4 GiB at 32 TiB.
const START: u64 = 0x2000_0000_0000;
const END: u64 = START + (4 << 30);
const PAGE: usize = 4096;

// A call of six arguments: number first, then a pointer to the arguments. The call returns to `guard_test_exempt`.
global_asm!(
    ".globl guard_test_call",
    "guard_test_call:",
    "mov rax, rdi",
    "mov r11, rsi",
    "mov rdi, [r11]",
    "mov rsi, [r11 + 8]",
    "mov rdx, [r11 + 16]",
    "mov r10, [r11 + 24]",
    "mov r8, [r11 + 32]",
    "mov r9, [r11 + 40]",
    "syscall",
    ".globl guard_test_exempt",
    "guard_test_exempt:",
    "ret",
);

unsafe extern "C" {
    fn guard_test_call(number: u64, arguments: *const u64) -> i64;
    fn guard_test_exempt();
}

/// The calls that were stopped.
static STOPPED: AtomicU32 = AtomicU32::new(0);

/// Makes the stopped call from the exempt instruction, and hands its result to the program.
extern "C" fn on_sigsys(_: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    STOPPED.fetch_add(1, SeqCst);
    // SAFETY: the kernel passes the interrupted context, which nobody else refers to.
    let registers = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    let arguments = [
        libc::REG_RDI,
        libc::REG_RSI,
        libc::REG_RDX,
        libc::REG_R10,
        libc::REG_R8,
        libc::REG_R9,
    ]
    .map(|register| registers[register as usize] as u64);
    let number = registers[libc::REG_RAX as usize] as u64;
    // SAFETY: the program asked for this call with these arguments.
    registers[libc::REG_RAX as usize] = unsafe { guard_test_call(number, arguments.as_ptr()) };
}

/// Runs `test` in a thread under the filter, with a mapped page at the beginning of the arena.
fn under_filter(test: impl FnOnce() + Send + 'static) {
    static PREPARED: Once = Once::new();
    static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _alone = ALONE.lock().unwrap();
    // SAFETY: the address is nobody's, which `MAP_FIXED_NOREPLACE` checks, and the handler is made for the signal.
    PREPARED.call_once(|| unsafe {
        let at = libc::mmap(
            START as *mut libc::c_void,
            PAGE,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE,
            -1,
            0,
        );
        assert_eq!(at as u64, START);
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_sigsys as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        assert_eq!(
            libc::sigaction(libc::SIGSYS, &action, std::ptr::null_mut()),
            0
        );
    });
    STOPPED.store(0, SeqCst);
    let thread = std::thread::spawn(|| {
        install();
        test();
    });
    thread.join().unwrap();
}

fn install() {
    let exempt = guard_test_exempt as *const () as u64;
    let program = filter::program(START, END, exempt).unwrap();
    let named = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_ptr().cast_mut().cast(),
    };
    // SAFETY: the kernel reads the program, which is as long as it says.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let mode = libc::SECCOMP_SET_MODE_FILTER;
        assert_eq!(
            libc::syscall(libc::SYS_seccomp, mode, 0, &raw const named),
            0
        );
    }
}

fn stopped() -> u32 {
    STOPPED.swap(0, SeqCst)
}

#[test]
fn a_call_with_memory_of_the_arena_is_stopped_and_made_once_more() {
    under_filter(|| {
        let mut ends = [0; 2];
        let arena = START as *mut u8;
        // SAFETY: the page at the beginning of the arena is this test's.
        unsafe {
            assert_eq!(libc::pipe(ends.as_mut_ptr()), 0);
            assert_eq!(stopped(), 0);
            arena.copy_from(b"hello".as_ptr(), 5);
            assert_eq!(libc::write(ends[1], arena.cast(), 5), 5);
            assert_eq!(stopped(), 1);
            assert_eq!(libc::read(ends[0], arena.add(100).cast(), 100), 5);
            assert_eq!(stopped(), 1);
            assert_eq!(std::slice::from_raw_parts(arena.add(100), 5), b"hello");
            // An error is the kernel's own.
            assert_eq!(libc::read(-1, arena.cast(), 5), -1);
            assert_eq!(
                std::io::Error::last_os_error().raw_os_error(),
                Some(libc::EBADF)
            );
            assert_eq!(stopped(), 1);
            libc::close(ends[0]);
            libc::close(ends[1]);
        }
    });
}

#[test]
fn calls_without_memory_of_the_arena_pass() {
    under_filter(|| {
        let mut bytes = [0u8; 8];
        // SAFETY: the calls write to `bytes`, or to nothing; the page that is mapped and unmapped is nobody else's.
        unsafe {
            assert_eq!(libc::getrandom(bytes.as_mut_ptr().cast(), 8, 0), 8);
            // Registers that a call does not have may hold anything.
            assert!(libc::syscall(libc::SYS_getppid, START, START, START, START, START, START) > 0);
            assert_eq!(stopped(), 0);
            // Pages are mapped and unmapped there, and not touched: such calls are stopped for the sake of an account
            // of mappings.
            let page = (START + (1 << 30)) as *mut libc::c_void;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
            let at = libc::mmap(page, PAGE, libc::PROT_READ, flags, -1, 0);
            assert_eq!(at, page);
            assert_eq!(libc::madvise(page, PAGE, libc::MADV_DONTNEED), 0);
            assert_eq!(libc::munmap(page, PAGE), 0);
        }
        assert_eq!(stopped(), 3);
    });
}

#[test]
fn an_unknown_call_with_memory_of_the_arena_is_refused() {
    under_filter(|| {
        // SAFETY: the kernel has no call of this number.
        unsafe {
            assert_eq!(libc::syscall(510, START), -1);
            assert_eq!(
                std::io::Error::last_os_error().raw_os_error(),
                Some(libc::ENOSYS)
            );
        }
        assert_eq!(stopped(), 0);
    });
}

/// A child that executed another program has no handler and no memory in the arena.
#[test]
fn a_program_that_is_started_under_the_filter_runs() {
    under_filter(|| {
        let output = std::process::Command::new("/bin/sh")
            .args([
                "-c",
                "echo $((6 * 7)); cat /proc/self/status | grep -c Seccomp:",
            ])
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        assert_eq!(output.stdout, b"42\n1\n");
        assert_eq!(stopped(), 0);
    });
}
