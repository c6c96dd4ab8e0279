//! The threads of a connection. One thread at a time receives. After it has received a record, it lets the next thread
//! receive, runs the call, and sends the reply. Replies may leave in another order than their calls came.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, Scope};

use parking_lot::Mutex;

use super::record::Inbox;
use super::socket::Socket;
use super::{Ended, Peer, STALL_MAX, Seat, Shared, THREADS_MAX, dispatch};

/// A connection.
struct Connection<'a> {
    shared: &'a Shared,
    socket: &'a Socket,
    peer: Peer,
    inbox: Mutex<Inbox>,
    sending: Mutex<()>,
    /// The client closed the connection, or the server did after an error.
    has_ended: AtomicBool,
    /// Threads that wait for a record.
    idle: AtomicUsize,
    threads: AtomicUsize,
    failure: Mutex<Option<Ended>>,
}

/// Serves a connection until it ends.
///
/// # Errors
/// A protocol error of the client, or an error of the socket.
pub(super) fn run(shared: &Shared, socket: &Socket, peer: Peer) -> Result<(), Ended> {
    let connection = Connection {
        shared,
        socket,
        peer,
        inbox: Mutex::new(Inbox::new()),
        sending: Mutex::default(),
        has_ended: AtomicBool::new(false),
        idle: AtomicUsize::new(1),
        threads: AtomicUsize::new(1),
        failure: Mutex::default(),
    };
    thread::scope(|scope| connection.work(scope, None));
    connection.failure.into_inner().map_or(Ok(()), Err)
}

impl<'a> Connection<'a> {
    /// Receives and answers records, as one of several threads.
    fn work<'scope>(&'scope self, scope: &'scope Scope<'scope, 'a>, _seat: Option<Seat<'a>>)
    where
        'a: 'scope,
    {
        while !self.has_ended.load(Ordering::Acquire) {
            match self.take_turn(scope) {
                Ok(true) => {}
                Ok(false) => self.end(None),
                Err(ended) => self.end(Some(ended)),
            }
        }
    }

    /// Ends the connection for all threads, and keeps the first reason.
    fn end(&self, reason: Option<Ended>) {
        if !self.has_ended.swap(true, Ordering::AcqRel) {
            let failed = reason.is_some();
            *self.failure.lock() = reason;
            if failed {
                self.socket.shut_down();
            }
        }
    }

    /// Receives one record, lets another thread receive, and answers; false if no more records come.
    fn take_turn<'scope>(&'scope self, scope: &'scope Scope<'scope, 'a>) -> Result<bool, Ended>
    where
        'a: 'scope,
    {
        let mut inbox = self.inbox.lock();
        if self.has_ended.load(Ordering::Acquire) {
            return Ok(false);
        }
        let Some(record) = inbox.next(self.socket, &self.shared.budget)? else { return Ok(false) };
        if self.idle.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.add_thread(scope);
        }
        drop(inbox);
        let answered = dispatch::answer(self.shared, self.peer, &record.bytes).map(|reply| {
            drop(record);
            let _turn = self.sending.lock();
            self.socket.send(&reply.bytes, STALL_MAX)
        });
        self.idle.fetch_add(1, Ordering::AcqRel);
        answered??;
        Ok(true)
    }

    /// Starts a thread to receive the next record, unless a limit of threads is reached.
    fn add_thread<'scope>(&'scope self, scope: &'scope Scope<'scope, 'a>)
    where
        'a: 'scope,
    {
        if self.threads.load(Ordering::Relaxed) >= THREADS_MAX {
            return;
        }
        let Some(seat) = self.shared.take_thread() else { return };
        let work = move || self.work(scope, Some(seat));
        let started = thread::Builder::new().name("nfs".to_owned()).spawn_scoped(scope, work);
        if started.is_ok() {
            self.threads.fetch_add(1, Ordering::Relaxed);
            self.idle.fetch_add(1, Ordering::AcqRel);
        }
    }
}
