//! Mounting and unmounting with `fusermount3`, for those who may not themselves.

use super::MountOptions;
use crate::error::{Error, Result};
use rustix::net::{AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType};
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Stdio};

const PROGRAM: &str = "fusermount3";

pub(super) fn mount(dir: &Path, options: &MountOptions) -> Result<OwnedFd> {
    let (ours, theirs) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
        .map_err(|error| Error::Helper(error.into()))?;
    // The socket is its standard input: a descriptor that is inherited without ever being
    // inheritable in this process, where other threads may start programs too.
    let helper = Command::new(PROGRAM)
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
        _ => Err(refusal(&output.stderr)),
    }
}

pub(super) fn unmount(dir: &Path, lazy: bool) -> Result<()> {
    let mut command = Command::new(PROGRAM);
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
    Error::HelperRefused(text)
}
