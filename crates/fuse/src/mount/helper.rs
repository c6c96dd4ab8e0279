//! Mounts and unmounts with `fusermount3`, for unprivileged users. Called by `mount`.

use super::MountOptions;
use crate::error::{Error, Limit, Result};
use rustix::fs::{Access, Mode, OFlags};
use rustix::net::{AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType};
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const PROGRAM: &str = "fusermount3";
/// The search path if `PATH` is not set.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";
/// Length of the user ID map of the initial user namespace.
const WHOLE_USERS: &str = "4294967295";

pub(super) fn mount(dir: &Path, options: &MountOptions) -> Result<OwnedFd> {
    let (ours, theirs) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
        .map_err(|error| Error::Helper(error.into()))?;
    // The socket is the standard input of `fusermount3`: so it is inherited without ever being inheritable in this
    // process, where other threads may start programs too.
    let helper = Command::new(mount_helper()?)
        .arg0(PROGRAM)
        .arg("-o")
        .arg(options.helper_text())
        .arg("--")
        .arg(dir)
        .env("_FUSE_COMMFD", "0")
        .stdin(Stdio::from(theirs))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(Error::Helper)?;
    let device = receive(&ours).map_err(|error| Error::Helper(error.into()))?;
    let output = helper.wait_with_output().map_err(Error::Helper)?;
    match device {
        Some(device) if output.status.success() => Ok(device),
        _ => Err(refused_mount(refusal(&output.stderr))),
    }
}

pub(super) fn unmount(dir: &Path, lazy: bool) -> Result<()> {
    let mut command = Command::new(mount_helper()?);
    command.arg0(PROGRAM);
    command.arg("-u");
    if lazy {
        command.arg("-z");
    }
    let output = command.arg("--").arg(dir).stdin(Stdio::null()).output().map_err(Error::Helper)?;
    if output.status.success() { Ok(()) } else { Err(refusal(&output.stderr)) }
}

/// The descriptor that comes over the socket; `None` when it is closed without one.
fn receive(socket: &OwnedFd) -> rustix::io::Result<Option<OwnedFd>> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    rustix::io::retry_on_intr(|| {
        rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)
    })?;
    Ok(control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    }))
}

fn refusal(stderr: &[u8]) -> Error {
    let text = String::from_utf8_lossy(stderr).trim().to_owned();
    if text.is_empty() {
        return Error::Helper(io::Error::other("it failed without saying why"));
    }
    Error::HelperRefused { text, advice: Limit::Unknown }
}

/// The program, in the directories of `PATH` that this user may search. `execvp(3)` would say "permission denied" if
/// one directory cannot be searched and no other has the program.
///
/// # Errors
/// [`Error::HelperMissing`].
pub fn mount_helper() -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_else(|| DEFAULT_PATH.into());
    let mut unreadable = Vec::new();
    for dir in std::env::split_paths(&path) {
        let program = dir.join(PROGRAM);
        match rustix::fs::access(&program, Access::EXEC_OK) {
            Ok(()) => return Ok(program),
            Err(rustix::io::Errno::ACCESS) if !program.exists() => unreadable.push(dir),
            Err(_) => {}
        }
    }
    Err(Error::HelperMissing { unreadable })
}

/// The refusal of a mount, with the reason if this process can detect it.
fn refused_mount(refusal: Error) -> Error {
    let Error::HelperRefused { text, .. } = refusal else { return refusal };
    // `fusermount3` opens /dev/fuse with the permissions of this user.
    if let Err(error) = rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) {
        return Error::NoDevice { source: error.into() };
    }
    Error::HelperRefused { advice: limit(&text), text }
}

fn limit(text: &str) -> Limit {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let has_line = |text: String, wanted: [&str; 2]| text.lines().any(|line| line.split_whitespace().eq(wanted));
    if has_line(read("/proc/self/status"), ["NoNewPrivs:", "1"]) {
        return Limit::NoNewPrivileges;
    }
    let map = read("/proc/self/uid_map");
    if !map.split_whitespace().eq(["0", "0", WHOLE_USERS]) {
        return Limit::UserNamespace;
    }
    if rustix::process::geteuid().is_root() {
        return Limit::NoCapability;
    }
    // The kernel returns EPERM to a process that may not mount.
    if text.contains("ermission denied") && read("/sys/module/apparmor/parameters/enabled").trim() == "Y" {
        return Limit::SecurityModule;
    }
    Limit::Unknown
}
