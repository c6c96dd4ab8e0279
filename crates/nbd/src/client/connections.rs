//! The connections of a device: which one a request takes, when a new one is made, and what a lost one means.
//!
//! Writes count as unflushed until a FLUSH that began after their replies has succeeded. If any connection is lost
//! while there are such writes, or unanswered ones, the server may have been restarted without them: the device then
//! fails every later change and flush. Reads go on over a new connection, if the export still has its size.
//!
//! Called by `device` and `windows`.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::handshake::{self, Agreed};
use super::link::{Answer, Failed, Link, Lost, Ticket};
use crate::address::{self, Address};
use crate::stream::Stream;
use crate::wire::{Command, transmission};

/// Connections where the server allows several.
const CONNECTIONS_MAX: usize = 2;
/// Pauses before attempts to connect again; a read fails after the last.
const PAUSES: [Duration; 5] = [
    Duration::ZERO,
    Duration::from_millis(50),
    Duration::from_millis(250),
    Duration::from_secs(1),
    Duration::from_secs(3),
];
/// Connections that a read may lose before it fails.
const LOST_MAX: usize = 3;
/// Time after failed attempts in which one attempt has to be enough.
const DOWN_TIME: Duration = Duration::from_secs(10);

/// The connections of a device.
pub(super) struct Connections {
    address: Address,
    agreed: Agreed,
    slots: [Mutex<Slot>; CONNECTIONS_MAX],
    /// Of the slots, the first so many have connections, or had one.
    in_use: AtomicUsize,
    turn: AtomicUsize,
    writes: Mutex<Writes>,
    down_since: Mutex<Option<Instant>>,
    is_closed: AtomicBool,
    /// The server refused a further connection.
    has_enough: AtomicBool,
}

/// A place for a connection.
struct Slot {
    link: Option<Arc<Link>>,
}

/// Counts of the writes that are durable and that are not.
#[derive(Debug, Default)]
struct Writes {
    underway: u64,
    /// Number of writes that were answered.
    answered: u64,
    /// Of these, the first so many are durable.
    durable: u64,
    failure: Option<Arc<str>>,
}

impl Writes {
    fn at_risk(&self) -> u64 {
        self.underway.saturating_add(self.answered.saturating_sub(self.durable))
    }

    fn check(&self) -> io::Result<()> {
        match &self.failure {
            None => Ok(()),
            Some(failure) => Err(io::Error::other(failure.to_string())),
        }
    }

    fn fail(&mut self, reason: &str) {
        let count = self.at_risk();
        let text = format!("{reason}; {count} writes before that may be lost, so nothing more is written");
        self.failure.get_or_insert_with(|| text.into());
    }
}

/// Says that writes are under way, until it is dropped.
pub(super) struct WriteGuard<'a>(&'a Connections);

impl Drop for WriteGuard<'_> {
    fn drop(&mut self) {
        let mut writes = self.0.writes.lock();
        writes.underway = writes.underway.saturating_sub(1);
    }
}

/// A range of a request, and its bytes.
pub(super) type Range = (u64, u32);

impl Connections {
    /// Connects, and chooses the export.
    ///
    /// # Errors
    /// Those of connecting and of the handshake.
    pub(super) fn open(address: Address) -> io::Result<Self> {
        let (link, agreed) = connect(&address)?;
        let slots = [Mutex::new(Slot { link: Some(link) }), Mutex::new(Slot { link: None })];
        let (turn, writes, down_since) = (AtomicUsize::new(0), Mutex::default(), Mutex::default());
        let (in_use, is_closed, has_enough) = (AtomicUsize::new(1), AtomicBool::default(), AtomicBool::default());
        Ok(Self { address, agreed, slots, in_use, turn, writes, down_since, is_closed, has_enough })
    }

    /// Ends all connections; there will be no others.
    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        for slot in &self.slots {
            if let Some(link) = slot.lock().link.take() {
                link.disconnect();
            }
        }
    }

    pub(super) const fn agreed(&self) -> &Agreed {
        &self.agreed
    }

    pub(super) const fn address(&self) -> &Address {
        &self.address
    }

    pub(super) const fn can(&self, flag: u16) -> bool {
        self.agreed.flags & flag != 0
    }

    /// A connection; a new one where the next one in turn is lost.
    ///
    /// # Errors
    /// Those of connecting, after several attempts.
    pub(super) fn link(&self) -> io::Result<Arc<Link>> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) % self.in_use.load(Ordering::Acquire).max(1);
        self.link_of(turn)
    }

    /// Makes one more connection for a caller with many requests, where the server allows it.
    pub(super) fn widen(&self) {
        let in_use = self.in_use.load(Ordering::Acquire);
        let can = self.can(transmission::CAN_MULTI_CONN) && !self.has_enough.load(Ordering::Acquire);
        let Some(slot) = self.slots.get(in_use).filter(|_| can) else { return };
        // Another thread may be at it.
        let Some(mut slot) = slot.try_lock().filter(|slot| slot.link.is_none()) else { return };
        match connect(&self.address) {
            Ok((link, found)) if is_same(&self.agreed, &found) => {
                slot.link = Some(link);
                self.in_use.store(in_use + 1, Ordering::Release);
            }
            // A server may allow fewer connections than it says: one has to do.
            _ => self.has_enough.store(true, Ordering::Release),
        }
    }

    fn link_of(&self, turn: usize) -> io::Result<Arc<Link>> {
        let missing = || io::Error::other("a device without connections");
        let mut slot = self.slots.get(turn).ok_or_else(missing)?.lock();
        if let Some(link) = slot.link.as_ref().filter(|link| !link.is_lost()) {
            return Ok(Arc::clone(link));
        }
        if self.is_closed.load(Ordering::Acquire) {
            return Err(io::Error::new(io::ErrorKind::NotConnected, "the connection was closed"));
        }
        slot.link = None;
        self.note_loss("the connection was lost");
        let link = self.connect_again()?;
        slot.link = Some(Arc::clone(&link));
        Ok(link)
    }

    /// Fails the device for writing if writes are at risk.
    pub(super) fn note_loss(&self, reason: &str) {
        let mut writes = self.writes.lock();
        if writes.at_risk() > 0 {
            writes.fail(reason);
        }
    }

    fn connect_again(&self) -> io::Result<Arc<Link>> {
        let is_down = self.down_since.lock().is_some_and(|since| since.elapsed() < DOWN_TIME);
        let pauses = if is_down { PAUSES.get(..1).unwrap_or_default() } else { &PAUSES };
        let mut failure = io::Error::from(io::ErrorKind::NotConnected);
        for pause in pauses {
            thread::sleep(*pause);
            match connect(&self.address) {
                Ok((link, found)) if is_same(&self.agreed, &found) => {
                    *self.down_since.lock() = None;
                    return Ok(link);
                }
                Ok((_, found)) => {
                    let (expected, found) = (self.agreed.size, found.size);
                    let text = format!("the export has changed: expected {expected} bytes, found {found}");
                    failure = io::Error::other(text);
                    break;
                }
                Err(error) => failure = error,
            }
        }
        *self.down_since.lock() = Some(Instant::now());
        Err(io::Error::new(failure.kind(), format!("cannot connect again: {failure}")))
    }

    /// Sends a request without data, for an answer that is waited for later.
    ///
    /// # Errors
    /// Those of connecting; a lost connection.
    pub(super) fn begin(&self, command: Command, flags: u16, range: Range) -> io::Result<Ticket> {
        self.link()?.begin(command, flags, range, &[]).map_err(|lost| lost.as_io())
    }

    /// Asks for several ranges at once, over a new connection where one is lost meanwhile. `take` gets each answer, by
    /// its place in `ranges`.
    ///
    /// # Errors
    /// The first of the server's refusals; a lost connection, after several attempts.
    pub(super) fn ask(
        &self,
        command: Command,
        flags: u16,
        ranges: &[Range],
        mut take: impl FnMut(usize, Answer),
    ) -> io::Result<()> {
        let mut left: Vec<usize> = (0..ranges.len()).collect();
        for attempt in 1.. {
            let link = self.link()?;
            let begin = |place: &usize| {
                let range = ranges.get(*place).copied().unwrap_or_default();
                (*place, link.begin(command, flags, range, &[]))
            };
            let begun: Vec<_> = left.iter().map(begin).collect();
            let mut lost = None;
            let mut again = Vec::new();
            for (place, ticket) in begun {
                match ticket.map_err(Failed::Lost).and_then(Ticket::wait) {
                    Ok(answer) => take(place, answer),
                    Err(Failed::Lost(failure)) => {
                        again.push(place);
                        lost = Some(failure);
                    }
                    Err(refused) => return Err(refused.as_io()),
                }
            }
            let Some(lost) = lost else { return Ok(()) };
            self.note_loss(&lost.as_io().to_string());
            // A server that stalls would stall again: the caller has waited long enough.
            if lost.is_timeout() || attempt >= LOST_MAX {
                return Err(lost.as_io());
            }
            left = again;
        }
        Ok(())
    }

    /// Begins writes: they are under way as long as the guard lives.
    ///
    /// # Errors
    /// That of the device where it has failed for writing; those of connecting.
    pub(super) fn begin_writes(&self) -> io::Result<WriteGuard<'_>> {
        // A connection that is known to be lost is replaced before these writes count as being at risk.
        for turn in 0..self.in_use.load(Ordering::Acquire) {
            self.link_of(turn)?.look();
            self.link_of(turn)?;
        }
        let mut writes = self.writes.lock();
        writes.check()?;
        writes.underway += 1;
        Ok(WriteGuard(self))
    }

    /// Waits for the answer to a change.
    ///
    /// # Errors
    /// The server's refusal; a lost connection, which fails the device for writing.
    pub(super) fn end_write(&self, ticket: Result<Ticket, Lost>) -> io::Result<()> {
        match ticket.map_err(Failed::Lost).and_then(Ticket::wait) {
            Ok(_) => {
                self.writes.lock().answered += 1;
                Ok(())
            }
            Err(failed) => {
                let error = failed.as_io();
                if matches!(failed, Failed::Lost(_)) {
                    self.writes.lock().fail(&error.to_string());
                }
                Err(error)
            }
        }
    }

    /// Makes the writes that were answered durable.
    ///
    /// # Errors
    /// The server's refusal, or a lost connection: both fail the device for writing, if there are writes at risk.
    pub(super) fn flush(&self) -> io::Result<()> {
        let answered = {
            let writes = self.writes.lock();
            writes.check()?;
            writes.answered
        };
        if !self.can(transmission::SEND_FLUSH) {
            // The server keeps nothing back, or says nothing of it.
            self.writes.lock().durable = answered;
            return Ok(());
        }
        for attempt in 1.. {
            let link = self.link()?;
            // The new connection may lead to a server that knows nothing of the writes.
            self.writes.lock().check()?;
            match link.begin(Command::Flush, 0, (0, 0), &[]).map_err(Failed::Lost).and_then(Ticket::wait) {
                Ok(_) => {
                    let mut writes = self.writes.lock();
                    writes.durable = writes.durable.max(answered);
                    return writes.check();
                }
                Err(failed) => {
                    let error = failed.as_io();
                    let is_lost = matches!(failed, Failed::Lost(_));
                    let mut writes = self.writes.lock();
                    if writes.at_risk() > 0 || !is_lost {
                        writes.fail(&format!("a flush failed: {error}"));
                        return Err(error);
                    }
                    if attempt >= LOST_MAX {
                        return Err(error);
                    }
                }
            }
        }
        Ok(())
    }
}

impl Drop for Connections {
    fn drop(&mut self) {
        self.close();
    }
}

fn connect(address: &Address) -> io::Result<(Arc<Link>, Agreed)> {
    let stream = Stream::new(Arc::new(address::connect(address)?));
    let (stream, agreed) = handshake::run(stream, address).map_err(|error| match error.kind() {
        io::ErrorKind::TimedOut => io::Error::new(error.kind(), "the server does not answer the handshake"),
        io::ErrorKind::UnexpectedEof => io::Error::new(error.kind(), "the server ended the handshake"),
        _ => error,
    })?;
    Ok((Link::new(stream, agreed.clone(), address.timeout), agreed))
}

/// True if a new connection leads to the same export, as far as that can be seen.
fn is_same(one: &Agreed, other: &Agreed) -> bool {
    // The number of the context and the time of a round trip may differ.
    (one.size, one.flags, one.sizes, one.is_structured) == (other.size, other.flags, other.sizes, other.is_structured)
        && one.context.is_some() == other.context.is_some()
}
