//! What the processes of a mount tell each other, over a socket that keeps messages apart.
//!
//! A process gets its end as its standard input, so that nothing else is inherited. The other
//! side is gone when nothing can be received any more; that is how a death is noticed.

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
/// Characters of a reason that are passed on.
const TEXT_LEN_MAX: usize = 4 << 10;

/// What is told. In the order of a mount that works:
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
/// The server is not trusted: the supervisor takes each of its messages in its states only. (`WriteBack` may come
/// before `Ready`: the kernel's mount is there by then.)
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Message {
    /// The image is open and was found to be sound enough.
    Opened {
        /// Nothing can be written to it.
        read_only: bool,
        /// The server has left the mounts of the supervisor, so that it cannot be the one who ends them.
        is_apart: bool,
    },
    /// Answer the requests of the connection that comes with this.
    Serve {
        /// The number of the device that the mount is for the kernel, where that is known.
        device: Option<(u32, u32)>,
    },
    /// The mount is usable.
    Ready,
    /// It will not be: the exit status, and why.
    Failed {
        /// As `failure::Status` has it.
        status: u8,
        /// One line.
        text: String,
    },
    /// Do you get on?
    Ping,
    /// The server runs; whether its requests end, too.
    Pong {
        /// No request has been under way since the last `Ping`.
        gets_on: bool,
    },
    /// Have the kernel write what it keeps of this mount. With a directory of it: how is that mounted? The server must
    /// not ask such things of its own mount: were it killed then, it would wait for itself.
    WriteBack,
    /// It has been written, or why not: an error number of the system.
    WrittenBack {
        /// 0 where all went well.
        errno: i32,
        /// The directory that came with the question is mounted for reading only, or cannot be looked at.
        read_only: bool,
        /// The thread that had the kernel write. When the kernel asks for it that everything be made durable, nobody
        /// wants that. 0 where there is none.
        thread: u32,
    },
    /// Make everything durable and end.
    Stop,
    /// The server got a signal that asks for the end.
    Signal,
}

/// One end.
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

    /// For the standard input of a process to be started.
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
    /// `EPIPE` when the other side is gone.
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

    /// Says that and why it did not work.
    pub(crate) fn send_failure(&self, status: u8, text: &str) -> Result<()> {
        let text = text.chars().take(TEXT_LEN_MAX).collect();
        self.send(&Message::Failed { status, text }, None)
    }

    /// Waits for a message. `None` when the other side is gone.
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
