//! Operates a queue of a FUSE connection over io_uring: commands in, requests out, and the shared memory. Called by
//! `transport/ring`.
//!
//! A slot is memory for one request at a time. It belongs either to the kernel (which may write to it) or to this
//! process, which may access it only in that case.

use super::memory::Mapping;
use io_uring::register::Restriction;
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

/// `FUSE_IO_URING_CMD_REGISTER`: hands a slot to the kernel for the first time.
const REGISTER: u32 = 1;
/// `FUSE_IO_URING_CMD_COMMIT_AND_FETCH`: hands a reply, and with it the slot, to the kernel.
const COMMIT_AND_FETCH: u32 = 2;
/// `IORING_ENTER_GETEVENTS`: also runs work that the kernel deferred until the ring is entered.
const ENTER_GETEVENTS: u32 = 1;
/// Offset of the length of a submission's buffer (`struct io_uring_sqe`).
const SQE_LEN_OFFSET: usize = 24;

type Ring = IoUring<squeue::Entry128, cqueue::Entry>;

/// One queue with its slots.
pub(crate) struct RingQueue {
    ring: Ring,
    slots: Vec<Slot>,
    device: Option<Arc<OwnedFd>>,
    index: u16,
    in_kernel: usize,
    unsubmitted: usize,
}

impl Drop for RingQueue {
    /// The kernel may still write to slots that it has not returned, even for a while after the ring is closed: their
    /// memory is leaked, never reused.
    fn drop(&mut self) {
        for slot in self.slots.drain(..).filter(|slot| !slot.is_ours) {
            std::mem::forget(slot);
        }
    }
}

struct Slot {
    memory: Mapping,
    header_bytes: usize,
    /// Two `struct iovec`: address and length of the headers, then of the payload.
    vectors: Box<[u64; 4]>,
    is_ours: bool,
}

impl Slot {
    fn new(header_bytes: usize, payload_bytes: usize) -> io::Result<Self> {
        let memory = Mapping::new(payload_bytes, header_bytes)?;
        let payload = memory.address_bytes();
        let len = |bytes: usize| u64::try_from(bytes).map_err(|_| io::ErrorKind::InvalidInput);
        let payload_len = len(payload_bytes)?;
        Ok(Self {
            vectors: Box::new([payload + payload_len, len(header_bytes)?, payload, payload_len]),
            memory,
            header_bytes,
            is_ours: true,
        })
    }
}

impl RingQueue {
    /// A queue without a connection, with its future number `index`. It may be made in another thread than the one that
    /// uses it.
    pub(crate) fn new(index: u16, depth: usize, header_bytes: usize, payload_bytes: usize) -> io::Result<Self> {
        let entries = u32::try_from(depth).map_err(|_| io::ErrorKind::InvalidInput)?;
        let ring = Ring::builder().setup_r_disabled().setup_single_issuer().setup_defer_taskrun().build(entries)?;
        // Seccomp filters do not see operations of a ring. Only commands to devices are needed, so others are
        // forbidden.
        let mut allowed = [Restriction::sqe_op(opcode::UringCmd80::CODE)];
        ring.submitter().register_restrictions(&mut allowed)?;
        let slots = (0..depth).map(|_| Slot::new(header_bytes, payload_bytes)).collect::<io::Result<_>>()?;
        Ok(Self { ring, slots, device: None, index, in_kernel: 0, unsubmitted: 0 })
    }

    /// Makes this a queue of the connection of `device`, and gives all slots to the kernel. Only this thread uses the
    /// queue from now on.
    pub(crate) fn register(&mut self, device: Arc<OwnedFd>) -> io::Result<()> {
        self.device = Some(device);
        self.ring.submitter().register_enable_rings()?;
        for slot_index in 0..self.slots.len() {
            self.push(slot_index, REGISTER, 0)?;
        }
        self.submit(0)?;
        // A refused slot is returned at once with an error; one with a request is returned with success.
        let completions = self.ring.completion();
        let refused = completions.map(|entry| entry.result()).find(|result| *result < 0);
        match refused {
            Some(error) => Err(io::Error::from_raw_os_error(-error)),
            None => Ok(()),
        }
    }

    /// Waits for a request, and returns the index of its slot. `None` at the end.
    pub(crate) fn next(&mut self) -> io::Result<Option<usize>> {
        loop {
            if let Some(slot_index) = self.take_completed()? {
                return Ok(Some(slot_index));
            }
            if self.in_kernel == 0 {
                return Ok(None);
            }
            self.submit(1)?;
        }
    }

    /// As [`RingQueue::next`], without waiting: `None` if there is no request.
    pub(crate) fn try_next(&mut self) -> io::Result<Option<usize>> {
        if let Some(slot_index) = self.take_completed()? {
            return Ok(Some(slot_index));
        }
        self.collect()?;
        self.take_completed()
    }

    /// The slot of an arrived request.
    fn take_completed(&mut self) -> io::Result<Option<usize>> {
        loop {
            let Some(completion) = self.ring.completion().next() else {
                return Ok(None);
            };
            self.in_kernel = self.in_kernel.saturating_sub(1);
            let slot_index = usize::try_from(completion.user_data()).unwrap_or(usize::MAX);
            let Some(slot) = self.slots.get_mut(slot_index) else {
                continue;
            };
            slot.is_ours = true;
            if completion.result() < 0 {
                // The connection is gone, or will never use the slot again.
                let error = io::Error::from_raw_os_error(-completion.result());
                tracing::debug!(%error, queue = self.index, slot_index, "a slot is retired");
                continue;
            }
            // A reply must not wait until the next request has been answered too.
            if self.unsubmitted > 0 {
                self.submit(0)?;
            }
            return Ok(Some(slot_index));
        }
    }

    /// Headers and payload of a slot that [`RingQueue::next`] returned.
    pub(crate) fn slot(&mut self, slot_index: usize) -> Option<(&mut [u8], &mut [u8])> {
        let slot = self.slots.get_mut(slot_index).filter(|slot| slot.is_ours)?;
        let header_bytes = slot.header_bytes;
        let memory = slot.memory.bytes_mut();
        let payload_bytes = memory.len().checked_sub(header_bytes)?;
        let (payload, headers) = memory.split_at_mut_checked(payload_bytes)?;
        Some((headers, payload))
    }

    /// Returns a slot with the reply to the request `commit_id`.
    pub(crate) fn commit(&mut self, slot_index: usize, commit_id: u64) -> io::Result<()> {
        self.push(slot_index, COMMIT_AND_FETCH, commit_id)
    }

    fn push(&mut self, slot_index: usize, command: u32, commit_id: u64) -> io::Result<()> {
        let device = self.device.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        let device = types::Fd(device.as_raw_fd());
        let slot = self.slots.get_mut(slot_index).filter(|slot| slot.is_ours).ok_or(io::ErrorKind::InvalidInput)?;
        // `struct fuse_uring_cmd_req`: flags, commit id, queue, padding.
        let mut request = [0; 80];
        let (front, queue) = request.split_at_mut(16);
        front[8..].copy_from_slice(&commit_id.to_ne_bytes());
        queue[..2].copy_from_slice(&self.index.to_ne_bytes());
        let vectors = std::ptr::from_ref(&*slot.vectors).expose_provenance();
        let address = u64::try_from(vectors).map_err(|_| io::ErrorKind::InvalidInput)?;
        let entry = opcode::UringCmd80::new(device, command)
            .cmd(request)
            .addr(Some(address))
            .build()
            .user_data(u64::try_from(slot_index).map_err(|_| io::ErrorKind::InvalidInput)?);
        let entry = with_len(entry, 2);
        slot.is_ours = false;
        self.in_kernel += 1;
        self.unsubmitted += 1;
        // SAFETY: the vectors and their memory belong to a slot, which is neither accessed nor freed before its
        // completion (`is_ours`).
        let pushed = unsafe { self.ring.submission().push(&entry) };
        pushed.map_err(|_| io::ErrorKind::StorageFull.into())
    }

    /// Makes the kernel deliver completions, without waiting: it does so only when entered.
    fn collect(&mut self) -> io::Result<()> {
        let unsubmitted = u32::try_from(self.unsubmitted).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: no argument is passed, and only entries of `push` are submitted.
        let entered = unsafe { self.ring.submitter().enter::<()>(unsubmitted, 0, ENTER_GETEVENTS, None) };
        match entered {
            Ok(_) => self.unsubmitted = 0,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn submit(&mut self, want: usize) -> io::Result<()> {
        loop {
            match self.ring.submit_and_wait(want) {
                Ok(_) => {
                    self.unsubmitted = 0;
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Sets the length of a submission's buffer, which the builder of commands cannot set.
fn with_len(mut entry: squeue::Entry128, len: u32) -> squeue::Entry128 {
    const _: () = assert!(size_of::<squeue::Entry128>() == 128);
    let bytes = std::ptr::from_mut(&mut entry).cast::<u8>();
    // SAFETY: an entry is the 128 bytes of `struct io_uring_sqe` (`repr(C)`, size asserted), all
    // of them initialized; four bytes from offset 24 on are its `len`, and any value is valid.
    unsafe {
        std::ptr::copy_nonoverlapping(len.to_ne_bytes().as_ptr(), bytes.add(SQE_LEN_OFFSET), 4);
    }
    entry
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether anything is mapped at an address.
    fn is_mapped(address: u64) -> bool {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
        maps.lines().filter_map(|line| line.split_once(' ')).any(|(range, _)| {
            let (start, end) = range.split_once('-').unwrap_or_default();
            let number = |text| u64::from_str_radix(text, 16).unwrap_or(0);
            (number(start)..number(end)).contains(&address)
        })
    }

    /// After an error a queue freed the memory of slots that the kernel still had.
    #[test]
    fn memory_that_the_kernel_holds_is_not_given_back() {
        // Large, so that nothing else is mapped there at once.
        let Ok(mut queue) = RingQueue::new(0, 2, 4096, 64 << 20) else {
            return eprintln!("SKIPPED: no io_uring here");
        };
        let addresses: Vec<u64> = queue.slots.iter().map(|slot| slot.memory.address_bytes()).collect();
        if let Some(slot) = queue.slots.first_mut() {
            slot.is_ours = false;
        }
        drop(queue);
        assert_eq!(addresses.into_iter().map(is_mapped).collect::<Vec<_>>(), [true, false]);
    }
}
