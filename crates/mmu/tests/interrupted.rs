//! The signal frame of a fault says which access the thread was making, and at which instruction and stack pointer. The
//! kernel writes the frame, so these are real faults. The test runs on each architecture for which frames are decoded.

use millpond_mmu::interrupted::{self, Access};
use millpond_mmu::{give_up, read, touch};
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError};

const PAGE: usize = 4096;

/// What the last fault's frame said: the access as a number, the stack pointer, the instruction.
static ACCESS: AtomicUsize = AtomicUsize::new(0);
static STACK: AtomicUsize = AtomicUsize::new(0);
static INSTRUCTION: AtomicUsize = AtomicUsize::new(0);
static FAULTS: AtomicUsize = AtomicUsize::new(0);

const UNSAID: usize = 0;
const READ: usize = 1;
const WRITE: usize = 2;
const RUN: usize = 3;

/// Records what the frame says. The page is opened, so that the instruction succeeds when it is repeated.
extern "C" fn on_sigsegv(_: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes a siginfo and the interrupted context, to which nobody else refers.
    let (address, context) = unsafe {
        let address = (*info).si_addr() as usize;
        (address, &mut *context.cast::<libc::ucontext_t>())
    };
    FAULTS.fetch_add(1, SeqCst);
    let access = match interrupted::access(context) {
        Some(Access::Read) => READ,
        Some(Access::Write) => WRITE,
        Some(Access::Run) => RUN,
        None => UNSAID,
    };
    ACCESS.store(access, SeqCst);
    STACK.store(interrupted::stack_pointer(context), SeqCst);
    INSTRUCTION.store(interrupted::instruction(context), SeqCst);
    if give_up(context) {
        return;
    }
    let page = (address & !(PAGE - 1)) as *mut c_void;
    // SAFETY: each test only closes its own pages.
    let opened = unsafe {
        libc::mprotect(
            page,
            PAGE,
            libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC,
        )
    };
    if opened != 0 {
        // SAFETY: the call ends the process at once.
        unsafe { libc::abort() };
    }
}

/// Returns a closed page. While the guard lives, recorded faults belong to the caller.
fn closed() -> (*mut u8, MutexGuard<'static, ()>) {
    static ALONE: Mutex<()> = Mutex::new(());
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: the handler suits the signal, and the mapping is a new one.
    let page = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_sigsegv as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        assert_eq!(
            libc::sigaction(libc::SIGSEGV, &action, std::ptr::null_mut()),
            0
        );
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        libc::mmap(std::ptr::null_mut(), PAGE, libc::PROT_NONE, flags, -1, 0)
    };
    assert_ne!(page, libc::MAP_FAILED);
    FAULTS.store(0, SeqCst);
    (page.cast(), alone)
}

fn close(page: *mut u8) {
    // SAFETY: the page belongs to this test.
    let closed = unsafe { libc::mprotect(page.cast(), PAGE, libc::PROT_NONE) };
    assert_eq!(closed, 0);
}

/// Checks what the frame said about the access. Only an emulator of another architecture may omit it.
fn expect_access(expected: usize) {
    match ACCESS.load(SeqCst) {
        UNSAID if cfg!(not(target_arch = "x86_64")) => {
            println!("skipped: the frame does not say it")
        }
        said => assert_eq!(said, expected),
    }
}

/// Whether the recorded stack pointer is on the stack that contains `local`, below or near it.
fn is_on_this_stack(local: &u8) -> bool {
    let here = std::ptr::from_ref(local).addr();
    STACK.load(SeqCst).abs_diff(here) < 64 << 10
}

#[test]
fn a_read_and_a_write_are_told_apart() {
    let (page, _alone) = closed();
    // SAFETY: the handler opens the page.
    let byte = unsafe { page.add(100).read_volatile() };
    assert_eq!(byte, 0);
    expect_access(READ);
    assert!(is_on_this_stack(&byte));
    close(page);
    // SAFETY: as above.
    unsafe { page.add(200).write_volatile(7) };
    expect_access(WRITE);
    // SAFETY: the page is open.
    assert_eq!(unsafe { page.add(200).read_volatile() }, 7);
    assert_eq!(FAULTS.load(SeqCst), 2);
}

#[test]
fn an_instruction_fetch_is_distinguished_from_a_read() {
    #[cfg(target_arch = "x86_64")]
    const RETURN: &[u8] = &[0xc3];
    #[cfg(target_arch = "aarch64")]
    const RETURN: &[u8] = &[0xc0, 0x03, 0x5f, 0xd6];
    let (page, _alone) = closed();
    let open = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: the page belongs to this test, and contains a function that only returns. The handler opens it.
    unsafe {
        assert_eq!(libc::mprotect(page.cast(), PAGE, open), 0);
        page.copy_from(RETURN.as_ptr(), RETURN.len());
        close(page);
        let function: extern "C" fn() = std::mem::transmute(page);
        function();
    }
    expect_access(RUN);
    assert_eq!(INSTRUCTION.load(SeqCst), page.addr());
}

#[test]
fn a_touch_that_faults_is_given_up() {
    let (page, _alone) = closed();
    let mut into = [0; 8];
    assert!(!touch(page.addr(), page.addr() + 1));
    assert!(!read(page.addr(), &mut into));
    assert_eq!(FAULTS.load(SeqCst), 2);
    let open = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: the page belongs to this test.
    unsafe {
        assert_eq!(libc::mprotect(page.cast(), PAGE, open), 0);
        page.copy_from(b"12345678".as_ptr(), 8);
    }
    assert!(touch(page.addr(), page.addr() + 1));
    assert!(read(page.addr(), &mut into));
    assert_eq!((&into, FAULTS.load(SeqCst)), (b"12345678", 2));
}
