//! Objects are written on conditions, to a bucket that wants signatures and to a plain server; servers that misbehave.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use blockdev::Locator;
use sha2::{Digest as _, Sha256};
use web::client::{Condition, Objects, Put};

use crate::fake::{Fake, Reply, Request};
use crate::s3::{KEY, SECRET, hex, signature, told_with};

fn objects(locator: &str) -> Objects {
    Objects::open(&Locator::parse(locator).unwrap()).unwrap()
}

fn tag(bytes: &[u8]) -> String {
    format!("\"{}\"", hex(&Sha256::digest(bytes)))
}

/// Objects by their paths.
type Store = Arc<Mutex<BTreeMap<String, Vec<u8>>>>;

/// The answer of a server with conditional writes.
fn answer(store: &Store, request: &Request) -> Reply {
    let mut store = store.lock().unwrap();
    let found = store.get(&request.path).cloned();
    match (request.method.as_str(), found) {
        ("GET" | "HEAD", Some(bytes)) => Reply::new(200).with("ETag", tag(&bytes)).body(bytes),
        ("GET" | "HEAD", None) => Reply::new(404),
        ("PUT", found) => {
            let holds = match (request.header("if-none-match"), request.header("if-match")) {
                (Some("*"), None) => found.is_none(),
                (None, Some(wanted)) => found.is_some_and(|bytes| tag(&bytes) == wanted),
                _ => return Reply::new(400),
            };
            if !holds {
                return Reply::new(412);
            }
            store.insert(request.path.clone(), request.body.clone());
            Reply::new(200).with("ETag", tag(&request.body))
        }
        ("DELETE", _) => {
            store.remove(&request.path);
            Reply::new(204)
        }
        _ => Reply::new(405),
    }
}

fn use_objects(objects: &Objects) {
    assert_eq!(objects.get("a+b", 9).unwrap(), None);
    assert_eq!(objects.size("a+b").unwrap(), None);
    let Put::Done(Some(first)) = objects.put("a+b", b"one", Condition::Absent).unwrap() else { panic!("refused") };
    assert_eq!(objects.put("a+b", b"two", Condition::Absent).unwrap(), Put::Refused);
    assert_eq!(objects.put("a+b", b"two", Condition::Matches("\"x\"")).unwrap(), Put::Refused);
    assert_eq!(objects.get("a+b", 9).unwrap(), Some((b"one".to_vec(), Some(first.clone()))));
    assert!(matches!(objects.put("a+b", b"three", Condition::Matches(&first)).unwrap(), Put::Done(Some(_))));
    assert_eq!(objects.size("a+b").unwrap(), Some(5));
    let long = vec![7; 3 << 20];
    assert!(matches!(objects.put("long", &long, Condition::Absent).unwrap(), Put::Done(_)));
    assert_eq!(objects.get("long", 3 << 20).unwrap().unwrap().0, long);
    objects.delete("a+b").unwrap();
    objects.delete("a+b").unwrap();
    assert_eq!(objects.get("a+b", 9).unwrap(), None);
}

#[test]
fn a_plain_server_is_used() {
    let store = Store::default();
    let shared = Arc::clone(&store);
    let server = Fake::start(move |request, _| answer(&shared, request));
    use_objects(&objects(&server.url("/dir")));
    assert_eq!(store.lock().unwrap().keys().collect::<Vec<_>>(), ["/dir/long"]);
}

/// Uses the objects at the locator in `SPINNEY_TEST_S3`.
#[test]
#[ignore = "called by the other tests"]
fn uses_as_told() {
    use_objects(&objects(&std::env::var("SPINNEY_TEST_S3").unwrap()));
    println!("read all");
}

#[test]
fn every_request_to_a_bucket_is_signed_with_its_body() {
    let store = Store::default();
    let server = Fake::start(move |request, _| {
        let header = request.header("authorization").unwrap_or_default();
        let part = |name: &str| {
            let (_, rest) = header.split_once(&format!("{name}=")).unwrap_or_default();
            rest.split(',').next().unwrap_or_default()
        };
        let (key, scope) = part("Credential").split_once('/').unwrap_or_default();
        let is_right = key == KEY
            && request.header("x-amz-content-sha256") == Some(&hex(&Sha256::digest(&request.body)))
            && part("Signature") == signature(request, scope, part("SignedHeaders"));
        if is_right { answer(&store, request) } else { Reply::new(403).body("<Error><Code>Wrong</Code></Error>") }
    });
    let endpoint = server.url("");
    let keys = [("AWS_ACCESS_KEY_ID", KEY), ("AWS_SECRET_ACCESS_KEY", SECRET), ("AWS_ENDPOINT_URL", endpoint.as_str())];
    assert_eq!(told_with("objects::uses_as_told", "s3://pics/some where", &keys), "read all");
    assert!(server.seen().iter().all(|request| request.path.starts_with("/pics/some%20where/")));
}

#[test]
fn an_answer_that_does_not_fit_is_an_error() {
    let long = || Reply::new(200).with("ETag", "\"x\"").body(vec![0; 4096]);
    for (reply, words) in [
        (Reply::new(302).with("Location", "/again"), "answered 302"),
        (Reply::new(500), "answered 500"),
        (Reply::new(403), "answered 403"),
        (Reply::new(206).body("part"), "answered 206"),
        (long(), "Content-Length: expected at most 100, found 4096"),
        (long().with("Transfer-Encoding", "chunked"), ""),
        (Reply::new(200).with("Content-Length", "50").with("Connection", "close").body("short"), "bytes of the body"),
        (Reply::new(200).with("X-Long", "x".repeat(100_000)), ""),
    ] {
        let reply = Arc::new(Mutex::new(reply));
        let server = Fake::start(move |_, _| {
            let reply = reply.lock().unwrap();
            let mut again = Reply::new(reply.status).body(reply.body.clone());
            again.headers.clone_from(&reply.headers);
            again
        });
        let objects = objects(&format!("{}#timeout=1", server.url("/dir")));
        let error = objects.get("key", 100).unwrap_err().to_string();
        assert!(error.contains(words), "{words}: {error}");
        // Neither redirects nor tries are without end.
        assert!(server.requests() <= 4, "{words}");
    }
}

#[test]
fn a_server_that_stalls_is_given_up() {
    let server = Fake::start(|_, _| {
        let mut reply = Reply::new(200).with("ETag", "\"x\"").body(vec![0; 100]);
        reply.stalls_after = Some(10);
        reply
    });
    let begun = Instant::now();
    let error = objects(&format!("{}#timeout=1", server.url("/"))).get("key", 100).unwrap_err();
    assert!(begun.elapsed().as_secs() < 8, "{error}");
}

#[test]
fn a_weak_tag_is_none() {
    let server = Fake::start(|_, _| Reply::new(200).with("ETag", "W/\"x\"").body("a"));
    assert_eq!(objects(&server.url("/d")).get("key", 9).unwrap(), Some((b"a".to_vec(), None)));
}

#[test]
fn malformed_places_are_refused() {
    for locator in ["http://", "http://me:pw@host/x", "http://host/x?y=1", "s3://b u/x", "s3://"] {
        assert!(Objects::open(&Locator::parse(locator).unwrap()).is_err(), "{locator}");
    }
}
