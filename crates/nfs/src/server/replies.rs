//! Duplicate request cache: keeps the replies to calls that must not be carried out twice. A client repeats a call when
//! the connection broke before it received the reply.
//!
//! The key is a hash of the client's address and the whole record, which includes the transaction ID (`xid`). The
//! number of replies and their age are limited.
//!
//! ```text
//!  first --> Running --> Done(reply) --> forgotten
//!              ^            ^
//!   again: waits for it   again: gets it
//! ```

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::Peer;

/// Most replies in the cache.
const REPLIES_MAX: usize = 2048;
/// Longest age of a reply; clients repeat a call sooner.
const AGE_MAX: Duration = Duration::from_secs(180);
/// Longer replies are not cached; the procedures that need the cache have shorter ones.
const REPLY_BYTES_MAX: usize = 2048;

#[derive(Debug, Clone)]
enum State {
    Running,
    Done(Arc<[u8]>),
}

#[derive(Debug, Default)]
struct Table {
    states: HashMap<u64, State>,
    /// Keys of finished calls, the oldest first.
    done: VecDeque<(u64, Instant)>,
}

/// The cache of a server.
#[derive(Debug, Default)]
pub(super) struct Replies {
    table: Mutex<Table>,
    finished: Condvar,
    /// Randomly seeded, so that clients cannot choose records with equal hashes.
    hasher: RandomState,
}

impl Replies {
    /// Returns the cached reply to a call, or runs `answer` and caches its reply.
    pub(super) fn once(&self, peer: Peer, record: &[u8], answer: impl FnOnce() -> Vec<u8>) -> Vec<u8> {
        let key = self.hasher.hash_one((peer, record));
        let mut table = self.table.lock();
        loop {
            match table.states.get(&key) {
                Some(State::Done(reply)) => return reply.to_vec(),
                Some(State::Running) => self.finished.wait(&mut table),
                None => break,
            }
        }
        table.states.insert(key, State::Running);
        drop(table);
        let running = Running { replies: self, key };
        let reply = answer();
        running.finish(&reply);
        reply
    }
}

/// A call in progress. If it ends without a reply, by a panic, its entry is removed.
struct Running<'a> {
    replies: &'a Replies,
    key: u64,
}

impl Running<'_> {
    fn finish(self, reply: &[u8]) {
        if reply.len() > REPLY_BYTES_MAX {
            return;
        }
        let mut table = self.replies.table.lock();
        table.states.insert(self.key, State::Done(reply.into()));
        table.done.push_back((self.key, Instant::now()));
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let mut table = self.replies.table.lock();
        if matches!(table.states.get(&self.key), Some(State::Running)) {
            table.states.remove(&self.key);
        }
        let is_old = |since: &Instant| since.elapsed() > AGE_MAX;
        while table.done.front().is_some_and(|(_, since)| is_old(since)) || table.done.len() > REPLIES_MAX {
            if let Some((key, _)) = table.done.pop_front() {
                table.states.remove(&key);
            }
        }
        drop(table);
        self.replies.finished.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_is_repeated_gets_the_same_reply() {
        let replies = Replies::default();
        let (peer, other) = (Peer::Nameless(1), Peer::Nameless(2));
        assert_eq!(replies.once(peer, b"call", || vec![1]), [1]);
        assert_eq!(replies.once(peer, b"call", || vec![2]), [1]);
        assert_eq!(replies.once(peer, b"other", || vec![3]), [3]);
        assert_eq!(replies.once(other, b"call", || vec![4]), [4]);
    }

    #[test]
    fn a_call_that_is_repeated_while_it_runs_waits_for_it() {
        let replies = Replies::default();
        let (started, wait) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let slow = || {
                    started.send(()).unwrap();
                    std::thread::sleep(Duration::from_millis(50));
                    vec![1]
                };
                assert_eq!(replies.once(Peer::Nameless(1), b"call", slow), [1]);
            });
            wait.recv().unwrap();
            assert_eq!(replies.once(Peer::Nameless(1), b"call", || vec![2]), [1]);
        });
    }

    #[test]
    fn the_number_of_replies_is_limited() {
        let replies = Replies::default();
        for number in 0..REPLIES_MAX + 100 {
            replies.once(Peer::Nameless(1), &number.to_be_bytes(), Vec::new);
        }
        let table = replies.table.lock();
        assert!(table.states.len() <= REPLIES_MAX && table.done.len() <= REPLIES_MAX);
    }
}
