//! `spinney serve virtiofs`: an image as the file system of a virtual machine. Called by `serve`.

use std::ffi::OsString;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::thread;

use anyhow::{Context as _, Result};
use clap::Args;
use rustix::net::AddressFamily;
use spinney::fuse::SessionOptions;
use spinney::virtiofs::{Guest, OpenVolume};

use super::target::{Opened, Target};
use super::{Bound, ListenArgs, Listener, print, restrict};
use crate::commands::failure::{Failure, one_line};
use crate::commands::mount::signals::{Signals, wait};
use crate::commands::output::{self, Output};

/// Port that is never used: a virtual machine needs a Unix socket, to pass its memory.
const NO_PORT: u16 = 0;

/// Let a virtual machine mount an image as its own file system, without a network
///
/// QEMU, cloud-hypervisor and others connect to the socket; the guest mounts by the tag that they give the device. One
/// guest at a time: the next one is served when the machine of the last one has ended. Files that the guest
/// synced, and all files when it unmounts, are durable.
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "Examples:\n",
    "  spinney serve virtiofs --socket vm.sock root.img           the whole image\n",
    "  spinney serve virtiofs --socket vm.sock root.img:/fork-1   a subvolume\n",
    "\n",
    "  qemu-system-x86_64 -m 2G -object memory-backend-memfd,id=mem,size=2G,share=on -numa node,memdev=mem \\\n",
    "    -chardev socket,id=fs,path=vm.sock -device vhost-user-fs-pci,chardev=fs,tag=spinney ...\n",
    "  mount -t virtiofs spinney /mnt                             in the guest\n",
    "\n",
    "The guest's kernel checks permissions; its root is root of the image. --listen does not apply."
))]
pub(crate) struct Virtiofs {
    /// An image, or a subvolume in it (IMAGE:/SUBVOLUME)
    #[arg(value_name = "IMAGE")]
    target: OsString,
    #[command(flatten)]
    listen: ListenArgs,
}

impl Virtiofs {
    /// Runs the command.
    ///
    /// # Errors
    /// The first failure; `failure::status_of` gives its status.
    pub(super) fn run(&self, out: &mut Output) -> Result<()> {
        let target = Target::parse(&self.target);
        if target.is_mount() {
            let text = format!("{} is a mount; serve virtiofs takes images: unmount it first", target.image.display());
            return Err(Failure::refused(text).into());
        }
        let listener = self.listener()?;
        let opened = Opened::open(&target, self.listen.read_only)?;
        let signals = Signals::catch()?;
        // Not allowed later, in the sandbox.
        let ended = UnixStream::pair().context("a pair of sockets")?;
        let attendant = restrict(&self.listen, &listener, &opened)?;
        let open = opened.into_opener(target.path.as_deref())?;
        let open_or_say = move || {
            open().map_err(|error| {
                let text = one_line(&error);
                output::warn(&text);
                io::Error::other(text)
            })
        };
        print(out, self.describe(listener.bound()))?;
        let mut guests = Guests { open: Arc::new(open_or_say), signals, ended };
        let served = guests.serve(&listener);
        drop(attendant);
        served
    }

    /// The socket; systemd may pass it.
    fn listener(&self) -> Result<Listener> {
        let listener = self.listen.listen(NO_PORT)?;
        let is_unix = |socket: BorrowedFd<'_>| rustix::net::sockopt::socket_domain(socket) == Ok(AddressFamily::UNIX);
        if !listener.sockets().all(is_unix) {
            return Err(Failure::usage("a virtual machine connects to a Unix socket: give --socket PATH").into());
        }
        Ok(listener)
    }

    fn describe(&self, bound: &[Bound]) -> Vec<String> {
        let how = if self.listen.read_only { "read-only" } else { "read-write" };
        let shown = Path::new(&self.target).display();
        let lines = |place: &Bound| {
            let device = "-device vhost-user-fs-pci,chardev=fs,tag=spinney";
            vec![
                format!("{shown}, {how}, at {place}"),
                format!("give QEMU shared memory (--help), and: -chardev socket,id=fs,path={place} {device}"),
                "mount it in the guest: mount -t virtiofs spinney DIR".to_owned(),
            ]
        };
        bound.iter().flat_map(lines).collect()
    }
}

/// The guests of the server, one after another.
struct Guests {
    open: Arc<OpenVolume>,
    signals: Signals,
    /// A guest's thread writes a byte to the second socket when it ends.
    ended: (UnixStream, UnixStream),
}

impl Guests {
    /// Serves one guest after another until a signal asks for the end.
    fn serve(&mut self, listener: &Listener) -> Result<()> {
        let socket = listener.sockets().next().context("no socket")?;
        loop {
            let [_, has_connection] = wait([self.signals.as_fd(), socket])?;
            if self.signals.take() || has_connection && self.serve_one(socket)? {
                return Ok(());
            }
        }
    }

    /// Serves the guest that waits at the socket. True if a signal ended it.
    fn serve_one(&mut self, socket: BorrowedFd<'_>) -> Result<bool> {
        let listener = UnixListener::from(socket.try_clone_to_owned()?);
        let guest = Guest::accept(listener, Arc::clone(&self.open), SessionOptions::default())?;
        let ender = guest.ender();
        let mut end = self.ended.1.try_clone()?;
        let serve = move || {
            let served = guest.serve();
            // Read below, so it has room.
            let _ = end.write_all(&[0]);
            served
        };
        let serving = thread::Builder::new().name("guest".to_owned()).spawn(serve).context("the guest's thread")?;
        let mut was_asked = false;
        loop {
            let [_, has_ended] = wait([self.signals.as_fd(), self.ended.0.as_fd()])?;
            was_asked |= self.signals.take();
            if has_ended {
                break;
            }
            ender.end();
        }
        self.ended.0.read_exact(&mut [0])?;
        match serving.join() {
            Ok(Ok(())) => Ok(was_asked),
            // The next guest may behave.
            Ok(Err(error @ spinney::virtiofs::Error::Connection(_))) => {
                output::warn(&error.to_string());
                Ok(was_asked)
            }
            Ok(Err(error)) => Err(error.into()),
            Err(_) => anyhow::bail!("the thread of the guest has failed"),
        }
    }
}
