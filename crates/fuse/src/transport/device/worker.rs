//! One thread's loop of requests and replies.

use super::buffer::{ReplyBuffer, RequestBuffer};
use super::pace::{Pace, Poller};
use crate::activity::Pulse;
use crate::error::{Error, Result};
use crate::notify;
use crate::protocol::replies::OutHeader;
use crate::protocol::requests::{InHeader, InitIn};
use crate::protocol::{Agreement, OwnedRequest, Request, Wish, opcode};
use crate::session::{Answer, Apart, BegunSync, MEANWHILE_MAX, Service};
use rustix::fs::OFlags;
use rustix::io::Errno as IoErrno;
use std::os::fd::OwnedFd;
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
    /// The last request came so soon that polling for the next one pays.
    is_fast: bool,
    /// Number of requests in a row that were waiting.
    at_once: u32,
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
            is_fast: false,
            at_once: 0,
            request: RequestBuffer::new(data_bytes).ok_or_else(no_memory)?,
            reply: ReplyBuffer::new(data_bytes).ok_or_else(no_memory)?,
            pulse,
            begun: Vec::new(),
        })
    }

    /// Answers requests until the mount is gone; all workers of a mount share one `pace`.
    pub(crate) fn run(&mut self, pace: &Pace) {
        let mut meanwhile = 0;
        loop {
            match self.next(pace) {
                Received::Request(len) => {
                    self.pulse.set_busy(true);
                    self.answer(len);
                    meanwhile += 1;
                }
                Received::Nothing => meanwhile = MEANWHILE_MAX,
                Received::Failed(_) => {
                    self.service.pause(RETRY_WAIT);
                    meanwhile = MEANWHILE_MAX;
                }
                Received::End => {
                    self.end_syncs();
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
    fn next(&mut self, pace: &Pace) -> Received {
        if !self.begun.is_empty() {
            return receive(&self.channel, &mut self.request);
        }
        if self.is_fast
            && self.set_blocking(false)
            && let Some(received) = self.poll(pace)
        {
            return received;
        }
        self.set_blocking(true);
        let began = Instant::now();
        let received = receive(&self.channel, &mut self.request);
        self.is_fast = pace.is_fast(began.elapsed());
        received
    }

    /// Polls for a request for a limited time; or waits while another worker does that.
    fn poll(&mut self, pace: &Pace) -> Option<Received> {
        match receive(&self.channel, &mut self.request) {
            Received::Nothing => self.at_once = 0,
            received => {
                self.at_once = self.at_once.saturating_add(1);
                pace.took(self.at_once);
                return Some(received);
            }
        }
        let mut turn = match pace.turn(Instant::now()) {
            Poller::Me(turn) => turn,
            Poller::Another => {
                pace.stand_by();
                return Some(Received::Nothing);
            }
            Poller::Paused => return None,
        };
        loop {
            match receive(&self.channel, &mut self.request) {
                Received::Nothing => rustix::thread::sched_yield(),
                received => {
                    turn.found();
                    pace.took(0);
                    return Some(received);
                }
            }
            if !turn.goes_on(Instant::now()) {
                return None;
            }
        }
    }

    fn answer(&mut self, len: usize) {
        let bytes = self.request.whole().get(..len).unwrap_or_default();
        let Some(header) = Request::header(bytes) else {
            tracing::warn!(len, "a request without header");
            return;
        };
        let answer = match Request::parse(header, bytes) {
            Ok(request) => self.service.serve(&request, self.reply.data_mut()),
            Err(_) if opcode::is_forget(header.opcode) => Answer::Silent,
            Err(error) => Answer::Failed(error),
        };
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
