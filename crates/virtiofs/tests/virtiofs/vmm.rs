//! A virtual machine monitor with a guest: connects to a device over a file system in memory, and puts requests into
//! the queue.

use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use fuse::SessionOptions;
use parking_lot::Mutex;
use rustix::fs::MemfdFlags;
use vfs::FileSystem;
use vfs_conformance::MemoryFs;
use vhost::vhost_user::message::{VhostUserProtocolFeatures, VhostUserVirtioFeatures};
use vhost::vhost_user::{Frontend, VhostUserFrontend as _};
use vhost::{VhostBackend as _, VhostUserMemoryRegionInfo, VringConfigData};
use virtio_bindings::virtio_config::VIRTIO_F_VERSION_1;
use virtiofs::Guest;
use vm_memory::{Bytes as _, FileOffset, GuestAddress, GuestMemoryBackend as _, GuestMemoryMmap};
use vmm_sys_util::eventfd::EventFd;

/// Bytes of the guest's memory.
pub(crate) const MEMORY_BYTES: usize = 8 << 20;
/// Where the parts of the queue are in it.
const TABLE: u64 = 0x1000;
const AVAILABLE: u64 = 0x2000;
const USED: u64 = 0x3000;
/// Where requests and replies are.
pub(crate) const REQUEST: u64 = 0x10_0000;
pub(crate) const REPLY: u64 = 0x40_0000;
/// Entries of the queue.
pub(crate) const QUEUE_LEN: u16 = 16;
/// The queue of ordinary requests.
const QUEUE: usize = 1;
/// Longest wait for a reply.
const REPLY_MAX: Duration = Duration::from_secs(10);
/// Wait for a reply that may not come.
const SHORT: Duration = Duration::from_millis(300);
/// `INIT` and `STATFS`.
const INIT: u32 = 26;
const STATFS: u32 = 17;

/// Flags of a descriptor.
pub(crate) const NEXT: u16 = 1;
pub(crate) const WRITABLE: u16 = 2;
pub(crate) const INDIRECT: u16 = 4;

/// A descriptor: address, length, flags, next.
pub(crate) type Descriptor = (u64, u32, u16, u16);

/// The file systems that a device opened.
#[derive(Default)]
pub(crate) struct Opened {
    /// The file system that the last mount opened.
    pub(crate) last: Mutex<Option<Arc<MemoryFs>>>,
    pub(crate) count: AtomicUsize,
}

pub(crate) struct Vmm {
    frontend: Option<Frontend>,
    pub(crate) memory: GuestMemoryMmap,
    kick: EventFd,
    /// The device writes to it.
    _call: EventFd,
    available: u16,
    pub(crate) used: u16,
    pub(crate) opened: Arc<Opened>,
    serving: Option<JoinHandle<virtiofs::Result<()>>>,
    unique: u64,
}

impl Vmm {
    /// A monitor that has told the device of its memory and its queue.
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let opened = Arc::<Opened>::default();
        let own = Arc::clone(&opened);
        let open = move || {
            let file_system = Arc::new(MemoryFs::default());
            *own.last.lock() = Some(Arc::clone(&file_system));
            own.count.fetch_add(1, Ordering::Relaxed);
            Ok::<Arc<dyn FileSystem>, _>(file_system)
        };
        let serve = move || Guest::accept(listener, Arc::new(open), SessionOptions::default())?.serve();
        let serving = thread::spawn(serve);
        let mut frontend = Frontend::connect(&path, 2).unwrap();
        let file = std::fs::File::from(rustix::fs::memfd_create("guest", MemfdFlags::CLOEXEC).unwrap());
        file.set_len(u64::try_from(MEMORY_BYTES).unwrap()).unwrap();
        let (kick, call) = (EventFd::new(0).unwrap(), EventFd::new(0).unwrap());
        let range = (GuestAddress(0), MEMORY_BYTES, Some(FileOffset::new(file, 0)));
        let memory = GuestMemoryMmap::from_ranges_with_files([range]).unwrap();
        connect(&mut frontend, &memory, (&kick, &call));
        Self {
            frontend: Some(frontend),
            memory,
            kick,
            _call: call,
            available: 0,
            used: 0,
            opened,
            serving: Some(serving),
            unique: 0,
        }
    }

    /// Says that the guest's memory goes on behind the end of its file; false if the device ends the connection.
    pub(crate) fn tell_too_much_memory(&mut self) -> bool {
        let region = self.memory.find_region(GuestAddress(0)).unwrap();
        let mut told = VhostUserMemoryRegionInfo::from_guest_region(region).unwrap();
        told.memory_size *= 1 << 16;
        let frontend = self.frontend.as_mut().unwrap();
        // The first call may be told before the device has looked.
        frontend.set_mem_table(&[told]).is_ok()
            && (0..50).all(|_| {
                thread::sleep(Duration::from_millis(10));
                frontend.get_features().is_ok()
            })
    }

    /// Offers a chain of descriptors, the first of which is number 0.
    pub(crate) fn offer(&mut self, chain: &[Descriptor]) {
        for (number, (address, len, flags, next)) in (0_u64..).zip(chain) {
            let at = GuestAddress(TABLE + 16 * number);
            self.memory.write_obj(*address, at).unwrap();
            self.memory.write_obj(*len, GuestAddress(at.0 + 8)).unwrap();
            self.memory.write_obj(*flags, GuestAddress(at.0 + 12)).unwrap();
            self.memory.write_obj(*next, GuestAddress(at.0 + 14)).unwrap();
        }
        self.offer_number(0);
    }

    pub(crate) fn offer_number(&mut self, head: u16) {
        let slot = u64::from(self.available % QUEUE_LEN);
        self.memory.write_obj(head, GuestAddress(AVAILABLE + 4 + 2 * slot)).unwrap();
        self.available = self.available.wrapping_add(1);
        self.set_available(self.available);
    }

    /// Says that requests up to this number are in the queue.
    pub(crate) fn set_available(&self, number: u16) {
        self.memory.write_obj(number, GuestAddress(AVAILABLE + 2)).unwrap();
        self.kick.write(1).unwrap();
    }

    /// Waits for the end of the oldest request; the length of its reply, or `None` if it takes too long.
    pub(crate) fn wait(&mut self) -> Option<u32> {
        self.wait_until(Instant::now() + REPLY_MAX)
    }

    fn wait_until(&mut self, deadline: Instant) -> Option<u32> {
        while Instant::now() < deadline {
            let used: u16 = self.memory.read_obj(GuestAddress(USED + 2)).unwrap();
            if used != self.used {
                let slot = u64::from(self.used % QUEUE_LEN);
                self.used = self.used.wrapping_add(1);
                return Some(self.memory.read_obj(GuestAddress(USED + 4 + 8 * slot + 4)).unwrap());
            }
            thread::sleep(Duration::from_millis(1));
        }
        None
    }

    /// As [`Vmm::wait`], for a request that may get no reply.
    pub(crate) fn wait_shortly(&mut self) -> Option<u32> {
        self.wait_until(Instant::now() + SHORT)
    }

    /// True if the device takes requests: a broken queue makes it stop.
    pub(crate) fn is_served(&mut self) -> bool {
        let message = message(STATFS, 1, 1, b"");
        self.memory.write_slice(&message, GuestAddress(REQUEST)).unwrap();
        self.offer(&[(REQUEST, 40, NEXT, 1), (REPLY, 4096, WRITABLE, 0)]);
        self.wait_shortly().is_some()
    }

    /// The body of the reply to a request, or the number of the error.
    pub(crate) fn ask(&mut self, opcode: u32, node: u64, body: &[u8]) -> Result<Vec<u8>, i32> {
        self.unique += 2;
        let request = message(opcode, self.unique, node, body);
        self.memory.write_slice(&request, GuestAddress(REQUEST)).unwrap();
        let len = u32::try_from(request.len()).unwrap();
        // The header, the rest, and the reply in two parts.
        self.offer(&[
            (REQUEST, 40, NEXT, 1),
            (REQUEST + 40, len - 40, NEXT, 2),
            (REPLY, 16, NEXT | WRITABLE, 3),
            (REPLY + 16, 1 << 20, WRITABLE, 0),
        ]);
        let len = self.wait().expect("a reply");
        let mut reply = vec![0; usize::try_from(len).unwrap()];
        self.memory.read_slice(&mut reply, GuestAddress(REPLY)).unwrap();
        assert_eq!(u32_at(&reply, 0), len);
        assert_eq!(u64_at(&reply, 8), self.unique);
        match -i32::from_ne_bytes(reply[4..8].try_into().unwrap()) {
            0 => Ok(reply[16..].to_vec()),
            error => Err(error),
        }
    }

    /// The first request of a kernel that mounts the file system.
    pub(crate) fn mount(&mut self) {
        let offer = [7_u32, 45, 1 << 17, u32::MAX, u32::MAX].map(u32::to_ne_bytes).concat();
        let agreed = self.ask(INIT, 0, &[offer, vec![0; 44]].concat()).unwrap();
        assert_eq!(u32_at(&agreed, 0), 7);
    }

    /// Ends the connection; the result of the server.
    pub(crate) fn end(mut self) -> virtiofs::Result<()> {
        drop(self.frontend.take());
        self.serving.take().unwrap().join().unwrap()
    }
}

fn connect(frontend: &mut Frontend, memory: &GuestMemoryMmap, (kick, call): (&EventFd, &EventFd)) {
    frontend.set_owner().unwrap();
    let wanted = VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits() | 1 << VIRTIO_F_VERSION_1;
    assert_eq!(frontend.get_features().unwrap() & wanted, wanted);
    frontend.set_features(wanted).unwrap();
    let features = frontend.get_protocol_features().unwrap();
    frontend.set_protocol_features(features & VhostUserProtocolFeatures::MQ).unwrap();
    let region = memory.find_region(GuestAddress(0)).unwrap();
    frontend.set_mem_table(&[VhostUserMemoryRegionInfo::from_guest_region(region).unwrap()]).unwrap();
    let base = u64::try_from(region.as_ptr().addr()).unwrap();
    frontend.set_vring_num(QUEUE, QUEUE_LEN).unwrap();
    let data = VringConfigData {
        queue_max_size: QUEUE_LEN,
        queue_size: QUEUE_LEN,
        flags: 0,
        desc_table_addr: base + TABLE,
        used_ring_addr: base + USED,
        avail_ring_addr: base + AVAILABLE,
        log_addr: None,
    };
    frontend.set_vring_addr(QUEUE, &data).unwrap();
    frontend.set_vring_base(QUEUE, 0).unwrap();
    frontend.set_vring_call(QUEUE, call).unwrap();
    frontend.set_vring_kick(QUEUE, kick).unwrap();
    frontend.set_vring_enable(QUEUE, true).unwrap();
}

/// A request: length, opcode, number, node; user, group, process, length of extensions.
pub(crate) fn message(opcode: u32, unique: u64, node: u64, body: &[u8]) -> Vec<u8> {
    let len = u32::try_from(40 + body.len()).unwrap();
    let header = [&len.to_ne_bytes()[..], &opcode.to_ne_bytes(), &unique.to_ne_bytes(), &node.to_ne_bytes()].concat();
    [&header, &*[0_u32, 0, 77, 0].map(u32::to_ne_bytes).concat(), body].concat()
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap())
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap())
}
