//! Counts and records the open streams of a server, so that they can be ended. Called by `serve`.

use std::collections::HashMap;
use std::io;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// Streams at the same time, of all clients.
pub const STREAMS_MAX: usize = 96;
/// Most streams of all users except root.
const STREAMS_OF_USERS_MAX: usize = 64;
/// Most streams of one user except root.
const STREAMS_OF_USER_MAX: usize = 32;
/// How long a stream may take to end that was shut down: its client can have a call of the system last for ever.
const END_MAX: Duration = Duration::from_secs(5);

/// All streams, each with its user.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    list: Mutex<List>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct List {
    open: HashMap<u64, (UnixStream, u32)>,
    next: u64,
    is_closed: bool,
}

impl List {
    fn has_room(&self, uid: u32) -> bool {
        let count = |counts: &dyn Fn(u32) -> bool| self.open.values().filter(|(_, of)| counts(*of)).count();
        let has_room_for_user =
            || count(&|of| of != 0) < STREAMS_OF_USERS_MAX && count(&|of| of == uid) < STREAMS_OF_USER_MAX;
        self.open.len() < STREAMS_MAX && (uid == 0 || has_room_for_user())
    }
}

impl Streams {
    /// Registers a stream until the returned guard is dropped.
    pub(crate) fn register(self: &Arc<Self>, stream: &UnixStream, uid: u32) -> io::Result<Ended> {
        let other = stream.try_clone()?;
        let mut list = self.list.lock();
        if list.is_closed || !list.has_room(uid) {
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        list.next = list.next.wrapping_add(1);
        let number = list.next;
        list.open.insert(number, (other, uid));
        Ok(Ended { streams: Arc::clone(self), number })
    }

    /// Shuts all of them down, and takes no more.
    pub(crate) fn close(&self) {
        let mut list = self.list.lock();
        list.is_closed = true;
        for (stream, _) in list.open.values() {
            // It may have ended by itself.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Waits until all have ended, but not for ever; returns how many have not.
    pub(crate) fn wait_for_end(&self) -> usize {
        let (mut list, end) = (self.list.lock(), Instant::now() + END_MAX);
        while !list.open.is_empty() && !self.changed.wait_until(&mut list, end).timed_out() {}
        list.open.len()
    }
}

/// Takes a stream off the list at its end.
pub(crate) struct Ended {
    streams: Arc<Streams>,
    number: u64,
}

impl Drop for Ended {
    fn drop(&mut self) {
        self.streams.list.lock().open.remove(&self.number);
        self.streams.changed.notify_all();
    }
}
