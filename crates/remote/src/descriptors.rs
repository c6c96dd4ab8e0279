//! Sends and receives descriptors over a socket: of a client's root directory, and of files that a job needs. `wire`,
//! `client` and `serve` call it.

use std::io::{self, IoSlice, IoSliceMut, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
};

/// Flag of a write to a peer that may be gone: an error is wanted, no signal. Apple's systems have no such flag;
/// programs in Rust ignore the signal.
#[cfg(not(target_vendor = "apple"))]
const NO_SIGNAL: SendFlags = SendFlags::NOSIGNAL;
#[cfg(target_vendor = "apple")]
const NO_SIGNAL: SendFlags = SendFlags::empty();

/// Flag of a read that may bring a descriptor, which no program that is started gets. Apple's systems have no such
/// flag: the descriptor is marked afterwards.
#[cfg(not(target_vendor = "apple"))]
const CLOSE_ON_EXEC: RecvFlags = RecvFlags::CMSG_CLOEXEC;
#[cfg(target_vendor = "apple")]
const CLOSE_ON_EXEC: RecvFlags = RecvFlags::empty();

/// First bytes of a client. A descriptor of its root directory comes with them.
const HELLO: [u8; 8] = *b"spinney2";

/// Sends bytes with a descriptor.
pub(crate) fn send_with(stream: &UnixStream, bytes: &[u8], descriptor: BorrowedFd<'_>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = [descriptor];
    if !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let parts = [IoSlice::new(bytes)];
    let sent = rustix::io::retry_on_intr(|| rustix::net::sendmsg(stream.as_fd(), &parts, &mut control, NO_SIGNAL))?;
    (&*stream).write_all(bytes.get(sent..).unwrap_or_default())
}

/// Receives the first bytes of something, with the descriptor that may come with them.
pub(crate) fn receive_with(stream: &UnixStream, bytes: &mut [u8]) -> io::Result<Option<(usize, Option<OwnedFd>)>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = rustix::io::retry_on_intr(|| {
        let mut parts = [IoSliceMut::new(bytes)];
        rustix::net::recvmsg(stream.as_fd(), &mut parts, &mut control, CLOSE_ON_EXEC)
    });
    let count = match received {
        Ok(received) => received.bytes,
        Err(rustix::io::Errno::CONNRESET) => 0,
        Err(error) => return Err(error.into()),
    };
    let descriptor = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    #[cfg(target_vendor = "apple")]
    if let Some(descriptor) = &descriptor {
        rustix::io::fcntl_setfd(descriptor, rustix::io::FdFlags::CLOEXEC)?;
    }
    Ok((count > 0).then_some((count, descriptor)))
}

/// Sends a descriptor through the stream of a job ([`receive_descriptor`]).
///
/// # Errors
/// The stream's.
pub fn send_descriptor(stream: &UnixStream, descriptor: BorrowedFd<'_>) -> io::Result<()> {
    send_with(stream, &[0], descriptor)
}

/// Receives a descriptor through the stream of a job.
///
/// # Errors
/// `InvalidData` where none came; the stream's.
pub fn receive_descriptor(stream: &UnixStream) -> io::Result<OwnedFd> {
    let received = receive_with(stream, &mut [0])?;
    received.and_then(|(_, descriptor)| descriptor).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Sends the directory that is to be the root of this stream.
pub(crate) fn send_hello(stream: &UnixStream, root: BorrowedFd<'_>) -> io::Result<()> {
    send_with(stream, &HELLO, root)
}

/// Receives the directory that a client wants as its root.
///
/// # Errors
/// `InvalidData` for another program; the stream's.
pub fn receive_hello(stream: &UnixStream) -> io::Result<OwnedFd> {
    let mut bytes = [0; HELLO.len()];
    let Some((count, descriptor)) = receive_with(stream, &mut bytes)? else {
        return Err(io::ErrorKind::UnexpectedEof.into());
    };
    (&*stream).read_exact(bytes.get_mut(count..).unwrap_or_default())?;
    if bytes != HELLO {
        return Err(io::ErrorKind::InvalidData.into());
    }
    descriptor.ok_or_else(|| io::ErrorKind::InvalidData.into())
}
