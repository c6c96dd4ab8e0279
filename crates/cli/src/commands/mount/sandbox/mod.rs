//! Enters the restrictions of the server of a mount, before it reads a byte of the image.
//!
//! An image may be hostile, and the code that reads it may have a bug. So the reading process opens the image first,
//! gives up all rights that it will not need, and only then reads. From then on it has the open image and the
//! connection to the kernel, and can get nothing else.
//!
//! * A mount namespace of its own with nothing in it, for servers of root: [`spinney::fuse::leave_mounts`] says why.
//! * [`privileges`]: no capabilities, and none to be gained by running a program.
//! * [`files`]: Landlock: no file can be opened, made, changed or removed, no port used.
//! * [`syscalls`]: seccomp: about 70 of some 350 system calls are left, none of which opens a file or a socket, runs a
//!   program, or examines another process.
//! * [`probe`]: tests it from inside.
//!
//! Invariant: entered while there is one thread, since two of the three apply to a thread and those it starts;
//! [`enter`] fails otherwise. There is no way back.
//!
//! Failure: features that the kernel lacks are left out and reported, so that old kernels can be used; a refusal by a
//! kernel that has the feature ends the mount. Callers: the server, before the image is read, and the probe.

mod files;
mod privileges;
pub(crate) mod probe;
mod syscalls;

use std::path::Path;

use anyhow::{Context as _, Result, ensure};

/// Features that the kernel lacks, one sentence each.
pub(crate) type Missing = Vec<&'static str>;

/// The result of [`enter`].
#[derive(Debug)]
pub(crate) struct Entered {
    /// Restrictions that the kernel lacks.
    pub(crate) missing: Missing,
    /// True if the process has a mount namespace of its own, and keeps no mount busy.
    pub(crate) is_apart: bool,
}

/// Enters all restrictions. With `with_ring` the system calls of a ring are left; `dir` is any directory.
///
/// # Errors
/// If there are several threads, or the kernel refuses a feature that it has.
pub(crate) fn enter(with_ring: bool, dir: &Path) -> Result<Entered> {
    // Without /proc the count is unknown; at this point the program has one thread.
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

/// Leaves the mount namespace of the parent process; false if that is not permitted.
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
