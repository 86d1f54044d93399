//! Bad input gets a typed error that names the value, and nothing is lost.

mod common;

use common::{MIB, PAGE, small};
use millpond::{AdviseError, BuildError, Manager, PinError, RangeError, RegionError};

#[test]
fn budgets_that_cannot_work_are_refused() {
    assert!(matches!(
        Manager::builder()
            .store(millpond::StoreKind::compressed_ram())
            .order(millpond::Order::new(4).unwrap())
            .build(),
        Err(BuildError::NoBudget)
    ));
    for ram in [0, 1, (16 << 20) - 1] {
        let error = Manager::builder()
            .store(millpond::StoreKind::compressed_ram())
            .order(millpond::Order::new(4).unwrap())
            .ram(ram)
            .build()
            .unwrap_err();
        assert!(matches!(error, BuildError::BudgetTooSmall { ram: named } if named == ram));
        assert!(error.to_string().contains(&ram.to_string()), "{error}");
    }
    let error = Manager::builder()
        .store(millpond::StoreKind::compressed_ram())
        .order(millpond::Order::new(4).unwrap())
        .ram(u64::MAX)
        .build()
        .unwrap_err();
    assert!(
        matches!(error, BuildError::BudgetTooLarge { ram: u64::MAX }),
        "{error}"
    );
}

#[test]
fn address_spaces_that_cannot_work_are_refused() {
    for bytes in [0, u64::MAX] {
        let error = small().address_space(bytes).build().unwrap_err();
        assert!(
            matches!(error, BuildError::BadAddressSpace { bytes: named } if named == bytes),
            "{error}"
        );
    }
}

#[test]
fn tables_beyond_the_machine_are_refused_rather_than_fatal() {
    let bytes = 15 << 40;
    let error = small().address_space(bytes).build().unwrap_err();
    match error {
        BuildError::TablesTooLarge { bytes: named, .. } => assert_eq!(named, bytes),
        other => println!("skipped: this machine has room for such tables, or said {other}"),
    }
}

#[test]
fn lengths_that_cannot_work_are_refused() {
    let manager = small().address_space(256 << 20).build().unwrap();
    assert_eq!(manager.region(0).unwrap_err(), RegionError::Empty);
    assert!(matches!(
        manager.region(usize::MAX),
        Err(RegionError::TooLong { .. })
    ));
    assert!(matches!(
        manager.region(1 << 30),
        Err(RegionError::NoAddressSpace { .. })
    ));
    assert!(matches!(
        manager.vec::<u64>(usize::MAX / 4),
        Err(RegionError::TooLong { size: 8, .. })
    ));
    assert_eq!(manager.vec::<u64>(0).unwrap_err(), RegionError::Empty);
    // The refusals cost nothing: all of the address space is still free.
    assert!(manager.region(256 << 20).is_ok());
}

#[test]
fn ranges_that_cannot_work_are_refused_and_change_nothing() {
    let manager = small().build().unwrap();
    let len = MIB;
    let mut region = manager.region(len).unwrap();
    region.as_mut_slice().fill(7);
    let bad = |start, end| RangeError::Bad { start, end, len };
    assert_eq!(region.discard(0..0).unwrap_err(), bad(0, 0));
    assert_eq!(
        region.discard(PAGE..len + 1).unwrap_err(),
        bad(PAGE, len + 1)
    );
    #[expect(clippy::reversed_empty_ranges, reason = "that is what is refused")]
    let reversed = region.discard(2 * PAGE..PAGE);
    assert_eq!(reversed.unwrap_err(), bad(2 * PAGE, PAGE));
    let unaligned = RangeError::Unaligned {
        start: 1,
        end: PAGE,
    };
    assert_eq!(region.discard(1..PAGE).unwrap_err(), unaligned);
    assert!(matches!(
        region.pin(0..len + 1).unwrap_err(),
        PinError::Range(RangeError::Bad { .. })
    ));
    assert!(matches!(
        region.advise(len..len, millpond::Advice::Cold).unwrap_err(),
        AdviseError::Range(RangeError::Bad { .. })
    ));
    assert!(region.as_slice().iter().all(|&byte| byte == 7));
}

#[test]
fn discard_of_pinned_memory_is_refused_with_its_offset() {
    let manager = small().build().unwrap();
    let mut region = manager.region(MIB).unwrap();
    region.as_mut_slice().fill(7);
    let guard = region.pin(5 * PAGE..6 * PAGE).unwrap();
    // SAFETY: no reference to the bytes is alive.
    let refused = unsafe { region.discard_shared(0..MIB) };
    assert_eq!(
        refused.unwrap_err(),
        RangeError::Pinned { offset: 5 * PAGE }
    );
    drop(guard);
    assert!(region.as_slice().iter().all(|&byte| byte == 7));
    region.discard(0..MIB).unwrap();
    assert!(region.as_slice().iter().all(|&byte| byte == 0));
}

#[test]
fn pins_beyond_the_budget_are_refused() {
    let manager = small().build().unwrap();
    let region = manager.region(64 * MIB).unwrap();
    assert!(matches!(
        region.pin(0..32 * MIB).unwrap_err(),
        PinError::OverBudget { .. }
    ));
    let _first = region.pin(0..8 * MIB).unwrap();
    assert!(matches!(
        region.pin(8 * MIB..16 * MIB).unwrap_err(),
        PinError::OverBudget { .. }
    ));
}

#[test]
fn a_store_on_tmpfs_is_refused_unless_forced() {
    use millpond::StoreKind;
    let shm = std::path::Path::new("/dev/shm");
    if !shm.is_dir() {
        println!("skipped: no tmpfs at /dev/shm");
        return;
    }
    let kind = |force_tmpfs| StoreKind::File {
        path: Some(shm.into()),
        max_bytes: None,
        force_tmpfs,
    };
    let error = small().store(kind(false)).build().unwrap_err();
    assert!(matches!(error, BuildError::Store(_)), "{error}");
    assert!(error.to_string().contains("tmpfs"), "{error}");
    assert!(small().store(kind(true)).build().is_ok());
}
