//! Disturbed real servers: everything that was saved comes back, and loads that cannot succeed in time report that.
//!
//! Redis is Debian's; `cluster.rs` has three of them as a cluster. The S3 server is moto's, which does not check
//! signatures here; in `signatures.rs` it does. moto keeps its objects in memory, so it is frozen but not restarted.

mod common;
#[path = "common/proxy.rs"]
mod proxy;
#[path = "common/server.rs"]
mod server;

use common::{check, data, open, save, settings, wait_until};
use millpond_core::SlotId;
use millpond_core::port::{LoadError, Slots};
use millpond_remote::{
    Remote, RemoteConfig, RemoteOpenError, RemoteStats, RemoteStore, TimeLimits, clean,
};
use proxy::{Disturbance, Proxy};
use rustix::io::Errno;
use server::{Server, set_credentials};
use std::time::Duration;

const SLOTS: u32 = 240;

/// Fills and reads under each of `disturbances`.
fn under_each(store: &RemoteStore, proxy: &Proxy, disturbances: &[Disturbance]) {
    for &disturbance in disturbances {
        proxy.disturb(disturbance, 2);
        if disturbance == Disturbance::Stall {
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    wait_until("an answer is held back", || proxy.happened() > 0);
                    std::thread::sleep(Duration::from_millis(500));
                    proxy.disturb(Disturbance::None, 0);
                });
                check(store, 0..40);
            });
        }
        check(store, (0..SLOTS).step_by(7));
        // New slots replace old ones, so objects are written, rewritten and deleted at the same time.
        (100..160).for_each(|slot| store.release(SlotId(slot)));
        save(store, 100..160);
        check(store, 90..170);
        assert!(
            proxy.happened() > 0 || disturbance == Disturbance::Stall,
            "{disturbance:?} never happened"
        );
        proxy.disturb(Disturbance::None, 0);
    }
    check(store, 0..SLOTS);
    assert_eq!(
        RemoteStats::of(store).lost_loads,
        0,
        "{:?}",
        RemoteStats::of(store)
    );
}

#[test]
fn data_survives_disturbances_restart_and_stop_of_redis() {
    let directory = tempfile::tempdir().unwrap();
    let Some(mut redis) = Server::redis(directory.path()) else {
        return;
    };
    let proxy = Proxy::before(redis.port);
    let config = RemoteConfig {
        ahead_bytes: 0,
        ..settings(&format!("redis://127.0.0.1:{}/0", proxy.port), 2 << 20)
    };
    let store = open(config);
    save(&store, 0..SLOTS);
    check(&store, 0..SLOTS);
    assert!(
        RemoteStats::of(&store).slots > u64::from(SLOTS) / 2,
        "{:?}",
        RemoteStats::of(&store)
    );
    under_each(
        &store,
        &proxy,
        &[
            Disturbance::Refuse,
            Disturbance::Truncate,
            Disturbance::Flip,
            Disturbance::Stall,
        ],
    );
    // Restarted while threads read and write.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            (0..3).for_each(|_| check(&store, 0..SLOTS));
        });
        scope.spawn(|| save(&store, SLOTS..2 * SLOTS));
        redis.restart(Duration::from_millis(300));
    });
    check(&store, 0..2 * SLOTS);
    // Frozen while a thread reads.
    redis.freeze();
    std::thread::scope(|scope| {
        scope.spawn(|| check(&store, 0..SLOTS));
        std::thread::sleep(Duration::from_secs(1));
        redis.thaw();
    });
    assert_eq!(
        RemoteStats::of(&store).lost_loads,
        0,
        "{:?}",
        RemoteStats::of(&store)
    );
    // Redis cannot list its contents, and that is reported.
    let url = format!("redis://127.0.0.1:{}/0", redis.port)
        .parse()
        .unwrap();
    let refused = clean(&url, Duration::from_secs(1)).unwrap_err().to_string();
    assert!(refused.contains("redis-cli --scan"), "{refused}");
}

/// While Redis does not answer, local work continues; a load of a page that is only in Redis is an error after the
/// deadline, and succeeds when Redis is back.
#[test]
fn an_unreachable_page_is_an_error_at_its_deadline_and_loads_later() {
    let directory = tempfile::tempdir().unwrap();
    let Some(redis) = Server::redis(directory.path()) else {
        return;
    };
    let limits = TimeLimits {
        deadline: Duration::from_secs(1),
        attempt: Duration::from_millis(300),
    };
    let config = settings(&format!("redis://127.0.0.1:{}", redis.port), 2 << 20);
    let store = open(RemoteConfig { limits, ..config });
    save(&store, 0..SLOTS);
    redis.freeze();
    let mut out = vec![0; 64 << 10];
    let errors: Vec<_> = (0..3)
        .map(|slot| store.load(SlotId(slot), 0, &mut out))
        .collect();
    let timed_out = LoadError::Io(Errno::TIMEDOUT.raw_os_error());
    assert!(errors.contains(&Err(timed_out)), "{errors:?}");
    assert!(RemoteStats::of(&store).away_for.is_some());
    // The store in front fills up, and then says so at once.
    let full =
        (SLOTS..SLOTS + 100).find(|&slot| store.save(SlotId(slot), None, &data(slot, 16)).is_err());
    let full = full.expect("the store in front has an end");
    check(&store, full - 1..full);
    redis.thaw();
    wait_until("the store answers", || {
        store.load(SlotId(0), 0, &mut out).is_ok()
    });
    check(&store, 0..full);
    save(&store, full..full + 40);
    check(&store, 0..full + 40);
}

#[test]
fn a_store_that_is_not_there_is_refused_at_once() {
    let config = settings("redis://127.0.0.1:1/0", 1 << 20);
    let refused = Remote::behind(common::local(1 << 20), config).err();
    let refused = refused.expect("nobody listens at port 1");
    assert!(
        matches!(refused, RemoteOpenError::Refused { .. }),
        "{refused:?}"
    );
    assert!(
        refused.to_string().contains("check that it is there"),
        "{refused}"
    );
}

#[test]
fn data_survives_errors_and_a_stop_of_s3() {
    // SAFETY: no other test of this file reads these variables, and none of their names is read elsewhere in it.
    unsafe { set_credentials() };
    let Some(moto) = Server::s3() else { return };
    moto.make_bucket();
    let proxy = Proxy::before(moto.port);
    let url = format!(
        "s3://pond/team?endpoint=http://127.0.0.1:{}&region=us-east-1",
        proxy.port
    );
    let store = open(RemoteConfig {
        ahead_bytes: 0,
        ..settings(&url, 2 << 20)
    });
    save(&store, 0..SLOTS);
    check(&store, 0..SLOTS);
    under_each(
        &store,
        &proxy,
        &[
            Disturbance::Answer("500 Internal Server Error"),
            Disturbance::Answer("503 Slow Down"),
            Disturbance::Answer("404 Not Found"),
            Disturbance::Refuse,
            Disturbance::Truncate,
            Disturbance::Flip,
            Disturbance::Stall,
        ],
    );
    moto.freeze();
    std::thread::scope(|scope| {
        scope.spawn(|| check(&store, 0..40));
        std::thread::sleep(Duration::from_secs(1));
        moto.thaw();
    });
    let cleaned = clean(&url.parse().unwrap(), Duration::from_secs(3600)).unwrap();
    assert_eq!(
        (cleaned.removed.len(), cleaned.left.len()),
        (0, 1),
        "{cleaned:?}"
    );
    let cleaned = clean(&url.parse().unwrap(), Duration::ZERO).unwrap();
    let removed = &cleaned.removed[0];
    assert_eq!(removed.name, store.back().prefix());
    assert!(
        removed.objects > 5 && removed.bytes > 5 << 20,
        "{cleaned:?}"
    );
}
