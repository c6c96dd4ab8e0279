//! Messages of NFS: the parts of a call by themselves, and connections as our server gets them.

use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use ::nfs::wire::{Arguments, Call, MountArguments, RECORD_BYTES_MAX, Writer, mount_procedure, procedure};
use ::nfs::{KEY_BYTES, Options, Server, Squash};
use vfs_conformance::MemoryFs;

/// More bytes could fill a socket, and the other side would wait.
const BYTES_MAX: usize = 64 << 10;

/// Decodes bytes as a call, and as the arguments of each procedure: what is accepted means the same when it is written
/// again.
pub fn nfs_wire(data: &[u8]) {
    assert!(data.len() <= RECORD_BYTES_MAX);
    if let Ok(call) = Call::decode(data) {
        let again = call.encode();
        let found = Call::decode(&again).expect("what was written can be read");
        assert_eq!((found.xid, found.program, found.procedure), (call.xid, call.program, call.procedure));
        assert_eq!(found.arguments, call.arguments);
        arguments(call.procedure, call.arguments);
    }
    for number in procedure::NULL..=procedure::COMMIT + 1 {
        arguments(number, data);
    }
    for number in mount_procedure::NULL..=mount_procedure::EXPORT {
        let _ = MountArguments::decode(number, data);
    }
}

fn arguments(number: u32, bytes: &[u8]) {
    let Ok(Some(found)) = Arguments::decode(number, bytes) else { return };
    assert_eq!(found.procedure(), number);
    assert_eq!(Arguments::decode(number, &found.encode()), Ok(Some(found)));
}

/// Gives our server bytes in place of a client's connection: a choice of credentials, and records of which each has its
/// length before it, so that changes of lengths inside go past the marks. The first handle is a right one.
pub fn nfs_calls(data: &[u8]) {
    let data = data.get(..data.len().min(BYTES_MAX)).unwrap_or_default();
    let Some((choice, mut data)) = data.split_first() else { return };
    let squash = if choice & 1 == 0 { Squash::None } else { Squash::Root };
    let options = Options { path: b"/".to_vec(), uuid: [1; 16], key: [2; KEY_BYTES], squash, read_only: false };
    let server = Server::new(Arc::new(MemoryFs::default()), &options).expect("a directory");
    let root = root_of(&server);
    let (mut client, theirs) = UnixStream::pair().expect("a pair of sockets");
    let reader = client.try_clone().expect("a descriptor");
    let reader = std::thread::spawn(move || drop(std::io::copy(&mut { reader }, &mut std::io::sink())));
    let serving = std::thread::spawn(move || server.serve(Arc::new(theirs.into()), None));
    if choice & 2 == 0 {
        // Bytes as they are. The server may have ended the connection.
        let _ = client.write_all(data);
    }
    while let Some(([procedure, len], rest)) = data.split_first_chunk().filter(|_| choice & 2 != 0) {
        let (arguments, rest) = rest.split_at(rest.len().min(usize::from(*len)));
        let mut record = Writer::default();
        for number in [7, 0, 2, 100_003, 3, u32::from(*procedure % 23), 0, 0, 0, 0] {
            record.u32(number);
        }
        record.opaque(&root);
        record.raw(arguments);
        let record = record.into_bytes();
        let mark = (1 << 31 | u32::try_from(record.len()).expect("it is short")).to_be_bytes();
        if client.write_all(&[mark.as_slice(), &record].concat()).is_err() {
            break;
        }
        data = rest;
    }
    let _ = client.shutdown(std::net::Shutdown::Write);
    let _ = serving.join().expect("the server ends without a panic");
    drop(client);
    reader.join().expect("the reader ends");
}

/// The handle of the exported directory.
fn root_of(server: &Server) -> Vec<u8> {
    use std::io::Read as _;
    let (mut client, theirs) = UnixStream::pair().expect("a pair of sockets");
    let mut record = Writer::default();
    record.u32(1 << 31 | 48);
    for number in [7, 0, 2, 100_005, 3, 1, 0, 0, 0, 0, 1, u32::from_be_bytes(*b"/\0\0\0")] {
        record.u32(number);
    }
    client.write_all(&record.into_bytes()).expect("the socket takes so much");
    client.shutdown(std::net::Shutdown::Write).expect("the socket is open");
    let _ = server.serve(Arc::new(theirs.into()), None);
    let mut reply = Vec::new();
    client.read_to_end(&mut reply).expect("a reply");
    reply.get(36..96).expect("a handle").to_vec()
}
