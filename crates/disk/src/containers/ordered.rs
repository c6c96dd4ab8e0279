//! Does work on pieces with several threads and takes the results in the order of the pieces. Called by the forms that
//! compress.
//!
//! Piece number `n` goes to thread `n mod threads`, and its result comes from there: the order needs no sorting, and a
//! full channel is all that holds the reader back. The calling thread reads and writes; the others only work.

use std::num::NonZeroUsize;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use super::options::THREADS_MAX;
use crate::{Error, Result};

/// Pieces that wait for each thread, finished ones included.
const WAITING_COUNT: usize = 2;

/// Takes pieces from `next` until there are none, and gives the results of `work` to `done` in the same order. Each
/// thread has a value of its own, made by `start`.
///
/// # Errors
/// The first failure of any of the four.
pub(super) fn run<S, P: Send, R: Send>(
    threads: NonZeroUsize,
    start: impl Fn() -> Result<S> + Sync,
    work: impl Fn(&mut S, P) -> Result<R> + Sync,
    mut next: impl FnMut() -> Result<Option<P>>,
    mut done: impl FnMut(R) -> Result<()>,
) -> Result<()> {
    std::thread::scope(|scope| {
        let mut lanes = Vec::new();
        for _ in 0..threads.get().min(THREADS_MAX) {
            let (pieces, of_lane) = sync_channel(WAITING_COUNT);
            let (to_caller, results) = sync_channel(WAITING_COUNT);
            let (start, work) = (&start, &work);
            let thread = move || serve(&of_lane, &to_caller, start, work);
            match std::thread::Builder::new().spawn_scoped(scope, thread) {
                Ok(_) => lanes.push(Lane { pieces, results }),
                // Fewer threads do the same work.
                Err(_) if !lanes.is_empty() => break,
                Err(source) => return Err(Error::Threads(source)),
            }
        }
        let waiting_max = lanes.len().saturating_mul(WAITING_COUNT);
        // How many pieces were given to threads, and how many results taken.
        let (mut given, mut taken) = (0_usize, 0_usize);
        loop {
            let piece = if given - taken < waiting_max { next()? } else { None };
            if let Some(piece) = piece {
                if let Some(lane) = lanes.get(given % lanes.len()) {
                    // A thread that ended says why by its last result.
                    let _ended = lane.pieces.send(piece);
                }
                given += 1;
            } else if taken < given {
                let result = lanes.get(taken % lanes.len()).and_then(|lane| lane.results.recv().ok());
                done(result.unwrap_or(Err(Error::Cancelled))?)?;
                taken += 1;
            } else {
                return Ok(());
            }
        }
    })
}

/// The calling thread's ends of a thread that works. Dropping it ends the thread.
struct Lane<P, R> {
    pieces: SyncSender<P>,
    results: Receiver<Result<R>>,
}

fn serve<S, P, R>(
    pieces: &Receiver<P>,
    results: &SyncSender<Result<R>>,
    start: impl Fn() -> Result<S>,
    work: impl Fn(&mut S, P) -> Result<R>,
) {
    let mut own = match start() {
        Ok(own) => own,
        Err(error) => return drop(results.send(Err(error))),
    };
    for piece in pieces {
        let result = work(&mut own, piece);
        let is_last = result.is_err();
        if results.send(result).is_err() || is_last {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn results_come_in_order() {
        for threads in [1, 2, 5] {
            let mut pieces = 0..100_u64;
            let mut seen = Vec::new();
            let work = |(): &mut (), piece: u64| {
                std::thread::sleep(Duration::from_micros((piece * 7919) % 300));
                Ok(piece * 2)
            };
            let done = |result| {
                seen.push(result);
                Ok(())
            };
            run(NonZeroUsize::new(threads).unwrap(), || Ok(()), work, || Ok(pieces.next()), done).unwrap();
            assert_eq!(seen, (0..100).map(|piece| piece * 2).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_failure_ends_all() {
        let threads = NonZeroUsize::new(3).unwrap();
        let work = |(): &mut (), piece: u32| if piece == 40 { Err(Error::ImageChanged) } else { Ok(piece) };
        let mut pieces = 0..;
        let ended = run(threads, || Ok(()), work, || Ok(pieces.next()), |_| Ok(()));
        assert!(matches!(ended, Err(Error::ImageChanged)));
        let ended = run(threads, || Err::<(), _>(Error::Zstd("start")), |(), ()| Ok(()), || Ok(Some(())), |()| Ok(()));
        assert!(matches!(ended, Err(Error::Zstd("start"))));
        let ended = run(threads, || Ok(()), |(), ()| Ok(()), || Ok(Some(())), |()| Err(Error::Cancelled));
        assert!(matches!(ended, Err(Error::Cancelled)));
    }
}
