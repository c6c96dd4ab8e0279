//! Serves a mount: its threads, from the first request to the final sync. Callers: front ends, as the server of the
//! `mount` command.

use crate::ServedFile;
use crate::activity::Activity;
use crate::error::{Error, Result};
use crate::notify::Notifier;
use crate::protocol::InitFlags;
use crate::session::{REQUEST_BYTES_MAX, REQUEST_BYTES_MIN, Service, ServiceOptions, SessionOptions, TIMEOUT};
use crate::shutdown::{Done, Ending, Running};
use crate::steps::Steps;
use crate::transport::connection::{Connection, open_spares};
use crate::transport::device::{self, Intake, Worker};
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

/// The transport of requests and replies.
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

/// Options of serving a mount.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// Threads that answer requests; [`default_workers`] when 0.
    pub workers: usize,
    /// The kernel may cache written data for a while. Small writes get cheaper; the kernel then decides about sizes and
    /// times of modification.
    pub writeback: bool,
    /// The kernel opens and closes files without requests. The file system then reads and writes with a handle of 0,
    /// and keeps nodes until they are forgotten.
    pub zero_open: bool,
    /// The mount may be idmapped, if the kernel supports that (Linux 6.12). The kernel then passes the calling user
    /// only with requests that create a file, whether or not the mount is idmapped; so the option is ignored for a file
    /// system that [needs](vfs::Controls::needs_callers) the user. Only for mounts where the kernel checks permissions
    /// ([`crate::MountOptions::default_permissions`]); it refuses others.
    pub idmap: bool,
    /// The kernel drops a file's cached contents at each opening, so that every read reaches the file system: for exact
    /// access times. Not available with `zero_open`.
    pub tells_each_reader: bool,
    /// The transport of requests and replies.
    pub transport: Transport,
    /// While requests follow each other quickly, one thread takes them on the processor of the program that makes them,
    /// as long as no other program wants that. Only with `/dev/fuse` and on more than one processor.
    pub near: bool,
    /// Largest read or write in bytes.
    pub request_bytes_max: u32,
    /// How long the kernel may cache that a name leads to a node, or to none.
    pub entry_timeout: Duration,
    /// How long the kernel may cache attributes.
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
            near: true,
            request_bytes_max: REQUEST_BYTES_MAX,
            entry_timeout: TIMEOUT,
            attr_timeout: TIMEOUT,
        }
    }
}

/// Workers that wait for a commit or a disk need no processor, but requests that could be answered at once would wait
/// for a worker: so there are some more than processors.
const WORKERS_WAITING: usize = 8;

/// Default number of threads that answer requests: twice as many as processors, and at most 8 more. With fourteen
/// clients doing everything at once on two processors, four workers looked up names and read files 1.6 times as often
/// as two, and the slowest hundredth took less than half as long; with eight, syncs took longer.
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

    /// With one processor every thread is near.
    fn has_near(&self) -> bool {
        let processors = thread::available_parallelism().map_or(1, NonZero::get);
        self.near && processors > 1
    }

    fn data_bytes(&self) -> usize {
        usize::try_from(self.request_bytes_max()).unwrap_or(usize::MAX)
    }
}

/// Resources of a server, made ahead of time by a process that is about to give up the right to open files. The server
/// does without missing ones: workers share a channel, and the device replaces a ring.
#[derive(Default)]
pub struct Prepared {
    spares: Vec<OwnedFd>,
    queues: Vec<Queue>,
    /// Whether there is a near thread: depends on the processors, and on limits read from files.
    has_near: bool,
    write_back: Option<WriteBack>,
    writer: Arc<AtomicU32>,
    socket: Option<[u64; 2]>,
    served: Option<ServedFile>,
}

impl Prepared {
    /// The resources for a server with these options.
    #[must_use]
    pub fn new(options: &ServerOptions) -> Self {
        let queues = match options.transport {
            Transport::Device => Ok(Vec::new()),
            Transport::Auto | Transport::Ring => ring::make_queues(options.data_bytes()),
        };
        Self {
            // One for each worker but the first, and one for the near thread.
            spares: open_spares(options.worker_count()),
            has_near: options.has_near(),
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
    /// The same, with a function that makes the kernel write its dirty pages before a request that needs the contents
    /// of files, and the number of the thread that calls `syncfs(2)` for that, 0 while there is none: its syncs make
    /// nothing durable.
    #[must_use]
    pub fn with_write_back(mut self, write_back: WriteBack, writer: Arc<AtomicU32>) -> Self {
        self.write_back = Some(write_back);
        self.writer = writer;
        self
    }

    /// The same; any program with an open directory of the mount may ask for the [number](crate::socket_number) of the
    /// socket for other clients.
    #[must_use]
    pub const fn with_socket(mut self, number: [u64; 2]) -> Self {
        self.socket = Some(number);
        self
    }

    /// The same; any program with an open directory of the mount may ask [which file](crate::served_file) is its image.
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
            .field("has_near", &self.has_near)
            .finish()
    }
}

/// A served mount.
#[must_use = "without a call of `wait` the mount is not synced at the end"]
pub struct Server {
    fs: Arc<dyn FileSystem>,
    workers: Vec<JoinHandle<()>>,
    steps: Steps,
    ending: Arc<Ending>,
    activity: Arc<Activity>,
    done: Done,
    notifier: Notifier,
}

impl Server {
    /// Starts to serve. The mount is usable when this returns.
    ///
    /// # Errors
    /// The kernel's protocol is too old; the mount is gone; threads or memory are not available.
    pub fn start(connection: Connection, fs: Arc<dyn FileSystem>, options: ServerOptions) -> Result<Self> {
        let prepared = Prepared::new(&options);
        Self::start_prepared(connection, fs, options, prepared)
    }

    /// The same with [prepared](Prepared) resources for these options.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub fn start_prepared(
        connection: Connection,
        fs: Arc<dyn FileSystem>,
        options: ServerOptions,
        prepared: Prepared,
    ) -> Result<Self> {
        let Prepared { spares, queues, has_near, write_back, writer, socket, served } = prepared;
        let data_bytes = options.data_bytes();
        let worker_count = options.worker_count();
        let channels = connection.into_channels(spares, worker_count + usize::from(has_near));
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
        let is_alone = |channel| channels.iter().filter(|other| Arc::ptr_eq(other, channel)).count() == 1;
        // A ring's thread is near already.
        let is_far = !agreement.flags.contains(InitFlags::OVER_IO_URING);
        let intake = Arc::new(Intake::new(has_near && is_far && channels.iter().all(is_alone)));
        let mut workers = Vec::new();
        for (index, channel) in channels.iter().enumerate() {
            let is_near = index == worker_count;
            if is_near && !intake.has_near() {
                break;
            }
            let own = Arc::clone(channel);
            let service = Arc::clone(&service);
            let mut worker = Worker::new(own, is_alone(channel), service, activity.pulse(), data_bytes)?;
            let intake = Arc::clone(&intake);
            let running = Running::new(&ending);
            let name = if is_near { "fuse-near".to_owned() } else { format!("fuse-{index}") };
            workers.push(spawn(name, move || {
                if !is_near || worker.become_near() {
                    worker.run(&intake);
                }
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
        let steps = Steps::start(Arc::clone(&fs), Arc::clone(&ending))?;
        let notifier =
            Notifier::new(first, agreement.flags.contains(InitFlags::WRITEBACK_CACHE), agreement.has_epochs());
        Ok(Self { fs, workers, steps, done: Done(Arc::clone(&ending)), ending, activity, notifier })
    }

    /// The counts that show whether requests are answered.
    #[must_use]
    pub fn activity(&self) -> Arc<Activity> {
        Arc::clone(&self.activity)
    }

    /// Tells the kernel of changes that it did not request.
    #[must_use]
    pub fn notifier(&self) -> Notifier {
        self.notifier.clone()
    }

    /// Waits for the end of the kernel's requests: other users of the file system have to end before [`Server::wait`].
    pub fn wait_for_end(&self) {
        self.ending.wait();
    }

    /// Waits until the mount is gone, then makes everything durable.
    ///
    /// # Errors
    /// A worker failed; some data could not be written.
    pub fn wait(self) -> Result<()> {
        self.wait_and(|| {})
    }

    /// As [`Server::wait`]; `when_durable` is called after the last write. If unmounting waits for the server, it is
    /// called before unmounting returns.
    ///
    /// # Errors
    /// As [`Server::wait`].
    pub fn wait_and(self, when_durable: impl FnOnce()) -> Result<()> {
        self.ending.wait();
        let mut all_ended_well = self.steps.stop();
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

fn spawn(name: String, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    thread::Builder::new().name(name).spawn(run).map_err(Error::Thread)
}
