//! The device: takes requests from the queues in the guest's memory, has them answered, and writes the replies there.
//! `guest` connects it with a virtual machine monitor.

use crate::mounted::{Mounted, OpenVolume};
use fuse::{Channel, Session, SessionOptions, Sort};
use parking_lot::{Condvar, Mutex, RwLock};
use std::io::{self, Read as _, Write as _};
use std::num::NonZero;
use std::os::fd::AsRawFd as _;
use std::sync::Arc;
use std::thread;
use vhost::vhost_user::message::{VhostUserProtocolFeatures, VhostUserVirtioFeatures};
use vhost_user_backend::{VhostUserBackend, VringEpollHandler, VringMutex, VringT};
use virtio_bindings::virtio_config::VIRTIO_F_VERSION_1;
use virtio_bindings::virtio_ring::{VIRTIO_RING_F_EVENT_IDX, VIRTIO_RING_F_INDIRECT_DESC};
use virtio_queue::{DescriptorChain, QueueT as _};
use vm_memory::{
    GuestAddressSpace as _, GuestMemoryAtomic, GuestMemoryBackend as _, GuestMemoryLoadGuard, GuestMemoryMmap,
    GuestMemoryRegion as _,
};
use vmm_sys_util::epoll::EventSet;
use vmm_sys_util::event::{EventConsumer, EventFlag, EventNotifier, new_event_consumer_and_notifier};

type Memory = GuestMemoryAtomic<GuestMemoryMmap>;
type Ring = VringMutex<Memory>;
type Chain = DescriptorChain<GuestMemoryLoadGuard<GuestMemoryMmap>>;

/// Most entries of a queue; virtual machine monitors choose fewer.
const QUEUE_LEN_MAX: usize = 1024;
/// Most queues for requests, besides the one for requests that overtake others.
const REQUEST_QUEUES_MAX: usize = 8;
/// Most requests that run on threads of their own; further ones wait in their queue.
const APART_MAX: usize = 64;
/// Bytes of the header of a reply.
const REPLY_HEADER_BYTES: usize = 16;

/// The device of one connection.
#[derive(Clone)]
pub(crate) struct Device(Arc<State>);

struct State {
    open: Arc<OpenVolume>,
    options: SessionOptions,
    memory: Memory,
    /// The volume, while the guest has it mounted. Requests hold the lock for reading.
    mounted: RwLock<Option<Mounted>>,
    apart: Apart,
    channel: Arc<dyn Channel>,
    buffers: Mutex<Vec<Buffers>>,
    queue_count: usize,
    /// Ends the threads of the queues. (The library's own events for this are never closed by it.)
    end: (EventConsumer, EventNotifier),
}

/// A request and its reply.
struct Buffers {
    request: Vec<u8>,
    reply: Vec<u8>,
}

/// The requests that run on threads of their own.
#[derive(Default)]
struct Apart {
    count: Mutex<usize>,
    fewer: Condvar,
}

/// Drops notifications of the guest's kernel: virtio-fs of Linux has no queue for them.
#[derive(Debug)]
struct NoNotifications;

impl Channel for NoNotifications {
    fn receive(&self, _buffer: &mut [u8]) -> io::Result<usize> {
        Ok(0)
    }

    fn send(&self, _message: &[u8]) -> io::Result<()> {
        Ok(())
    }
}

impl Device {
    /// A device that waits for its guest.
    ///
    /// # Errors
    /// Those of the system.
    pub(crate) fn new(open: Arc<OpenVolume>, options: SessionOptions, memory: Memory) -> io::Result<Self> {
        Ok(Self(Arc::new(State {
            open,
            options,
            memory,
            mounted: RwLock::default(),
            apart: Apart::default(),
            channel: Arc::new(NoNotifications),
            buffers: Mutex::default(),
            queue_count: queue_count(),
            end: new_event_consumer_and_notifier(EventFlag::CLOEXEC | EventFlag::NONBLOCK)?,
        })))
    }

    /// Lets [`Self::end_queues`] end the thread of a queue.
    ///
    /// # Errors
    /// Those of the system.
    pub(crate) fn watch_end(&self, thread: &VringEpollHandler<Self>) -> io::Result<()> {
        let event = u64::try_from(self.end_event()).unwrap_or(u64::MAX);
        thread.register_listener(self.0.end.0.as_raw_fd(), EventSet::IN, event)
    }

    /// Ends the threads of the queues.
    pub(crate) fn end_queues(&self) {
        if let Err(error) = self.0.end.1.notify() {
            tracing::warn!(%error, "the threads of the queues could not be ended");
        }
    }

    /// The number of the event that ends a thread: behind those of the queues and of the library.
    fn end_event(&self) -> usize {
        self.0.queue_count + 1
    }

    /// Makes everything durable after the last request.
    ///
    /// # Errors
    /// Those of the volume.
    pub(crate) fn end(&self) -> io::Result<()> {
        self.0.end()
    }

    /// Answers all requests of a queue.
    ///
    /// # Errors
    /// The queue claims requests that it does not have.
    fn take_all(&self, ring: &Ring) -> io::Result<()> {
        let mut was_empty = false;
        loop {
            ring.disable_notification().map_err(io::Error::other)?;
            let mut is_empty = true;
            loop {
                let memory = self.0.memory.memory();
                let taken = ring.get_mut().get_queue_mut().pop_descriptor_chain(memory);
                let Some(chain) = taken else { break };
                self.take(ring, chain)?;
                is_empty = false;
            }
            if !ring.enable_notification().map_err(io::Error::other)? {
                return Ok(());
            }
            if is_empty && was_empty {
                return Err(io::Error::other("the queue claims requests that it does not have"));
            }
            was_empty = is_empty;
        }
    }

    /// Answers a request, or has a thread of its own do so.
    fn take(&self, ring: &Ring, chain: Chain) -> io::Result<()> {
        let mut buffers = self.0.buffers();
        let len = read_request(&chain, &mut buffers.request)?;
        let sort = Session::sort(buffers.request.get(..len).unwrap_or_default());
        if sort != Sort::MayWait {
            let answered = self.0.answer((ring, &chain), sort, len, &mut buffers);
            self.0.buffers.lock().push(buffers);
            return answered;
        }
        self.0.apart.begin();
        let (state, ring) = (Arc::clone(&self.0), ring.clone());
        let run = move || {
            if let Err(error) = state.answer((&ring, &chain), sort, len, &mut buffers) {
                tracing::debug!(%error, "a reply was not taken");
            }
            state.buffers.lock().push(buffers);
            state.apart.end();
        };
        let started = thread::Builder::new().name("request".to_owned()).spawn(run);
        started.map(drop).inspect_err(|_| self.0.apart.end())
    }
}

impl State {
    fn buffers(&self) -> Buffers {
        let len = Session::message_bytes_max_of(&self.options);
        self.buffers.lock().pop().unwrap_or_else(|| Buffers { request: vec![0; len], reply: vec![0; len] })
    }

    /// Answers a request of `len` bytes.
    fn answer(&self, at: (&Ring, &Chain), sort: Sort, len: usize, buffers: &mut Buffers) -> io::Result<()> {
        let (ring, chain) = at;
        let request = buffers.request.get(..len).unwrap_or_default();
        if sort == Sort::Start {
            self.start();
        }
        let mut reply_len = match &*self.mounted.read() {
            Some(mounted) => mounted.session.process(request, &mut buffers.reply, &self.channel),
            None => Session::refuse(request, &mut buffers.reply),
        };
        if sort == Sort::End
            && let Err(error) = self.end()
        {
            tracing::warn!(%error, "the last changes of the guest could not be written");
            reply_len = Session::refuse(request, &mut buffers.reply);
        }
        let written = write_reply(chain, request, buffers.reply.get_mut(..reply_len).unwrap_or_default())?;
        ring.add_used(chain.head_index(), written).map_err(io::Error::other)?;
        if ring.needs_notification().map_err(io::Error::other)? {
            ring.signal_used_queue()?;
        }
        Ok(())
    }

    /// Opens the volume for a guest that mounts it. A guest that was reset did not end its last mount.
    fn start(&self) {
        if let Err(error) = self.end() {
            tracing::warn!(%error, "the last changes of the guest could not be written");
        }
        match Mounted::new(&*self.open, &self.options) {
            Ok(mounted) => *self.mounted.write() = Some(mounted),
            Err(error) => tracing::warn!(%error, "the guest cannot mount the volume"),
        }
    }

    fn end(&self) -> io::Result<()> {
        self.apart.wait_below(1);
        let ended = self.mounted.write().take();
        ended.map_or(Ok(()), Mounted::end)
    }
}

impl VhostUserBackend for Device {
    type Bitmap = ();
    type Vring = Ring;

    fn num_queues(&self) -> usize {
        self.0.queue_count
    }

    fn max_queue_size(&self) -> usize {
        QUEUE_LEN_MAX
    }

    fn features(&self) -> u64 {
        let bits = [VIRTIO_F_VERSION_1, VIRTIO_RING_F_INDIRECT_DESC, VIRTIO_RING_F_EVENT_IDX];
        bits.iter().fold(VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits(), |all, bit| all | 1 << bit)
    }

    fn protocol_features(&self) -> VhostUserProtocolFeatures {
        VhostUserProtocolFeatures::MQ | VhostUserProtocolFeatures::REPLY_ACK
    }

    fn set_event_idx(&self, _enabled: bool) {}

    /// Refuses memory behind the end of its file: an access would kill this process.
    fn update_memory(&self, memory: Memory) -> io::Result<()> {
        for region in memory.memory().iter() {
            let Some(place) = region.file_offset() else { continue };
            let (end, len) = (place.start().saturating_add(region.len()), place.file().metadata()?.len());
            if end > len {
                let text = format!("the guest's memory ends at byte {end} of its file, which has {len} bytes");
                return Err(io::Error::new(io::ErrorKind::InvalidData, text));
            }
        }
        Ok(())
    }

    fn queues_per_thread(&self) -> Vec<u64> {
        (0..self.num_queues()).map(|queue| 1 << queue).collect()
    }

    fn stop_vring(&self, _queue: u32) -> io::Result<()> {
        self.0.apart.wait_below(1);
        Ok(())
    }

    fn handle_event(&self, ring: u16, events: EventSet, rings: &[Ring], _thread: usize) -> io::Result<()> {
        if usize::from(ring) == self.end_event() {
            return Err(io::Error::other("the connection has ended"));
        }
        match rings.get(usize::from(ring)) {
            Some(ring) if events == EventSet::IN => self.take_all(ring),
            _ => Ok(()),
        }
    }
}

impl Apart {
    /// Counts a request, once there are not too many.
    fn begin(&self) {
        self.wait_below(APART_MAX);
        *self.count.lock() += 1;
    }

    /// Waits until fewer than `count` requests run apart.
    fn wait_below(&self, count: usize) {
        let mut running = self.count.lock();
        self.fewer.wait_while(&mut running, |running| *running >= count);
    }

    fn end(&self) {
        *self.count.lock() -= 1;
        self.fewer.notify_all();
    }
}

/// Copies a request out of the guest's memory; 0 for one that is too long.
fn read_request(chain: &Chain, request: &mut [u8]) -> io::Result<usize> {
    let memory = chain.memory();
    let mut reader = chain.clone().reader(memory).map_err(io::Error::other)?;
    let len = reader.available_bytes();
    match request.get_mut(..len) {
        Some(place) => reader.read_exact(place).map(|()| len),
        None => {
            tracing::debug!(len, "a request is longer than a message");
            Ok(0)
        }
    }
}

/// Copies a reply into the guest's memory; one that does not fit becomes an error. Returns its length.
fn write_reply(chain: &Chain, request: &[u8], reply: &mut [u8]) -> io::Result<u32> {
    let memory = chain.memory();
    let mut writer = chain.clone().writer(memory).map_err(io::Error::other)?;
    let room = writer.available_bytes();
    let len = match reply.len() {
        len if len <= room => len,
        _ if room >= REPLY_HEADER_BYTES => Session::refuse(request, reply),
        _ => 0,
    };
    writer.write_all(reply.get(..len).unwrap_or_default())?;
    u32::try_from(len).map_err(io::Error::other)
}

/// The queue for requests that overtake others, and those for all others.
fn queue_count() -> usize {
    let processors = thread::available_parallelism().map_or(1, NonZero::get);
    1 + processors.min(REQUEST_QUEUES_MAX)
}
