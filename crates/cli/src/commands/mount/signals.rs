//! Turns signals that ask the process to end into a descriptor to wait for. Callers: the supervisor and the server
//! of a mount, and `serve`.

use std::io::Read as _;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use anyhow::Result;
use rustix::event::{PollFd, PollFlags, Timespec};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Notes SIGINT, SIGTERM and SIGHUP, which no longer end this process.
#[derive(Debug)]
pub(crate) struct Signals(UnixStream);

impl Signals {
    /// Starts noting.
    pub(crate) fn catch() -> Result<Self> {
        let (noted, note) = UnixStream::pair()?;
        noted.set_nonblocking(true)?;
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::low_level::pipe::register(signal, note.try_clone()?)?;
        }
        Ok(Self(noted))
    }

    /// True if a signal came since the last call.
    pub(crate) fn take(&mut self) -> bool {
        let mut bytes = [0; 64];
        matches!(self.0.read(&mut bytes), Ok(count) if count > 0)
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Waits until one of the descriptors is readable or its peer has ended.
pub(crate) fn wait<const N: usize>(fds: [BorrowedFd<'_>; N]) -> Result<[bool; N]> {
    wait_for(fds, None)
}

/// The same, with a time limit.
pub(super) fn wait_for<const N: usize>(fds: [BorrowedFd<'_>; N], time_max: Option<Duration>) -> Result<[bool; N]> {
    let mut polled = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
    // A millisecond more, so that the time has passed on return.
    let time_max = time_max.map(|time| Timespec::try_from(time + Duration::from_millis(1))).transpose()?;
    rustix::io::retry_on_intr(|| rustix::event::poll(&mut polled, time_max.as_ref()))?;
    Ok(polled.map(|fd| !fd.revents().is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_noted_once() {
        let mut signals = Signals::catch().unwrap();
        assert!(!signals.take());
        signal_hook::low_level::raise(SIGHUP).unwrap();
        assert_eq!(wait([signals.as_fd()]).unwrap(), [true]);
        assert!(signals.take());
        assert!(!signals.take());
    }
}
