//! The process that reads the image and answers the kernel. It is started by the supervisor, opens
//! the image, and gives up everything else before it reads from it.

use std::num::NonZero;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Arc, Weak};
use std::thread;

use anyhow::{Context as _, Result, bail};
use blockdev::Device;
use blockdev::backends::{FileDevice, FileOptions};
use vfs::FileSystem;

use super::channel::{Channel, Message};
use super::settings::Settings;
use super::signals::{self, Signals};
use super::{Formats, Mount, format, log, sandbox};
use crate::common::failure::{self, Status};
use crate::common::image;

/// Serves a mount to its end. What goes wrong is told to the supervisor, which tells the user.
pub(super) fn run(mount: &Mount, formats: Formats) -> Result<()> {
    let channel = Channel::inherited()?;
    // Their names are how people find them in the list of processes.
    let _ = rustix::thread::set_name(c"spinney-server");
    let result = serve(mount, formats, &channel);
    if let Err(error) = &result {
        let status = failure::status_of(error).code();
        let _ = channel.send_failure(status, &failure::one_line(error));
    }
    result
}

/// The image, opened and locked; nothing is read from it.
pub(super) fn open_device(mount: &Mount, settings: &Settings) -> Result<Arc<FileDevice>> {
    let options = FileOptions {
        read_only: settings.request.read_only,
        ..FileOptions::default()
    };
    let device = FileDevice::open(&mount.image, &options)
        .map_err(|error| image::explain(&mount.image, error.into()))?;
    Ok(Arc::new(device))
}

/// The file system on the image.
pub(super) fn open_file_system(
    mount: &Mount,
    formats: Formats,
    settings: &Settings,
    device: Arc<dyn Device>,
) -> Result<Arc<dyn FileSystem>> {
    format::open(formats, device, &settings.request)
        .map_err(|error| image::explain(&mount.image, error))
}

fn serve(mount: &Mount, formats: Formats, channel: &Channel) -> Result<()> {
    log::start(mount.verbose, mount.log.as_deref(), !mount.foreground)?;
    let settings = mount.settings(formats)?;
    let signals = Signals::catch()?;
    let device = open_device(mount, &settings)?;
    let options = server_options(&settings);
    let prepared = fuse::Prepared::new(&options);
    if mount.no_sandbox {
        tracing::warn!("the server runs without its sandbox");
    } else {
        for missing in sandbox::enter(settings.io_uring)? {
            tracing::warn!("less protection: {missing}");
        }
    }
    let file_system = open_file_system(mount, formats, &settings, device.clone())?;
    let read_only = file_system.is_read_only();
    channel.send(&Message::Opened { read_only }, None)?;
    let connection = fuse::Connection::from_fd(receive_connection(channel)?);
    let served = Arc::clone(&file_system);
    let server = fuse::Server::start_prepared(connection, served, options, prepared)?;
    channel.send(&Message::Ready, None)?;
    obey(channel.try_clone()?, signals, Arc::downgrade(&file_system))?;
    let result = server.wait_and(|| device.release_lock());
    // The last reference: what files without names still held goes now.
    drop(file_system);
    tracing::info!("unmounted: {}", mount.image.display());
    Ok(result?)
}

fn receive_connection(channel: &Channel) -> Result<OwnedFd> {
    match channel.receive()? {
        Some((Message::Serve, Some(fd))) => Ok(fd),
        _ => bail!("the supervisor ended before it mounted"),
    }
}

pub(super) fn server_options(settings: &Settings) -> fuse::ServerOptions {
    // Asked for here, where the files can be read that limit a process to some processors.
    let workers = match settings.workers {
        0 => thread::available_parallelism().map_or(1, NonZero::get),
        count => count,
    };
    fuse::ServerOptions {
        workers,
        writeback: settings.writeback,
        zero_open: settings.zero_open,
        transport: if settings.io_uring {
            fuse::Transport::Ring
        } else {
            fuse::Transport::Device
        },
        busy_poll: settings.busy_poll,
        ..fuse::ServerOptions::default()
    }
}

/// Starts a thread that does what the supervisor says, and tells it of signals.
fn obey(channel: Channel, mut signals: Signals, file_system: Weak<dyn FileSystem>) -> Result<()> {
    // Once the server has ended by itself, there is nothing left to end.
    let end = move || file_system.upgrade().map(|served| end(served.as_ref()));
    let listen = move || {
        while let Ok([told, signalled]) = signals::wait([channel.as_fd(), signals.as_fd()]) {
            if signalled && signals.take() && channel.send(&Message::Signal, None).is_err() {
                end();
            }
            if !told {
                continue;
            }
            match channel.receive() {
                Ok(Some((Message::Stop, _))) => {
                    end();
                }
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => {
                    tracing::warn!("the supervisor is gone; the mount goes on without it");
                    break;
                }
            }
        }
        // Nobody is left to be told of a signal: the next one ends this process.
        while signals::wait([signals.as_fd()]).is_ok() {
            if signals.take() {
                end();
            }
        }
    };
    thread::Builder::new()
        .name("control".to_owned())
        .spawn(listen)
        .context("the control thread")?;
    Ok(())
}

/// Makes everything durable and ends the process, although somebody may still use the mount.
fn end(file_system: &dyn FileSystem) -> ! {
    let status = match file_system.sync_fs() {
        _ if file_system.is_read_only() => Status::Done,
        Ok(()) => Status::Done,
        Err(error) => {
            tracing::error!("not everything could be written: {error}");
            Status::Io
        }
    };
    std::process::exit(i32::from(status.code()))
}
