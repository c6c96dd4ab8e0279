//! Answers the requests of a client that has chosen an export.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, Scope};
use std::time::Instant;

use blockdev::{Device, Holes};
use parking_lot::{Mutex, MutexGuard};

use super::handshake::{CONTEXT_ID, Chosen};
use super::{Ended, STALL_MAX, Seat, Server, THREADS_MAX};
use crate::inbox::Inbox;
use crate::number::{to_u32, to_u64, to_usize};
use crate::stream::Stream;
use crate::wire::{
    BlockExtent, Chunk, ChunkHeader, Command, Malformed, REQUEST_BYTES, REQUEST_BYTES_MAX, ReplyHeader, Request,
    command_flag, errno, state,
};

/// Data that a thread reads or writes at a time.
const PIECE_BYTES: usize = 256 << 10;
/// Shorter reads are not looked through for holes.
const HOLES_BYTES_MIN: u64 = 64 << 10;
/// Bytes received together where the client sends them together.
const INBOX_BYTES: usize = 16 << 10;
/// Most extents of a reply.
const EXTENTS_MAX: usize = 1024;

/// A connection.
struct Session<'a> {
    server: &'a Server,
    stream: &'a Stream,
    chosen: Chosen,
    size: u64,
    inbox: Mutex<Inbox>,
    sending: Mutex<()>,
    /// The client has left, or was given up.
    has_ended: AtomicBool,
    /// Threads that wait for a request.
    idle: AtomicUsize,
    threads: AtomicUsize,
    failure: Mutex<Option<Ended>>,
}

/// Serves requests until the client leaves.
///
/// # Errors
/// The fault of the client, or the socket's error.
pub(super) fn run(server: &Server, stream: &Stream, chosen: Chosen) -> Result<(), Ended> {
    let session = Session {
        server,
        stream,
        size: chosen.export.device.size_bytes(),
        chosen,
        inbox: Mutex::new(Inbox::new(INBOX_BYTES)),
        sending: Mutex::default(),
        has_ended: AtomicBool::new(false),
        idle: AtomicUsize::new(1),
        threads: AtomicUsize::new(1),
        failure: Mutex::default(),
    };
    thread::scope(|scope| session.work(scope, None));
    session.failure.into_inner().map_or(Ok(()), Err)
}

/// Receives the next request, and waits for it without limit.
fn next_request(inbox: &mut Inbox, stream: &Stream) -> Result<Request, Ended> {
    inbox.wait(stream, None)?;
    let mut bytes = [0; REQUEST_BYTES];
    inbox.fill(stream, &mut bytes, Instant::now() + STALL_MAX)?;
    Ok(Request::decode(&bytes)?)
}

impl<'a> Session<'a> {
    /// Reads and answers requests, as one of several threads.
    fn work<'scope>(&'scope self, scope: &'scope Scope<'scope, 'a>, _seat: Option<Seat>)
    where
        'a: 'scope,
    {
        let mut buffer = Vec::new();
        while !self.has_ended.load(Ordering::Acquire) {
            if let Err(ended) = self.take_turn(scope, &mut buffer) {
                self.end(Some(ended));
            }
        }
    }

    /// Ends the connection for all threads; the first reason counts.
    fn end(&self, reason: Option<Ended>) {
        if !self.has_ended.swap(true, Ordering::AcqRel) {
            *self.failure.lock() = reason;
            if self.failure.lock().is_some() {
                self.stream.shut_down();
            }
        }
    }

    /// Reads one request, lets another thread read, and answers.
    fn take_turn<'scope>(&'scope self, scope: &'scope Scope<'scope, 'a>, buffer: &mut Vec<u8>) -> Result<(), Ended>
    where
        'a: 'scope,
    {
        let mut inbox = self.inbox.lock();
        if self.has_ended.load(Ordering::Acquire) {
            return Ok(());
        }
        let request = next_request(&mut inbox, self.stream)?;
        if request.command == Command::Disconnect {
            self.end(None);
            return Ok(());
        }
        if self.idle.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.add_thread(scope);
        }
        let answered = self.answer(request, inbox, buffer);
        self.idle.fetch_add(1, Ordering::AcqRel);
        answered
    }

    /// Starts a thread that reads the next request, where that is allowed.
    fn add_thread<'scope>(&'scope self, scope: &'scope Scope<'scope, 'a>)
    where
        'a: 'scope,
    {
        if self.threads.load(Ordering::Relaxed) >= THREADS_MAX {
            return;
        }
        let Some(seat) = self.server.take_thread() else { return };
        let work = move || self.work(scope, Some(seat));
        let started = thread::Builder::new().name("nbd".to_owned()).spawn_scoped(scope, work);
        if started.is_ok() {
            self.threads.fetch_add(1, Ordering::Relaxed);
            self.idle.fetch_add(1, Ordering::AcqRel);
        }
    }

    fn device(&self) -> &Arc<dyn Device> {
        &self.chosen.export.device
    }

    /// Answers a request; lets others read as soon as all of it was received.
    fn answer(&self, request: Request, inbox: MutexGuard<'_, Inbox>, buffer: &mut Vec<u8>) -> Result<(), Ended> {
        let refusal = self.refusal(&request);
        if request.command == Command::Write {
            return self.write(&request, refusal, inbox, buffer);
        }
        drop(inbox);
        if let Some((error, text)) = refusal {
            return self.fail(&request, error, text);
        }
        match request.command {
            Command::Read => self.read(&request, buffer),
            Command::BlockStatus => self.block_status(&request),
            _ => {
                let done = self.carry_out(&request, buffer);
                self.finish(&request, done)
            }
        }
    }

    /// The reason why a request is refused, whatever the device says.
    fn refusal(&self, request: &Request) -> Option<(u32, &'static str)> {
        let Request { command, flags, offset, len, .. } = *request;
        let changes = matches!(command, Command::Write | Command::Trim | Command::WriteZeroes);
        let allowed = match command {
            Command::Read => command_flag::DF,
            Command::Write | Command::Trim => command_flag::FUA,
            Command::WriteZeroes => command_flag::FUA | command_flag::NO_HOLE | command_flag::FAST_ZERO,
            Command::BlockStatus => command_flag::REQ_ONE,
            _ => 0,
        };
        // Some clients set FUA where it has no meaning.
        if flags & !(allowed | command_flag::FUA) != 0 {
            return Some((errno::EINVAL, "a flag that this request does not have"));
        }
        if matches!(command, Command::Other(_)) {
            return Some((errno::EINVAL, "an unknown request"));
        }
        if changes && self.chosen.export.is_read_only() {
            return Some((errno::EPERM, "the export is read-only"));
        }
        if command != Command::Flush && offset.checked_add(u64::from(len)).is_none_or(|end| end > self.size) {
            let error = if command == Command::Write { errno::ENOSPC } else { errno::EINVAL };
            return Some((error, "beyond the end of the export"));
        }
        match command {
            Command::Read if len > REQUEST_BYTES_MAX => Some((errno::EOVERFLOW, "more than 32 MiB")),
            Command::Read | Command::BlockStatus if len == 0 => Some((errno::EINVAL, "a range of no bytes")),
            Command::BlockStatus if !self.chosen.has_context => Some((errno::EINVAL, "no context was chosen")),
            _ => None,
        }
    }

    /// Receives the data of a write and writes it. Data that is longer than a piece is written while it is received.
    fn write(
        &self,
        request: &Request,
        refusal: Option<(u32, &'static str)>,
        mut inbox: MutexGuard<'_, Inbox>,
        buffer: &mut Vec<u8>,
    ) -> Result<(), Ended> {
        if request.len > REQUEST_BYTES_MAX {
            return Err(Malformed::new("length of a write", "at most 32 MiB", u64::from(request.len)).into());
        }
        let mut left = to_usize(u64::from(request.len));
        let mut offset = request.offset;
        let mut done = Ok(());
        let deadline = Instant::now() + STALL_MAX;
        while left > PIECE_BYTES {
            let piece = sized(buffer, PIECE_BYTES);
            inbox.fill(self.stream, piece, deadline)?;
            if refusal.is_none() && done.is_ok() {
                done = self.device().write_at(offset, &[piece]);
            }
            (offset, left) = (offset.saturating_add(to_u64(PIECE_BYTES)), left - PIECE_BYTES);
        }
        let piece = sized(buffer, left);
        inbox.fill(self.stream, piece, deadline)?;
        drop(inbox);
        if let Some((error, text)) = refusal {
            return self.fail(request, error, text);
        }
        let done = done.and_then(|()| self.device().write_at(offset, &[piece])).and_then(|()| self.force(request));
        self.finish(request, done.map(|()| None))
    }

    /// Makes a change durable, where the request asks for that.
    fn force(&self, request: &Request) -> blockdev::Result<()> {
        if request.flags & command_flag::FUA == 0 { Ok(()) } else { self.device().flush() }
    }

    /// Carries out a request without data; answers an error number that the device did not give.
    fn carry_out(&self, request: &Request, buffer: &mut Vec<u8>) -> blockdev::Result<Option<u32>> {
        let (device, offset, len) = (self.device(), request.offset, u64::from(request.len));
        match request.command {
            Command::Flush => device.flush()?,
            Command::Trim => {
                device.discard(offset, len)?;
                self.force(request)?;
            }
            Command::WriteZeroes => {
                let keeps = request.flags & command_flag::NO_HOLE != 0;
                let holes = if keeps { Holes::Forbidden } else { Holes::Allowed };
                if len > 0 && !device.write_zeroes(offset, len, holes)? {
                    if request.flags & command_flag::FAST_ZERO != 0 {
                        return Ok(Some(errno::ENOTSUP));
                    }
                    write_zeros(&**device, offset, len, buffer)?;
                }
                self.force(request)?;
            }
            _ => device.will_read(offset, len),
        }
        Ok(None)
    }

    /// Sends the answer to a request without data in it.
    fn finish(&self, request: &Request, done: blockdev::Result<Option<u32>>) -> Result<(), Ended> {
        match done {
            Ok(None) => self.send_header(&self.success(request), &[]),
            Ok(Some(error)) => self.fail(request, error, "the device cannot do it fast"),
            Err(error) => self.fail(request, number_of(&error), &error.to_string()),
        }
    }

    fn success(&self, request: &Request) -> ReplyHeader {
        match self.chosen.is_structured {
            // Chunks are for replies with contents; a simple reply says the same in fewer bytes.
            _ if !matches!(request.command, Command::Read | Command::BlockStatus) => {
                ReplyHeader::Simple { error: 0, cookie: request.cookie }
            }
            true => chunk(request, Chunk::NONE, 0, true),
            false => ReplyHeader::Simple { error: 0, cookie: request.cookie },
        }
    }

    fn fail(&self, request: &Request, error: u32, text: &str) -> Result<(), Ended> {
        if !self.chosen.is_structured {
            return self.send_header(&ReplyHeader::Simple { error, cookie: request.cookie }, &[]);
        }
        let (kind, payload) = Chunk::Error { error, text: text.to_owned() }.encode();
        self.send_header(&chunk(request, kind, payload.len(), true), &payload)
    }

    fn send_header(&self, header: &ReplyHeader, payload: &[u8]) -> Result<(), Ended> {
        let _turn = self.sending.lock();
        Ok(self.stream.send(&[&header.encode(), payload], STALL_MAX)?)
    }

    fn read(&self, request: &Request, buffer: &mut Vec<u8>) -> Result<(), Ended> {
        if self.chosen.is_structured && request.flags & command_flag::DF == 0 {
            return self.read_in_chunks(request, buffer);
        }
        let len = to_usize(u64::from(request.len));
        let piece = sized(buffer, len.min(PIECE_BYTES));
        if let Err(error) = self.device().read_at(request.offset, piece) {
            return self.fail(request, number_of(&error), &error.to_string());
        }
        let mut head = match self.chosen.is_structured {
            true => chunk(request, Chunk::DATA, len + size_of::<u64>(), true).encode(),
            false => ReplyHeader::Simple { error: 0, cookie: request.cookie }.encode(),
        };
        if self.chosen.is_structured {
            head.extend(request.offset.to_be_bytes());
        }
        let _turn = self.sending.lock();
        self.stream.send(&[&head, piece], STALL_MAX)?;
        let mut sent = piece.len();
        while sent < len {
            let piece = sized(buffer, (len - sent).min(PIECE_BYTES));
            // An error can no longer be told: the client was promised data.
            let offset = request.offset.saturating_add(to_u64(sent));
            self.device().read_at(offset, piece).map_err(|error| Ended::Socket(error.into()))?;
            self.stream.send(&[piece], STALL_MAX)?;
            sent += piece.len();
        }
        Ok(())
    }

    /// Sends data and holes, each as it is found.
    fn read_in_chunks(&self, request: &Request, buffer: &mut Vec<u8>) -> Result<(), Ended> {
        let end = request.offset.saturating_add(u64::from(request.len));
        let mut at = request.offset;
        while at < end {
            let data = if end - at >= HOLES_BYTES_MIN { self.device().next_data(at).clamp(at, end) } else { at };
            if data > at {
                let (kind, payload) = Chunk::Hole { offset: at, len: to_u32(to_usize(data - at)) }.encode();
                self.send_header(&chunk(request, kind, payload.len(), data == end), &payload)?;
                at = data;
                continue;
            }
            let piece_end = end.min(at.saturating_add(to_u64(PIECE_BYTES)));
            let piece = sized(buffer, to_usize(piece_end - at));
            if let Err(error) = self.device().read_at(at, piece) {
                return self.fail(request, number_of(&error), &error.to_string());
            }
            let header = chunk(request, Chunk::DATA, piece.len() + size_of::<u64>(), piece_end == end).encode();
            let _turn = self.sending.lock();
            self.stream.send(&[&header, &at.to_be_bytes(), piece], STALL_MAX)?;
            at = piece_end;
        }
        Ok(())
    }

    fn block_status(&self, request: &Request) -> Result<(), Ended> {
        let extents_max = if request.flags & command_flag::REQ_ONE != 0 { 1 } else { EXTENTS_MAX };
        let end = request.offset.saturating_add(u64::from(request.len));
        let mut extents = Vec::new();
        let mut at = request.offset;
        while at < end && extents.len() < extents_max {
            let data = self.device().next_data(at).clamp(at, end);
            let (next, found) = match data > at {
                true => (data, state::HOLE | state::ZERO),
                // At least one byte, so that the loop ends whatever the device says.
                false => (self.device().next_hole(at).clamp(at + 1, end), 0),
            };
            extents.push(BlockExtent { len: to_u32(to_usize(next - at)), state: found });
            at = next;
        }
        let (kind, payload) = Chunk::Status { context: CONTEXT_ID, extents }.encode();
        self.send_header(&chunk(request, kind, payload.len(), true), &payload)
    }
}

fn chunk(request: &Request, kind: u16, len: usize, is_last: bool) -> ReplyHeader {
    ReplyHeader::Chunk(ChunkHeader { is_last, kind, cookie: request.cookie, len: to_u32(len) })
}

/// The first `len` bytes of a buffer that keeps its memory.
fn sized(buffer: &mut Vec<u8>, len: usize) -> &mut [u8] {
    if buffer.len() < len {
        buffer.resize(len, 0);
    }
    buffer.get_mut(..len).unwrap_or_default()
}

fn write_zeros(device: &dyn Device, offset: u64, len: u64, buffer: &mut Vec<u8>) -> blockdev::Result<()> {
    let zeros = sized(buffer, PIECE_BYTES);
    zeros.fill(0);
    let end = offset.saturating_add(len);
    let mut at = offset;
    while at < end {
        let count = to_usize(end - at).min(PIECE_BYTES);
        device.write_at(at, &[zeros.get(..count).unwrap_or_default()])?;
        at = at.saturating_add(to_u64(count));
    }
    Ok(())
}

/// The number of an error for the client.
fn number_of(error: &blockdev::Error) -> u32 {
    match error {
        blockdev::Error::ReadOnly { .. } => errno::EPERM,
        blockdev::Error::OutOfRange { .. } => errno::EINVAL,
        _ if error.is_no_space() => errno::ENOSPC,
        _ => errno::EIO,
    }
}
