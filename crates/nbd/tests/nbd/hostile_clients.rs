//! Clients that break the protocol lose their own connection; others are served.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use blockdev::Device;
use blockdev::backends::MemoryDevice;
use nbd::wire::{
    Command, ExportRequest, OptionHeader, OptionReply, REQUEST_BYTES_MAX, ReplyHeader, Request, errno, option, rep,
};

use crate::harness::{Own, open, take};

fn served() -> (Arc<MemoryDevice>, Own) {
    let memory = Arc::new(MemoryDevice::from_bytes(&[7; 1 << 16]));
    let own = Own::start(Arc::clone(&memory) as Arc<dyn Device>, false);
    (memory, own)
}

fn greeted(own: &Own) -> UnixStream {
    let mut stream = own.connect();
    take::<18>(&mut stream).unwrap();
    stream.write_all(&3_u32.to_be_bytes()).unwrap();
    stream
}

/// A client after a handshake without structured replies.
fn chosen(own: &Own) -> UnixStream {
    let mut stream = greeted(own);
    let request = ExportRequest { name: String::new(), infos: Vec::new() };
    stream.write_all(&OptionHeader::encode(option::GO, &request.encode())).unwrap();
    while reply(&mut stream).0 == rep::INFO {}
    stream
}

fn reply(stream: &mut UnixStream) -> (u32, Vec<u8>) {
    let header = OptionReply::decode(&take::<20>(stream).unwrap()).unwrap();
    let mut payload = vec![0; header.len as usize];
    stream.read_exact(&mut payload).unwrap();
    (header.kind, payload)
}

fn is_closed(stream: &mut UnixStream) -> bool {
    match stream.read_to_end(&mut Vec::new()) {
        Ok(_) => true,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}

fn error_of(stream: &mut UnixStream, request: Request, data: &[u8]) -> u32 {
    stream.write_all(&[request.encode().as_slice(), data].concat()).unwrap();
    match ReplyHeader::decode(&take::<16>(stream).unwrap()).unwrap() {
        ReplyHeader::Simple { error, cookie } if cookie == request.cookie => error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn handshakes_that_break_the_protocol_are_closed() {
    let (_memory, own) = served();
    for flags in [0_u32, 0x8000_0001] {
        let mut stream = own.connect();
        take::<18>(&mut stream).unwrap();
        stream.write_all(&flags.to_be_bytes()).unwrap();
        assert!(is_closed(&mut stream), "{flags}");
    }
    let mut long = OptionHeader::encode(option::GO, b"");
    long[12..].copy_from_slice(&u32::MAX.to_be_bytes());
    for bytes in [vec![0x41; 16], long, OptionHeader::encode(option::EXPORT_NAME, b"no such export")] {
        let mut stream = greeted(&own);
        stream.write_all(&bytes).unwrap();
        assert!(is_closed(&mut stream));
    }
    let mut endless = greeted(&own);
    for _ in 0..70 {
        // Closed at some point.
        let _ = endless.write_all(&OptionHeader::encode(99, b""));
    }
    assert!(is_closed(&mut endless));
    // Requests before the handshake.
    let mut early = own.connect();
    take::<18>(&mut early).unwrap();
    let read = Request { flags: 0, command: Command::Read, cookie: 1, offset: 0, len: 512 };
    early.write_all(&read.encode()).unwrap();
    assert!(is_closed(&mut early));
    open(&own.locator()).read_at(0, &mut [0; 512]).unwrap();
}

#[test]
fn options_that_are_malformed_or_unknown_are_refused_and_the_handshake_goes_on() {
    let (_memory, own) = served();
    let mut stream = greeted(&own);
    let unknown = ExportRequest { name: "tape".to_owned(), infos: Vec::new() }.encode();
    for (number, payload, expected) in [
        (option::STARTTLS, b"".as_slice(), rep::ERR_POLICY),
        (77, b"payload", rep::ERR_UNSUP),
        (option::LIST, b"payload", rep::ERR_INVALID),
        (option::GO, b"\xff\xff\xff\xff", rep::ERR_INVALID),
        (option::GO, unknown.as_slice(), rep::ERR_UNKNOWN),
        (option::SET_META_CONTEXT, b"\0\0\0\0\0\0\0\0", rep::ERR_INVALID),
        (option::LIST, b"", rep::SERVER),
    ] {
        stream.write_all(&OptionHeader::encode(number, payload)).unwrap();
        assert_eq!(reply(&mut stream).0, expected, "{number}");
    }
    assert_eq!(reply(&mut stream).0, rep::ACK);
    stream.write_all(&OptionHeader::encode(option::ABORT, b"")).unwrap();
    assert_eq!(reply(&mut stream).0, rep::ACK);
    assert!(is_closed(&mut stream));
}

#[test]
fn requests_outside_the_export_are_refused_and_those_after_them_are_answered() {
    let (memory, own) = served();
    let mut stream = chosen(&own);
    let of = |command, flags, offset, len| Request { flags, command, cookie: 5, offset, len };
    let size = memory.size_bytes();
    for (request, data, expected) in [
        (of(Command::Read, 0, size, 512), 0, errno::EINVAL),
        (of(Command::Read, 0, u64::MAX, 512), 0, errno::EINVAL),
        (of(Command::Read, 0, 0, 0), 0, errno::EINVAL),
        (of(Command::Read, 0x4000, 0, 512), 0, errno::EINVAL),
        (of(Command::Write, 0, size - 1, 512), 512, errno::ENOSPC),
        (of(Command::Write, 0x4000, 0, 512), 512, errno::EINVAL),
        (of(Command::Trim, 0, size, 1), 0, errno::EINVAL),
        (of(Command::WriteZeroes, 0, 0, u32::MAX), 0, errno::EINVAL),
        (of(Command::BlockStatus, 0, 0, 512), 0, errno::EINVAL),
        (of(Command::Other(99), 0, 0, 512), 0, errno::EINVAL),
        (of(Command::Flush, 0, 0, 0), 0, 0),
        (of(Command::Write, 1, 0, 512), 512, 0),
        (of(Command::Cache, 0, 0, 512), 0, 0),
    ] {
        assert_eq!(error_of(&mut stream, request, &vec![1; data]), expected, "{request:?}");
    }
    let mut changed = vec![7; usize::try_from(size).unwrap()];
    changed[..512].fill(1);
    assert!(memory.to_bytes() == changed);
}

#[test]
fn requests_that_break_the_protocol_are_closed() {
    let (memory, own) = served();
    let large = Request { flags: 0, command: Command::Write, cookie: 1, offset: 0, len: REQUEST_BYTES_MAX + 1 };
    for bytes in [large.encode().to_vec(), vec![0; 28]] {
        let mut stream = chosen(&own);
        stream.write_all(&bytes).unwrap();
        assert!(is_closed(&mut stream));
    }
    // A write whose data ends early changes nothing.
    let mut short = chosen(&own);
    let write = Request { flags: 0, command: Command::Write, cookie: 1, offset: 0, len: 4096 };
    short.write_all(&write.encode()).unwrap();
    short.write_all(&[1; 100]).unwrap();
    short.shutdown(std::net::Shutdown::Write).unwrap();
    assert!(is_closed(&mut short));
    assert!(memory.to_bytes().iter().all(|byte| *byte == 7));
    open(&own.locator()).write_at(0, &[b"served"]).unwrap();
}

#[test]
fn a_client_that_takes_no_replies_delays_no_other() {
    let (_memory, own) = served();
    let mut greedy = chosen(&own);
    let read = Request { flags: 0, command: Command::Read, cookie: 1, offset: 0, len: 1 << 16 };
    greedy.set_write_timeout(Some(std::time::Duration::from_millis(200))).unwrap();
    while greedy.write_all(&read.encode()).is_ok() {}
    let device = open(&own.locator());
    for _ in 0..20 {
        device.read_at(0, &mut [0; 4096]).unwrap();
    }
}
