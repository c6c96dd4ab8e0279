//! A session without `/dev/fuse`: messages go through queues in memory, as they would through those of virtio-fs.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

use fuse::{Channel, Session, SessionOptions};
use vfs::{FileSystem, Volume};
use vfs_conformance::MemoryFs;

const LOOKUP: u32 = 1;
const FORGET: u32 = 2;
const READ: u32 = 15;
const WRITE: u32 = 16;
const RELEASE: u32 = 18;
const FSYNC: u32 = 20;
const INIT: u32 = 26;
const CREATE: u32 = 35;
const DESTROY: u32 = 38;

const EIO: i32 = 5;
const EINVAL: i32 = 22;
const ENOSYS: i32 = 38;

/// The kernel's side: sends requests, receives replies.
#[derive(Debug)]
struct Queues {
    requests: Mutex<mpsc::Receiver<Vec<u8>>>,
    replies: mpsc::Sender<Vec<u8>>,
}

impl Channel for Queues {
    fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let Ok(request) = self.requests.lock().unwrap().recv() else { return Ok(0) };
        buffer[..request.len()].copy_from_slice(&request);
        Ok(request.len())
    }

    fn send(&self, message: &[u8]) -> io::Result<()> {
        self.replies.send(message.to_vec()).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

/// A kernel that sends one request after the other.
struct Kernel {
    requests: mpsc::Sender<Vec<u8>>,
    replies: mpsc::Receiver<Vec<u8>>,
    unique: u64,
}

impl Kernel {
    fn send(&mut self, opcode: u32, node: u64, body: &[u8]) -> u64 {
        self.unique += 2;
        self.requests.send(message(opcode, self.unique, node, body)).unwrap();
        self.unique
    }

    /// The body of the reply, or the error number.
    fn ask(&mut self, opcode: u32, node: u64, body: &[u8]) -> Result<Vec<u8>, i32> {
        let unique = self.send(opcode, node, body);
        let reply = self.replies.recv().unwrap();
        assert_eq!(u32_at(&reply, 0), u32::try_from(reply.len()).unwrap());
        assert_eq!(u64_at(&reply, 8), unique);
        match -i32::from_ne_bytes(reply[4..8].try_into().unwrap()) {
            0 => Ok(reply[16..].to_vec()),
            error => Err(error),
        }
    }

    fn init(&mut self) -> Vec<u8> {
        self.ask(INIT, 0, &offer()).unwrap()
    }
}

fn message(opcode: u32, unique: u64, node: u64, body: &[u8]) -> Vec<u8> {
    let len = u32::try_from(40 + body.len()).unwrap();
    // Length, opcode, number, node; user, group, process, length of extensions.
    let header = [&len.to_ne_bytes()[..], &opcode.to_ne_bytes(), &unique.to_ne_bytes(), &node.to_ne_bytes()].concat();
    [&header, &*[0_u32, 0, 77, 0].map(u32::to_ne_bytes).concat(), body].concat()
}

/// A kernel with protocol 7.45 and all capabilities.
fn offer() -> Vec<u8> {
    let offer = [7_u32, 45, 1 << 17, u32::MAX, u32::MAX].map(u32::to_ne_bytes).concat();
    [offer, vec![0; 44]].concat()
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap())
}

/// Runs `act` against a session over `fs` on another thread, and waits for the session's end.
fn asked(fs: &Arc<dyn FileSystem>, act: impl FnOnce(&mut Kernel)) {
    let (requests, received) = mpsc::channel();
    let (replied, replies) = mpsc::channel();
    let channel: Arc<dyn Channel> = Arc::new(Queues { requests: Mutex::new(received), replies: replied });
    let session = Session::new(Arc::clone(fs), SessionOptions::default());
    thread::scope(|scope| {
        let served = scope.spawn(|| session.run(&channel));
        let mut kernel = Kernel { requests, replies, unique: 0 };
        act(&mut kernel);
        drop(kernel);
        served.join().unwrap().unwrap();
    });
    session.finish().unwrap();
}

#[test]
fn a_file_is_made_written_read_synced_and_forgotten() {
    let fs: Arc<dyn FileSystem> = Arc::new(MemoryFs::default());
    asked(&fs, |kernel| {
        let agreed = kernel.init();
        assert_eq!((u32_at(&agreed, 0), u32_at(&agreed, 4)), (7, 45));
        // Missing: node 0, which the kernel caches.
        let entry = kernel.ask(LOOKUP, 1, b"file\0").unwrap();
        assert_eq!(u64_at(&entry, 0), 0);
        // Flags of open(2) (O_RDWR), mode, umask, flags of the kernel.
        let create = [2_u32, 0o100_640, 0o022, 0].map(u32::to_ne_bytes).concat();
        let made = kernel.ask(CREATE, 1, &[&*create, b"file\0"].concat()).unwrap();
        // The entry has 128 bytes, the opening follows.
        let (node, handle) = (u64_at(&made, 0), u64_at(&made, 128));
        assert!(node > 1);
        let data = b"bytes of a file";
        // Handle, offset, length; then flags, owner of a lock, flags of open(2).
        let write = |len: usize| {
            let len = u32::try_from(len).unwrap().to_ne_bytes();
            [&handle.to_ne_bytes()[..], &5_u64.to_ne_bytes(), &len, &[0; 20]].concat()
        };
        let written = kernel.ask(WRITE, node, &[&*write(data.len()), data].concat()).unwrap();
        assert_eq!(u32_at(&written, 0), 15);
        assert_eq!(kernel.ask(READ, node, &write(100)).unwrap(), data);
        let sync = [&handle.to_ne_bytes()[..], &[0; 8]].concat();
        assert_eq!(kernel.ask(FSYNC, node, &sync).unwrap(), b"");
        let entry = kernel.ask(LOOKUP, 1, b"file\0").unwrap();
        // Its number, and its size: behind the number of the inode in the attributes.
        assert_eq!((u64_at(&entry, 0), u64_at(&entry, 48)), (node, 20));
        let release = [&handle.to_ne_bytes()[..], &[0; 16]].concat();
        assert_eq!(kernel.ask(RELEASE, node, &release).unwrap(), b"");
        // Both references; there is no reply, so the next one is that of DESTROY.
        kernel.send(FORGET, node, &2_u64.to_ne_bytes());
        assert_eq!(kernel.ask(DESTROY, 0, b"").unwrap(), b"");
    });
    assert_eq!(Volume::new(Arc::clone(&fs)).read("/file").unwrap(), b"\0\0\0\0\0bytes of a file");
}

#[test]
fn requests_that_make_no_sense_get_an_error_and_hurt_nothing() {
    let fs: Arc<dyn FileSystem> = Arc::new(MemoryFs::default());
    asked(&fs, |kernel| {
        assert_eq!(kernel.ask(LOOKUP, 1, b"early\0"), Err(EIO), "before INIT");
        let old = [7_u32, 30, 0, 0].map(u32::to_ne_bytes).concat();
        assert_eq!(kernel.ask(INIT, 0, &old), Err(EIO), "an old kernel");
        kernel.init();
        assert_eq!(kernel.ask(INIT, 0, &[0; 64]), Err(EIO), "a second INIT");
        assert_eq!(kernel.ask(WRITE, 1, &[0xff; 12]), Err(EINVAL), "too short");
        assert_eq!(kernel.ask(LOOKUP, 1, b"without an end"), Err(EINVAL));
        assert_eq!(kernel.ask(4711, 1, b""), Err(ENOSYS));
        // The length in the header differs from that of the message.
        kernel.requests.send([&9_u32.to_ne_bytes()[..], &LOOKUP.to_ne_bytes(), &[0; 32], b"x\0"].concat()).unwrap();
        assert_eq!(-i32::from_ne_bytes(kernel.replies.recv().unwrap()[4..8].try_into().unwrap()), EINVAL);
        // Neither gets a reply: one without a header, and a malformed FORGET.
        kernel.requests.send(vec![1, 2, 3]).unwrap();
        kernel.send(FORGET, 1, &[1]);
        let entry = kernel.ask(LOOKUP, 1, b"still\0").unwrap();
        assert_eq!(u64_at(&entry, 0), 0);
    });
}

#[test]
fn a_notification_reaches_the_channel() {
    let fs: Arc<dyn FileSystem> = Arc::new(MemoryFs::default());
    let (_requests, received) = mpsc::channel();
    let (replied, replies) = mpsc::channel();
    let channel: Arc<dyn Channel> = Arc::new(Queues { requests: Mutex::new(received), replies: replied });
    let session = Session::new(fs, SessionOptions::default());
    assert!(session.notifier(Arc::clone(&channel)).is_none(), "before INIT");
    let mut reply = vec![0; session.message_bytes_max()];
    assert!(session.process(&message(INIT, 2, 0, &offer()), &mut reply, &channel) > 16);
    session.notifier(channel).unwrap().attributes(vfs::NodeId(7));
    let message = replies.recv().unwrap();
    // The number 0 of a request marks it; the node is the first field.
    assert_eq!((u64_at(&message, 8), u64_at(&message, 16)), (0, 7));
}
