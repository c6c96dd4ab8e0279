//! Servers that lie, change their mind, or do not answer: an error that says so, in time, and never wrong bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::fake::{Fake, Reply, Request};
use crate::support::{open, pattern};

const MIB: usize = 1 << 20;

/// The error of opening, in words.
fn refused(server: &Fake) -> String {
    open(&server.url("/a.img?timeout=1")).unwrap_err().to_string()
}

/// The error of a read far behind the first bytes, from a server that answers the first request well and later ones as
/// `later` says.
fn broken(later: impl Fn(&Request, Reply) -> Reply + Send + Sync + 'static) -> String {
    let file = pattern(4 * MIB);
    let server = Fake::start(move |request, number| {
        let good = Reply::part(&file, request, "\"one\"");
        if number == 0 { good } else { later(request, good) }
    });
    let device = open(&server.url("/a.img?timeout=1")).unwrap();
    let start = Instant::now();
    let error = device.read_at(2 << 20, &mut [0; 8192]).unwrap_err();
    assert!(start.elapsed() < Duration::from_secs(10), "{error}");
    assert_eq!(error.device(), server.url("/a.img?timeout=1"));
    error.to_string()
}

#[track_caller]
fn has(text: &str, words: &str) {
    assert!(text.contains(words), "`{words}` is not in: {text}");
}

#[test]
fn a_server_without_ranges_is_refused_by_name() {
    let server = Fake::start(|_, _| Reply::new(200).body(pattern(MIB)));
    has(&refused(&server), "has no byte ranges");
    assert_eq!(server.requests(), 1);
}

#[test]
fn missing_files_and_refusals_say_the_status() {
    has(&refused(&Fake::start(|_, _| Reply::new(404))), "answered 404 (Not Found)");
    has(&refused(&Fake::start(|_, _| Reply::new(403))), "answered 403 (Forbidden)");
    let busy = Fake::start(|_, _| Reply::new(503));
    has(&refused(&busy), "answered 503");
    assert!(busy.requests() > 1, "tried again");
}

#[test]
fn nobody_listens() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    has(&open(&format!("http://{closed}/a?timeout=1")).unwrap_err().to_string(), "refused");
    has(&open("http://no-such-host.invalid/a?timeout=1").unwrap_err().to_string(), "host is unknown");
}

#[test]
fn redirects_are_followed_and_end() {
    let file = pattern(MIB);
    let copy = file.clone();
    let server = Fake::start(move |request, _| match request.path.as_str() {
        "/a.img" => Reply::new(302).with("Location", "/b/c.img?x=1"),
        "/b/c.img?x=1" => Reply::part(&copy, request, "\"one\""),
        _ => Reply::new(404),
    });
    let device = open(&server.url("/a.img")).unwrap();
    let mut bytes = vec![0; 1000];
    device.read_at(500_000, &mut bytes).unwrap();
    assert_eq!(bytes, &file[500_000..501_000]);
    assert_eq!(server.requests(), 3, "the target is remembered");

    let endless =
        Fake::start(|request, number| Reply::new(307).with("Location", format!("{}x?{number}", request.path)));
    has(&refused(&endless), "more than 10 redirects");
    assert_eq!(endless.requests(), 11);
    has(&refused(&Fake::start(|_, _| Reply::new(301))), "Location");
    has(
        &refused(&Fake::start(|_, _| Reply::new(301).with("Location", "file:///etc/passwd"))),
        "redirect to `file:///etc/passwd`",
    );
}

/// The target of a redirect may be valid for minutes only.
#[test]
fn redirects_are_followed_anew_when_their_target_refuses() {
    let file = pattern(MIB);
    let server = Fake::start(move |request, number| match (request.path.as_str(), number) {
        ("/a.img", 0) => Reply::new(302).with("Location", "/old"),
        ("/a.img", _) => Reply::new(302).with("Location", "/new"),
        ("/old", 0..=1) | ("/new", _) => Reply::part(&file, request, "\"one\""),
        _ => Reply::new(403),
    });
    let device = open(&server.url("/a.img")).unwrap();
    device.read_at(600_000, &mut [0; 1000]).unwrap();
}

#[test]
fn a_changed_file_is_an_error_that_says_so() {
    has(&broken(|_, good| Reply { headers: vec![], ..good }.with("ETag", "\"two\"")), "changed on the server");
    has(&broken(|_, _| Reply::new(412)), "changed on the server");
    has(&broken(|_, good| Reply::new(200).with("ETag", "\"two\"").body(good.body)), "changed on the server");
    has(&broken(|_, _| Reply::new(416).with("Content-Range", "bytes */5")), "changed on the server");
    let larger = |request: &Request, good: Reply| {
        let (first, last) = request.range().unwrap();
        Reply { headers: vec![], ..good }.with("Content-Range", format!("bytes {first}-{last}/99999999"))
    };
    has(&broken(larger), "bytes of the file: expected 4194304, found 99999999");
}

#[test]
fn a_server_that_changes_the_image_midway_never_mixes_versions() {
    let has_changed = Arc::new(AtomicBool::new(false));
    let (old, new) = (vec![1; 4 * MIB], vec![2; 4 * MIB]);
    let flag = Arc::clone(&has_changed);
    let server = Fake::start(move |request, _| match flag.load(Ordering::Relaxed) {
        false => Reply::part(&old, request, "\"old\""),
        true => Reply::part(&new, request, "\"new\""),
    });
    let device = open(&server.url("/a.img")).unwrap();
    let mut bytes = vec![0; 4096];
    device.read_at(2 << 20, &mut bytes).unwrap();
    assert_eq!(bytes, [1; 4096]);
    has_changed.store(true, Ordering::Relaxed);
    let error = device.read_at(3 << 20, &mut bytes).unwrap_err();
    assert!(matches!(error, blockdev::Error::Gone { .. }), "{error}");
    has(&error.to_string(), "open it again");
}

/// Without an ETag the date counts.
#[test]
fn the_date_is_pinned_where_there_is_no_etag() {
    let file = pattern(4 * MIB);
    let server = Fake::start(move |request, number| {
        let mut reply = Reply::part(&file, request, "");
        reply.headers.retain(|(name, _)| name != "ETag");
        reply.with(
            "Last-Modified",
            if number < 2 { "Mon, 01 Jan 2024 00:00:00 GMT" } else { "Tue, 02 Jan 2024 00:00:00 GMT" },
        )
    });
    let device = open(&server.url("/a.img")).unwrap();
    device.read_at(1 << 20, &mut [0; 100]).unwrap();
    assert_eq!(server.seen()[1].header("if-unmodified-since"), Some("Mon, 01 Jan 2024 00:00:00 GMT"));
    has(&device.read_at(3 << 20, &mut [0; 100]).unwrap_err().to_string(), "Last-Modified: expected Mon, 01 Jan");
}

#[test]
fn lies_about_ranges_are_found() {
    let said = |text: &'static str| {
        move |_: &Request, good: Reply| Reply { headers: vec![], ..good }.with("Content-Range", text)
    };
    has(&broken(said("bytes 0-8191/4194304")), "Content-Range: expected bytes 2097152-");
    has(&broken(said("bytes 5-1/4194304")), "Content-Range");
    has(&broken(said("lines 1-2/3")), "Content-Range");
    has(&broken(|_, good| Reply { headers: vec![], ..good }), "Content-Range: expected a range, found none");
    has(&broken(|_, good| good.with("Content-Length", "5")), "Content-Length");
    has(&broken(|_, good| Reply { body: good.body[1..].to_vec(), ..good }), "Content-Length");
    has(
        &refused(&Fake::start(|_, _| Reply::new(206).with("Content-Range", "bytes 0-4/*").body("12345"))),
        "the size of the file",
    );
    has(&refused(&Fake::start(|_, _| Reply::new(206).with("Content-Range", "bytes 7-8/9").body("12"))), "bytes from 0");
    has(
        &refused(&Fake::start(|_, _| Reply::new(206).with("Content-Range", "bytes 0-0/99999").body("1"))),
        "Content-Range",
    );
}

#[test]
fn bodies_that_end_early_or_never_are_found() {
    let cut = |_: &Request, good: Reply| {
        let len = good.body.len();
        Reply { body: good.body[..len / 2].to_vec(), ..good }.with("Content-Length", len).with("Connection", "close")
    };
    has(&broken(cut), "bytes of the body");
    let endless = |_: &Request, good: Reply| {
        let mut body = Vec::new();
        (0..4000).for_each(|_| body.extend_from_slice(b"1000\r\n"));
        Reply { body, ..good }.with("Transfer-Encoding", "chunked")
    };
    let text = broken(endless);
    assert!(text.contains("bytes of the body") || text.contains("chunk"), "{text}");
}

#[test]
fn stalls_have_a_limit() {
    has(&broken(|_, good| Reply { stalls_after: Some(100), ..good }), "no answer within 1 s");
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let start = Instant::now();
    let error = open(&format!("http://{}/a?timeout=1", silent.local_addr().unwrap())).unwrap_err();
    has(&error.to_string(), "no answer within 1 s");
    assert!(start.elapsed() < Duration::from_secs(10));
}

#[test]
fn heads_are_bounded() {
    let server = Fake::start(|_, _| Reply::new(206).with("X", "a".repeat(MIB)));
    let text = refused(&server);
    assert!(text.contains("too big") || text.contains("header"), "{text}");
    let many = Fake::start(|_, _| (0..5000).fold(Reply::new(206), |reply, number| reply.with("X", number)));
    refused(&many);
    let odd = Fake::start(|_, _| Reply::new(206).with("Bad\u{1}", "x"));
    refused(&odd);
}

/// A connection that the server closed between two requests is not an error.
#[test]
fn closed_connections_are_made_anew() {
    let file = pattern(4 * MIB);
    let server = Fake::start(move |request, _| Reply::part(&file, request, "\"one\"").with("Connection", "close"));
    let device = open(&server.url("/a.img")).unwrap();
    for at in 1..4 {
        device.read_at(at << 20, &mut [0; 100]).unwrap();
    }
}

#[test]
fn addresses_that_are_none_are_refused() {
    for (locator, words) in [
        ("http://", "not a URL"),
        ("http://me:secret@127.0.0.1:1/a", "a user and a password"),
        ("http://127.0.0.1:1/a#size=x", "option `size=x`"),
        ("http://a b/c", "not a URL"),
    ] {
        has(&open(locator).unwrap_err().to_string(), words);
    }
}
