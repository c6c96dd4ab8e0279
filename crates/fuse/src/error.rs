//! What can go wrong outside of requests.

use std::io;
use std::path::PathBuf;
use vfs::Errno;

/// Result of what a front end asks.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a mount could not be made, served or ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The caller's path cannot be mounted on.
    #[error("{path}: {source}", path = .path.display())]
    MountPoint {
        /// The path.
        path: PathBuf,
        /// What the system says of it.
        source: io::Error,
    },
    /// The caller's options cannot be passed on.
    #[error("a mount option holds a zero byte")]
    Option,
    /// The system refused to mount.
    #[error("cannot mount on {path}: {source}", path = .path.display())]
    Mount {
        /// Where to.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The system refused to unmount.
    #[error("cannot unmount {path}: {source}", path = .path.display())]
    Unmount {
        /// What.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The program that mounts for unprivileged users cannot be run.
    #[error("cannot run fusermount3: {0}")]
    Helper(io::Error),
    /// The program that mounts for unprivileged users refused.
    #[error("{0}")]
    HelperRefused(String),
    /// The FUSE device cannot be used.
    #[error("/dev/fuse: {0}")]
    Device(io::Error),
    /// The kernel speaks a protocol that is too old, or none.
    #[error("the kernel speaks FUSE {major}.{minor}, which is not supported")]
    Protocol {
        /// Major version, 0 when the kernel said something else.
        major: u32,
        /// Minor version.
        minor: u32,
    },
    /// A thread cannot be started.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
    /// A worker ended for a reason of its own.
    #[error("a worker of the server ended unexpectedly")]
    Worker,
    /// The file system could not make everything durable in the end.
    #[error("not everything could be written: {0}")]
    FinalSync(Errno),
}
