//! The fuzz targets, with messages that were changed a little. `fuzz/` does the same for longer.

use nbd::wire::{
    ALLOCATION, BlockExtent, Chunk, ChunkHeader, Command, ContextRequest, ExportRequest, Greeting, Info, OptionHeader,
    OptionReply, ReplyHeader, Request, option, rep,
};

use crate::fuzzed::{nbd_replies, nbd_requests, nbd_wire};
use crate::harness::pattern;

/// All that a client sends in a session.
fn session() -> Vec<u8> {
    let go = ExportRequest { name: "disk".to_owned(), infos: vec![Info::BLOCK_SIZE] };
    let contexts = ContextRequest { export: "disk".to_owned(), queries: vec![ALLOCATION.to_owned()] };
    let request = |command, offset, len| Request { flags: 0, command, cookie: 1, offset, len }.encode().to_vec();
    [
        3_u32.to_be_bytes().to_vec(),
        OptionHeader::encode(option::LIST, b""),
        OptionHeader::encode(option::STRUCTURED_REPLY, b""),
        OptionHeader::encode(option::SET_META_CONTEXT, &contexts.encode()),
        OptionHeader::encode(option::GO, &go.encode()),
        request(Command::Write, 4096, 8),
        b"contents".to_vec(),
        request(Command::Read, 0, 100_000),
        request(Command::BlockStatus, 0, 1 << 20),
        request(Command::WriteZeroes, 0, 4096),
        request(Command::Trim, 0, 1 << 19),
        request(Command::Flush, 0, 0),
        request(Command::Disconnect, 0, 0),
    ]
    .concat()
}

/// Replies to the client of `nbd_replies`.
fn replies() -> Vec<u8> {
    let chunk = |cookie, is_last, kind, payload: &[u8]| {
        let header = ChunkHeader { is_last, kind, cookie, len: u32::try_from(payload.len()).unwrap() };
        [ReplyHeader::Chunk(header).encode().as_slice(), payload].concat()
    };
    let (kind, status) = Chunk::Status { context: 1, extents: vec![BlockExtent { len: 1 << 20, state: 3 }] }.encode();
    let (error, text) = Chunk::Error { error: 28, text: "full".to_owned() }.encode();
    [
        vec![3],
        chunk(1, false, Chunk::DATA, &[0_u64.to_be_bytes().as_slice(), &[1; 2048]].concat()),
        chunk(2, true, kind, &status),
        ReplyHeader::Simple { error: 0, cookie: 3 }.encode(),
        chunk(1, true, Chunk::HOLE, &[2048_u64.to_be_bytes().as_slice(), &2048_u32.to_be_bytes()].concat()),
        chunk(4, true, error, &text),
        ReplyHeader::Simple { error: 5, cookie: 5 }.encode(),
    ]
    .concat()
}

/// The bytes with some changed, removed, or repeated.
fn changed(bytes: &[u8], seed: u64) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for numbers in pattern(12, seed).chunks(4).take(1 + usize::try_from(seed % 3).unwrap()) {
        let at = usize::from(u16::from_le_bytes([numbers[0], numbers[1]])) % bytes.len();
        match numbers[2] % 5 {
            0 => bytes.truncate(at + 1),
            1 => bytes[at] = numbers[3],
            2 => bytes[at] ^= 1 << (numbers[3] % 8),
            3 => bytes.insert(at, numbers[3]),
            _ => bytes.extend_from_within(at..),
        }
    }
    bytes
}

#[test]
fn messages_that_were_changed_are_decoded_or_refused() {
    let messages = [
        Greeting { flags: 3 }.encode(),
        OptionHeader::encode(option::GO, b""),
        OptionReply::encode(option::GO, rep::ACK, b""),
        ExportRequest { name: "disk".to_owned(), infos: vec![1, 2] }.encode(),
        ContextRequest { export: "disk".to_owned(), queries: vec![ALLOCATION.to_owned()] }.encode(),
        Info::Export { size: 1 << 40, flags: 3 }.encode(),
        vec![0, 0, 0, 1, 65],
        ReplyHeader::Simple { error: 0, cookie: 1 }.encode(),
        [[0, 5].as_slice(), &[0, 0, 0, 1, 0, 0, 16, 0, 0, 0, 0, 3]].concat(),
    ];
    for seed in 0..20_000 {
        let (choice, message) = (seed % 9, &messages[usize::try_from(seed % 9).unwrap()]);
        let bytes = if seed < 9 { message.clone() } else { changed(message, seed) };
        nbd_wire(&[&[u8::try_from(choice).unwrap()], bytes.as_slice()].concat());
    }
}

#[test]
fn replies_that_were_changed_end_the_connection_or_are_believed() {
    for seed in 0..2000 {
        nbd_replies(&if seed == 0 { replies() } else { changed(&replies(), seed) });
    }
}

#[test]
fn sessions_that_were_changed_end() {
    for seed in 0..1000 {
        nbd_requests(&if seed == 0 { session() } else { changed(&session(), seed) });
    }
}
