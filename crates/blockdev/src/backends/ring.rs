//! Writes several requests of one thread concurrently, by a ring shared with the kernel (io_uring).
//!
//! The kernel reads the buffers of a job until its completion: no function here returns before that. Caller:
//! `direct_io`.

use crate::buffer::PooledBuffer;
use crate::convert::to_usize;
use io_uring::register::Restriction;
use io_uring::{IoUring, opcode, squeue, types};
use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd as _, BorrowedFd};

/// Writes that one ring has under way, at most.
pub(super) const QUEUE_DEPTH: u32 = 16;

/// Bytes on their way to a place of a file.
pub(super) struct Job<'a> {
    /// A number of the caller's.
    pub(super) owner: usize,
    /// Where they begin in the file.
    pub(super) position: u64,
    /// Bytes of the job.
    pub(super) len: usize,
    pub(super) bytes: Bytes<'a>,
}

/// Where the bytes of a job are.
pub(super) enum Bytes<'a> {
    /// As they came, in order.
    Parts(Vec<IoSlice<'a>>),
    /// At the beginning of a buffer of their own.
    Copied(PooledBuffer),
}

/// The result of a job.
pub(super) enum Outcome {
    /// So many of its bytes were written, maybe not all.
    Written(usize),
    /// The kernel's error.
    Failed(io::Error),
    /// The kernel does not take it.
    NotTried,
}

/// A ring of the kernel that takes writes and nothing else, of one thread at a time.
pub(super) struct WriteRing {
    ring: IoUring,
    /// The kernel took nothing more the last time: the ring is not to be used again.
    pub(super) is_broken: bool,
}

impl WriteRing {
    /// # Errors
    /// The kernel's: it may have no rings, or permit them only to root.
    pub(super) fn new() -> io::Result<Self> {
        let ring = IoUring::builder().setup_r_disabled().build(QUEUE_DEPTH)?;
        // Seccomp filters do not see operations of a ring.
        let mut allowed = [Restriction::sqe_op(opcode::Write::CODE), Restriction::sqe_op(opcode::Writev::CODE)];
        ring.submitter().register_restrictions(&mut allowed)?;
        ring.submitter().register_enable_rings()?;
        Ok(Self { ring, is_broken: false })
    }

    /// Writes `jobs` to `file`, each at its offset and in no order, and reports the result of each.
    pub(super) fn write<'a>(
        &mut self,
        file: BorrowedFd<'_>,
        jobs: impl IntoIterator<Item = Job<'a>>,
        mut done: impl FnMut(Job<'a>, Outcome),
    ) {
        let mut jobs = jobs.into_iter();
        let mut flight = Flight { ring: self, slots: Vec::new(), in_kernel: 0 };
        loop {
            while !flight.ring.is_broken && flight.in_kernel < to_usize(u64::from(QUEUE_DEPTH)) {
                let Some(job) = jobs.next() else { break };
                if let Err(job) = flight.push(file, job) {
                    done(job, Outcome::NotTried);
                }
            }
            if flight.in_kernel == 0 {
                break;
            }
            flight.wait();
            while let Some((job, outcome)) = flight.take_done() {
                done(job, outcome);
            }
        }
        jobs.for_each(|job| done(job, Outcome::NotTried));
    }
}

/// The jobs that the kernel has. It gets rid of them before this ends, whatever happens: their bytes are looked at.
struct Flight<'r, 'a> {
    ring: &'r mut WriteRing,
    /// Each in the place that its completion names.
    slots: Vec<Option<Job<'a>>>,
    in_kernel: usize,
}

impl Drop for Flight<'_, '_> {
    fn drop(&mut self) {
        while self.in_kernel > 0 {
            self.wait();
            while self.take_done().is_some() {}
        }
    }
}

impl<'a> Flight<'_, 'a> {
    /// Puts a job where the kernel finds it at the next [`Self::wait`]; gives it back where there is no room.
    #[expect(unsafe_code, reason = "the kernel is told where the bytes are")]
    fn push(&mut self, file: BorrowedFd<'_>, job: Job<'a>) -> Result<(), Job<'a>> {
        let index = self.slots.iter().position(Option::is_none).unwrap_or(self.slots.len());
        let (Some(entry), Ok(id)) = (entry_of(file, &job), u64::try_from(index)) else { return Err(job) };
        // SAFETY: the bytes lie in memory that the job borrows or owns, and so do the vectors that name them; the job
        // stays in its slot until its completion has come, which `drop` waits for.
        let pushed = unsafe { self.ring.ring.submission().push(&entry.user_data(id)) };
        if pushed.is_err() {
            return Err(job);
        }
        self.in_kernel += 1;
        match self.slots.get_mut(index) {
            Some(slot) => *slot = Some(job),
            None => self.slots.push(Some(job)),
        }
        Ok(())
    }

    /// Submits pushed jobs, and waits for a completion.
    fn wait(&mut self) {
        if self.ring.is_broken {
            // Completions appear by themselves.
            std::thread::yield_now();
            return;
        }
        let Err(error) = self.ring.ring.submit_and_wait(1) else { return };
        let is_passing = matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::ResourceBusy)
            || error.kind() == io::ErrorKind::WouldBlock;
        self.ring.is_broken = !is_passing;
    }

    /// A job that is done. Those that a broken ring never handed over come last.
    fn take_done(&mut self) -> Option<(Job<'a>, Outcome)> {
        if let Some(completion) = self.ring.ring.completion().next() {
            self.in_kernel = self.in_kernel.saturating_sub(1);
            let index = usize::try_from(completion.user_data()).ok()?;
            let job = self.slots.get_mut(index)?.take()?;
            let result = completion.result();
            let outcome = match usize::try_from(result) {
                Ok(count) => Outcome::Written(count),
                Err(_) => Outcome::Failed(io::Error::from_raw_os_error(-result)),
            };
            return Some((job, outcome));
        }
        if !self.ring.is_broken || self.ring.ring.submission().len() < self.in_kernel {
            return None;
        }
        // They will not be submitted any more: the ring is closed with them.
        let job = self.slots.iter_mut().find_map(Option::take)?;
        self.in_kernel = 0;
        Some((job, Outcome::NotTried))
    }
}

/// The entry of a job; `None` if its fields cannot represent it.
fn entry_of(file: BorrowedFd<'_>, job: &Job<'_>) -> Option<squeue::Entry> {
    let file = types::Fd(file.as_raw_fd());
    Some(match &job.bytes {
        Bytes::Copied(buffer) => {
            let bytes = buffer.get(..job.len)?;
            opcode::Write::new(file, bytes.as_ptr(), u32::try_from(job.len).ok()?).offset(job.position).build()
        }
        Bytes::Parts(parts) => {
            // `IoSlice` is `struct iovec`, as its documentation says.
            let vectors = parts.as_ptr().cast();
            opcode::Writev::new(file, vectors, u32::try_from(parts.len()).ok()?).offset(job.position).build()
        }
    })
}
