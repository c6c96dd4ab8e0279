//! A process beside a sandboxed server that does what the sandbox forbids: it connects to the servers of remote devices
//! again, and removes the socket that was listened on.
//!
//! The server starts it before it enters its sandbox, over a socket that is the attendant's standard input. A request
//! is the number of a device or address on the attendant's own command line, so the server can reach no other address;
//! the answer is one byte and the connection. The attendant ends with the server, however that ends. Callers: `serve`,
//! the server of a mount, and `args`, whose hidden command it is.

use std::ffi::OsString;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use clap::Args;
use spinney::blockdev::Locator;
use spinney::nbd::{self, Address};
use spinney::web::client as web;

use crate::commands::failure::{one_line, status_of};
use crate::commands::mount::channel::{Channel, Message};

/// Internal use: attends a server in its sandbox
#[derive(Debug, Args)]
#[command(hide = true, after_help = "Examples:\n  spinney attend --remove /run/vm.sock    started by `spinney serve`")]
pub(crate) struct Attend {
    /// Remove this socket at the end
    #[arg(long, value_name = "PATH")]
    remove: Option<PathBuf>,
    /// An address of a web server that the server reached before
    #[arg(long, value_name = "ADDRESS")]
    address: Vec<SocketAddr>,
    /// The remote devices of the server
    devices: Vec<OsString>,
}

/// The server's end of the connection to its attendant, which ends with this process.
#[derive(Debug)]
pub(crate) struct Attendant {
    _channel: Option<Channel>,
}

impl Attendant {
    /// Starts an attendant, where there is something for it to do, and has devices connect through it from now on. This
    /// process must have one thread, and may enter its sandbox afterwards.
    ///
    /// # Errors
    /// The system's; those of addresses that are not valid.
    pub(crate) fn start(devices: &[OsString], remove: Option<&Path>) -> Result<Self> {
        if devices.is_empty() && remove.is_none() {
            return Ok(Self { _channel: None });
        }
        let (own, theirs) = Channel::pair()?;
        let mut command = Command::new("/proc/self/exe");
        command.arg("attend").stdin(Stdio::from(theirs.into_fd())).stdout(Stdio::null());
        if let Some(path) = remove {
            command.arg("--remove").arg(path);
        }
        // A signal for the server's group, as a terminal sends it, ends the server first.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let reached = web::addresses();
        for address in &reached {
            command.arg("--address").arg(address.to_string());
        }
        command.arg("--").args(devices).spawn().context("the attendant of the server")?;
        let addresses = devices.iter().map(address_of).collect::<Result<Vec<_>>>()?;
        let channel = Arc::new(parking_lot::Mutex::new(own.try_clone()?));
        let unknown = || io::Error::other("the device was not named when the server started");
        let (shared, device_count) = (Arc::clone(&channel), devices.len());
        web::dial_by(Box::new(move |address| {
            let number = reached.iter().position(|known| *known == address).ok_or_else(unknown)?;
            ask(&shared.lock(), device_count.saturating_add(number))
        }));
        nbd::dial_by(Box::new(move |address| {
            let device = addresses.iter().position(|known| known.as_ref() == Some(address));
            ask(&channel.lock(), device.ok_or_else(unknown)?)
        }));
        Ok(Self { _channel: Some(own) })
    }
}

/// The numbers of a file, and when it was made.
fn identity(path: &Path) -> Option<(u64, u64, i64, i64)> {
    let found = std::fs::symlink_metadata(path).ok()?;
    Some((found.dev(), found.ino(), found.mtime(), found.mtime_nsec()))
}

/// The address of a remote device; `None` for one of another protocol.
fn address_of(words: &OsString) -> Result<Option<Address>> {
    let locator = Locator::parse(words)?;
    let is_nbd = locator.scheme().is_some_and(|scheme| nbd::SCHEMES.contains(&scheme));
    Ok(if is_nbd { Some(Address::of(&locator)?) } else { None })
}

/// Has the attendant connect to a device, or to one of the addresses, whose numbers come behind those of devices.
fn ask(channel: &Channel, device: usize) -> io::Result<OwnedFd> {
    let failed = |error: anyhow::Error| io::Error::other(one_line(&error));
    channel.send(&Message::Dial { device }, None).map_err(failed)?;
    match channel.receive().map_err(failed)? {
        Some((Message::Dialed, Some(connection))) => Ok(connection),
        Some((Message::Failed { text, .. }, _)) => Err(io::Error::other(text)),
        _ => Err(io::Error::other("the attendant of the server is gone")),
    }
}

impl Attend {
    /// Runs the command.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn run(&self) -> Result<()> {
        let channel = Channel::inherited()?;
        let own = self.remove.as_deref().and_then(identity);
        while let Some((message, _)) = channel.receive()? {
            let Message::Dial { device } = message else { continue };
            match self.dial(device) {
                Ok(connection) => channel.send(&Message::Dialed, Some(connection.as_fd()))?,
                Err(error) => channel.send_failure(status_of(&error).code(), &one_line(&error))?,
            }
        }
        // The server has ended. Another one may have its own socket at the path by now.
        match &self.remove {
            Some(path) if own.is_some() && identity(path) == own => {
                std::fs::remove_file(path).with_context(|| path.display().to_string())
            }
            _ => Ok(()),
        }
    }

    fn dial(&self, device: usize) -> Result<OwnedFd> {
        if let Some(address) = device.checked_sub(self.devices.len()).and_then(|number| self.address.get(number)) {
            return Ok(web::dial(*address)?);
        }
        let words = self.devices.get(device).context("no such device")?;
        let address = address_of(words)?.context("a device of another protocol")?;
        Ok(nbd::dial(&address)?)
    }
}
