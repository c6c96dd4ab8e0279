//! Servers that lie, stall and vanish: the client fails, and neither hangs nor believes them.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use blockdev::{Access, Device as _, Kind, Tag, tagged};
use nbd::wire::{Chunk, ChunkHeader, Command, Greeting, REQUEST_BYTES, ReplyHeader, Request, transmission};

use crate::harness::{SIZE, Scripted, open, shake_hands, shake_hands_as, take, try_open};

fn request(stream: &mut UnixStream) -> Option<Request> {
    let request = Request::decode(&take::<REQUEST_BYTES>(stream)?).unwrap();
    if request.command == Command::Write {
        let mut data = vec![0; request.len as usize];
        stream.read_exact(&mut data).ok()?;
    }
    Some(request)
}

fn simple(stream: &mut UnixStream, error: u32, cookie: u64, data: &[u8]) {
    // The client may have closed the connection.
    let _ = stream.write_all(&[ReplyHeader::Simple { error, cookie }.encode().as_slice(), data].concat());
}

fn chunk(stream: &mut UnixStream, header: (bool, u16, u64), payload: &[u8]) {
    let (is_last, kind, cookie) = header;
    let header = ChunkHeader { is_last, kind, cookie, len: u32::try_from(payload.len()).unwrap() };
    let _ = stream.write_all(&[ReplyHeader::Chunk(header).encode().as_slice(), payload].concat());
}

/// The error of reading 4096 bytes from a server with structured replies that answers each request like this.
fn read_error(answer: impl Fn(&mut UnixStream, &Request) + Send + 'static) -> String {
    let server = Scripted::start(move |_, stream| {
        let structured = transmission::HAS_FLAGS | transmission::SEND_DF;
        if shake_hands_as(stream, SIZE, structured, true).is_some() {
            while let Some(request) = request(stream) {
                answer(stream, &request);
            }
        }
    });
    let device = open(&server.locator("&timeout=2"));
    let begun = Instant::now();
    let error = device.read_at(8192, &mut [0; 4096]).unwrap_err().to_string();
    assert!(begun.elapsed() < Duration::from_secs(15), "{error}");
    error
}

#[test]
fn replies_that_lie_end_the_connection_with_a_reason() {
    let data = |offset: u64, len: usize| [offset.to_be_bytes().as_slice(), &vec![1; len]].concat();
    let wrong_cookie = read_error(|stream, request| simple(stream, 0, request.cookie + 1, &[]));
    assert!(wrong_cookie.contains("cookie"), "{wrong_cookie}");
    let unstructured = read_error(|stream, request| simple(stream, 0, request.cookie, &[1; 4096]));
    assert!(unstructured.contains("structured"), "{unstructured}");
    let outside = read_error(move |stream, request| chunk(stream, (true, 1, request.cookie), &data(0, 4096)));
    assert!(outside.contains("place of a chunk"), "{outside}");
    let beyond = read_error(move |stream, request| chunk(stream, (true, 1, request.cookie), &data(8192, 4097)));
    assert!(beyond.contains("place of a chunk"), "{beyond}");
    let short = read_error(move |stream, request| chunk(stream, (true, 1, request.cookie), &data(8192, 4095)));
    assert!(short.contains("as many bytes"), "{short}");
    let twice = read_error(move |stream, request| {
        chunk(stream, (false, 1, request.cookie), &data(8192, 2048));
        chunk(stream, (true, 1, request.cookie), &data(8192, 2048));
    });
    assert!(twice.contains("not sent yet"), "{twice}");
    let nothing = read_error(|stream, request| chunk(stream, (true, Chunk::NONE, request.cookie), &[]));
    assert!(nothing.contains("as many bytes"), "{nothing}");
    let status = read_error(|stream, request| {
        let (kind, payload) =
            Chunk::Status { context: 1, extents: vec![nbd::wire::BlockExtent { len: 1, state: 0 }] }.encode();
        chunk(stream, (true, kind, request.cookie), &payload);
    });
    assert!(status.contains("about holes"), "{status}");
    let endless = read_error(|stream, request| {
        for at in 0..4096 {
            chunk(stream, (false, 1, request.cookie), &[(8192_u64 + at).to_be_bytes().as_slice(), &[1]].concat());
        }
    });
    assert!(endless.contains("chunks of a reply"), "{endless}");
    let huge = read_error(|stream, request| {
        let header = ChunkHeader { is_last: true, kind: 1, cookie: request.cookie, len: u32::MAX };
        let _ = stream.write_all(&ReplyHeader::Chunk(header).encode());
    });
    assert!(huge.contains("length of a chunk"), "{huge}");
    let garbage = read_error(|stream, _| drop(stream.write_all(&[0x55; 64])));
    assert!(garbage.contains("magic"), "{garbage}");
    let refused = read_error(|stream, request| {
        let (kind, payload) = Chunk::Error { error: 5, text: "bad \x1b[31m block".to_owned() }.encode();
        chunk(stream, (true, kind, request.cookie), &payload);
    });
    assert!(refused.contains("the server says: bad \\u{1b}[31m block"), "{refused}");
}

#[test]
fn handshakes_that_are_short_or_foreign_fail_at_once() {
    let foreign = [Greeting { flags: 0 }.encode(), b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(), Vec::new()];
    for greeting in foreign {
        let shown = String::from_utf8_lossy(&greeting).into_owned();
        let server = Scripted::start(move |_, stream| stream.write_all(&greeting).unwrap());
        let begun = Instant::now();
        let error = try_open(&server.locator("&timeout=5"), Access::READ).unwrap_err();
        assert!(begun.elapsed() < Duration::from_secs(4), "{shown:?}: {error}");
    }
    let flood = Scripted::start(|_, stream| {
        let _ = stream.write_all(&Greeting { flags: 3 }.encode());
        take::<20>(stream);
        let reply = nbd::wire::OptionReply::encode(8, nbd::wire::rep::SERVER, &[0; 100]);
        while stream.write_all(&reply).is_ok() {}
    });
    let error = try_open(&flood.locator("&timeout=5"), Access::READ).unwrap_err().to_string();
    assert!(error.contains("replies to an option"), "{error}");
}

#[test]
fn a_server_that_stalls_gives_an_error_within_the_time_limit() {
    let silent = Scripted::start(|_, stream| drop(stream.read_to_end(&mut Vec::new())));
    let begun = Instant::now();
    let error = try_open(&silent.locator("&timeout=1"), Access::READ).unwrap_err().to_string();
    assert!(error.contains("does not answer the handshake"), "{error}");

    let stalls = Scripted::start(|_, stream| {
        shake_hands(stream);
        drop(stream.read_to_end(&mut Vec::new()));
    });
    let device = open(&stalls.locator("&timeout=1"));
    let error = device.read_at(0, &mut [0; 512]).unwrap_err().to_string();
    assert!(error.contains("does not answer"), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());

    let device = open(&stalls.locator("&timeout=1"));
    let error = device.write_at(0, &[&[1; 512]]).unwrap_err().to_string();
    assert!(error.contains("does not answer"), "{error}");
    let error = device.flush().unwrap_err().to_string();
    assert!(error.contains("may be lost"), "{error}");

    // One byte of a reply now and then.
    let slow = Scripted::start(|_, stream| {
        shake_hands(stream);
        request(stream);
        while stream.write_all(&[0x67]).is_ok() {
            std::thread::sleep(Duration::from_millis(200));
        }
    });
    let begun = Instant::now();
    let device = open(&slow.locator("&timeout=1"));
    device.read_at(0, &mut [0; 512]).unwrap_err();
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
}

#[test]
fn a_server_that_takes_no_requests_until_its_replies_are_taken_does_not_block_the_client() {
    let server = Scripted::start(|_, stream| {
        shake_hands(stream);
        while let Some(request) = request(stream) {
            let data = if request.command == Command::Read { vec![7; request.len as usize] } else { Vec::new() };
            simple(stream, 0, request.cookie, &data);
        }
    });
    let device = open(&server.locator("&timeout=5"));
    // Replies of announced reads fill the socket; the writes have to get through all the same.
    device.will_read(0, SIZE);
    for _ in 0..20 {
        device.write_at(0, &[&vec![1; 1 << 20]]).unwrap();
        device.will_read(0, SIZE);
    }
}

#[test]
fn an_unflushed_write_on_a_lost_connection_fails_the_device_for_writing_and_reads_go_on() {
    let server = Scripted::start(|number, stream| {
        shake_hands(stream);
        let mut answered = 0;
        while let Some(request) = request(stream) {
            let data = if request.command == Command::Read { vec![9; request.len as usize] } else { Vec::new() };
            simple(stream, 0, request.cookie, &data);
            answered += 1;
            // The first connection ends after a write that was answered and not flushed.
            if number == 0 && answered == 4 {
                return;
            }
        }
    });
    let device = open(&server.locator("&timeout=5"));
    device.write_at(0, &[&[1; 4096]]).unwrap();
    device.flush().unwrap();
    let mut found = [0; 4096];
    device.read_at(4096, &mut found).unwrap();
    device.write_at(0, &[&[2; 4096]]).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    device.read_at(1 << 19, &mut found).unwrap();
    assert_eq!(found, [9; 4096]);
    for error in [device.flush().unwrap_err(), device.write_at(0, &[&[3; 4096]]).unwrap_err()] {
        assert!(error.to_string().contains("may be lost"), "{error}");
    }
}

#[test]
fn a_connection_that_is_lost_with_nothing_at_risk_is_replaced() {
    let server = Scripted::start(|number, stream| {
        shake_hands(stream);
        for _ in 0..3 {
            let Some(request) = request(stream) else { return };
            let data = if request.command == Command::Read { vec![9; request.len as usize] } else { Vec::new() };
            simple(stream, 0, request.cookie, &data);
            if number > 0 {
                continue;
            }
        }
    });
    let device = open(&server.locator("&timeout=5"));
    device.write_at(0, &[&[1; 4096]]).unwrap();
    device.flush().unwrap();
    let mut found = [0; 512];
    device.read_at(1 << 16, &mut found).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    device.read_at(1 << 18, &mut found).unwrap();
    device.write_at(0, &[&[2; 4096]]).unwrap();
    device.flush().unwrap();
}

#[test]
fn an_export_that_has_another_size_after_reconnecting_is_refused() {
    let server = Scripted::start(|number, stream| {
        let size = if number == 0 { SIZE } else { SIZE * 2 };
        shake_hands_as(stream, size, transmission::HAS_FLAGS | transmission::SEND_FLUSH, false);
        if number > 0 {
            stream.read_to_end(&mut Vec::new()).unwrap();
        }
    });
    let device = open(&server.locator("&timeout=5"));
    let error = device.read_at(0, &mut [0; 512]).unwrap_err().to_string();
    assert!(error.contains("the export has changed"), "{error}");
}

#[test]
fn a_server_that_is_gone_fails_reads_after_some_attempts() {
    let (gone, ends) = mpsc::channel::<()>();
    let server = Scripted::start(move |_, stream| {
        shake_hands(stream);
        ends.recv().unwrap_or_default();
    });
    let device = open(&server.locator("&timeout=5"));
    drop(server);
    drop(gone);
    let begun = Instant::now();
    let error = device.read_at(0, &mut [0; 512]).unwrap_err().to_string();
    assert!(error.contains("cannot connect again"), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(12));
    let begun = Instant::now();
    tagged(Tag { kind: Kind::Metadata, mirror: 0 }, || device.read_at(0, &mut [0; 512])).unwrap_err();
    assert!(begun.elapsed() < Duration::from_secs(1), "a server that was found gone is tried once");
}
