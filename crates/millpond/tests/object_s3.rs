//! A region over an object of S3: moto's server, behind a proxy that disturbs what passes.

mod common;
#[path = "../../remote/tests/common/proxy.rs"]
mod proxy;
#[path = "../../remote/tests/common/server.rs"]
mod server;
#[path = "../../remote/tests/common/wait.rs"]
mod wait;

use common::{MIB, PAGE, Rng, deliveries, is_numbered, page_is, pages, small, write_numbered};
use millpond::{FileError, MapObjectError, ObjectError};
use proxy::{Disturbance, Proxy};
use server::{Server, set_credentials};
use std::time::Duration;
use wait::wait_until;

const LEN: usize = 24 * MIB;
const MORE: usize = 100;

/// Puts numbered pages from `salt` on into the bucket, by an unsigned request. Others may put another object there.
fn put(moto: &Server, name: &str, salt: u64) {
    let mut body = Vec::new();
    write_numbered(&mut body, LEN, MORE, salt);
    let others = "x-amz-acl: public-read-write\r\n";
    moto.request(&format!("PUT /pond/{name}"), others, body);
}

/// All of it in one test: its environment is the process's.
#[test]
fn an_object_of_s3_is_read_in_place_whatever_happens_to_its_server() {
    // SAFETY: no other test of this file reads or writes the environment.
    unsafe { set_credentials() };
    let Some(moto) = Server::s3() else { return };
    moto.make_bucket();
    let proxy = Proxy::before(moto.port);
    let url = |name: &str| {
        let port = proxy.port;
        format!("s3://pond/{name}?endpoint=http://127.0.0.1:{port}&region=us-east-1")
    };
    for delivery in deliveries() {
        put(&moto, "numbers", 0);
        let manager = small().delivery(delivery).build().unwrap();
        let region = manager.map_object(&url("numbers")).unwrap();
        assert_eq!(region.len(), LEN + MORE);
        assert!(is_numbered(&region), "{delivery:?}");
        let some = |seed| {
            let mut rng = Rng(seed);
            for _ in 0..100 {
                let at = rng.below(LEN / PAGE) * PAGE;
                assert!(page_is(&region.as_slice()[at..at + PAGE], pages(at)));
            }
        };
        for disturbance in [
            Disturbance::Refuse,
            Disturbance::Truncate,
            Disturbance::Answer("503 Slow Down"),
        ] {
            proxy.disturb(disturbance, 3);
            some(1);
        }
        proxy.disturb(Disturbance::None, 0);
        // Two threads touch pages of a server that stands still for a second.
        moto.freeze();
        std::thread::scope(|scope| {
            scope.spawn(|| some(2));
            scope.spawn(|| some(3));
            std::thread::sleep(Duration::from_secs(1));
            moto.thaw();
        });
        assert!(is_numbered(&region), "{delivery:?}");
        let stats = manager.stats();
        assert_eq!((stats.vm.pswpout, stats.store.slots), (0, 0), "{stats:#?}");
        // Another version is an error of each page that is not in memory.
        put(&moto, "numbers", 1_000_000);
        let mut page = [0; PAGE];
        let mut refused = 0;
        for at in (0..LEN).step_by(64 * PAGE) {
            match region.read_at(at, &mut page) {
                Ok(()) => assert!(page_is(&page, pages(at)), "{delivery:?}: another's at {at}"),
                Err(error) => {
                    assert_eq!(error, FileError::Changed { offset: at });
                    refused += 1;
                }
            }
        }
        assert!(refused > 0, "{delivery:?}");
        let missing = manager.map_object(&url("nothing")).unwrap_err();
        let is_missing = matches!(missing, MapObjectError::Object(ObjectError::Missing { .. }));
        assert!(is_missing, "{missing:?}");
    }
}
