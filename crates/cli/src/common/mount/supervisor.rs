//! The process that mounts, watches the server, and unmounts. It keeps the privileges that this
//! takes, and so reads nothing of the image.
//!
//! ```text
//!            Opened            Ready
//!  Starting -------> Mounted -------> Serving ---+-- umount by somebody --> the server ends
//!      |                |                |       +-- signal: unmount, Stop -> the server ends
//!      +----------------+----------------+------- the server died: detach -> failure
//! ```
//!
//! Whatever happens, no mount is left behind that nobody serves.

use std::fs::File;
use std::os::fd::AsFd as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result};

use super::channel::{Channel, Message};
use super::settings::Settings;
use super::signals::{self, Signals};
use super::table::{self, Row};
use super::{Mount, Role, log};
use crate::common::failure::{self, Failure, Status};
use crate::common::image::ImagePath;

/// How much of the dirty pages of the machine a mount may fill, percent, where the kernel
/// collects writes: its own value of 1 slows them to a crawl.
const MAX_RATIO_PERCENT: &str = "100";

/// Watches over a mount from its beginning to its end.
pub(super) fn run(mount: &Mount, settings: Settings) -> Result<()> {
    let front = match mount.role {
        Some(Role::Supervisor) => Some(Channel::inherited()?),
        _ => None,
    };
    if front.is_some() {
        // Out of the session of the terminal, whose end is none of ours.
        let _ = rustix::process::setsid();
        let _ = rustix::thread::set_name(c"spinney");
    }
    let result = Supervisor::start(mount, settings, front.as_ref())
        .and_then(|supervisor| supervisor.watch(front.as_ref()));
    if let (Some(front), Err(error)) = (&front, &result) {
        // Once the mount was usable nobody listens any more, and the log has to do.
        let text = failure::one_line(error);
        if front
            .send_failure(failure::status_of(error).code(), &text)
            .is_err()
        {
            tracing::error!("{text}");
        }
    }
    result
}

struct Supervisor {
    settings: Settings,
    source: String,
    dir: PathBuf,
    server: Child,
    channel: Channel,
    signals: Signals,
    /// The image, without the part of it that is meant.
    image: PathBuf,
    /// What the table of mounts says of ours, once it is there.
    mounted: Option<Mounted>,
    is_ready: bool,
    is_stopping: bool,
}

struct Mounted {
    row: Row,
    identity: Option<u64>,
}

enum Event {
    Told(Message),
    Signal,
    FrontGone,
    ServerGone,
}

impl Supervisor {
    fn start(mount: &Mount, settings: Settings, front: Option<&Channel>) -> Result<Self> {
        log::start(mount.verbose, mount.log.as_deref(), front.is_some())?;
        let signals = Signals::catch()?;
        let (channel, theirs) = Channel::pair()?;
        let server = mount
            .as_role(Role::Server)
            // A key that interrupts reaches the supervisor, which then stops the server.
            .process_group(0)
            .stdin(Stdio::from(theirs.into_fd()))
            .stdout(Stdio::null())
            .spawn()
            .context("the server cannot be started")?;
        Ok(Self {
            settings,
            source: mount.image.display().to_string(),
            image: ImagePath::parse(&mount.image).path,
            dir: mount.dir.clone(),
            server,
            channel,
            signals,
            mounted: None,
            is_ready: false,
            is_stopping: false,
        })
    }

    fn watch(mut self, front: Option<&Channel>) -> Result<()> {
        let mut reason = None;
        let result = loop {
            let step = match self.next_event(front) {
                Ok(Event::Told(Message::Opened { read_only })) => self.mount(read_only),
                Ok(Event::Told(Message::Ready)) => self.ready(front),
                Ok(Event::Told(Message::Failed { status, text })) => {
                    reason = Some(Failure::new(Status::from_code(status), text));
                    Ok(())
                }
                Ok(Event::Told(Message::Signal) | Event::Signal | Event::FrontGone) => self.stop(),
                Ok(Event::Told(Message::Serve | Message::Stop)) => Ok(()),
                Ok(Event::ServerGone) => break Ok(()),
                Err(error) => Err(error),
            };
            if let Err(error) = step {
                break Err(error);
            }
        };
        self.finish(result, reason)
    }

    fn next_event(&mut self, front: Option<&Channel>) -> Result<Event> {
        loop {
            let channel = self.channel.as_fd();
            // The front part says nothing; it is asked only whether it still waits.
            let front = front
                .filter(|_| !self.is_ready)
                .map_or(channel, |front| front.as_fd());
            let [told, signalled, left] = signals::wait([channel, self.signals.as_fd(), front])?;
            if told {
                return Ok(match self.channel.receive()? {
                    Some((message, _)) => Event::Told(message),
                    None => Event::ServerGone,
                });
            }
            if signalled && self.signals.take() {
                return Ok(Event::Signal);
            }
            if left {
                return Ok(Event::FrontGone);
            }
        }
    }

    fn mount(&mut self, read_only: bool) -> Result<()> {
        let options = fuse::MountOptions {
            source: self.source.clone(),
            subtype: "spinney".to_owned(),
            read_only: read_only || self.settings.request.read_only,
            allow_other: self.settings.allow_other,
            default_permissions: true,
            extra: self.settings.for_the_kernel.clone(),
        };
        let connection = match self.mount_synced(&options) {
            Some(connection) => connection,
            None => fuse::Connection::mount(&self.dir, &options)?,
        };
        let row = table::find(&self.dir)?.filter(Row::is_ours);
        let identity = table::identity(&self.dir);
        self.mounted = row.map(|row| Mounted { row, identity });
        // This process must not keep the connection: the kernel tells clients that the server
        // died when nobody has it any more.
        let fd = connection.into_fd();
        self.channel.send(&Message::Serve, Some(fd.as_fd()))
    }

    /// Mounts in such a way that the kernel passes on `sync` and waits for the server in the end;
    /// `None` where that cannot be had.
    fn mount_synced(&self, options: &fuse::MountOptions) -> Option<fuse::Connection> {
        if !self.settings.synced || !rustix::process::geteuid().is_root() {
            return None;
        }
        let mut open = File::options();
        open.read(true).write(!options.read_only);
        let mounted = open
            .open(&self.image)
            .map_err(anyhow::Error::from)
            .and_then(|image| {
                let backing = image.as_fd();
                Ok(fuse::Connection::mount_synced(&self.dir, options, backing)?)
            });
        mounted
            .map_err(|error| tracing::info!("sync(2) will not come to the image: {error:#}"))
            .ok()
    }

    fn ready(&mut self, front: Option<&Channel>) -> Result<()> {
        self.is_ready = true;
        if let Some(mounted) = self.mounted.as_ref().filter(|_| self.settings.writeback) {
            let path = mounted.row.backing_info().join("max_ratio");
            if let Err(error) = std::fs::write(&path, MAX_RATIO_PERCENT) {
                let path = path.display();
                tracing::info!("{path}: {error}; many small writes may be slow");
            }
        }
        tracing::info!("{} is mounted on {}", self.source, self.dir.display());
        match front {
            Some(front) if front.send(&Message::Ready, None).is_err() => self.stop(),
            _ => Ok(()),
        }
    }

    /// Ends the mount: at once where nobody uses it; else it disappears, what was written so far
    /// is made durable, and then who still uses it is cut off.
    fn stop(&mut self) -> Result<()> {
        self.is_stopping = true;
        if self.mounted.is_none() {
            // Nothing was changed yet.
            self.server.kill()?;
            return Ok(());
        }
        if self.is_mounted() && fuse::unmount(&self.dir, false).is_ok() {
            return Ok(());
        }
        if self.is_mounted() {
            tracing::warn!("{} is in use; its users are cut off", self.dir.display());
            // The kernel may have collected writes that the server does not know of.
            if let Ok(root) = File::open(&self.dir) {
                let _ = rustix::fs::syncfs(&root);
            }
            fuse::unmount(&self.dir, true)?;
        }
        // A server that is ending already does not hear it.
        let _ = self.channel.send(&Message::Stop, None);
        Ok(())
    }

    fn is_mounted(&self) -> bool {
        let Some(ours) = &self.mounted else {
            return false;
        };
        let found = table::find(&self.dir).ok().flatten();
        let is_alike =
            found.is_some_and(|row| row.device == ours.row.device && row.kind == ours.row.kind);
        // Numbers of devices are used again, and somebody may have mounted there anew.
        is_alike && table::identity(&self.dir) == ours.identity
    }

    /// The server is gone, or has to go because something failed.
    fn finish(mut self, result: Result<()>, reason: Option<Failure>) -> Result<()> {
        if result.is_err() {
            let _ = self.server.kill();
        }
        let status = self.server.wait()?;
        if self.is_mounted()
            && let Err(error) = fuse::unmount(&self.dir, true)
        {
            tracing::error!("a dead mount is left behind: {error}");
        }
        result?;
        if let Some(reason) = reason {
            return Err(reason.into());
        }
        if self.is_stopping && !self.is_ready {
            return Err(Failure::refused("interrupted before it was mounted").into());
        }
        match (status.success(), status.signal()) {
            (true, _) => Ok(()),
            (_, Some(signal)) => {
                let text = format!(
                    "the server was killed by signal {signal}; what was not synced is lost"
                );
                Err(Failure::new(Status::Io, text).into())
            }
            _ => Err(Failure::new(Status::Io, format!("the server failed: {status}")).into()),
        }
    }
}

/// Starts a supervisor in the background and waits until the mount is usable.
pub(super) fn start_in_background(mount: &Mount) -> Result<()> {
    let (channel, theirs) = Channel::pair()?;
    let mut command: Command = mount.as_role(Role::Supervisor);
    command
        .stdin(Stdio::from(theirs.into_fd()))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .current_dir("/")
        .spawn()
        .context("the supervisor cannot be started")?;
    // The command has a handle of their end of the channel.
    drop(command);
    match channel.receive()? {
        Some((Message::Ready, _)) => Ok(()),
        Some((Message::Failed { status, text }, _)) => {
            Err(Failure::new(Status::from_code(status), text).into())
        }
        _ => Err(Failure::new(Status::Io, "the server ended without saying why").into()),
    }
}
