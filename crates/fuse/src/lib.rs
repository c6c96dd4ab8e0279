//! A FUSE server for any file system: it speaks to the kernel, and to [`vfs::FileSystem`].
//!
//! The server knows the kernel's protocol and nothing of a format. A request comes from a
//! transport (the FUSE device; rings), is decoded by `protocol`, becomes one or two calls of the
//! file system in `session`, and its answer goes back where it came from.
//!
//! ```text
//!   mount ----> Connection ----> Server: workers, one background thread
//!                                  | transport       device, ring: bytes in, bytes out
//!                                  | session         the meaning of requests; Session: any other Channel
//!                                  v
//!                                vfs::FileSystem
//! ```
//!
//! Invariants
//! * A worker has buffers of its own, and no lock is shared by unrelated requests. Data of a write reaches the file
//!   system in the (page-aligned) buffer that the kernel filled; a read fills the buffer that the kernel empties.
//! * The kernel checks permissions (`default_permissions`), and keeps file locks.
//! * The server tells the kernel ([`Notifier`]) every change that the kernel did not request, so it may cache names and
//!   attributes without limit.
//!
//! Failure: any message of the kernel is answered, if need be with an error number; a lost connection ends the server,
//! which then makes everything durable. Callers: `spinney`, and the `mount` command of the program.

mod activity;
mod channel;
mod error;
mod mount;
mod notify;
mod protocol;
mod server;
mod session;
mod shutdown;
mod steps;
mod sys;
mod transport;

pub use activity::{Activity, Glance};
pub use channel::Channel;
pub use error::{Error, Limit, Result};
pub use mount::{MountOptions, abort, mount_helper, unmount};
pub use notify::Notifier;
pub use server::{Prepared, Server, ServerOptions, Transport, WriteBack, default_workers};
pub use session::{Session, SessionOptions, Sort};
pub use steps::Steps;
pub use sys::{
    ServedFile, ask_for_short_slices, check_written, control, data_runs, enter_namespaces, leave_mounts, node_of,
    passed_listeners, peer_groups, served_file, share_same, socket_number, stdout_was_closed, withhold_inherited,
};
pub use transport::connection::Connection;
