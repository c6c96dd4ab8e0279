//! Runs one thread's loop of requests and replies on the FUSE device, and negotiates with the kernel in the first
//! request. `server` starts it.

use super::buffer::{ReplyBuffer, RequestBuffer};
use super::intake::{Intake, is_readable};
use super::seat::Seat;
use crate::activity::Pulse;
use crate::error::{Error, Result};
use crate::notify;
use crate::protocol::replies::OutHeader;
use crate::protocol::requests::{InHeader, InitIn};
use crate::protocol::{Agreement, OwnedRequest, Request, Wish, opcode};
use crate::session::{Answer, Apart, BegunSync, MEANWHILE_MAX, Service};
use crate::sys;
use rustix::fs::OFlags;
use rustix::io::Errno as IoErrno;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};
use vfs::Errno;
use zerocopy::IntoBytes;

/// Least size of a request buffer: names and values of any kind fit.
const DATA_BYTES_MIN: usize = 128 * 1024;

/// Pause after a read of the device that failed for an unknown reason.
const RETRY_WAIT: Duration = Duration::from_millis(50);

/// Most syncs that are deferred at a time.
const BEGUN_MAX: usize = 16;

/// A channel with the buffers for it.
pub(crate) struct Worker {
    channel: Arc<OwnedFd>,
    /// No other worker reads from the channel.
    is_alone: bool,
    /// True if reads of the channel block.
    is_blocking: bool,
    service: Arc<Service>,
    /// The processor of the near thread, if this is its worker.
    seat: Option<Seat>,
    /// It has answered a sender that waits for that, and not looked for a request since.
    has_replied: bool,
    /// Requests in a row that the near thread took while another one waited.
    behind: u32,
    request: RequestBuffer,
    reply: ReplyBuffer,
    /// Counts the beginnings and ends of requests.
    pulse: Pulse,
    /// Deferred syncs, while the channel does not block; by request.
    begun: Vec<(u64, BegunSync)>,
}

/// Result of reading the device.
enum Received {
    /// A request of this many bytes.
    Request(usize),
    /// Nothing; try again.
    Nothing,
    /// An error that says nothing about the mount; try again a little later.
    Failed(IoErrno),
    /// The mount is gone.
    End,
}

impl Worker {
    /// A worker that answers for `service` on `channel`, with requests of up to `request_bytes_max` bytes of data.
    /// `is_alone` if no other worker has the same channel.
    pub(crate) fn new(
        channel: Arc<OwnedFd>,
        is_alone: bool,
        service: Arc<Service>,
        pulse: Pulse,
        request_bytes_max: usize,
    ) -> Result<Self> {
        let data_bytes = request_bytes_max.max(DATA_BYTES_MIN);
        let no_memory = || Error::Device(std::io::ErrorKind::OutOfMemory.into());
        Ok(Self {
            channel,
            is_alone,
            is_blocking: true,
            service,
            seat: None,
            has_replied: false,
            behind: 0,
            request: RequestBuffer::new(data_bytes).ok_or_else(no_memory)?,
            reply: ReplyBuffer::new(data_bytes).ok_or_else(no_memory)?,
            pulse,
            begun: Vec::new(),
        })
    }

    /// Makes this the worker of the near thread, which calls it; false if that cannot be.
    pub(crate) fn become_near(&mut self) -> bool {
        self.seat = match sys::only_when_idle() {
            Ok(()) => Seat::new(),
            Err(error) => {
                tracing::debug!(%error, "no near thread");
                None
            }
        };
        self.seat.is_some() && self.set_blocking(false)
    }

    /// Answers requests until the mount is gone; all workers of a mount share one `intake`.
    pub(crate) fn run(&mut self, intake: &Intake) {
        let mut meanwhile = 0;
        loop {
            match self.next(intake) {
                Received::Request(len) => {
                    self.pulse.set_busy(true);
                    self.answer(len, intake);
                    meanwhile += 1;
                }
                Received::Nothing => meanwhile = MEANWHILE_MAX,
                Received::Failed(_) => {
                    self.service.pause(RETRY_WAIT);
                    meanwhile = MEANWHILE_MAX;
                }
                Received::End => {
                    self.end_syncs();
                    intake.end();
                    return;
                }
            }
            if self.begun.is_empty() {
                meanwhile = 0;
            } else if meanwhile >= MEANWHILE_MAX || self.begun.len() >= BEGUN_MAX {
                self.end_syncs();
                meanwhile = 0;
            }
            if self.begun.is_empty() {
                self.pulse.set_busy(false);
            }
        }
    }

    /// The next request; while syncs are deferred, only one that is waiting.
    fn next(&mut self, intake: &Intake) -> Received {
        if !self.begun.is_empty() {
            return receive(&self.channel, &mut self.request);
        }
        if self.seat.is_some() {
            return self.next_near(intake);
        }
        if intake.is_near() && self.set_blocking(false) {
            let received = receive(&self.channel, &mut self.request);
            match received {
                Received::Request(_) => intake.took(0),
                Received::Nothing => intake.stand_by(self.channel.as_fd()),
                Received::Failed(_) | Received::End => {}
            }
            return received;
        }
        self.set_blocking(true);
        let received = receive(&self.channel, &mut self.request);
        intake.took_far();
        received
    }

    /// The next request for the near thread, which waits until it is its turn.
    fn next_near(&mut self, intake: &Intake) -> Received {
        let Some(seat) = &mut self.seat else { return Received::Nothing };
        if !intake.is_near() {
            if !intake.wait_for_turn() {
                return Received::End;
            }
            seat.take();
            self.has_replied = false;
        }
        let received = receive(&self.channel, &mut self.request);
        if std::mem::take(&mut self.has_replied) {
            seat.judge(matches!(received, Received::Request(_)));
        }
        match received {
            Received::Request(_) => {
                self.behind = if is_readable(self.channel.as_fd()) { self.behind + 1 } else { 0 };
                intake.took(self.behind);
            }
            Received::Nothing => intake.wait_near(self.channel.as_fd()),
            Received::Failed(_) | Received::End => {}
        }
        received
    }

    fn answer(&mut self, len: usize, intake: &Intake) {
        let bytes = self.request.whole().get(..len).unwrap_or_default();
        let Some(header) = Request::header(bytes) else {
            tracing::warn!(len, "a request without header");
            return;
        };
        let began = self.seat.as_ref().map(|_| Instant::now());
        self.has_replied = !opcode::is_unawaited(header.opcode);
        let answer = match Request::parse(header, bytes) {
            Ok(request) => self.service.serve(&request, self.reply.data_mut()),
            Err(_) if opcode::is_forget(header.opcode) => Answer::Silent,
            Err(error) => Answer::Failed(error),
        };
        // Not after the reply, which lets the asker run in place of this thread.
        if let Some(began) = began {
            intake.served(began.elapsed());
        }
        match answer {
            Answer::Silent => {}
            Answer::Apart(request) => {
                self.end_syncs();
                self.answer_apart(header.unique, request);
            }
            Answer::Done(len) => send(&self.channel, &mut self.reply, header.unique, Ok(len)),
            Answer::Failed(error) => {
                send(&self.channel, &mut self.reply, header.unique, Err(error));
            }
            Answer::Begun(begun) => {
                // Waiting requests may be syncs too. After them the deferred syncs end: waiting longer would mean
                // waiting for callers of these syncs.
                self.begun.push((header.unique, begun));
                if self.begun.len() == 1 && !self.set_blocking(false) {
                    self.end_syncs();
                }
            }
            Answer::DoneStale(len, stale) => {
                // A syncing thread may hold the lock that the kernel waits for.
                if !self.begun.is_empty() {
                    self.end_syncs();
                }
                // First, so that the receiver of the reply finds the new attributes.
                notify::send_stale(&self.channel, stale);
                send(&self.channel, &mut self.reply, header.unique, Ok(len));
            }
        }
        if let Some(nodes) = self.service.take_stale_nodes() {
            notify::send_stale_attributes(&self.channel, nodes);
        }
    }

    /// Has a request answered on a thread of its own.
    fn answer_apart(&mut self, unique: u64, request: OwnedRequest) {
        let (channel, service) = (Arc::clone(&self.channel), Arc::clone(&self.service));
        let answer = move || {
            let Apart { reply, stale } = service.serve_with_data(&request);
            if let Some(stale) = stale {
                notify::send_stale(&channel, stale);
            }
            let len = reply.as_ref().map(Vec::len).map_err(|error| *error);
            let Some(mut buffer) = ReplyBuffer::new(len.unwrap_or(0)) else { return };
            if let (Ok(bytes), Some(data)) = (&reply, buffer.data_mut().get_mut(..len.unwrap_or(0))) {
                data.copy_from_slice(bytes);
            }
            send(&channel, &mut buffer, unique, len);
        };
        if let Err(error) = std::thread::Builder::new().name("fuse-apart".to_owned()).spawn(answer) {
            tracing::warn!(%error, "a request that needs a thread of its own");
            send(&self.channel, &mut self.reply, unique, Err(Errno::EAGAIN));
        }
    }

    /// Ends all deferred syncs, and answers them.
    fn end_syncs(&mut self) {
        for (unique, begun) in std::mem::take(&mut self.begun) {
            let ended = self.service.end_sync(&begun);
            send(&self.channel, &mut self.reply, unique, ended);
        }
    }

    /// Sets whether reads of the channel block; false if that cannot be chosen.
    fn set_blocking(&mut self, is_blocking: bool) -> bool {
        if self.is_blocking != is_blocking {
            let flags = if is_blocking { OFlags::RDWR } else { OFlags::RDWR | OFlags::NONBLOCK };
            if !self.is_alone || rustix::fs::fcntl_setfl(&self.channel, flags).is_err() {
                return false;
            }
            self.is_blocking = is_blocking;
        }
        true
    }
}

/// Answers the first request of a mount, after which it is usable.
pub(crate) fn initialize(channel: &OwnedFd, wish: &Wish) -> Result<Agreement> {
    let no_memory = || Error::Device(std::io::ErrorKind::OutOfMemory.into());
    let mut request = RequestBuffer::new(DATA_BYTES_MIN).ok_or_else(no_memory)?;
    let mut reply = ReplyBuffer::new(size_of::<OutHeader>()).ok_or_else(no_memory)?;
    loop {
        let len = match receive(channel, &mut request) {
            Received::Request(len) => len,
            Received::Nothing => continue,
            Received::Failed(error) => return Err(Error::Device(error.into())),
            Received::End => return Err(Error::Device(IoErrno::NODEV.into())),
        };
        let bytes = request.whole().get(..len).unwrap_or_default();
        let Some(header) = Request::header(bytes) else {
            continue;
        };
        if header.opcode != opcode::INIT {
            send(channel, &mut reply, header.unique, Err(Errno::EIO));
            continue;
        }
        let body = bytes.get(size_of::<InHeader>()..).unwrap_or_default();
        let (len, agreement) = match wish.answer_into(body, reply.data_mut()) {
            Ok(agreed) => agreed,
            Err(InitIn { major, minor, .. }) => {
                send(channel, &mut reply, header.unique, Err(Errno::EIO));
                return Err(Error::Protocol { major, minor });
            }
        };
        send(channel, &mut reply, header.unique, Ok(len));
        return Ok(agreement);
    }
}

fn receive(channel: &OwnedFd, buffer: &mut RequestBuffer) -> Received {
    match rustix::io::read(channel, buffer.whole_mut()) {
        Ok(0) => Received::End,
        Ok(len) => Received::Request(len),
        // A signal; a request that was cancelled; a request that another worker took.
        Err(IoErrno::INTR | IoErrno::NOENT | IoErrno::AGAIN) => Received::Nothing,
        Err(IoErrno::NODEV | IoErrno::CONNABORTED | IoErrno::BADF) => Received::End,
        // The mount still exists, with waiting programs: memory may be short for a moment. A worker that ended here was
        // missing from then on, and a server ended silently once all its workers had met such an error.
        Err(error) => {
            tracing::error!(%error, "reading the FUSE device; trying again");
            Received::Failed(error)
        }
    }
}

/// Sends the data of `reply`, or an error.
fn send(channel: &OwnedFd, reply: &mut ReplyBuffer, unique: u64, result: std::result::Result<usize, Errno>) {
    match write(channel, reply, unique, result) {
        Ok(()) | Err(IoErrno::NOENT | IoErrno::NODEV | IoErrno::CONNABORTED) => {}
        Err(error) => {
            tracing::warn!(%error, unique, ?result, "the kernel did not take a reply");
            if write(channel, reply, unique, Err(Errno::EIO)).is_err() {
                tracing::debug!(unique, "nor that it failed");
            }
        }
    }
}

fn write(
    channel: &OwnedFd,
    reply: &mut ReplyBuffer,
    unique: u64,
    result: std::result::Result<usize, Errno>,
) -> rustix::io::Result<()> {
    let header = OutHeader::new(unique, result);
    let len = usize::try_from(header.len).map_err(|_| IoErrno::INVAL)?;
    let bytes = reply.whole_mut().get_mut(..len).ok_or(IoErrno::INVAL)?;
    header.write_to_prefix(bytes).map_err(|_| IoErrno::INVAL)?;
    rustix::io::retry_on_intr(|| rustix::io::write(channel, bytes)).map(|_| ())
}
