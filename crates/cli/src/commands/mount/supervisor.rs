//! Runs the supervisor of a mount: the process that mounts, watches the server, and unmounts. It keeps the privileges
//! for that, and so reads nothing of the image.
//!
//! ```text
//!            Opened            Ready
//!  Starting -------> Mounted -------> Serving ---+-- umount by a user ----->  the server ends
//!      |                |                |       +-- signal: unmount, Stop -> the server ends
//!      +----------------+----------------+------- the server died: detach -> failure
//! ```
//!
//! Invariant: no mount stays without a server. Caller: the front part.

use std::fs::File;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use rustix::io::Errno;
use spinney::blockdev::Locator;

use super::channel::{Channel, Message};
use super::settings::Settings;
use super::signals::{self, Signals};
use super::watchdog::{Due, Watchdog};
use super::write_back::Writer;
use super::{Mount, Role, log};
use crate::commands::failure::{self, Failure, Status};
use spinney::mounts::{self as table, Mount as Row};

/// Bytes behind an anchor whose image is elsewhere.
const ANCHOR_BYTES: u64 = 4096;
/// Share in percent of the machine's dirty pages that a mount may fill, if the kernel collects writes: its default of 1
/// makes them very slow.
const MAX_RATIO_PERCENT: &str = "100";
/// The kernel may collect writes of this fraction of the volume, and at least that many bytes: so the server notices a
/// lack of space before programs have written more than fits.
const MAX_BYTES_PART: u64 = 8;
const MAX_BYTES_MIN: u64 = 16 << 20;
/// Read-ahead of sequential readers in KiB: four requests of the largest size, so that workers fill some while the
/// reader consumes others. The default for FUSE, 128, splits one such request into eight: cold sequential reads reached
/// two thirds of the rate of 1024, which has four fifths of the rate of 4096.
const READ_AHEAD_KIB: &str = "4096";

/// Supervises a mount from its beginning to its end.
pub(super) fn run(mount: &Mount, settings: Settings) -> Result<()> {
    let front = match mount.role {
        Some(Role::Supervisor) => Some(Channel::inherited()?),
        _ => None,
    };
    if front.is_some() {
        // Leaves the session of the terminal, whose end would end this process.
        let _ = rustix::process::setsid();
        let _ = rustix::thread::set_name(c"spinney");
    }
    let result =
        Supervisor::start(mount, settings, front.as_ref()).and_then(|supervisor| supervisor.watch(front.as_ref()));
    if let (Some(front), Err(error)) = (&front, &result) {
        // Once the mount is usable the front part has ended, and only the log is left.
        let text = failure::one_line(error);
        if front.send_failure(failure::status_of(error).code(), &text).is_err() {
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
    /// The image, without offset and size.
    image: PathBuf,
    /// The row of this mount in the table of mounts, once it exists.
    mounted: Option<Mounted>,
    state: State,
    is_stopping: bool,
    watchdog: Watchdog,
    /// The thread that has the kernel write its dirty pages, once the server has asked for it.
    writer: Option<Writer>,
}

/// The state of a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Starting,
    Mounted,
    Serving,
}

impl State {
    /// The state after a message of the server, which a hostile image may have taken over.
    ///
    /// # Errors
    /// If the message is illegal in this state.
    fn after(self, message: &Message) -> Result<Self> {
        match (self, message) {
            (Self::Starting, Message::Opened { .. }) => Ok(Self::Mounted),
            (Self::Mounted, Message::Ready) => Ok(Self::Serving),
            // A program may use the mount, and cause this message, before the server says that it is ready.
            (Self::Mounted | Self::Serving, Message::WriteBack)
            | (Self::Serving, Message::Pong { .. })
            | (_, Message::Failed { .. } | Message::Signal) => Ok(self),
            _ => bail!("the server said {message:?}, which makes no sense now ({self:?})"),
        }
    }
}

struct Mounted {
    row: Row,
    identity: Option<u64>,
}

enum Event {
    Told(Message, Option<OwnedFd>),
    Signal,
    FrontGone,
    ServerGone,
    /// The watchdog's next step is due.
    Step,
}

impl Supervisor {
    fn start(mount: &Mount, settings: Settings, front: Option<&Channel>) -> Result<Self> {
        log::start(mount.verbose, mount.log.as_deref(), front.is_some())?;
        let signals = Signals::catch()?;
        let (channel, theirs) = Channel::pair()?;
        let server = mount
            .as_role(Role::Server)
            // Ctrl-C reaches only the supervisor, which then stops the server.
            .process_group(0)
            .stdin(Stdio::from(theirs.into_fd()))
            .stdout(Stdio::null())
            .spawn()
            .context("the server cannot be started")?;
        Ok(Self {
            watchdog: Watchdog::new(settings.watchdog, Instant::now()),
            settings,
            source: mount.image.display().to_string(),
            image: Locator::parse(&mount.image)?.target().to_owned(),
            dir: mount.dir.clone(),
            server,
            channel,
            signals,
            mounted: None,
            state: State::Starting,
            is_stopping: false,
            writer: None,
        })
    }

    fn watch(mut self, front: Option<&Channel>) -> Result<()> {
        let mut reason = None;
        let result = loop {
            let step = match self.next_event(front) {
                Ok(Event::Told(Message::Failed { status, text }, _)) => {
                    reason = Some(Failure::new(Status::from_code(status), text));
                    Ok(())
                }
                Ok(Event::Told(message, fd)) => self.heard(&message, fd, front),
                Ok(Event::Signal) => self.stop("a signal came"),
                Ok(Event::FrontGone) => self.stop("the mount command was interrupted"),
                Ok(Event::Step) => self.watch_server(),
                Ok(Event::ServerGone) => break Ok(()),
                Err(error) => Err(error),
            };
            if let Err(error) = step {
                break Err(error);
            }
        };
        self.finish(result, reason)
    }

    fn heard(&mut self, message: &Message, fd: Option<OwnedFd>, front: Option<&Channel>) -> Result<()> {
        self.state = self.state.after(message)?;
        match *message {
            Message::Opened { read_only, is_apart } => self.mount(read_only, is_apart),
            Message::Ready => self.ready(front),
            Message::Signal => self.stop("a signal came to its server"),
            Message::WriteBack => {
                self.write_back(fd);
                Ok(())
            }
            Message::Pong { gets_on } => {
                if self.watchdog.answered(gets_on) {
                    tracing::warn!("{}: the server answers again", self.dir.display());
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn watch_server(&mut self) -> Result<()> {
        let dir = self.dir.display();
        if is_half_dead(self.server.id()) {
            // A thread of the server waits for the kernel, which waits for an answer of the server that will not come.
            tracing::error!("{dir}: the server was killed, and waits for itself; its requests are given up");
            if let Some(dir) = self.any_dir() {
                spinney::fuse::abort(&dir).unwrap_or_else(|error| tracing::error!("{error}"));
            }
        }
        match self.watchdog.tick(Instant::now()) {
            Due::Nothing => Ok(()),
            Due::Ask => {
                // A server that has ended is noticed by the next `receive`.
                let _ = self.channel.send(&Message::Ping, None);
                Ok(())
            }
            Due::Tell(silent) => {
                tracing::warn!(
                    "{dir}: the server has answered nothing for {} s; `umount -f {dir}` ends the wait for it",
                    silent.as_secs()
                );
                Ok(())
            }
            Due::Abort(silent) => {
                // Aborting first gives waiting programs their errors; the server may not even be able to end.
                if let Some(dir) = self.any_dir()
                    && let Err(error) = spinney::fuse::abort(&dir)
                {
                    tracing::debug!("{error}");
                }
                let text = format!("{dir}: given up: the server has answered nothing for {} s", silent.as_secs());
                Err(Failure::new(Status::Io, text).into())
            }
        }
    }

    /// Has the kernel write the dirty pages of this mount, and answers the server.
    fn write_back(&mut self, dir: Option<OwnedFd>) {
        if let Err(error) = self.start_writing_back(dir) {
            // A lack of threads or descriptors fails the request, not the mount.
            tracing::warn!("{error:#}");
            let errno = Errno::AGAIN.raw_os_error();
            let _ = self.channel.send(&Message::WrittenBack { errno, read_only: true, thread: 0 }, None);
        }
    }

    fn start_writing_back(&mut self, dir: Option<OwnedFd>) -> Result<()> {
        let mount = self.any_dir();
        let writer = match self.writer.take() {
            Some(writer) => writer,
            None => Writer::start(self.channel.try_clone()?)?,
        };
        let has_begun = self.writer.insert(writer).write(mount, dir);
        ensure!(has_begun, "the server asked to write back twice at a time");
        Ok(())
    }

    fn next_event(&mut self, front: Option<&Channel>) -> Result<Event> {
        loop {
            let channel = self.channel.as_fd();
            let step = self.watchdog.wait(Instant::now());
            let time_max = (self.state == State::Serving).then_some(step);
            // The front part sends nothing; its end is noticed here.
            let [told, signalled, left] = match front.filter(|_| self.state != State::Serving) {
                Some(front) => signals::wait_for([channel, self.signals.as_fd(), front.as_fd()], time_max)?,
                None => {
                    let [told, signalled] = signals::wait_for([channel, self.signals.as_fd()], time_max)?;
                    [told, signalled, false]
                }
            };
            if told {
                return Ok(match self.channel.receive()? {
                    Some((message, fd)) => Event::Told(message, fd),
                    None => Event::ServerGone,
                });
            }
            if signalled && self.signals.take() {
                return Ok(Event::Signal);
            }
            if left {
                return Ok(Event::FrontGone);
            }
            if self.state == State::Serving && self.watchdog.wait(Instant::now()).is_zero() {
                return Ok(Event::Step);
            }
        }
    }

    fn mount(&mut self, read_only: bool, is_apart: bool) -> Result<()> {
        let options = spinney::fuse::MountOptions {
            source: self.source.clone(),
            subtype: "spinney".to_owned(),
            read_only: read_only || self.settings.request.read_only,
            allow_other: self.settings.allow_other,
            default_permissions: true,
            extra: self.settings.for_the_kernel.clone(),
        };
        // A server in this mount namespace could be the process that has to end the mount, and would wait for itself.
        let synced = is_apart.then(|| self.mount_synced(&options)).flatten();
        let connection = match synced {
            Some(connection) => connection,
            None => spinney::fuse::Connection::mount(&self.dir, &options).map_err(with_other_way)?,
        };
        let row = table::find(&self.dir)?.filter(Row::is_ours);
        let identity = table::identity(&self.dir);
        self.mounted = row.map(|row| Mounted { row, identity });
        // This process must close its descriptor: only when none is left does the kernel tell programs that the server
        // has ended.
        let fd = connection.into_fd();
        let device = self.mounted.as_ref().and_then(|mounted| mounted.row.device_numbers());
        self.channel.send(&Message::Serve { device }, Some(fd.as_fd()))
    }

    /// Mounts so that the kernel passes `sync` on and waits for the server at the end; `None` if that is not possible.
    fn mount_synced(&self, options: &spinney::fuse::MountOptions) -> Option<spinney::fuse::Connection> {
        if !self.settings.synced || !rustix::process::geteuid().is_root() {
            return None;
        }
        let mut open = File::options();
        open.read(true).write(!options.read_only);
        // Nothing of an anchor is read, so that memory does where the image is elsewhere.
        let is_elsewhere = Locator::parse(&self.source).is_ok_and(|locator| locator.scheme().is_some());
        let opened = if is_elsewhere { blank() } else { open.open(&self.image) };
        let mounted = opened.map_err(anyhow::Error::from).and_then(|image| {
            let backing = image.as_fd();
            Ok(spinney::fuse::Connection::mount_synced(&self.dir, options, backing)?)
        });
        mounted.map_err(|error| tracing::info!("sync(2) will not come to the image: {error:#}")).ok()
    }

    fn ready(&mut self, front: Option<&Channel>) -> Result<()> {
        self.watchdog = Watchdog::new(self.settings.watchdog, Instant::now());
        self.tune("read_ahead_kb", READ_AHEAD_KIB, "large files may be read more slowly");
        if self.settings.writeback {
            self.tune("max_ratio", MAX_RATIO_PERCENT, "many small writes may be slow");
            self.limit_dirty();
        }
        tracing::info!("{} is mounted on {}", self.source, self.dir.display());
        match front {
            Some(front) if front.send(&Message::Ready, None).is_err() => self.stop("the mount command was interrupted"),
            _ => Ok(()),
        }
    }

    /// Sets a parameter of this mount in the kernel, if this process may.
    fn tune(&self, name: &str, value: &str, otherwise: &str) {
        let Some(mounted) = &self.mounted else { return };
        let path = mounted.row.backing_info().join(name);
        if let Err(error) = std::fs::write(&path, value) {
            let path = path.display();
            tracing::info!("{path}: {error}; {otherwise}");
        }
    }

    /// Limits the writes that the kernel collects in proportion to the volume.
    fn limit_dirty(&self) {
        let Some(mounted) = &self.mounted else { return };
        let (path, dir) = (mounted.row.backing_info().join("max_bytes"), self.dir.clone());
        // On a thread of its own, since the server reports the size.
        let limit = move || {
            let Ok(status) = rustix::fs::statvfs(&dir) else { return };
            let total = status.f_blocks.saturating_mul(status.f_frsize);
            let limit = (total / MAX_BYTES_PART).max(MAX_BYTES_MIN);
            // Linux before 6.2 has no such limit.
            let now = std::fs::read_to_string(&path).ok().and_then(|text| text.trim().parse::<u64>().ok());
            if now.is_some_and(|now| now > limit)
                && let Err(error) = std::fs::write(&path, limit.to_string())
            {
                tracing::info!("{}: {error}; ENOSPC may come late", path.display());
            }
        };
        if let Err(error) = std::thread::Builder::new().name("limit".to_owned()).spawn(limit) {
            tracing::info!("{error}; ENOSPC may come late");
        }
    }

    /// Ends the mount: at once if it is idle; else it is detached, written data is made durable, and remaining users
    /// are cut off.
    fn stop(&mut self, why: &str) -> Result<()> {
        self.is_stopping = true;
        if self.mounted.is_none() {
            // Nothing has been written yet.
            self.server.kill()?;
            return Ok(());
        }
        let elsewhere = self.elsewhere();
        for dir in &elsewhere {
            if spinney::fuse::unmount(dir, false).is_err() {
                tracing::warn!("{}: {why}; it is in use, and its users are cut off", dir.display());
                spinney::fuse::unmount(dir, true)?;
            }
        }
        if self.is_mounted() && spinney::fuse::unmount(&self.dir, false).is_ok() && elsewhere.is_empty() {
            return Ok(());
        }
        if self.is_mounted() {
            tracing::warn!("{}: {why}; it is in use, and its users are cut off", self.dir.display());
            // The kernel may have collected writes that the server has not seen.
            if let Ok(root) = File::open(&self.dir) {
                let _ = rustix::fs::syncfs(&root);
            }
            if let Err(error) = spinney::fuse::unmount(&self.dir, true) {
                // Killing the server would lose data that it can still make durable.
                tracing::error!("{}: {error}", self.dir.display());
            }
        }
        // A server that is ending already does not receive it.
        let _ = self.channel.send(&Message::Stop, None);
        Ok(())
    }

    /// Other mount points of this file system. Only called while the server serves, or while its file system is
    /// mounted.
    fn elsewhere(&self) -> Vec<PathBuf> {
        let Some(ours) = &self.mounted else { return Vec::new() };
        let rows = table::alike(&ours.row).unwrap_or_default();
        let dirs = rows.into_iter().map(|row| row.dir);
        dirs.filter(|dir| *dir != self.dir).collect()
    }

    /// One of its mount points.
    fn any_dir(&self) -> Option<PathBuf> {
        let first = self.is_mounted().then(|| self.dir.clone());
        first.or_else(|| self.elsewhere().into_iter().next())
    }

    fn is_mounted(&self) -> bool {
        let Some(ours) = &self.mounted else {
            return false;
        };
        let found = table::find(&self.dir).ok().flatten();
        let is_alike = found.is_some_and(|row| row.device == ours.row.device && row.kind == ours.row.kind);
        // Device numbers are reused, and another program may have mounted there since.
        is_alike && table::identity(&self.dir) == ours.identity
    }

    /// Cleans up after the server has ended, or ends it after a failure.
    fn finish(mut self, result: Result<()>, reason: Option<Failure>) -> Result<()> {
        if result.is_err() {
            let _ = self.server.kill();
        }
        let status = self.server.wait()?;
        let is_left = self.is_mounted();
        // A server that ends by itself was unmounted everywhere, and its device number may be reused.
        let elsewhere = if is_left || !status.success() { self.elsewhere() } else { Vec::new() };
        let dead = elsewhere.into_iter().chain(is_left.then(|| self.dir.clone()));
        // Device numbers are reused: another server's mount may have it by now.
        for dir in dead.filter(|dir| table::is_dead(dir)) {
            if let Err(error) = spinney::fuse::unmount(&dir, true) {
                tracing::error!("a dead mount is left behind: {error}");
            }
        }
        result?;
        if let Some(reason) = reason {
            return Err(reason.into());
        }
        if self.is_stopping && self.state != State::Serving {
            return Err(Failure::refused("interrupted before it was mounted").into());
        }
        match (status.success(), status.signal()) {
            // The server ends by itself when its connection ends, by unmounting or aborting.
            (true, _) if is_left && !self.is_stopping => {
                let dir = self.dir.display();
                let text = format!("{dir}: the kernel ended the connection of a mount in use: it was aborted");
                Err(Failure::new(Status::Io, text).into())
            }
            (true, _) => Ok(()),
            (_, Some(signal)) => {
                let hint = match signal {
                    // The kernel's log is the only other hint.
                    9 => " (the kernel does that when memory is short; its log says so)",
                    _ => "",
                };
                let text = format!("the server was killed by signal {signal}{hint}; unsynced data is lost");
                Err(Failure::new(Status::Io, text).into())
            }
            _ => Err(Failure::new(Status::Io, format!("the server failed: {status}")).into()),
        }
    }
}

/// Adds the alternatives that need no mount to the failure of a mount.
/// A file without a name, in memory.
fn blank() -> std::io::Result<File> {
    let file = File::from(rustix::fs::memfd_create("spinney", rustix::fs::MemfdFlags::CLOEXEC)?);
    file.set_len(ANCHOR_BYTES)?;
    Ok(file)
}

fn with_other_way(error: spinney::fuse::Error) -> anyhow::Error {
    use spinney::fuse::Error::{HelperMissing, HelperRefused, NoDevice};
    match error {
        HelperMissing { .. } | HelperRefused { .. } | NoDevice { .. } => {
            let text = format!("{error}; `spinney get` and `spinney put` need no mount");
            Failure::new(Status::Io, text).into()
        }
        error => error.into(),
    }
}

/// True for a killed process with a thread that cannot end.
fn is_half_dead(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The process name before it may have any characters.
    stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z'))
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
    // The command has a copy of the child's end of the channel.
    drop(command);
    match channel.receive()? {
        Some((Message::Ready, _)) => Ok(()),
        Some((Message::Failed { status, text }, _)) => Err(Failure::new(Status::from_code(status), text).into()),
        _ => Err(Failure::new(Status::Io, "the server ended without saying why").into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A compromised server could make its supervisor, which is root, mount once more.
    #[test]
    fn each_message_is_legal_in_its_states_only() {
        let opened = Message::Opened { read_only: false, is_apart: true };
        let pong = Message::Pong { gets_on: true };
        let failed = Message::Failed { status: 1, text: String::new() };
        for (message, legal) in [
            (opened, vec![State::Starting]),
            (Message::Ready, vec![State::Mounted]),
            (pong, vec![State::Serving]),
            (Message::WriteBack, vec![State::Mounted, State::Serving]),
            (failed, vec![State::Starting, State::Mounted, State::Serving]),
            (Message::Signal, vec![State::Starting, State::Mounted, State::Serving]),
            (Message::Serve { device: None }, vec![]),
            (Message::Ping, vec![]),
            (Message::WrittenBack { errno: 0, read_only: false, thread: 1 }, vec![]),
            (Message::Stop, vec![]),
        ] {
            for state in [State::Starting, State::Mounted, State::Serving] {
                let is_legal = state.after(&message).is_ok();
                assert_eq!(is_legal, legal.contains(&state), "{message:?} in {state:?}");
            }
        }
    }
}
