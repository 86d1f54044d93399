//! Tests of the settings: what one side writes, the other side reads.

use super::*;

fn read(variables: &[&str]) -> Result<Settings, String> {
    let read = Settings::read(variables.iter().map(|text| text.as_bytes()));
    read.map_err(|error| error.to_string())
}

#[test]
fn all_settings_are_parsed() {
    let settings = read(&[
        "HOME=/",
        "TMPDIR=/big",
        "MILLPOND_RAM=67108864",
        "MILLPOND_STORE=file:/tmp/x=y",
        "MILLPOND_DELIVERY=direct",
        "MILLPOND_ENGAGE=start",
        "MILLPOND_ON_STORE_FULL=abort",
        "MILLPOND_BOARD=/b",
        "MILLPOND_RELAY=/r",
        "MILLPOND_ORDER=4",
        "MILLPOND_LAZY_PURGE=off",
        "MILLPOND_ENCRYPT=on",
        "MILLPOND_FORCE_TMPFS=1",
        "MILLPOND_FILE_MAX=0",
        "MILLPOND_TELL=machine",
        "MILLPOND_RECORD=256:/tapes:1",
        "MILLPOND_MASK=scan",
    ])
    .unwrap();
    assert_eq!(settings, all());
}

/// Settings that all differ from the defaults.
fn all() -> Settings {
    Settings {
        ram: Some(64 << 20),
        store: StoreChoice::File(Some("/tmp/x=y".into())),
        delivery: DeliveryChoice::Direct,
        engage: Engage::Start,
        order: OrderPolicy::Fixed(Order::new(4).unwrap()),
        on_store_full: OnStoreFull::Abort,
        lazy_purge: Switch::Off,
        tell: Tell::Machine,
        encrypt: Switch::On,
        force_tmpfs: true,
        file_max: Some(0),
        relay: Some("/r".into()),
        board: Some("/b".into()),
        record: Some(Record {
            window: 256,
            tapes: "/tapes:1".into(),
        }),
        mask: Mask::parse("scan").unwrap(),
        temporary: Some("/big".into()),
    }
}

/// The program has inherited the mask and the directory of temporary files, so a run does not set them.
#[test]
fn a_process_reads_the_settings_that_a_run_writes() {
    let inherited = |from: &Settings| Settings {
        mask: Mask::default(),
        temporary: None,
        ..from.clone()
    };
    for settings in [Settings::default(), all()] {
        let block: Vec<Vec<u8>> = settings
            .variables()
            .into_iter()
            .map(|(name, value)| [name.as_bytes(), b"=", value.as_bytes()].concat())
            .collect();
        let read = Settings::read(block.iter().map(Vec::as_slice));
        assert_eq!(read, Ok(inherited(&settings)));
    }
}

/// An unneeded variable is not set: a run inside another one keeps the settings that it does not name.
#[test]
fn settings_that_are_off_or_absent_have_no_variable() {
    let names: Vec<_> = Settings::default()
        .variables()
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    let wanted = [
        "STORE",
        "DELIVERY",
        "ENGAGE",
        "ORDER",
        "ON_STORE_FULL",
        "LAZY_PURGE",
        "TELL",
    ];
    assert_eq!(names, wanted.map(|name| format!("MILLPOND_{name}")));
}

#[test]
fn orders_are_fixed_or_adaptive() {
    let order = |text: &str| read(&[&format!("MILLPOND_ORDER={text}")]).unwrap().order;
    let max = |max| Order::new(max).unwrap();
    assert_eq!(order("0"), OrderPolicy::Fixed(max(0)));
    assert_eq!(order("adaptive"), OrderPolicy::Adaptive { max: max(9) });
    assert_eq!(order("adaptive:4"), OrderPolicy::Adaptive { max: max(4) });
}

#[test]
fn invalid_settings_are_named_in_the_error() {
    for variable in [
        "MILLPOND_RAM=64M",
        "MILLPOND_STORE=tape",
        "MILLPOND_STORE=file:",
        "MILLPOND_DELIVERY=thread",
        "MILLPOND_ENGAGE=later",
        "MILLPOND_ON_STORE_FULL=",
        "MILLPOND_ORDER=10",
        "MILLPOND_ORDER=adaptive:",
        "MILLPOND_ORDER=Adaptive",
        "MILLPOND_LAZY_PURGE=1",
        // No memory may go out unencrypted because of a misspelt word.
        "MILLPOND_ENCRYPT=yes",
        "MILLPOND_TELL=all",
        "MILLPOND_FILE_MAX=1G",
        "MILLPOND_RECORD=256",
        "MILLPOND_RECORD=many:/tapes",
        "MILLPOND_RECORD=256:",
        "MILLPOND_MASK=mvoe",
    ] {
        let error = read(&[variable]).unwrap_err();
        assert!(error.starts_with(&format!("{variable} is not ")), "{error}");
        assert!(error.ends_with("; use `millpond run`"), "{error}");
    }
    assert_eq!(
        read(&["MILLPOND_DELIVERY=thread"]).unwrap_err(),
        "MILLPOND_DELIVERY=thread is not auto, direct or handler; use `millpond run`"
    );
}

#[test]
fn a_missing_budget_is_read_as_none() {
    let settings = read(&["MILLPOND_STORE=zram", "TMPDIR=", "MILLPOND_FUTURE=1", "odd"]).unwrap();
    assert_eq!(settings.temporary, None);
    assert_eq!((settings.ram, settings.lazy_purge), (None, Switch::On));
}
