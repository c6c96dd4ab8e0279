//! Messages of NBD: as bytes, as what a server sends to our client, and as what a client sends to our server.

use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use ::nbd::wire::{
    Chunk, Context, ContextRequest, ExportRequest, Greeting, Info, OptionHeader, OptionReply, REQUEST_BYTES,
    ReplyHeader, Request, decode_client_flags, decode_export_name, decode_listed,
};
use ::nbd::{Export, Server};
use blockdev::backends::MemoryDevice;

/// Bytes of the device that clients are served.
const SIZE: usize = 1 << 20;
/// More bytes could fill a socket, and the other side would wait.
const BYTES_MAX: usize = 64 << 10;

/// Decodes bytes as every message; what is accepted has to come out unchanged.
pub fn nbd_wire(data: &[u8]) {
    let Some((choice, bytes)) = data.split_first() else { return };
    let same = |encoded: Vec<u8>| assert!(encoded == bytes, "{encoded:?} {bytes:?}");
    match choice % 9 {
        0 => drop(Greeting::decode(bytes).map(|found| same(found.encode()))),
        1 => drop(OptionHeader::decode(bytes)),
        2 => drop(OptionReply::decode(bytes)),
        3 => drop(ExportRequest::decode(bytes).map(|found| same(found.encode()))),
        4 => drop(ContextRequest::decode(bytes).map(|found| same(found.encode()))),
        5 => match Info::decode(bytes) {
            Ok(Info::Other(_)) | Err(_) => {}
            Ok(found) => same(found.encode()),
        },
        6 => drop(Context::decode(bytes).map(|found| same(found.encode()))),
        7 => {
            if let Ok(found) = ReplyHeader::decode(bytes) {
                same(found.encode());
            }
            if let Some(Ok(found)) = bytes.first_chunk::<REQUEST_BYTES>().map(Request::decode) {
                assert!(Request::decode(&found.encode()) == Ok(found));
            }
        }
        _ => {
            let (kind, payload) = bytes
                .split_first_chunk::<2>()
                .map_or((0, bytes), |(kind, payload)| (u16::from_be_bytes(*kind), payload));
            if let Ok(found) = Chunk::decode(kind, payload) {
                let (kind, payload) = found.encode();
                assert!(Chunk::decode(kind, &payload) == Ok(found));
            }
            let _ = (decode_listed(payload), decode_export_name(payload));
            let _ = bytes.first_chunk::<4>().map(|flags| decode_client_flags(*flags));
        }
    }
}

/// Gives our client bytes in place of a server's replies.
pub fn nbd_replies(data: &[u8]) {
    ::nbd::replay_replies(data.get(..data.len().min(BYTES_MAX)).unwrap_or_default());
}

/// Gives our server bytes in place of a client's requests. Nothing outside of its device is changed, and it ends.
pub fn nbd_requests(data: &[u8]) {
    let data = data.get(..data.len().min(BYTES_MAX)).unwrap_or_default();
    let (mut client, server) = UnixStream::pair().expect("a pair of sockets");
    client.write_all(data).expect("the socket takes so much");
    client.shutdown(std::net::Shutdown::Write).expect("the socket is open");
    // The server may send more than the socket takes: without a reader its calls fail.
    let reader = std::thread::spawn(move || drop(std::io::copy(&mut client, &mut std::io::sink())));
    let device = Arc::new(MemoryDevice::new(SIZE));
    let export = Export { name: "disk".to_owned(), description: String::new(), device, read_only: false };
    let _ = Server::new(vec![export]).serve(Arc::new(server.into()));
    reader.join().expect("the reader ends");
}
