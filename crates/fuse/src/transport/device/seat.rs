//! The processor of the near thread: found by trying, as a request does not say where it was made.
//!
//! Where the asker sleeps on the near thread's processor, a reply lets the asker run at once, in place of the near
//! thread; when that runs again, the next request is there already. Elsewhere the asker has only just been woken.
//! So the seat is right where a request is there right after most of the replies that an asker waits for.
//! [`Worker`](super::Worker) says after each of these whether there was one.

use crate::transport::processors;
use rustix::thread::CpuSet;

/// Replies after which a seat is judged, and how many of them have to be followed by a request for it to be kept.
const REPLIES: u32 = 6;
const HITS_MIN: u32 = 3;
/// Replies for each processor that are not judged, after all processors were tried in vain.
const TIRED: usize = 64;

/// Where the near thread runs.
#[derive(Debug)]
pub(super) struct Seat {
    /// The processors that this process may use.
    allowed: Vec<usize>,
    /// Index of the present one.
    at: usize,
    /// Replies since the last judgement, and those with a request right after them.
    replies: u32,
    hits: u32,
    /// Processors tried since one was right.
    tried: usize,
    /// Replies that are not judged any more.
    tired: usize,
}

impl Seat {
    /// For the calling thread; `None` if it may use one processor only, or what it may use is unknown.
    pub(super) fn new() -> Option<Self> {
        let set = rustix::thread::sched_getaffinity(None).ok()?;
        let allowed: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|index| set.is_set(*index)).collect();
        let seat = Self { allowed, at: 0, replies: 0, hits: 0, tried: 0, tired: 0 };
        (seat.allowed.len() > 1).then_some(seat)
    }

    /// Stays where the thread runs now: the wake-up that brought it here often chose well.
    pub(super) fn take(&mut self) {
        let now = rustix::thread::sched_getcpu();
        self.at = self.allowed.iter().position(|index| *index == now).unwrap_or(self.at);
        (self.replies, self.hits, self.tried) = (0, 0, 0);
        self.settle();
    }

    /// Notes whether a request was there right after a reply.
    pub(super) fn judge(&mut self, was_there: bool) {
        if self.tired > 0 {
            self.tired -= 1;
            return;
        }
        self.replies += 1;
        self.hits += u32::from(was_there);
        if self.replies < REPLIES {
            return;
        }
        let is_right = self.hits >= HITS_MIN;
        (self.replies, self.hits) = (0, 0);
        if is_right {
            self.tried = 0;
            return;
        }
        self.tried += 1;
        if self.tried > self.allowed.len() {
            self.tried = 0;
            self.tired = TIRED * self.allowed.len();
        }
        self.at = (self.at + 1) % self.allowed.len();
        self.settle();
    }

    fn settle(&self) {
        if let Some(processor) = self.allowed.get(self.at) {
            processors::stay_on(*processor);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_tried_until_one_is_right_and_not_for_ever() {
        std::thread::spawn(|| {
            let Some(mut seat) = Seat::new() else { return eprintln!("SKIPPED: one processor") };
            seat.take();
            let first = seat.at;
            for _ in 0..REPLIES {
                seat.judge(false);
            }
            assert_ne!(seat.at, first);
            let here = seat.allowed[seat.at];
            assert_eq!(rustix::thread::sched_getcpu(), here);
            // Where most replies are followed by a request it stays.
            for reply in 0..100 * REPLIES {
                seat.judge(reply % 3 > 0);
            }
            assert_eq!(seat.allowed[seat.at], here);
            let (mut moves, mut at) = (0, seat.at);
            for reply in 0..TIRED * seat.allowed.len() {
                seat.judge(reply % 4 == 0);
                moves += usize::from(seat.at != at);
                at = seat.at;
            }
            assert!(moves <= seat.allowed.len() + 1, "{moves} moves");
        })
        .join()
        .unwrap();
    }
}
