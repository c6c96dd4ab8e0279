//! What the server gives up before it looks at a byte of the image.
//!
//! An image may be hostile, and the code that reads it may have a bug. So the process that reads
//! it opens the image first, gives up everything that it will not need, and only then reads. From
//! then on it has the open image and the connection to the kernel, and can get nothing else.
//!
//! * A mount namespace of its own with nothing in it, for servers of root: [`spinney::fuse::leave_mounts`] says why.
//! * [`privileges`]: no capabilities, none to be gained, not even by running a program.
//! * [`files`]: Landlock: no file can be opened, made, changed or removed, no port used.
//! * [`syscalls`]: seccomp: of some 350 system calls about 70 are left, among them none that
//!   opens a file or a socket, runs a program, or looks at another process.
//! * [`probe`]: tries it out, for the tests.
//!
//! Invariant: entered while there is one thread, since two of the three bind a thread and those it
//! starts; [`enter`] fails otherwise. There is no way back.
//!
//! Failure: what this kernel lacks is left out and reported, so that old kernels can be used; what
//! it has and refuses ends the mount. Callers: the server, before the image is read, and the probe.

mod files;
mod privileges;
pub(crate) mod probe;
mod syscalls;

use std::path::Path;

use anyhow::{Context as _, Result, ensure};

/// What the kernel did not offer, one sentence each.
pub(crate) type Missing = Vec<&'static str>;

/// What the process has given up.
#[derive(Debug)]
pub(crate) struct Entered {
    /// What it could not.
    pub(crate) missing: Missing,
    /// It sees no mounts, and keeps none from ending.
    pub(crate) is_apart: bool,
}

/// Gives everything up. With `with_ring` the calls that a ring needs are left; `dir` is any directory.
///
/// # Errors
/// When there are several threads, or the kernel refuses what it offers.
pub(crate) fn enter(with_ring: bool, dir: &Path) -> Result<Entered> {
    // Without /proc nobody can tell; at this point of the program there is one thread.
    let threads = std::fs::read_dir("/proc/self/task").map_or(1, Iterator::count);
    ensure!(threads == 1, "the sandbox: {threads} threads run already");
    // Read from a file at the first use, which would be too late.
    let _ = (rustix::param::page_size(), rustix::param::clock_ticks_per_second());
    let mut missing = Missing::new();
    let is_apart = leave_mounts(dir);
    privileges::drop_all().context("the sandbox: capabilities")?;
    missing.extend(files::restrict().context("the sandbox: Landlock")?);
    missing.extend(syscalls::restrict(with_ring).context("the sandbox: seccomp")?);
    Ok(Entered { missing, is_apart })
}

/// Leaves the mount namespace of the parent process; false where that is not allowed.
pub(crate) fn leave_mounts(dir: &Path) -> bool {
    match spinney::fuse::leave_mounts(dir) {
        Ok(()) => true,
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => false,
        Err(error) => {
            tracing::warn!("the server keeps a view of the mounts of this machine: {error}");
            false
        }
    }
}
