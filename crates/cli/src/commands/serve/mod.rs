//! `spinney serve`: an image, or a part of it, for other programs and machines, by a network protocol.
//!
//! ```text
//!  open      the devices of the image, without reading them; the socket that is listened on
//!  restrict  the sandbox of the server of a mount
//!  serve     reads the image, accepts connections; each has a thread, and a protocol that answers it
//!  end       at SIGTERM, SIGINT or SIGHUP: the connections end, and everything is made durable
//! ```
//!
//! `listen` decides where clients connect, `connections` accepts them, and `target` opens the image. An attendant does
//! what the sandbox forbids. A protocol is a folder or file here: it has the arguments of its command, and implements
//! [`Service`].
//!
//! Invariants: clients reach the server from this machine alone unless the user asked for more, and that is said; no
//! byte of the image is read before the sandbox is entered; a client that breaks its protocol loses its own connection
//! and nothing else.
//!
//! Failure: until the first client can connect, an error ends the command. Later errors are told to the client that
//! they concern. Caller: `args`.

mod connections;
mod http;
mod key;
mod listen;
mod nbd;
mod nfs;
mod target;
mod virtiofs;

use std::io::Write as _;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use anyhow::Result;
use clap::{Args, Subcommand};

use crate::commands::mount::attendant::Attendant;
use crate::commands::mount::sandbox;
use crate::commands::mount::signals::Signals;
use crate::commands::output::{self, Output};
use listen::Listener;
pub(crate) use listen::{Bound, ListenArgs};
use target::Opened;

/// Let other programs and machines use an image, by a network protocol
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "Examples:\n",
    "  spinney serve nbd site.img                       the image as a disk\n",
    "  spinney serve nbd --socket /run/vm.sock vms.img:/debian.raw\n",
    "  spinney serve http site.img                      its files for browsers, at http://127.0.0.1:8080/\n",
    "  spinney serve nfs site.img                       its files, to be mounted by NFS\n",
    "  spinney serve virtiofs --socket vm.sock site.img its files, for a virtual machine"
))]
pub(crate) struct Serve {
    #[command(subcommand)]
    protocol: Protocol,
}

#[derive(Debug, Subcommand)]
enum Protocol {
    Nbd(nbd::Nbd),
    Http(http::Http),
    Nfs(nfs::Nfs),
    Virtiofs(virtiofs::Virtiofs),
}

impl Serve {
    /// Runs the command.
    ///
    /// # Errors
    /// The first failure; `failure::status_of` gives its status.
    pub(crate) fn run(&self, out: &mut Output) -> Result<()> {
        match &self.protocol {
            Protocol::Nbd(command) => command.run(out),
            Protocol::Http(command) => command.run(out),
            Protocol::Nfs(command) => command.run(out),
            Protocol::Virtiofs(command) => command.run(out),
        }
    }
}

/// A protocol over what is served. Each connection calls it from a thread of its own.
trait Service: Send + Sync + 'static {
    /// Serves one connection to its end, with the address of the other end if it has one. The socket is shut down when
    /// the command ends.
    fn serve(&self, socket: Arc<OwnedFd>, peer: Option<SocketAddr>);

    /// Makes everything durable; the last call, after all connections have ended.
    ///
    /// # Errors
    /// Those of the volume or device.
    fn end(&self) -> Result<()>;
}

/// Listens, restricts this process, and serves until a signal asks for the end. `open` makes the service of what was
/// opened; it is the first to read from it. `describe` says what is served where, and how it is used: a line each.
///
/// # Errors
/// Those of the arguments, of the system, of `open` and of [`Service::end`].
fn run<S: Service>(
    listen: &ListenArgs,
    port: u16,
    opened: Opened,
    open: impl FnOnce(Opened) -> Result<S>,
    describe: impl FnOnce(&S, &[Bound]) -> Vec<String>,
    out: &mut Output,
) -> Result<()> {
    let listener = listen.listen(port)?;
    let signals = Signals::catch()?;
    connections::raise_descriptor_limit();
    let attendant = restrict(listen, &listener, &opened)?;
    let service = Arc::new(open(opened)?);
    print(out, describe(&service, listener.bound()))?;
    let served = connections::accept(&listener, signals, &service);
    let ended = service.end();
    drop(attendant);
    served.and(ended)
}

/// Starts the attendant and enters the sandbox.
fn restrict(listen: &ListenArgs, listener: &Listener, opened: &Opened) -> Result<Attendant> {
    let attendant = Attendant::start(&opened.remote_devices(), listener.own_path())?;
    if listen.no_sandbox {
        output::warn("the server runs without its sandbox");
    } else if opened.is_restricted() {
        for missing in sandbox::enter(opened.uses_rings(), &std::env::temp_dir())?.missing {
            output::warn(&format!("less protection: {missing}"));
        }
    }
    Ok(attendant)
}

fn print(out: &mut Output, lines: Vec<String>) -> Result<()> {
    for line in lines {
        writeln!(out, "{line}")?;
    }
    out.finish()
}
