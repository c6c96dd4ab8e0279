//! One connection in transmission: requests under way, and their replies.
//!
//! ```text
//!   begin --> under way --> answered --> taken by wait
//!                 |-> abandoned: the reply is received and dropped
//!   a lost connection answers all that is under way with `Lost`
//! ```
//!
//! Of the threads that wait, one receives replies for all (`is_receiving`); when it has its own, it wakes another. A
//! sender whose socket is full receives meanwhile, so that the server, which may wait for its replies to be taken, goes
//! on. Called by `connections`.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::Arc;
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::handshake::{Agreed, malformed};
use crate::inbox::Inbox;
use crate::number::{to_u64, to_usize};
use crate::stream::{Ready, Stream};
use crate::wire::{
    BlockExtent, Chunk, ChunkHeader, Command, Malformed, ReplyHeader, Request, SIMPLE_BYTES, STRING_BYTES_MAX,
};

/// Bytes received together.
const INBOX_BYTES: usize = 64 << 10;
/// Data chunks of a reply: one for so many bytes, and a few more.
const CHUNK_BYTES_MIN: usize = 512;
/// Bytes of the longest chunk without data: the extents of a reply.
const PLAIN_BYTES_MAX: u32 = 1 << 20;
/// Time that a server gets to answer what is under way when the device is closed.
const DISCONNECT_MAX: Duration = Duration::from_secs(5);
/// Replies that are received before a write is sent.
const LOOKS_MAX: usize = 64;
/// Pause of a sender while another thread receives.
const SENDER_PAUSE: Duration = Duration::from_millis(2);

/// A connection.
pub(super) struct Link {
    stream: Stream,
    agreed: Agreed,
    time_max: Duration,
    sending: Mutex<()>,
    inbox: Mutex<Inbox>,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    next_cookie: u64,
    requests: HashMap<u64, Underway>,
    /// A thread receives.
    is_receiving: bool,
    lost: Option<Lost>,
}

/// A request under way.
struct Underway {
    expected: Expected,
    offset: u64,
    /// Chunks of data: first byte in the request, and the byte behind.
    chunks: BTreeMap<usize, usize>,
    error: Option<Refusal>,
    is_answered: bool,
    is_abandoned: bool,
    waiter: Option<Thread>,
}

/// The contents that a reply brings.
enum Expected {
    Nothing,
    Data(Vec<u8>),
    Extents(u32, Vec<BlockExtent>),
}

/// A failure that the server reported.
#[derive(Debug, Clone)]
pub(super) struct Refusal {
    /// A number of [`crate::wire::errno`].
    pub(super) error: u32,
    text: String,
}

/// The connection is gone.
#[derive(Debug, Clone)]
pub(super) struct Lost {
    pub(super) reason: Arc<io::Error>,
}

/// The failure of a request.
#[derive(Debug, Clone)]
pub(super) enum Failed {
    Refused(Refusal),
    Lost(Lost),
}

/// The contents of a reply that came.
#[derive(Debug)]
pub(super) enum Answer {
    Nothing,
    Data(Vec<u8>),
    Extents(Vec<BlockExtent>),
}

/// A request under way; dropping it abandons the request.
pub(super) struct Ticket {
    link: Arc<Link>,
    cookie: u64,
    begun: Instant,
    is_taken: bool,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.is_taken {
            self.link.abandon(self.cookie);
        }
    }
}

impl Refusal {
    fn as_io(&self) -> io::Error {
        let number = i32::try_from(self.error).unwrap_or_default();
        let system = io::Error::from_raw_os_error(number);
        match self.text.is_empty() {
            true => system,
            false => io::Error::new(system.kind(), format!("the server says: {}", self.text.escape_debug())),
        }
    }
}

impl Failed {
    /// The failure as an error of the system.
    pub(super) fn as_io(&self) -> io::Error {
        match self {
            Self::Refused(refusal) => refusal.as_io(),
            Self::Lost(lost) => lost.as_io(),
        }
    }
}

impl Lost {
    pub(super) fn as_io(&self) -> io::Error {
        let reason = &*self.reason;
        let text = match reason.kind() {
            io::ErrorKind::UnexpectedEof => "the server closed the connection".to_owned(),
            io::ErrorKind::TimedOut => "the server does not answer".to_owned(),
            _ => format!("the connection is lost: {reason}"),
        };
        io::Error::new(reason.kind(), text)
    }

    pub(super) fn is_timeout(&self) -> bool {
        self.reason.kind() == io::ErrorKind::TimedOut
    }
}

impl Link {
    /// A connection after its handshake.
    pub(super) fn new(stream: Stream, agreed: Agreed, time_max: Duration) -> Arc<Self> {
        let (inbox, sending, table) = (Mutex::new(Inbox::new(INBOX_BYTES)), Mutex::default(), Mutex::default());
        Arc::new(Self { stream, agreed, time_max, sending, inbox, table })
    }

    /// True while the server owes replies.
    fn has_requests(&self) -> bool {
        let table = self.table.lock();
        table.lost.is_none() && table.requests.values().any(|request| !request.is_answered)
    }

    /// Receives what is there, and so notices that the server has closed the connection: a write sent then would fail
    /// the device, although the server never had it.
    pub(super) fn look(&self) {
        for _ in 0..LOOKS_MAX {
            {
                let mut table = self.table.lock();
                if table.lost.is_some() || table.is_receiving {
                    return;
                }
                table.is_receiving = true;
            }
            let wanted = Ready { can_receive: true, can_send: false };
            let is_ready = !self.inbox.lock().is_empty() || self.stream.wait(wanted, Some(Instant::now())).is_ok();
            let received = if is_ready { self.receive_one() } else { Ok(()) };
            self.give_receiving();
            if let Err(error) = received {
                self.lose(error);
            }
            if !is_ready {
                return;
            }
        }
    }

    pub(super) fn is_lost(&self) -> bool {
        self.table.lock().lost.is_some()
    }

    /// Tells the server that no more requests come, after it has answered those under way: some servers do not bear a
    /// connection that ends earlier.
    pub(super) fn disconnect(&self) {
        let deadline = Instant::now() + self.time_max.min(DISCONNECT_MAX);
        while Instant::now() < deadline && self.has_requests() {
            if !self.take_receiving() {
                thread::sleep(SENDER_PAUSE);
                continue;
            }
            let wanted = Ready { can_receive: true, can_send: false };
            let is_empty = self.inbox.lock().is_empty();
            let ready = if is_empty { self.stream.wait(wanted, Some(deadline)).map(drop) } else { Ok(()) };
            let received = ready.and_then(|()| self.receive_one());
            self.give_receiving();
            if let Err(error) = received {
                self.lose(error);
            }
        }
        let request = Request { flags: 0, command: Command::Disconnect, cookie: 0, offset: 0, len: 0 };
        if !self.is_lost() && self.sending.try_lock().is_some() {
            // The connection ends in any case.
            let _ = self.stream.send_some(&[io::IoSlice::new(&request.encode())]);
        }
        self.stream.shut_down();
    }

    /// Sends a request; `data` follows it, for a write.
    pub(super) fn begin(
        self: &Arc<Self>,
        command: Command,
        flags: u16,
        (offset, len): (u64, u32),
        data: &[&[u8]],
    ) -> Result<Ticket, Lost> {
        let expected = match (command, self.agreed.context) {
            (Command::Read, _) => Expected::Data(vec![0; to_usize(u64::from(len))]),
            (Command::BlockStatus, Some(context)) => Expected::Extents(context, Vec::new()),
            _ => Expected::Nothing,
        };
        let (chunks, error, waiter) = (BTreeMap::new(), None, None);
        let underway = Underway { expected, offset, chunks, error, is_answered: false, is_abandoned: false, waiter };
        let cookie = {
            let mut table = self.table.lock();
            if let Some(lost) = &table.lost {
                return Err(lost.clone());
            }
            table.next_cookie += 1;
            let cookie = table.next_cookie;
            table.requests.insert(cookie, underway);
            cookie
        };
        let ticket = Ticket { link: Arc::clone(self), cookie, begun: Instant::now(), is_taken: false };
        let header = Request { flags, command, cookie, offset, len }.encode();
        let mut parts: Vec<&[u8]> = Vec::with_capacity(data.len() + 1);
        parts.push(&header);
        parts.extend(data);
        self.send(&parts).map_err(|error| self.lose(error))?;
        Ok(ticket)
    }

    /// Sends while the socket takes it; receives where it does not, if no other thread does.
    fn send(&self, parts: &[&[u8]]) -> io::Result<()> {
        let _turn = self.sending.lock();
        let mut deadline = Instant::now() + self.time_max;
        self.stream.send_with(parts, || {
            let receives = self.take_receiving();
            let pause = if receives { deadline } else { (Instant::now() + SENDER_PAUSE).min(deadline) };
            let has_more = receives && !self.inbox.lock().is_empty();
            let wanted = Ready { can_receive: receives, can_send: true };
            let ready = if has_more {
                Ok(Ready { can_receive: true, can_send: false })
            } else {
                self.stream.wait(wanted, Some(pause))
            };
            let received = match &ready {
                Ok(ready) if receives && ready.can_receive => self.receive_one(),
                _ => Ok(()),
            };
            if receives {
                self.give_receiving();
            }
            received?;
            match ready {
                Err(error) if error.kind() == io::ErrorKind::TimedOut && Instant::now() < deadline => Ok(()),
                Err(error) => Err(error),
                Ok(ready) => {
                    if ready.can_receive || ready.can_send {
                        deadline = Instant::now() + self.time_max;
                    }
                    Ok(())
                }
            }
        })
    }

    /// Becomes the thread that receives, if there is none.
    fn take_receiving(&self) -> bool {
        !std::mem::replace(&mut self.table.lock().is_receiving, true)
    }

    /// Lets another thread receive, and wakes one that waits.
    fn give_receiving(&self) {
        let mut table = self.table.lock();
        table.is_receiving = false;
        let waiting = table.requests.values().find(|request| !request.is_answered && request.waiter.is_some());
        if let Some(waiter) = waiting.and_then(|request| request.waiter.as_ref()) {
            waiter.unpark();
        }
    }

    /// Notes that the connection is lost, and wakes all that wait. The first reason counts.
    fn lose(&self, reason: io::Error) -> Lost {
        self.stream.shut_down();
        let mut table = self.table.lock();
        let lost = table.lost.get_or_insert_with(|| Lost { reason: Arc::new(reason) }).clone();
        table.requests.values().filter_map(|request| request.waiter.as_ref()).for_each(Thread::unpark);
        lost
    }

    fn abandon(&self, cookie: u64) {
        let mut table = self.table.lock();
        let is_over = table.lost.is_some();
        if let Some(request) = table.requests.get_mut(&cookie) {
            request.is_abandoned = true;
            request.waiter = None;
            if request.is_answered || is_over {
                table.requests.remove(&cookie);
            }
        }
    }

    /// Waits for the reply to a request.
    ///
    /// # Errors
    /// The server's refusal; [`Failed::Lost`] where the connection was lost before the reply came.
    pub(super) fn wait(self: &Arc<Self>, mut ticket: Ticket) -> Result<Answer, Failed> {
        let cookie = ticket.cookie;
        let deadline = ticket.begun + self.time_max;
        loop {
            let mut table = self.table.lock();
            let lost = table.lost.clone();
            let Some(request) = table.requests.get_mut(&cookie) else {
                let reason = io::Error::other("a request is not in the list");
                return Err(Failed::Lost(Lost { reason: Arc::new(reason) }));
            };
            if request.is_answered {
                ticket.is_taken = true;
                let Some(request) = table.requests.remove(&cookie) else { continue };
                return request.into_answer();
            }
            if let Some(lost) = lost {
                return Err(Failed::Lost(lost));
            }
            let now = Instant::now();
            if now >= deadline {
                drop(table);
                return Err(Failed::Lost(self.lose(io::ErrorKind::TimedOut.into())));
            }
            request.waiter = Some(thread::current());
            if !std::mem::replace(&mut table.is_receiving, true) {
                drop(table);
                let received = self.receive_one();
                if let Err(error) = received {
                    self.lose(error);
                }
                self.give_receiving_unless(cookie);
                continue;
            }
            drop(table);
            thread::park_timeout(deadline - now);
        }
    }

    /// As [`Self::give_receiving`]; wakes no other thread while the request of this one is under way, as it goes on
    /// receiving at once.
    fn give_receiving_unless(&self, cookie: u64) {
        let mut table = self.table.lock();
        table.is_receiving = false;
        let is_done = table.lost.is_some() || table.requests.get(&cookie).is_none_or(|request| request.is_answered);
        if is_done {
            drop(table);
            let mut table = self.table.lock();
            if !table.is_receiving {
                let waits = |request: &&mut Underway| !request.is_answered && request.waiter.is_some();
                if let Some(request) = table.requests.values_mut().find(waits)
                    && let Some(waiter) = &request.waiter
                {
                    waiter.unpark();
                }
            }
        }
    }

    /// Receives one reply, or one chunk of one. Called by the thread that receives.
    fn receive_one(&self) -> io::Result<()> {
        let mut inbox = self.inbox.lock();
        let deadline = Instant::now() + self.time_max;
        let mut bytes = [0; crate::wire::STRUCTURED_BYTES];
        let (first, rest) = bytes.split_at_mut(4);
        inbox.fill(&self.stream, first, deadline)?;
        let first = <[u8; 4]>::try_from(&*first).map_err(io::Error::other)?;
        let len = ReplyHeader::bytes(first).map_err(malformed)?;
        inbox.fill(&self.stream, rest.get_mut(..len - 4).unwrap_or_default(), deadline)?;
        match ReplyHeader::decode(bytes.get(..len).unwrap_or_default()).map_err(malformed)? {
            ReplyHeader::Simple { error, cookie } => self.simple(&mut inbox, error, cookie, deadline),
            ReplyHeader::Chunk(chunk) if self.agreed.is_structured => self.chunk(&mut inbox, &chunk, deadline),
            ReplyHeader::Chunk(_) => Err(malformed(Malformed::new("reply", "a simple one", to_u64(SIMPLE_BYTES)))),
        }
    }

    fn simple(&self, inbox: &mut Inbox, error: u32, cookie: u64, deadline: Instant) -> io::Result<()> {
        let data = self.with(cookie, |request| match &mut request.expected {
            Expected::Data(data) if error == 0 => Ok(Some(std::mem::take(data))),
            Expected::Extents(..) if error == 0 => Err(Malformed::new("reply about holes", "a structured one", 0)),
            _ => Ok(None),
        })?;
        if data.is_some() && self.agreed.is_structured {
            return Err(malformed(Malformed::new("reply with data", "a structured one", cookie)));
        }
        if let Some(mut data) = data {
            inbox.fill(&self.stream, &mut data, deadline)?;
            return self.finish(cookie, |request| request.expected = Expected::Data(data));
        }
        self.finish(cookie, |request| {
            if error != 0 {
                request.error = Some(Refusal { error, text: String::new() });
            }
        })
    }

    fn chunk(&self, inbox: &mut Inbox, chunk: &ChunkHeader, deadline: Instant) -> io::Result<()> {
        if chunk.kind == Chunk::DATA {
            self.data_chunk(inbox, chunk, deadline)?;
        } else {
            let is_error = chunk.kind >= Chunk::ERROR;
            let most = if is_error { STRING_BYTES_MAX.saturating_add(32) } else { PLAIN_BYTES_MAX };
            if chunk.len > most {
                return Err(malformed(Malformed::new("length of a chunk", "at most 1 MiB", u64::from(chunk.len))));
            }
            let mut payload = vec![0; to_usize(u64::from(chunk.len))];
            inbox.fill(&self.stream, &mut payload, deadline)?;
            let found = Chunk::decode(chunk.kind, &payload).map_err(malformed)?;
            self.with(chunk.cookie, |request| request.add(found))?;
        }
        if chunk.is_last {
            self.finish(chunk.cookie, |_| {})?;
        }
        Ok(())
    }

    /// Receives data, to where it belongs in its request.
    fn data_chunk(&self, inbox: &mut Inbox, chunk: &ChunkHeader, deadline: Instant) -> io::Result<()> {
        let short = || malformed(Malformed::new("length of a chunk of data", "more than 8", u64::from(chunk.len)));
        let len = chunk.len.checked_sub(8).filter(|len| *len > 0).ok_or_else(short)?;
        let mut offset = [0; 8];
        inbox.fill(&self.stream, &mut offset, deadline)?;
        let offset = u64::from_be_bytes(offset);
        let (range, mut data) = self.with(chunk.cookie, |request| {
            let range = request.note(offset, len)?;
            match &mut request.expected {
                Expected::Data(data) => Ok((range, std::mem::take(data))),
                _ => Err(Malformed::new("chunk of data", "a reply without data", u64::from(len))),
            }
        })?;
        inbox.fill(&self.stream, data.get_mut(range).unwrap_or_default(), deadline)?;
        self.with(chunk.cookie, |request| {
            request.expected = Expected::Data(data);
            Ok(())
        })
    }

    /// Changes a request under way.
    fn with<T>(&self, cookie: u64, change: impl FnOnce(&mut Underway) -> Result<T, Malformed>) -> io::Result<T> {
        let mut table = self.table.lock();
        let unknown = || malformed(Malformed::new("cookie of a reply", "that of a request under way", cookie));
        let request = table.requests.get_mut(&cookie).filter(|request| !request.is_answered).ok_or_else(unknown)?;
        change(request).map_err(malformed)
    }

    /// Notes the end of a reply.
    fn finish(&self, cookie: u64, change: impl FnOnce(&mut Underway)) -> io::Result<()> {
        let mut table = self.table.lock();
        let unknown = || malformed(Malformed::new("cookie of a reply", "that of a request under way", cookie));
        let request = table.requests.get_mut(&cookie).filter(|request| !request.is_answered).ok_or_else(unknown)?;
        change(request);
        request.check_end(self.agreed.is_structured).map_err(malformed)?;
        request.is_answered = true;
        if request.is_abandoned {
            table.requests.remove(&cookie);
        } else if let Some(waiter) = &request.waiter
            && waiter.id() != thread::current().id()
        {
            waiter.unpark();
        }
        Ok(())
    }
}

impl Underway {
    /// Notes a chunk of data or a hole; returns its place in the request.
    fn note(&mut self, offset: u64, len: u32) -> Result<std::ops::Range<usize>, Malformed> {
        let Expected::Data(data) = &self.expected else {
            return Err(Malformed::new("chunk of data", "a reply without data", u64::from(len)));
        };
        let outside = Malformed::new("place of a chunk", "a place in its request", offset);
        let start = offset.checked_sub(self.offset).map(to_usize).ok_or(outside)?;
        let end = start.checked_add(to_usize(u64::from(len))).filter(|end| *end <= data.len()).ok_or(outside)?;
        let overlaps = self.chunks.range(..end).next_back().is_some_and(|(_, last)| *last > start);
        if overlaps || len == 0 {
            return Err(Malformed::new("place of a chunk", "bytes that were not sent yet", offset));
        }
        if self.chunks.len() > data.len() / CHUNK_BYTES_MIN + 2 {
            return Err(Malformed::new("chunks of a reply", "fewer", to_u64(self.chunks.len())));
        }
        self.chunks.insert(start, end);
        Ok(start..end)
    }

    /// Adds a chunk without data.
    fn add(&mut self, chunk: Chunk) -> Result<(), Malformed> {
        match chunk {
            Chunk::Nothing => {}
            // The buffer was made of zeros.
            Chunk::Hole { offset, len } => {
                self.note(offset, len)?;
            }
            Chunk::Error { error, text } => self.error = self.error.take().or(Some(Refusal { error, text })),
            Chunk::Status { context, extents } => match &mut self.expected {
                Expected::Extents(own, found) if *own == context && found.is_empty() => *found = extents,
                _ => return Err(Malformed::new("chunk about holes", "a reply without it", u64::from(context))),
            },
        }
        Ok(())
    }

    /// Refuses the end of a reply that lacks something.
    fn check_end(&self, is_structured: bool) -> Result<(), Malformed> {
        if self.error.is_some() {
            return Ok(());
        }
        match &self.expected {
            Expected::Nothing => Ok(()),
            Expected::Extents(_, found) if found.is_empty() => Err(Malformed::new("reply about holes", "extents", 0)),
            Expected::Extents(..) => Ok(()),
            Expected::Data(data) => {
                let got: usize = self.chunks.iter().map(|(start, end)| end - start).sum();
                match is_structured && got != data.len() {
                    true => Err(Malformed::new("data of a reply", "as many bytes as were asked for", to_u64(got))),
                    false => Ok(()),
                }
            }
        }
    }

    fn into_answer(self) -> Result<Answer, Failed> {
        if let Some(refusal) = self.error {
            return Err(Failed::Refused(refusal));
        }
        Ok(match self.expected {
            Expected::Nothing => Answer::Nothing,
            Expected::Data(data) => Answer::Data(data),
            Expected::Extents(_, extents) => Answer::Extents(extents),
        })
    }
}

impl Ticket {
    /// Waits for the reply.
    ///
    /// # Errors
    /// As [`Link::wait`].
    pub(super) fn wait(self) -> Result<Answer, Failed> {
        let link = Arc::clone(&self.link);
        link.wait(self)
    }
}
