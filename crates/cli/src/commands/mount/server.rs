//! Runs the server of a mount: the process that reads the image and answers the kernel. The supervisor starts it; it
//! opens the image, and enters its sandbox before it reads from it.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak, mpsc};
use std::thread;

use anyhow::{Context as _, Result, bail};
use parking_lot::Mutex;
use spinney::blockdev::{Access, Device, Locator};
use spinney::fuse::{Activity, Glance};
use spinney::remote::Jobs;
use spinney::{Devices, FileSystem};

use super::attendant::Attendant;
use super::channel::{Channel, Message};
use super::client_socket::{Behind, Door, Look};
#[cfg(feature = "lock-statistics")]
use super::locks;
use super::settings::Settings;
use super::signals::{self, Signals};
use super::{Mount, log, sandbox};
use crate::commands::failure::{self, Status};
use crate::commands::format;
use crate::commands::image;
use crate::commands::trace::watch;
use spinney::mounts;

/// Default bytes of cached metadata: the kernel caches names, attributes and data too, and the whole server has to stay
/// below 384 MiB.
const CACHE_BYTES: usize = 96 << 20;

/// The option that has devices brought up to date that missed commits.
const RESYNC: &str = "resync";

/// Serves a mount to its end. Failures are sent to the supervisor, which reports them.
pub(super) fn run(mount: &Mount) -> Result<()> {
    let channel = Channel::inherited()?;
    // The name shows in lists of processes.
    let _ = rustix::thread::set_name(c"spinney-server");
    let result = serve(mount, &channel);
    if let Err(error) = &result {
        let status = failure::status_of(error).code();
        let _ = channel.send_failure(status, &failure::one_line(error));
    }
    result
}

/// The devices of the image, opened and locked; nothing is read from them.
pub(super) fn open_devices(mount: &Mount, settings: &Settings) -> Result<Devices> {
    let access = Access { read_only: settings.request.read_only, ..Access::default() };
    let list = Locator::parse_list(&mount.image);
    let opened = list.and_then(|list| spinney::open_list(&list, access));
    opened.map_err(|error| image::explain(&mount.image, error.into()))
}

/// The devices to which the server may have to connect again.
fn remote_devices(mount: &Mount) -> Vec<OsString> {
    let devices = Locator::parse_list(&mount.image).unwrap_or_default();
    devices.iter().filter(|device| device.path().is_none()).map(Locator::words).collect()
}

/// True if the sandbox has to allow the system calls of a ring.
pub(super) fn use_rings(devices: &[Arc<dyn Device>]) -> bool {
    devices.iter().any(|device| device.uses_rings())
}

/// The file system on the image.
pub(super) fn open_file_system(mount: &Mount, settings: &Settings, devices: Devices) -> Result<Served> {
    let mut options = settings.request.clone();
    options.cache_bytes.get_or_insert(CACHE_BYTES);
    let opened = format::of_all(&devices).and_then(|format| {
        if format.is_option(RESYNC) {
            // Options of the user come later, and count.
            options.own.insert(0, (RESYNC.to_owned(), None));
        }
        let volume = spinney::open_as(format, devices, &options)?;
        Ok(Served { file_system: volume.serve()?, jobs: (format::face(format).jobs)(&volume) })
    });
    opened.map_err(|error| image::explain(&mount.image, error))
}

/// The file system of a mount, and its commands.
pub(super) struct Served {
    /// For the kernel, and for commands of all formats.
    pub(super) file_system: Arc<dyn FileSystem>,
    /// For commands of the format alone.
    pub(super) jobs: Option<Arc<dyn Jobs>>,
}

fn serve(mount: &Mount, channel: &Channel) -> Result<()> {
    log::start(mount.verbose, mount.log.as_deref(), !mount.foreground)?;
    let settings = mount.settings()?;
    let signals = Signals::catch()?;
    let devices = open_devices(mount, &settings)?;
    if let Some(path) = &settings.trace {
        watch::begin(path)?;
    }
    #[cfg(feature = "lock-statistics")]
    if let Some(path) = &settings.lock_statistics {
        locks::begin(path, &settings.lock_classes)?;
    }
    let mut options = server_options(&settings);
    if let Err(error) = spinney::fuse::ask_for_short_slices() {
        tracing::debug!("no short time slices: {error}");
    }
    let asker = Arc::new(Asker::default());
    let write_back = asker.write_back(channel)?;
    let mut prepared = spinney::fuse::Prepared::new(&options).with_write_back(write_back, Arc::clone(&asker.writer));
    if let Some(found) = devices.first().map(|device| device.host_metadata()).transpose()?.flatten() {
        prepared = prepared.with_served_file(mounts::served_file(&found));
    }
    let look = asker.look(channel)?;
    let door = make_door(&settings);
    if let Some(door) = &door {
        prepared = prepared.with_socket(door.number());
    }
    let attendant = Attendant::start(&remote_devices(mount), None)?;
    let is_apart = restrict(mount, &settings, &devices)?;
    let Served { file_system, jobs } =
        open_file_system(mount, &settings, devices.iter().cloned().map(watch::watched).collect())?;
    if file_system.ignores_case() {
        // The kernel compares names of this file system byte by byte, and would keep outdated entries.
        options.entry_timeout = std::time::Duration::ZERO;
    }
    let read_only = file_system.is_read_only();
    channel.send(&Message::Opened { read_only, is_apart }, None)?;
    let (connection, device_numbers) = receive_connection(channel)?;
    let connection = spinney::fuse::Connection::from_fd(connection);
    let served = Arc::clone(&file_system);
    let server = spinney::fuse::Server::start_prepared(connection, served, options, prepared)?;
    let clients = door.zip(device_numbers).map(|(door, device)| {
        let (file_system, notifier) = (Arc::downgrade(&file_system), server.notifier());
        door.open(Behind { file_system, allow_other: settings.allow_other, notifier, look, device }, jobs)
    });
    let clients = clients.transpose()?;
    channel.send(&Message::Ready, None)?;
    let control = Control {
        channel: channel.try_clone()?,
        signals,
        file_system: Arc::downgrade(&file_system),
        activity: server.activity(),
        asker,
    };
    control.start()?;
    server.wait_for_end();
    if let Some(clients) = clients {
        clients.close();
    }
    let result = server.wait_and(|| devices.iter().for_each(|device| device.let_go()));
    // The last reference: orphans that open files kept are deleted now.
    drop(file_system);
    drop(attendant);
    end_recording();
    tracing::info!("unmounted: {}", mount.image.display());
    Ok(result?)
}

/// Enters the sandbox, unless the user asked for none. True if the process has a mount namespace of its own.
fn restrict(mount: &Mount, settings: &Settings, devices: &[Arc<dyn Device>]) -> Result<bool> {
    if mount.no_sandbox {
        tracing::warn!("the server runs without its sandbox");
        return Ok(sandbox::leave_mounts(&mount.dir));
    }
    let entered = sandbox::enter(settings.io_uring || use_rings(devices), &mount.dir)?;
    for missing in entered.missing {
        tracing::warn!("less protection: {missing}");
    }
    Ok(entered.is_apart)
}

/// The socket for commands; without it, commands work on images only.
fn make_door(settings: &Settings) -> Option<Door> {
    if settings.idmap {
        // Through the socket the server cannot see how an idmapped mount maps the caller's user.
        return None;
    }
    Door::make().map_err(|error| tracing::warn!("no commands on this mount: {error:#}")).ok()
}

fn receive_connection(channel: &Channel) -> Result<(OwnedFd, Option<(u32, u32)>)> {
    match channel.receive()? {
        Some((Message::Serve { device }, Some(fd))) => Ok((fd, device)),
        _ => bail!("the supervisor ended before it mounted"),
    }
}

pub(super) fn server_options(settings: &Settings) -> spinney::fuse::ServerOptions {
    // Read before the sandbox closes the files with the process's CPU limits.
    let workers = match settings.workers {
        0 => spinney::fuse::default_workers(),
        count => count,
    };
    spinney::fuse::ServerOptions {
        workers,
        writeback: settings.writeback,
        zero_open: settings.zero_open,
        tells_each_reader: settings.request.atime == spinney::vfs::AtimeMode::Strict,
        transport: if settings.io_uring { spinney::fuse::Transport::Ring } else { spinney::fuse::Transport::Device },
        near: settings.near,
        idmap: settings.idmap,
        ..spinney::fuse::ServerOptions::default()
    }
}

/// Asks the supervisor to have the kernel write its dirty pages; one request at a time.
#[derive(Default)]
struct Asker {
    is_asking: Mutex<()>,
    /// Receives the answer.
    waiting: Mutex<Option<mpsc::Sender<(i32, bool)>>>,
    /// The supervisor's thread that calls `syncfs`, once it has done so.
    writer: Arc<AtomicU32>,
}

impl Asker {
    fn write_back(self: &Arc<Self>, channel: &Channel) -> Result<spinney::fuse::WriteBack> {
        let (asker, channel) = (Arc::clone(self), channel.try_clone()?);
        Ok(Arc::new(move || match asker.ask(&channel, None)? {
            (0, _) => Ok(()),
            (errno, _) => Err(io::Error::from_raw_os_error(errno)),
        }))
    }

    /// A function that has the kernel write its dirty pages, and returns whether a directory is mounted read-only.
    fn look(self: &Arc<Self>, channel: &Channel) -> Result<Look> {
        let (asker, channel) = (Arc::clone(self), channel.try_clone()?);
        Ok(Arc::new(move |dir| {
            let (errno, read_only) = asker.ask(&channel, Some(dir))?;
            if errno != 0 {
                let error = io::Error::from_raw_os_error(errno);
                tracing::warn!(%error, "clients may not see the latest writes of programs");
            }
            Ok(read_only)
        }))
    }

    fn ask(&self, channel: &Channel, dir: Option<BorrowedFd<'_>>) -> io::Result<(i32, bool)> {
        let _one = self.is_asking.lock();
        let (tell, told) = mpsc::channel();
        *self.waiting.lock() = Some(tell);
        channel.send(&Message::WriteBack, dir).map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
        // An error here means that the supervisor ended before it could answer.
        told.recv().map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    fn answered(&self, errno: i32, read_only: bool) {
        if let Some(waiting) = self.waiting.lock().take() {
            // The receiver is gone if the request could not be sent.
            waiting.send((errno, read_only)).unwrap_or_default();
        }
    }

    /// Answers no more requests. The number of the supervisor's thread may be reused by a thread whose syncs count.
    fn give_up(&self) {
        self.writer.store(0, Ordering::Relaxed);
        self.waiting.lock().take();
    }
}

/// Follows the orders of the supervisor, and passes signals on to it.
struct Control {
    channel: Channel,
    signals: Signals,
    file_system: Weak<dyn FileSystem>,
    activity: Arc<Activity>,
    asker: Arc<Asker>,
}

impl Control {
    fn start(mut self) -> Result<()> {
        thread::Builder::new()
            .name("control".to_owned())
            .spawn(move || {
                self.obey();
                self.asker.give_up();
                // The supervisor is gone, so signals cannot be passed on: the next one ends this process.
                while signals::wait([self.signals.as_fd()]).is_ok() {
                    if self.signals.take() {
                        self.end();
                    }
                }
            })
            .context("the control thread")?;
        Ok(())
    }

    fn obey(&mut self) {
        let mut seen = Glance::default();
        while let Ok([told, signalled]) = signals::wait([self.channel.as_fd(), self.signals.as_fd()]) {
            if signalled && self.signals.take() && self.channel.send(&Message::Signal, None).is_err() {
                self.end();
            }
            if !told {
                continue;
            }
            match self.channel.receive() {
                Ok(Some((Message::Stop, _))) => self.end(),
                Ok(Some((Message::WrittenBack { errno, read_only, thread }, _))) => {
                    self.asker.writer.store(thread, Ordering::Relaxed);
                    self.asker.answered(errno, read_only);
                }
                Ok(Some((Message::Ping, _))) => {
                    let now = self.activity.glance();
                    let gets_on = now.busy_since(&seen) == 0;
                    seen = now;
                    // A supervisor that has ended is noticed by the next `receive`.
                    let _ = self.channel.send(&Message::Pong { gets_on }, None);
                }
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => {
                    tracing::warn!("the supervisor is gone; the mount goes on without it");
                    return;
                }
            }
        }
    }

    /// Once the server has ended by itself, there is nothing left to end.
    fn end(&self) {
        if let Some(served) = self.file_system.upgrade() {
            end(served.as_ref());
        }
    }
}

/// A failure to write the recording is logged, and does not fail the mount.
fn end_recording() {
    for ended in [
        watch::finish(),
        #[cfg(feature = "lock-statistics")]
        locks::finish(),
    ] {
        if let Err(error) = ended {
            tracing::error!("{}", failure::one_line(&error));
        }
    }
}

/// Makes everything durable and ends the process, although programs may still use the mount.
fn end(file_system: &dyn FileSystem) -> ! {
    let status = match file_system.sync_fs() {
        _ if file_system.is_read_only() => Status::Done,
        Ok(()) => Status::Done,
        Err(error) => {
            tracing::error!("not everything could be written: {error}");
            Status::Io
        }
    };
    end_recording();
    std::process::exit(i32::from(status.code()))
}
