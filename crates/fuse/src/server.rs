//! A mount being served: its threads, from the first request to the final sync.

use crate::ServedFile;
use crate::activity::Activity;
use crate::ending::{Done, Ending, Running};
use crate::error::{Error, Result};
use crate::notify::Notifier;
use crate::protocol::InitFlags;
use crate::session::{REQUEST_BYTES_MAX, REQUEST_BYTES_MIN, Service, ServiceOptions, SessionOptions, TIMEOUT};
use crate::transport::connection::{Connection, open_spares};
use crate::transport::device::{self, Pace, Worker};
use crate::transport::ring::{self, Queue};

pub use crate::session::WriteBack;
use std::fmt;
use std::num::NonZero;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::thread::{self, JoinHandle};
use std::time::Duration;
use vfs::FileSystem;

/// Longest time between two calls of the file system's background work.
const STEP_INTERVAL_MAX: Duration = Duration::from_secs(60);

/// How requests come and replies go.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Transport {
    /// The best that the kernel offers.
    Auto,
    /// `/dev/fuse`.
    #[default]
    Device,
    /// io_uring where the kernel allows it, else `/dev/fuse`.
    Ring,
}

/// How a mount is served.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// Threads that answer requests; [`default_workers`] when 0.
    pub workers: usize,
    /// Written data may stay in the kernel's page cache for a while. Small writes get cheaper;
    /// the kernel then decides about sizes and times of modification.
    pub writeback: bool,
    /// The kernel opens and closes files without telling. The file system then reads and writes
    /// with a handle of 0, and keeps nodes until they are forgotten.
    pub zero_open: bool,
    /// The mount may be idmapped, where the kernel can do that (Linux 6.12). It then tells who asks only of
    /// requests that create something, whether or not the mount is idmapped; so it is left out for a file system that
    /// [needs](vfs::Controls::needs_callers) to know. Only for a mount where the kernel checks permissions
    /// ([`crate::MountOptions::default_permissions`]); it refuses others.
    pub idmap: bool,
    /// The kernel keeps nothing of a file's contents from one opening to the next, so that the file system hears of
    /// readers of what was read before: for times of access that are always right. With `zero_open` it cannot be had.
    pub tells_each_reader: bool,
    /// How requests come and replies go.
    pub transport: Transport,
    /// Where requests come fast and nobody else wants the processor, a worker polls for the next one
    /// for a while before it sleeps.
    pub busy_poll: bool,
    /// Largest read or write in bytes.
    pub request_bytes_max: u32,
    /// How long the kernel believes that a name leads (or does not lead) to a node.
    pub entry_timeout: Duration,
    /// How long the kernel believes attributes.
    pub attr_timeout: Duration,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            workers: 0,
            writeback: false,
            zero_open: false,
            idmap: false,
            tells_each_reader: false,
            transport: Transport::default(),
            busy_poll: true,
            request_bytes_max: REQUEST_BYTES_MAX,
            entry_timeout: TIMEOUT,
            attr_timeout: TIMEOUT,
        }
    }
}

/// Workers that wait for a commit or for a disk need no processor, but requests that could be answered at once wait
/// for a worker: so there are some more than processors.
const WORKERS_WAITING: usize = 8;

/// How many threads answer requests where nobody says: twice as many as processors, and at most 8 more. While fourteen
/// threads did everything at once on two processors, names were looked up and files read 1.6 times as often with four
/// workers as with two, and the slowest hundredth took less than half as long; with eight, syncs took longer.
pub fn default_workers() -> usize {
    let processors = thread::available_parallelism().map_or(1, NonZero::get);
    processors + processors.min(WORKERS_WAITING)
}

impl ServerOptions {
    fn worker_count(&self) -> usize {
        match self.workers {
            0 => default_workers(),
            count => count,
        }
    }

    fn request_bytes_max(&self) -> u32 {
        self.request_bytes_max.clamp(REQUEST_BYTES_MIN, REQUEST_BYTES_MAX)
    }

    fn session(&self) -> SessionOptions {
        SessionOptions {
            writeback: self.writeback,
            zero_open: self.zero_open,
            idmap: self.idmap,
            tells_each_reader: self.tells_each_reader,
            request_bytes_max: self.request_bytes_max,
            entry_timeout: self.entry_timeout,
            attr_timeout: self.attr_timeout,
        }
    }

    /// How long a worker polls. With one processor, who is to send the next request would wait for it.
    fn poll(&self) -> Duration {
        let processors = thread::available_parallelism().map_or(1, NonZero::get);
        match self.busy_poll && processors > 1 {
            true => device::POLL,
            false => Duration::ZERO,
        }
    }

    fn data_bytes(&self) -> usize {
        usize::try_from(self.request_bytes_max()).unwrap_or(usize::MAX)
    }
}

/// What a server needs to open, made ahead of time by a process that is about to give up the right
/// to open anything. What cannot be had is done without: workers share a channel, and instead of
/// a ring there is the device.
#[derive(Default)]
pub struct Prepared {
    spares: Vec<OwnedFd>,
    queues: Vec<Queue>,
    /// How long a worker polls: that depends on the processors, some limits to which are in files.
    poll: Duration,
    write_back: Option<WriteBack>,
    writer: Arc<AtomicU32>,
    socket: Option<[u64; 2]>,
    served: Option<ServedFile>,
}

impl Prepared {
    /// What a server with these options needs.
    #[must_use]
    pub fn new(options: &ServerOptions) -> Self {
        let queues = match options.transport {
            Transport::Device => Ok(Vec::new()),
            Transport::Auto | Transport::Ring => ring::make_queues(options.data_bytes()),
        };
        Self {
            spares: open_spares(options.worker_count().saturating_sub(1)),
            poll: options.poll(),
            write_back: None,
            writer: Arc::default(),
            socket: None,
            served: None,
            queues: queues.unwrap_or_else(|error| {
                tracing::debug!(%error, "no io_uring: /dev/fuse it is");
                Vec::new()
            }),
        }
    }
}

impl Prepared {
    /// The same, with what makes the kernel write before a request that takes the contents of files as they are, and
    /// the number of the thread that does it by `syncfs(2)`, 0 while there is none: its calls make nothing durable.
    #[must_use]
    pub fn with_write_back(mut self, write_back: WriteBack, writer: Arc<AtomicU32>) -> Self {
        self.write_back = Some(write_back);
        self.writer = writer;
        self
    }

    /// The same, and whoever has a directory of the mount open may ask for the [number](crate::socket_number) of the
    /// socket at which other clients are taken.
    #[must_use]
    pub const fn with_socket(mut self, number: [u64; 2]) -> Self {
        self.socket = Some(number);
        self
    }

    /// The same, and whoever has a directory of the mount open may ask [which file](crate::served_file) is its image.
    #[must_use]
    pub const fn with_served_file(mut self, file: ServedFile) -> Self {
        self.served = Some(file);
        self
    }
}

impl fmt::Debug for Prepared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prepared")
            .field("spares", &self.spares.len())
            .field("queues", &self.queues.len())
            .field("poll", &self.poll)
            .finish()
    }
}

/// A mount that is being served.
#[must_use = "a mount that nobody waits for is not synced in the end"]
pub struct Server {
    fs: Arc<dyn FileSystem>,
    workers: Vec<JoinHandle<()>>,
    background: Background,
    ending: Arc<Ending>,
    activity: Arc<Activity>,
    done: Done,
    notifier: Notifier,
}

impl Server {
    /// Starts to serve. The mount is usable when this returns.
    ///
    /// # Errors
    /// The kernel's protocol is too old; the mount is gone; threads or memory cannot be had.
    pub fn start(connection: Connection, fs: Arc<dyn FileSystem>, options: ServerOptions) -> Result<Self> {
        let prepared = Prepared::new(&options);
        Self::start_prepared(connection, fs, options, prepared)
    }

    /// The same with what was [prepared](Prepared) for these options.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub fn start_prepared(
        connection: Connection,
        fs: Arc<dyn FileSystem>,
        options: ServerOptions,
        prepared: Prepared,
    ) -> Result<Self> {
        let Prepared { spares, queues, poll, write_back, writer, socket, served } = prepared;
        let data_bytes = options.data_bytes();
        let channels = connection.into_channels(spares, options.worker_count());
        let first = channels.first().cloned().ok_or_else(|| Error::Device(std::io::ErrorKind::NotFound.into()))?;
        let session_options = options.session();
        let wish = session_options.wish(&*fs, !queues.is_empty());
        let agreement = device::initialize(&first, &wish)?;
        tracing::debug!(?agreement, "the mount is usable");
        let ending = Arc::new(Ending::default());
        let service = Arc::new(Service::new(
            Arc::clone(&fs),
            Arc::clone(&ending),
            ServiceOptions { write_back, writer, socket, served, ..ServiceOptions::new(&session_options, &agreement) },
        ));
        let activity = Arc::<Activity>::default();
        let pace = Arc::new(Pace::new(poll));
        let mut workers = Vec::new();
        for (index, channel) in channels.iter().enumerate() {
            let others = channels.iter().filter(|other| Arc::ptr_eq(other, channel));
            let (own, is_alone) = (Arc::clone(channel), others.count() == 1);
            let service = Arc::clone(&service);
            let mut worker = Worker::new(own, is_alone, service, activity.pulse(), data_bytes)?;
            let pace = Arc::clone(&pace);
            let running = Running::new(&ending);
            workers.push(spawn(format!("fuse-{index}"), move || {
                worker.run(&pace);
                drop(running);
            })?);
        }
        if agreement.flags.contains(InitFlags::OVER_IO_URING) {
            for (index, mut queue) in queues.into_iter().enumerate() {
                let (device, service) = (Arc::clone(&first), Arc::clone(&service));
                let (running, pulse) = (Running::new(&ending), activity.pulse());
                workers.push(spawn(format!("fuse-ring-{index}"), move || {
                    queue.run(&device, &service, &pulse);
                    drop(running);
                })?);
            }
        }
        let background = Background::start(Arc::clone(&fs), Arc::clone(&ending))?;
        let notifier =
            Notifier::new(first, agreement.flags.contains(InitFlags::WRITEBACK_CACHE), agreement.has_epochs());
        Ok(Self { fs, workers, background, done: Done(Arc::clone(&ending)), ending, activity, notifier })
    }

    /// What shows whether requests are answered.
    #[must_use]
    pub fn activity(&self) -> Arc<Activity> {
        Arc::clone(&self.activity)
    }

    /// What tells the kernel of changes that it did not ask for.
    #[must_use]
    pub fn notifier(&self) -> Notifier {
        self.notifier.clone()
    }

    /// Waits until the kernel asks for nothing more: who else uses the file system has to end before [`Server::wait`].
    pub fn wait_for_end(&self) {
        self.ending.wait();
    }

    /// Waits until the mount is gone, then makes everything durable.
    ///
    /// # Errors
    /// A worker failed; not everything could be written.
    pub fn wait(self) -> Result<()> {
        self.wait_and(|| {})
    }

    /// As [`Server::wait`]; `when_durable` is called once nothing more is going to be written. Where
    /// unmounting waits for the server, it has been called by then.
    ///
    /// # Errors
    /// As [`Server::wait`].
    pub fn wait_and(self, when_durable: impl FnOnce()) -> Result<()> {
        self.ending.wait();
        let mut all_ended_well = self.background.stop();
        let finished = if self.fs.is_read_only() { Ok(()) } else { self.fs.finish() };
        when_durable();
        drop(self.done);
        for worker in self.workers {
            all_ended_well &= worker.join().is_ok();
        }
        finished.map_err(|error| Error::FinalSync(error.into()))?;
        if all_ended_well { Ok(()) } else { Err(Error::Worker) }
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("workers", &self.workers.len()).finish_non_exhaustive()
    }
}

/// The thread that does the file system's background work, and what ends it.
struct Background {
    thread: JoinHandle<()>,
    ending: Arc<Ending>,
}

impl Background {
    fn start(fs: Arc<dyn FileSystem>, ending: Arc<Ending>) -> Result<Self> {
        let asked = Arc::clone(&ending);
        let thread = spawn("fuse-step".to_owned(), move || {
            let mut wait = Duration::ZERO;
            while asked.wait_for_step(wait) {
                wait = fs.step().min(STEP_INTERVAL_MAX);
            }
        })?;
        Ok(Self { thread, ending })
    }

    /// True when it ended in an orderly way.
    fn stop(self) -> bool {
        self.ending.end_steps();
        self.thread.join().is_ok()
    }
}

fn spawn(name: String, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    thread::Builder::new().name(name).spawn(run).map_err(Error::Thread)
}
