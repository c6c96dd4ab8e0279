//! Runs CPU-bound work on worker threads: checksums of large ranges, compression, writeback. `bootstrap` and `make` of
//! the store start them; the pool's checksums and `writeback` of `btrfs` use them.
//!
//! A job takes no store lock except those of devices, since the thread that waits for it may hold one.

use codec::ChecksumType;
use codec::checksum::checksum_many;
use rayon::prelude::*;

use crate::locks::enter_worker_job;

/// Shorter ranges are not split between threads.
const PARALLEL_BYTES_MIN: usize = 256 << 10;
/// Bytes checksummed per job.
const JOB_BYTES: usize = 64 << 10;
/// Limit on threads.
const THREADS_MAX: usize = 256;

/// A pool of worker threads; without threads, jobs run on the calling thread.
#[derive(Debug)]
pub struct Workers(Option<rayon::ThreadPool>);

impl Workers {
    /// Starts `thread_count` threads, or one per processor for 0. With one thread, or if threads cannot be started,
    /// jobs run on the calling thread.
    #[must_use]
    pub fn new(thread_count: usize) -> Self {
        let wanted = match thread_count {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            count => count,
        };
        if wanted <= 1 {
            return Self::inline();
        }
        let builder = rayon::ThreadPoolBuilder::new()
            .num_threads(wanted.min(THREADS_MAX))
            .thread_name(|index| format!("worker-{index}"));
        Self(builder.build().ok())
    }

    /// No threads.
    #[must_use]
    pub fn inline() -> Self {
        Self(None)
    }

    /// Number of concurrent threads.
    #[must_use]
    pub fn thread_count(&self) -> usize {
        self.0.as_ref().map_or(1, rayon::ThreadPool::current_num_threads)
    }

    /// Runs `job` on every item, several at a time, and returns the results in order.
    pub fn map<T: Send, R: Send>(&self, items: Vec<T>, job: impl Fn(T) -> R + Sync) -> Vec<R> {
        let job = |item| {
            let _guard = enter_worker_job();
            job(item)
        };
        match &self.0 {
            Some(threads) if items.len() > 1 => threads.install(|| items.into_par_iter().map(&job).collect()),
            _ => items.into_iter().map(job).collect(),
        }
    }

    /// Runs `job` on a worker thread while the caller runs `here`, and returns both results. `here` may take locks,
    /// `job` only those of devices.
    pub fn beside<A: Send, B>(&self, job: impl FnOnce() -> A + Send, here: impl FnOnce() -> B) -> (A, B) {
        let (mut answers, here) = self.map_beside(vec![job], |job| job(), here);
        (answers.pop().expect("each job has an answer"), here)
    }

    /// Runs `job` on every item on the worker threads while the caller runs `here`. Returns the results in order, and
    /// that of `here`. As in [`Self::beside`], only `here` may take locks.
    pub fn map_beside<T: Send, R: Send, B>(
        &self,
        items: Vec<T>,
        job: impl Fn(T) -> R + Sync,
        here: impl FnOnce() -> B,
    ) -> (Vec<R>, B) {
        let Some(threads) = &self.0 else {
            let here = here();
            return (self.map(items, job), here);
        };
        let mut answers: Vec<Option<R>> = std::iter::repeat_with(|| None).take(items.len()).collect();
        let job = &job;
        let here = threads.in_place_scope(|scope| {
            for (answer, item) in answers.iter_mut().zip(items) {
                scope.spawn(move |_| {
                    let _guard = enter_worker_job();
                    *answer = Some(job(item));
                });
            }
            here()
        });
        (answers.into_iter().map(|answer| answer.expect("a scope ends when its jobs have ended")).collect(), here)
    }

    /// The packed checksums of all sectors of `data`.
    #[must_use]
    pub fn csum_data(&self, kind: ChecksumType, sector: usize, data: &[u8]) -> Vec<u8> {
        let sector = sector.max(1);
        let mut csums = vec![0; data.len().div_ceil(sector) * kind.len()];
        let Some(threads) = self.0.as_ref().filter(|_| data.len() >= PARALLEL_BYTES_MIN) else {
            checksum_many(kind, data, sector, &mut csums);
            return csums;
        };
        let sectors = (JOB_BYTES / sector).max(1);
        threads.install(|| {
            data.par_chunks(sectors * sector)
                .zip(csums.par_chunks_mut(sectors * kind.len()))
                .for_each(|(data, csums)| checksum_many(kind, data, sector, csums));
        });
        csums
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parallel_checksums_are_those_of_one_thread() {
        let data: Vec<u8> = (0..1_200_000u32).map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()[3]).collect();
        let threads = Workers::new(3);
        assert_eq!(threads.thread_count(), 3);
        for kind in ChecksumType::ALL {
            for len in [0, 4096, 300 << 10, (1 << 20) + 4096] {
                let (a, b) = (&threads, Workers::inline());
                assert_eq!(
                    a.csum_data(kind, 4096, &data[..len]),
                    b.csum_data(kind, 4096, &data[..len]),
                    "{kind} {len}"
                );
            }
        }
    }

    #[test]
    fn a_job_runs_beside_its_caller() {
        let caller = std::thread::current().id();
        let id = || std::thread::current().id();
        let (there, here) = Workers::new(2).beside(id, id);
        assert!(here == caller && there != caller);
        assert_eq!(Workers::inline().beside(id, id), (caller, caller));
    }

    #[test]
    fn results_of_jobs_beside_the_caller_keep_their_order() {
        for workers in [Workers::new(2), Workers::inline()] {
            let (squares, here) = workers.map_beside((0..100).collect(), |n: u64| n * n, || 7);
            assert_eq!((squares, here), ((0..100).map(|n| n * n).collect::<Vec<_>>(), 7));
        }
    }

    #[test]
    fn results_keep_their_order() {
        let squares = Workers::new(2).map((0..100).collect(), |n: u64| n * n);
        assert_eq!(squares, (0..100).map(|n| n * n).collect::<Vec<_>>());
    }
}
