//! Sends messages between the processes of a mount, over a socket that preserves their boundaries.
//!
//! A process gets its end as its standard input, so that nothing else is inherited. A process whose peer has ended
//! receives end of file. Callers: front part, supervisor and server,
//! and the attendant of a server.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use anyhow::{Context as _, Result, bail};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType,
};
use serde::{Deserialize, Serialize};

/// Bytes of the longest message.
const MESSAGE_BYTES_MAX: usize = 16 << 10;
/// Longest text of a reason that is passed on, in characters.
const TEXT_LEN_MAX: usize = 4 << 10;

/// A message. The sequence of a successful mount:
///
/// ```text
///  server                supervisor               front part
///    |  Opened ------------> |                        |
///    |  <----- Serve + fd    |                        |
///    |  Ready -------------> |  Ready --------------> |  ends: status 0
///    |  <-------------- Ping |                        |
///    |  Pong --------------> |                        |
///    |  WriteBack ---------> |                        |
///    |  <------- WrittenBack |                        |
///    |  <-------------- Stop |                        |
///    (gone)                  (gone)
/// ```
///
/// The server is not trusted: the supervisor accepts each of its messages only in the states where it is legal.
/// (`WriteBack` may come before `Ready`, when the mount already exists.)
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Message {
    /// The image is open and can be served.
    Opened {
        /// True if the image cannot be written.
        read_only: bool,
        /// True if the server has left the supervisor's mount namespace, so that it cannot be the process that ends its
        /// own mount.
        is_apart: bool,
    },
    /// Serve the connection that comes with this.
    Serve {
        /// Device number of the mount in the kernel, if it is known.
        device: Option<(u32, u32)>,
    },
    /// The mount is usable.
    Ready,
    /// The mount failed: the exit status, and the reason.
    Failed {
        /// The number of a `failure::Status`.
        status: u8,
        /// One line.
        text: String,
    },
    /// Asks for a [`Message::Pong`].
    Ping,
    /// The server runs.
    Pong {
        /// True unless a request has been pending since before the last `Ping`.
        gets_on: bool,
    },
    /// Asks the supervisor to have the kernel write the dirty pages of this mount; with a directory, also whether that
    /// is mounted read-only. The server must not do this on its own mount: killed meanwhile, it would wait for itself.
    WriteBack,
    /// The dirty pages are written, or the error number of the failure.
    WrittenBack {
        /// 0 on success.
        errno: i32,
        /// True if the directory is mounted read-only, or cannot be examined.
        read_only: bool,
        /// The thread that called `syncfs`; the server need not commit for its syncs. 0 for none.
        thread: u32,
    },
    /// Make everything durable and end.
    Stop,
    /// Asks the attendant of a server to connect to a remote device again: its place on the attendant's command line.
    Dial {
        /// From 0.
        device: usize,
    },
    /// The connection that comes with this.
    Dialed,
    /// The server got a signal that asks it to end.
    Signal,
}

/// One end of the socket.
#[derive(Debug)]
pub(crate) struct Channel(OwnedFd);

impl Channel {
    /// Two ends.
    pub(crate) fn pair() -> Result<(Self, Self)> {
        let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
        let (a, b) = rustix::net::socketpair(AddressFamily::UNIX, kind, flags, None)?;
        Ok((Self(a), Self(b)))
    }

    /// The end that this process was started with; the standard input is empty afterwards.
    pub(crate) fn inherited() -> Result<Self> {
        let stdin = std::io::stdin();
        rustix::net::sockopt::socket_type(&stdin)
            .context("this is for Spinney's own use: the standard input is no channel")?;
        let own = rustix::io::fcntl_dupfd_cloexec(&stdin, 3)?;
        let null = std::fs::File::open("/dev/null")?;
        rustix::stdio::dup2_stdin(&null)?;
        Ok(Self(own))
    }

    /// The end as the standard input of a process to be started.
    pub(crate) fn into_fd(self) -> OwnedFd {
        self.0
    }

    /// A second handle of this end.
    pub(crate) fn try_clone(&self) -> Result<Self> {
        Ok(Self(rustix::io::fcntl_dupfd_cloexec(&self.0, 3)?))
    }

    /// Sends a message, with a descriptor if it needs one.
    ///
    /// # Errors
    /// `EPIPE` if the peer has ended.
    pub(crate) fn send(&self, message: &Message, fd: Option<BorrowedFd<'_>>) -> Result<()> {
        let bytes = serde_json::to_vec(message)?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let fds: Vec<BorrowedFd<'_>> = fd.into_iter().collect();
        if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&fds)) {
            bail!("no room for a descriptor");
        }
        let parts = [IoSlice::new(&bytes)];
        let flags = SendFlags::NOSIGNAL;
        rustix::io::retry_on_intr(|| rustix::net::sendmsg(&self.0, &parts, &mut control, flags))?;
        Ok(())
    }

    /// Sends a failure and its reason.
    pub(crate) fn send_failure(&self, status: u8, text: &str) -> Result<()> {
        let text = text.chars().take(TEXT_LEN_MAX).collect();
        self.send(&Message::Failed { status, text }, None)
    }

    /// Waits for a message; `None` if the peer has ended.
    pub(crate) fn receive(&self) -> Result<Option<(Message, Option<OwnedFd>)>> {
        let mut bytes = vec![0; MESSAGE_BYTES_MAX];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC;
        let received = rustix::io::retry_on_intr(|| {
            let mut parts = [IoSliceMut::new(&mut bytes)];
            rustix::net::recvmsg(&self.0, &mut parts, &mut control, flags)
        });
        let count = match received {
            Ok(received) => received.bytes,
            Err(Errno::CONNRESET) => 0,
            Err(error) => return Err(error).context("the other process of the mount"),
        };
        let fd = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
            _ => None,
        });
        let bytes = bytes.get(..count).unwrap_or_default();
        match bytes {
            [] => Ok(None),
            _ => Ok(Some((serde_json::from_slice(bytes)?, fd))),
        }
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;

    #[test]
    fn messages_carry_descriptors_and_the_end_is_noticed() {
        let (a, b) = Channel::pair().unwrap();
        let mut file = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut file, b"through").unwrap();
        std::io::Seek::rewind(&mut file).unwrap();
        a.send(&Message::Ready, None).unwrap();
        let serve = Message::Serve { device: Some((0, 7)) };
        a.send(&serve, Some(file.as_fd())).unwrap();
        a.send_failure(3, &"long".repeat(10_000)).unwrap();
        a.send(&Message::Signal, None).unwrap();
        drop(a);
        assert_eq!(b.receive().unwrap().unwrap().0, Message::Ready);
        let (message, fd) = b.receive().unwrap().unwrap();
        assert_eq!(message, serve);
        let mut text = String::new();
        std::fs::File::from(fd.unwrap()).read_to_string(&mut text).unwrap();
        assert_eq!(text, "through");
        let failed = b.receive().unwrap().unwrap().0;
        assert!(matches!(failed, Message::Failed { status: 3, text } if text.len() == TEXT_LEN_MAX));
        assert_eq!(b.receive().unwrap().unwrap().0, Message::Signal);
        assert!(b.receive().unwrap().is_none());
        assert!(b.send(&Message::Ready, None).is_err());
    }
}
