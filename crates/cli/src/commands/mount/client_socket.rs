//! Accepts clients of a server besides the kernel, at a socket: commands of this program on a directory of the mount.
//!
//! The socket has an abstract name, a number drawn for each mount, which the server tells to programs that have a
//! directory of the mount open. A client sends a descriptor of such a directory, which the kernel has let it open; its
//! paths begin there, and [`Permitted`] applies the permissions of its user.
//!
//! The socket is made before the server enters its sandbox, which lets it accept clients, ask for their user, and
//! identify the directory of a descriptor. Caller: the server.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use rustix::fs::{AtFlags, StatxFlags};
use spinney::access::{Permitted, User};
use spinney::fuse::Notifier;
use spinney::remote::{Host, Jobs, Watch};
use spinney::vfs::{FileSystem, NodeId};

use crate::commands::socket::address;

/// Pause after an error of the system that may pass, such as a lack of descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// The socket, not yet listened on.
pub(super) struct Door {
    listener: UnixListener,
    number: [u64; 2],
}

/// Has the kernel write its dirty pages, and returns whether a directory of the mount is mounted read-only.
pub(super) type Look = Arc<dyn Fn(BorrowedFd<'_>) -> io::Result<bool> + Send + Sync>;

/// The file system and the rules for clients.
pub(super) struct Behind {
    /// The served file system; gone when the mount ends.
    pub(super) file_system: Weak<dyn FileSystem>,
    /// True if users other than the server's may connect.
    pub(super) allow_other: bool,
    /// Tells the kernel about changes by clients.
    pub(super) notifier: Notifier,
    /// Called for each new client.
    pub(super) look: Look,
    /// Device number of the mount in the kernel.
    pub(super) device: (u32, u32),
}

impl Door {
    /// Makes the socket.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn make() -> Result<Self> {
        let number = uuid::Uuid::new_v4().as_u64_pair();
        let number = [number.0, number.1];
        let listener = UnixListener::bind_addr(&address(number)?).context("a socket for commands")?;
        Ok(Self { listener, number })
    }

    /// The number that clients are told.
    pub(super) const fn number(&self) -> [u64; 2] {
        self.number
    }

    /// Accepts clients from now on, on a thread of its own.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn open(self, behind: Behind, jobs: Option<Arc<dyn Jobs>>) -> Result<Arc<Host>> {
        let host = Host::new(Arc::new(Kernel(behind.notifier.clone())), jobs);
        let own = Arc::clone(&host);
        let wait = move || {
            loop {
                match self.listener.accept() {
                    Ok((stream, _)) => {
                        let (own, behind) = (Arc::clone(&own), behind.share());
                        // Each client has a thread, so that a silent one delays no other.
                        let greet = move || {
                            if let Err(error) = behind.greet(stream, &own) {
                                tracing::debug!("a client was not taken: {error:#}");
                            }
                        };
                        let greeter = thread::Builder::new().name("greet".to_owned()).spawn(greet);
                        greeter.map(drop).unwrap_or_else(|error| tracing::warn!(%error, "a client was not taken"));
                    }
                    Err(error) => {
                        tracing::debug!(%error, "cannot accept clients");
                        thread::sleep(PAUSE);
                    }
                }
            }
        };
        thread::Builder::new().name("door".to_owned()).spawn(wait).context("the thread for clients")?;
        Ok(host)
    }
}

impl Behind {
    fn share(&self) -> Self {
        Self {
            file_system: Weak::clone(&self.file_system),
            allow_other: self.allow_other,
            notifier: self.notifier.clone(),
            look: Arc::clone(&self.look),
            device: self.device,
        }
    }

    /// Identifies a client and its directory, and serves it.
    fn greet(self, stream: UnixStream, host: &Arc<Host>) -> Result<()> {
        let peer = rustix::net::sockopt::socket_peercred(&stream).context("its user")?;
        let groups = spinney::fuse::peer_groups(stream.as_fd()).context("its groups")?;
        let uid = peer.uid.as_raw();
        let serves = uid == rustix::process::geteuid().as_raw();
        // The descriptor may have been passed on by a user with access to one without.
        anyhow::ensure!(serves || self.allow_other, "the mount is for its owner alone");
        let user = User { uid, gid: peer.gid.as_raw(), groups, serves };
        // It counts as a client until its descriptor is closed, which takes long if that is on a slow file system.
        let (node, is_read_only) = host.greeting(&stream, uid, || {
            let dir = spinney::remote::receive_hello(&stream).context("its greeting")?;
            let node = self.begin(&dir)?;
            let is_read_only = (self.look)(dir.as_fd()).context("how its directory is mounted")?;
            anyhow::Ok((node, is_read_only))
        })?;
        let file_system = self.file_system.upgrade().context("the mount ends")?;
        Ok(host.serve(stream, Permitted::new(file_system, user, node, is_read_only), uid)?)
    }

    /// The node of the directory that a client has open, found without a request to this server.
    fn begin(&self, dir: &OwnedFd) -> Result<NodeId> {
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let found = rustix::fs::statx(dir, "", flags, StatxFlags::TYPE).context("its directory")?;
        let device = (found.stx_dev_major, found.stx_dev_minor);
        anyhow::ensure!(device == self.device, "its directory is of another file system");
        spinney::fuse::node_of(dir.as_fd()).context("the node of its directory")
    }
}

/// Tells the kernel about changes by clients.
struct Kernel(Notifier);

impl Watch for Kernel {
    fn name(&self, parent: NodeId, name: &[u8]) {
        self.0.name(parent, name);
    }

    fn attributes(&self, node: NodeId) {
        self.0.attributes(node);
    }

    fn contents(&self, node: NodeId) {
        self.0.contents(node);
    }
}
