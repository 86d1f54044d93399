//! How much of the faulting thread's stack a fault needs, and that a stack of 64 KiB is enough.
//!
//! With in-thread delivery the handler of SIGBUS runs where the program faulted, on its stack. Programs make threads
//! with small stacks, and a handler that goes too deep there ends the program by SIGSEGV. So each kind of fault is
//! taken here on a stack of 64 KiB with a closed page below it, filled with a pattern beforehand: bytes that no longer
//! have the pattern were used.

mod common;

use common::MIB;
use millpond::{Advice, Delivery, Manager, ManagerBuilder, Order, Region, StoreKind};
use std::ffi::c_void;

const STACK: usize = 64 << 10;
const PAGE: usize = 4096;
const PAINT: u8 = 0xA5;
/// Most bytes that a fault needs by the promise of `delivery/in_thread.rs` and the documentation, the frame of the
/// signal included.
const NEED: usize = 48 << 10;

type Act<'a> = &'a mut (dyn FnMut() + Send);

extern "C" fn run(act: *mut c_void) -> *mut c_void {
    // SAFETY: `on_small_stack` passes an `Act` that outlives the thread.
    unsafe { (*act.cast::<Act<'_>>())() };
    std::ptr::null_mut()
}

/// Runs `act` in a thread with a small stack. Returns how many bytes of the stack were used.
fn on_small_stack(mut act: Act<'_>) -> usize {
    // SAFETY: the mapping is new, and its lowest page is closed; the thread that has it as its stack is joined before
    // the mapping ends.
    unsafe {
        let (open, private) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
        );
        let base = libc::mmap(std::ptr::null_mut(), STACK + PAGE, open, private, -1, 0);
        assert_ne!(base, libc::MAP_FAILED);
        assert_eq!(libc::mprotect(base, PAGE, libc::PROT_NONE), 0);
        let stack = base.cast::<u8>().add(PAGE);
        stack.write_bytes(PAINT, STACK);
        let mut attributes: libc::pthread_attr_t = std::mem::zeroed();
        assert_eq!(libc::pthread_attr_init(&mut attributes), 0);
        assert_eq!(
            libc::pthread_attr_setstack(&mut attributes, stack.cast(), STACK),
            0
        );
        let mut thread = std::mem::zeroed();
        let act = (&raw mut act).cast();
        assert_eq!(libc::pthread_create(&mut thread, &attributes, run, act), 0);
        assert_eq!(libc::pthread_join(thread, std::ptr::null_mut()), 0);
        libc::pthread_attr_destroy(&mut attributes);
        let painted = std::slice::from_raw_parts(stack, STACK);
        let unused = painted.iter().take_while(|&&byte| byte == PAINT).count();
        libc::munmap(base, STACK + PAGE);
        STACK - unused
    }
}

/// Fills the region with numbers that compress, or that do not.
fn fill(region: &mut Region, compresses: bool) {
    let mut state = 1_u64;
    for word in region.as_mut_slice().chunks_exact_mut(8) {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let value = if compresses { state >> 60 } else { state };
        word.copy_from_slice(&value.to_ne_bytes());
    }
}

/// The deepest use of the stack over all kinds of fault in a manager made by `builder`. Twice its RAM is used, so that
/// faulting threads reclaim, too.
fn deepest(builder: ManagerBuilder) -> usize {
    let builder = builder.ram(16 << 20).background_reclaim(false);
    let manager: Manager = builder.delivery(Delivery::InThread).build().unwrap();
    let mut most = 0;
    for compresses in [true, false] {
        let mut region = manager.region(32 * MIB).unwrap();
        most = most.max(on_small_stack(&mut || fill(&mut region, compresses)));
        let sum = |region: &Region| -> u64 {
            let words = region.as_slice().chunks_exact(512);
            words.map(|bytes| u64::from(bytes[3])).sum()
        };
        let mut sums = [0; 2];
        most = most.max(on_small_stack(&mut || sums[0] = sum(&region)));
        // These faults are rescues from limbo, where the manager has one.
        region.advise(0..4 * MIB, Advice::Cold).unwrap();
        most = most.max(on_small_stack(&mut || sums[1] = sum(&region)));
        assert_eq!(sums[0], sums[1]);
        region.shrink(8 * MIB).unwrap();
        if let Ok(copy) = region.snapshot() {
            most = most.max(on_small_stack(&mut || {
                for page in region.as_mut_slice().chunks_exact_mut(PAGE) {
                    page[5] ^= 1;
                }
            }));
            drop(copy);
        }
    }
    most
}

/// The stack use of a fault used to be estimated at 45 to 60 KiB, and was neither documented nor tested: a thread with
/// a stack of 64 KiB might have been ended by SIGSEGV in the middle of a fault.
#[test]
fn every_kind_of_fault_fits_a_small_stack() {
    let nothing = on_small_stack(&mut || ());
    let builder = Manager::builder;
    let (ram, file) = (StoreKind::compressed_ram, StoreKind::file);
    let kinds: [(&str, ManagerBuilder); 5] = [
        ("compressed RAM", builder().store(ram())),
        (
            "large folios",
            builder().store(ram()).order(Order::new(4).unwrap()),
        ),
        ("file", builder().store(file())),
        ("encrypted file", builder().store(file()).encrypt(true)),
        (
            "file, large folios",
            builder().store(file()).order(Order::new(4).unwrap()),
        ),
    ];
    for (kind, builder) in kinds {
        let used = deepest(builder);
        println!("{kind}: {used} bytes, {nothing} of them without a fault");
        assert!(used <= NEED, "{kind}: {used} bytes of stack");
    }
}
