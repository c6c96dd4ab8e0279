//! An export as a block device. [`blockdev::open`] makes it, by the schemes `nbd` and `nbd+unix`.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use blockdev::{Access, Device, Error, Holes, Locator, Op, Result, Write, check_range, check_writable, parts_len, tag};
use parking_lot::Mutex;

use super::connections::{Connections, Range};
use super::link::{Answer, Link, Lost, Ticket};
use super::windows::Windows;
use crate::address::Address;
use crate::number::{to_u32, to_u64, to_usize};
use crate::wire::{BlockExtent, Command, command_flag, state, transmission};

/// The schemes of locators that this client opens.
pub const SCHEMES: [&str; 4] = ["nbd", "nbd+unix", "nbds", "nbds+unix"];

/// Bytes of one request: enough that its transfer takes longer than the request itself.
const PIECE_BYTES: u32 = 1 << 20;
/// Bytes of writes under way for one caller.
const UNDERWAY_BYTES_MAX: u64 = 32 << 20;
/// Requests under way for one caller.
const UNDERWAY_MAX: usize = 64;
/// Requests of one call for which a further connection is worth its handshake.
const MANY: usize = 16;
/// The answer of [`Device::queue_depth`].
const QUEUE_DEPTH: usize = 32;
/// Bytes of which the server is asked where holes are.
const STATUS_BYTES: u64 = 1 << 30;
/// Bytes of one TRIM or WRITE_ZEROES.
const TRIM_BYTES_MAX: u64 = 1 << 30;

/// An export of a server.
pub struct NbdDevice {
    name: String,
    connections: Connections,
    windows: Windows,
    /// First byte of the device on the export.
    start: u64,
    size: u64,
    read_only: bool,
    /// Where holes are: first byte, byte behind, and whether it reads as zeros. Forgotten with every change.
    known_holes: Mutex<Vec<(u64, u64, bool)>>,
    /// Held while a block is changed in part.
    partial: Mutex<()>,
}

impl std::fmt::Debug for NbdDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NbdDevice").field("name", &self.name).field("size", &self.size).finish_non_exhaustive()
    }
}

/// Opens the export that a locator names.
///
/// # Errors
/// [`Error::Io`] for a malformed address, a server that cannot be reached or breaks the protocol, and an export that is
/// smaller than the locator says; [`Error::ReadOnly`] for an export that can only be read.
pub fn open(locator: &Locator, access: Access) -> Result<Arc<dyn Device>> {
    let name = locator.to_string();
    let failed = |error: io::Error| Error::io(Op::Open, &name, 0, 0, error);
    let address = Address::of(locator).map_err(failed)?;
    let connections = Connections::open(address).map_err(failed)?;
    let (agreed, address) = (connections.agreed(), connections.address());
    let start = locator.offset().saturating_add(address.offset);
    let size = locator.size().or(address.size).unwrap_or_else(|| agreed.size.saturating_sub(start));
    if start.checked_add(size).is_none_or(|end| end > agreed.size) {
        let text = format!("the export has {} bytes: {size} bytes from byte {start} on are not in it", agreed.size);
        return Err(failed(io::Error::new(io::ErrorKind::InvalidInput, text)));
    }
    if !access.read_only && connections.can(transmission::READ_ONLY) {
        return Err(failed(io::Error::new(io::ErrorKind::ReadOnlyFilesystem, "the export is read-only")));
    }
    let windows = Windows::new(agreed.size, agreed.sizes.maximum);
    Ok(Arc::new(NbdDevice {
        connections,
        windows,
        start,
        size,
        read_only: access.read_only,
        known_holes: Mutex::default(),
        partial: Mutex::default(),
        name,
    }))
}

/// A write whose pieces are under way.
struct Underway {
    tickets: Vec<std::result::Result<Ticket, Lost>>,
    bytes: u64,
}

impl NbdDevice {
    fn error(&self, op: Op, offset: u64, len: u64, error: io::Error) -> Error {
        Error::io(op, &self.name, offset, len, error)
    }

    fn minimum(&self) -> u64 {
        u64::from(self.connections.agreed().sizes.minimum)
    }

    /// Bytes of one request.
    fn piece_bytes(&self) -> u64 {
        u64::from(self.connections.agreed().sizes.maximum.min(PIECE_BYTES))
    }

    /// A range of the export in requests of at most `most` bytes.
    fn pieces(start: u64, len: u64, most: u64) -> Vec<Range> {
        let end = start.saturating_add(len);
        let mut at = start;
        std::iter::from_fn(|| {
            let count = most.min(end.saturating_sub(at));
            let piece = (count > 0).then(|| (at, to_u32(to_usize(count))));
            at = at.saturating_add(count);
            piece
        })
        .collect()
    }

    /// Reads whole blocks of the export.
    fn read_blocks(&self, start: u64, buf: &mut [u8]) -> io::Result<()> {
        let ranges = Self::pieces(start, to_u64(buf.len()), self.piece_bytes());
        if ranges.len() >= MANY {
            self.connections.widen();
        }
        // A large read has a limited number of requests under way.
        for some in ranges.chunks(UNDERWAY_MAX) {
            self.connections.ask(Command::Read, 0, some, |place, answer| {
                let (at, len) = some.get(place).copied().unwrap_or_default();
                let from = to_usize(at.saturating_sub(start));
                let to = buf.get_mut(from..from.saturating_add(to_usize(u64::from(len))));
                if let (Answer::Data(data), Some(to)) = (answer, to) {
                    to.copy_from_slice(&data);
                }
            })?;
        }
        Ok(())
    }

    /// Reads bytes of the export, which may begin and end within blocks.
    fn read_bytes(&self, start: u64, buf: &mut [u8]) -> io::Result<()> {
        let (block, len) = (self.minimum(), to_u64(buf.len()));
        let first = start - start % block;
        let end = start.saturating_add(len).next_multiple_of(block).min(self.connections.agreed().size);
        if (first, end) == (start, start.saturating_add(len)) {
            return self.read_blocks(start, buf);
        }
        let mut blocks = vec![0; to_usize(end.saturating_sub(first))];
        self.read_blocks(first, &mut blocks)?;
        let from = to_usize(start - first);
        let found = blocks.get(from..from.saturating_add(buf.len()));
        buf.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    /// Sends the pieces of a write, without waiting for the replies.
    fn begin_write(&self, link: &Arc<Link>, start: u64, parts: &[&[u8]]) -> Underway {
        let bytes = parts_len(parts);
        let mut tickets = Vec::new();
        let mut parts = parts.iter().copied();
        let mut rest: &[u8] = &[];
        for (at, len) in Self::pieces(start, bytes, self.piece_bytes()) {
            let mut left = to_usize(u64::from(len));
            let mut piece = Vec::new();
            while left > 0 {
                if rest.is_empty() {
                    let Some(next) = parts.next() else { break };
                    rest = next;
                    continue;
                }
                let (now, later) = rest.split_at(left.min(rest.len()));
                piece.push(now);
                (rest, left) = (later, left - now.len());
            }
            tickets.push(link.begin(Command::Write, 0, (at, len), &piece));
        }
        Underway { tickets, bytes }
    }

    /// Waits for a write; the first failure counts, after all replies have come.
    fn end_write(&self, underway: Underway) -> io::Result<()> {
        let mut done = Ok(());
        for ticket in underway.tickets {
            let ended = self.connections.end_write(ticket);
            done = done.and(ended);
        }
        done
    }

    /// Writes bytes of the export that begin or end within blocks: the blocks are read, changed, and written.
    fn write_partly(&self, start: u64, parts: &[&[u8]]) -> io::Result<()> {
        let _alone = self.partial.lock();
        let (block, len) = (self.minimum(), parts_len(parts));
        let first = start - start % block;
        let end = start.saturating_add(len).next_multiple_of(block).min(self.connections.agreed().size);
        let mut blocks = vec![0; to_usize(end.saturating_sub(first))];
        self.read_blocks(first, &mut blocks)?;
        let place = blocks.iter_mut().skip(to_usize(start - first));
        for (to, from) in place.zip(parts.iter().flat_map(|part| part.iter())) {
            *to = *from;
        }
        let link = self.connections.link()?;
        self.end_write(self.begin_write(&link, first, &[&blocks]))
    }

    fn is_whole(&self, start: u64, len: u64) -> bool {
        start.is_multiple_of(self.minimum()) && len.is_multiple_of(self.minimum())
    }

    /// Forgets what was known of a range of the export that was changed.
    fn forget(&self, start: u64, len: u64) {
        let block = self.minimum();
        self.windows.forget(start - start % block, len.saturating_add(block));
        self.known_holes.lock().clear();
    }

    /// Sends changes without data for a range, whole blocks only, and waits for them.
    fn change(&self, command: Command, flags: u16, start: u64, len: u64) -> io::Result<()> {
        let block = self.minimum();
        let most = TRIM_BYTES_MAX.min(u64::from(u32::MAX) - u64::from(u32::MAX) % block);
        let _underway = self.connections.begin_writes()?;
        let link = self.connections.link()?;
        let pieces = Self::pieces(start, len, most);
        let tickets = pieces.into_iter().map(|range| link.begin(command, flags, range, &[])).collect();
        let done = self.end_write(Underway { tickets, bytes: 0 });
        self.forget(start, len);
        done
    }

    /// Where the state that begins at `at` ends, and whether it reads as zeros; both on the export.
    fn status(&self, at: u64) -> io::Result<(u64, bool)> {
        let known = |holes: &Vec<(u64, u64, bool)>| {
            let place = holes.partition_point(|(start, ..)| *start <= at);
            let (_, end, is_zero) = holes.get(place.checked_sub(1)?)?;
            (at < *end).then_some((*end, *is_zero))
        };
        if let Some(found) = known(&self.known_holes.lock()) {
            return Ok(found);
        }
        let block = self.minimum();
        let start = at - at % block;
        let left = self.connections.agreed().size.saturating_sub(start);
        let len = to_u32(to_usize(left.min(STATUS_BYTES)));
        let mut extents = Vec::new();
        self.connections.ask(Command::BlockStatus, 0, &[(start, len)], |_, answer| {
            if let Answer::Extents(found) = answer {
                extents = found;
            }
        })?;
        let mut holes: Vec<(u64, u64, bool)> = Vec::new();
        let mut from = start;
        for BlockExtent { len, state } in extents {
            let (end, is_zero) = (from.saturating_add(u64::from(len)), state & state::ZERO != 0);
            match holes.last_mut() {
                Some(last) if last.2 == is_zero => last.1 = end,
                _ => holes.push((from, end, is_zero)),
            }
            from = end;
        }
        let found = known(&holes).ok_or_else(|| io::Error::other("no status of the wanted bytes"))?;
        *self.known_holes.lock() = holes;
        Ok(found)
    }

    /// The first byte from `offset` on whose state is as wanted; the end of the device where there is none, or
    /// `unknown` where the server does not tell.
    fn find(&self, offset: u64, is_zero: bool, unknown: u64) -> u64 {
        if self.connections.agreed().context.is_none() {
            return unknown;
        }
        let end = self.start.saturating_add(self.size);
        let mut at = self.start.saturating_add(offset);
        while at < end {
            match self.status(at) {
                Ok((_, found)) if found == is_zero => break,
                Ok((next, _)) => at = next,
                Err(_) => return unknown.max(at.saturating_sub(self.start).min(self.size)),
            }
        }
        at.min(end).saturating_sub(self.start).max(offset)
    }
}

impl Device for NbdDevice {
    fn name(&self) -> &str {
        &self.name
    }

    fn size_bytes(&self) -> u64 {
        self.size
    }

    fn is_read_only(&self) -> bool {
        self.read_only
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let len = to_u64(buf.len());
        check_range(self, Op::Read, offset, len)?;
        let start = self.start.saturating_add(offset);
        let done = match len {
            0 => Ok(true),
            _ => self.windows.read(&self.connections, start, buf, tag().kind),
        };
        let begun = Instant::now();
        let done = done.and_then(|is_done| if is_done { Ok(()) } else { self.read_bytes(start, buf) });
        if self.windows.is_new() && done.is_ok() {
            self.windows.note_time(begun.elapsed(), len);
        }
        done.map_err(|error| self.error(Op::Read, offset, len, error))
    }

    fn will_read(&self, offset: u64, len: u64) {
        if len > 0 && check_range(self, Op::Read, offset, len).is_ok() {
            self.windows.announce(&self.connections, self.start.saturating_add(offset), len);
        }
    }

    fn next_data(&self, offset: u64) -> u64 {
        self.find(offset, false, offset)
    }

    fn next_hole(&self, offset: u64) -> u64 {
        self.find(offset, true, self.size.max(offset))
    }

    fn write_at(&self, offset: u64, parts: &[&[u8]]) -> Result<()> {
        let tag = tag();
        self.submit(&[Write { offset, parts, tag }]).pop().unwrap_or(Ok(()))
    }

    fn submit(&self, writes: &[Write<'_>]) -> Vec<Result<()>> {
        let allowed = |write: &Write<'_>| {
            check_writable(self, Op::Write)?;
            check_range(self, Op::Write, write.offset, parts_len(write.parts))
        };
        let failed = |write: &Write<'_>, error| self.error(Op::Write, write.offset, parts_len(write.parts), error);
        if writes.len() >= MANY {
            self.connections.widen();
        }
        let _underway = match self.connections.begin_writes() {
            Ok(guard) => guard,
            Err(error) => {
                let text = error.to_string();
                let again = || io::Error::other(text.clone());
                return writes.iter().map(|write| allowed(write).and_then(|()| Err(failed(write, again())))).collect();
            }
        };
        let mut answers: Vec<Result<()>> = Vec::with_capacity(writes.len());
        let mut underway: Vec<(usize, Underway)> = Vec::new();
        let mut bytes = 0;
        let end_all = |underway: &mut Vec<(usize, Underway)>, answers: &mut Vec<Result<()>>| {
            for (place, one) in underway.drain(..) {
                let ended = self.end_write(one);
                if let (Some(write), Some(answer)) = (writes.get(place), answers.get_mut(place)) {
                    self.forget(self.start.saturating_add(write.offset), parts_len(write.parts));
                    *answer = ended.map_err(|error| failed(write, error));
                }
            }
        };
        for (place, write) in writes.iter().enumerate() {
            let (start, len) = (self.start.saturating_add(write.offset), parts_len(write.parts));
            let begun = allowed(write).and_then(|()| {
                if len == 0 {
                    return Ok(None);
                }
                if !self.is_whole(start, len) {
                    let done = self.write_partly(start, write.parts);
                    self.forget(start, len);
                    return done.map(|()| None).map_err(|error| failed(write, error));
                }
                let link = self.connections.link().map_err(|error| failed(write, error))?;
                Ok(Some(self.begin_write(&link, start, write.parts)))
            });
            answers.push(Ok(()));
            match begun {
                Ok(Some(one)) => {
                    bytes += one.bytes;
                    underway.push((place, one));
                }
                Ok(None) => {}
                Err(error) => *answers.last_mut().expect("an answer was pushed") = Err(error),
            }
            if bytes >= UNDERWAY_BYTES_MAX || underway.len() >= UNDERWAY_MAX {
                end_all(&mut underway, &mut answers);
                bytes = 0;
            }
        }
        end_all(&mut underway, &mut answers);
        answers
    }

    fn queue_depth(&self) -> usize {
        QUEUE_DEPTH
    }

    fn flush(&self) -> Result<()> {
        if self.read_only {
            return Ok(());
        }
        self.connections.flush().map_err(|error| self.error(Op::Flush, 0, 0, error))
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        check_writable(self, Op::Discard)?;
        check_range(self, Op::Discard, offset, len)?;
        let (start, block) = (self.start.saturating_add(offset), self.minimum());
        let first = start.next_multiple_of(block);
        let end = start.saturating_add(len);
        let end = end - end % block;
        if !self.connections.can(transmission::SEND_TRIM) || first >= end {
            return Ok(());
        }
        let done = self.change(Command::Trim, 0, first, end - first);
        done.map_err(|error| self.error(Op::Discard, offset, len, error))
    }

    fn write_zeroes(&self, offset: u64, len: u64, holes: Holes) -> Result<bool> {
        check_writable(self, Op::Write)?;
        check_range(self, Op::Write, offset, len)?;
        let start = self.start.saturating_add(offset);
        if !self.connections.can(transmission::SEND_WRITE_ZEROES) || !self.is_whole(start, len) {
            return Ok(false);
        }
        if len == 0 {
            return Ok(true);
        }
        let flags = if holes == Holes::Forbidden { command_flag::NO_HOLE } else { 0 };
        let done = self.change(Command::WriteZeroes, flags, start, len);
        done.map(|()| true).map_err(|error| self.error(Op::Write, offset, len, error))
    }

    fn let_go(&self) {
        self.connections.close();
    }

    fn grow(&self, size_bytes: u64) -> Result<()> {
        check_writable(self, Op::Grow)?;
        if size_bytes <= self.size {
            return Ok(());
        }
        Err(Error::CannotGrow { device: self.name.clone(), size: self.size })
    }
}
