//! An S3 server that authenticates requests: requests signed with the right key work, anything else is refused with a
//! remedy, and revoking and restoring a permission is like a time during which the store was away.
//!
//! The server is moto's, with checks enabled (`POST /moto-api/reset-auth`): the key must belong to a user known to
//! its IAM, the signature must be what botocore computes for the same request, and the user's policy must allow the
//! action. The requests here do not include a list: S3 encodes the slashes of its query before signing, and moto does
//! not.

mod common;
#[path = "common/server.rs"]
mod server;

use common::{check, open, save, settings, wait_until};
use millpond_core::port::{LoadError, Slots};
use millpond_core::{Backing, Descriptors, FileFault, PAGE_SIZE, SlotId};
use millpond_remote::{
    Cleaned, ObjectConfig, ObjectError, ObjectReader, Remote, RemoteConfig, RemoteError,
    RemoteOpenError, RemoteStats, RemoteUrl, TimeLimits, clean,
};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use rustix::io::Errno;
use server::{Server, set_key};
use std::sync::Arc;
use std::time::{Duration, Instant};

const SLOTS: u32 = 160;
/// The maximum time until a refusal is reported, even on a busy machine. Retried requests take ten seconds.
const AT_ONCE: Duration = Duration::from_secs(5);
/// The permissions that a run needs, by their S3 names.
const POLICY: &str = r#"{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Resource": "*",
    "Action": ["s3:PutObject", "s3:GetObject", "s3:DeleteObject"]}]}"#;

/// A user of the server, with a key.
struct User<'a> {
    moto: &'a Server,
    id: String,
    secret: String,
}

impl<'a> User<'a> {
    /// Creates a user with all necessary permissions.
    fn make(moto: &'a Server) -> Self {
        iam(moto, "Action=CreateUser&UserName=pond");
        let answer = iam(moto, "Action=CreateAccessKey&UserName=pond");
        let user = Self {
            moto,
            id: between(&answer, "<AccessKeyId>", "</AccessKeyId>"),
            secret: between(&answer, "<SecretAccessKey>", "</SecretAccessKey>"),
        };
        user.allow();
        user
    }

    fn allow(&self) {
        let policy = utf8_percent_encode(POLICY, NON_ALPHANUMERIC);
        let form = "Action=PutUserPolicy&UserName=pond&PolicyName=objects&PolicyDocument";
        self.unchecked(&format!("{form}={policy}"));
    }

    fn forbid(&self) {
        self.unchecked("Action=DeleteUserPolicy&UserName=pond&PolicyName=objects");
    }

    /// Makes an IAM request, which is itself unsigned.
    fn unchecked(&self, form: &str) {
        unchecked(self.moto, || iam(self.moto, form));
    }
}

/// Does something while the server checks nothing. From then on it checks everything.
fn unchecked<T>(moto: &Server, act: impl FnOnce() -> T) -> T {
    moto.request("POST /moto-api/reset-auth", "", "inf");
    let done = act();
    moto.request("POST /moto-api/reset-auth", "", "0");
    done
}

/// Makes a request to moto's IAM. The header tells moto which of its services is meant.
fn iam(moto: &Server, form: &str) -> String {
    let headers = "Authorization: AWS4-HMAC-SHA256 Credential=none/20260101/us-east-1/iam/aws4_request, \
                   SignedHeaders=host, Signature=none\r\nContent-Type: application/x-www-form-urlencoded\r\n";
    moto.request("POST /", headers, format!("Version=2010-05-08&{form}"))
}

fn between(text: &str, begin: &str, end: &str) -> String {
    let (_, rest) = text.split_once(begin).unwrap();
    let (found, _) = rest.split_once(end).unwrap();
    found.to_owned()
}

fn url(moto: &Server, path: &str) -> String {
    let port = moto.port;
    format!("s3://pond/{path}?endpoint=http://127.0.0.1:{port}&region=us-east-1")
}

/// Makes a load end a second after its permissions were revoked.
fn hasty() -> TimeLimits {
    TimeLimits {
        deadline: Duration::from_secs(1),
        attempt: Duration::from_secs(1),
    }
}

fn reader() -> Arc<ObjectReader> {
    let config = ObjectConfig {
        kept_bytes: 0,
        limits: hasty(),
        ..ObjectConfig::default()
    };
    ObjectReader::start(config).unwrap()
}

/// Puts an object into the bucket, as another user's client would.
fn put(url: &str, name: &str, bytes: &[u8]) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let url: RemoteUrl = url.parse().unwrap();
    let operator = url.operator().unwrap();
    let write = operator.write(name, bytes.to_vec());
    runtime.block_on(write).unwrap();
}

/// All of it is one test, because the environment belongs to the process.
#[test]
fn the_right_key_works_and_others_are_refused_with_a_remedy() {
    let Some(moto) = Server::s3() else { return };
    moto.make_bucket();
    let user = User::make(&moto);
    // SAFETY: this is the only test of this file, and no thread of the crate runs between two of its parts.
    unsafe { set_key(&user.id, "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY") };
    refused(&moto, "SignatureDoesNotMatch");
    // SAFETY: as above.
    unsafe { set_key("AKIAIOSFODNN7EXAMPLE", &user.secret) };
    refused(&moto, "InvalidAccessKeyId");
    // SAFETY: as above.
    unsafe { set_key(&user.id, &user.secret) };
    works(&moto);
    comes_back_with_its_rights(&user);
    user.forbid();
    refused(&moto, "AccessDenied");
}

/// Neither a tier nor an object opens. `why` is the server's error code.
fn refused(moto: &Server, why: &str) {
    let way_out = "the credentials in the environment";
    let begun = Instant::now();
    let tier = Remote::behind(
        common::local(1 << 20),
        settings(&url(moto, "team"), 1 << 20),
    );
    let error = tier.err().expect("the server takes no such key");
    let told = error.to_string();
    assert!(told.contains(why) && told.contains(way_out), "{told}");
    let RemoteOpenError::Refused { error, .. } = error else {
        panic!("{told}");
    };
    assert!(matches!(error, RemoteError::Refused { .. }), "{told}");
    // For an object's metadata the server's answer has no body, and so no error code.
    let object = reader().open(&url(moto, "team/numbers").parse().unwrap());
    let error = object.err().expect("the server takes no such key");
    let told = error.to_string();
    assert!(
        told.contains("PermissionDenied") && told.contains(way_out),
        "{told}"
    );
    assert!(matches!(error, ObjectError::Refused { .. }), "{told}");
    assert!(begun.elapsed() < AT_ONCE, "{:?}", begun.elapsed());
}

/// The tier and an object work, byte for byte.
fn works(moto: &Server) {
    let store = open(settings(&url(moto, "team"), 2 << 20));
    save(&store, 0..SLOTS);
    check(&store, 0..SLOTS);
    assert!(
        RemoteStats::of(&store).slots > 0,
        "{:?}",
        RemoteStats::of(&store)
    );
    (0..SLOTS).for_each(|slot| store.release(SlotId(slot)));
    wait_until("all objects are deleted", || {
        RemoteStats::of(&store).objects == 0
    });
    drop(store);
    let cleaned = unchecked(moto, || {
        clean(&url(moto, "team").parse().unwrap(), Duration::ZERO).unwrap()
    });
    assert_eq!(
        cleaned,
        Cleaned::default(),
        "a run that ends leaves nothing"
    );
    let bytes = common::data(7, 33);
    put(&url(moto, "team"), "some numbers", &bytes);
    let object = reader()
        .open(&url(moto, "team/some%20numbers").parse().unwrap())
        .unwrap();
    let mut out = vec![0; 33 * PAGE_SIZE];
    object.read(0, &mut out, Descriptors::OfProgram).unwrap();
    assert!(out == bytes, "the object came with other contents");
}

/// While the user has no permissions, a load is an error after its deadline and local work continues. Then everything
/// recovers.
fn comes_back_with_its_rights(user: &User<'_>) {
    let config = RemoteConfig {
        limits: hasty(),
        ahead_bytes: 0,
        ..settings(&url(user.moto, "team"), 2 << 20)
    };
    let store = open(config);
    save(&store, 0..SLOTS);
    check(&store, 0..SLOTS);
    let bytes = common::data(8, 16);
    put(&url(user.moto, "team"), "others", &bytes);
    let object = reader()
        .open(&url(user.moto, "team/others").parse().unwrap())
        .unwrap();
    user.forbid();
    let begun = Instant::now();
    let mut out = vec![0; 64 << 10];
    let timed_out = Errno::TIMEDOUT.raw_os_error();
    let load = store.load(SlotId(0), 0, &mut out);
    assert_eq!(load, Err(LoadError::Io(timed_out)), "the first slot is far");
    let read = object.read(0, &mut out, Descriptors::OfProgram);
    assert_eq!(read, Err(FileFault::Io(timed_out)));
    assert!(begun.elapsed() < 2 * AT_ONCE, "{:?}", begun.elapsed());
    assert!(
        RemoteStats::of(&store).away_for.is_some(),
        "{:?}",
        RemoteStats::of(&store)
    );
    check(&store, SLOTS - 1..SLOTS);
    user.allow();
    wait_until("the store answers", || {
        store.load(SlotId(0), 0, &mut out).is_ok()
    });
    check(&store, 0..SLOTS);
    object.read(0, &mut out, Descriptors::OfProgram).unwrap();
    assert!(out == bytes, "the object came with other contents");
    save(&store, SLOTS..SLOTS + 40);
    check(&store, 0..SLOTS + 40);
}
