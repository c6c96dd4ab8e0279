//! Runs one queue: answers the requests of one processor, one after the other. `server` starts it.

use crate::activity::Pulse;
use crate::notify;
use crate::protocol::replies::OutHeader;
use crate::protocol::requests::InHeader;
use crate::protocol::{OwnedRequest, Request, opcode};
use crate::session::{Answer, Apart, BegunSync, MEANWHILE_MAX, Service};
use crate::sys::RingQueue;
use crate::transport::processors;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, mpsc};
use std::time::Duration;
use vfs::file_system::{Errno, Result};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Most requests that a queue holds at a time.
const DEPTH: usize = 4;
/// Room for replies that cannot be made in place: values of attributes, output of controls.
const SCRATCH_BYTES: usize = 128 * 1024;
/// Least payload that the kernel accepts.
const PAYLOAD_BYTES_MIN: usize = 8192;

/// Polling interval for requests answered on other threads.
const APART_STEP: Duration = Duration::from_millis(1);

/// The memory before the payload (`struct fuse_uring_req_header`).
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Headers {
    /// Header of the request, then of the reply.
    in_out: [u8; 128],
    /// The structure that the request begins with.
    fixed: [u8; 128],
    /// Zero so far.
    flags: u64,
    /// The kernel's identifier of the request.
    commit_id: u64,
    /// Bytes of payload.
    payload_len: u32,
    padding: u32,
    reserved: u64,
}
const _: () = assert!(size_of::<Headers>() == 288);

/// A queue that is ready to be registered.
pub(crate) struct Queue {
    ring: RingQueue,
    processor: u16,
    scratch: Vec<u8>,
}

/// A queue for each processor. They have no connection yet, so a failure costs nothing.
pub(crate) fn make_queues(request_bytes_max: usize) -> io::Result<Vec<Queue>> {
    let count = processors::possible_count().ok_or(io::ErrorKind::Unsupported)?;
    let payload_bytes = request_bytes_max
        .max(PAYLOAD_BYTES_MIN)
        .checked_next_multiple_of(rustix::param::page_size())
        .ok_or(io::ErrorKind::InvalidInput)?;
    (0..count)
        .map(|processor| {
            Ok(Queue {
                ring: RingQueue::new(processor, DEPTH, size_of::<Headers>(), payload_bytes)?,
                processor,
                scratch: vec![0; SCRATCH_BYTES],
            })
        })
        .collect()
}

impl Queue {
    /// Answers requests of the connection of `device` until the mount is gone.
    pub(crate) fn run(&mut self, device: &Arc<OwnedFd>, service: &Arc<Service>, pulse: &Pulse) {
        processors::stay_on(usize::from(self.processor));
        if let Err(error) = self.ring.register(Arc::clone(device)) {
            // The kernel has switched to the device by itself.
            tracing::debug!(%error, processor = self.processor, "the kernel refused a queue");
            return;
        }
        if let Err(error) = self.serve(device, service, pulse) {
            tracing::error!(%error, processor = self.processor, "a queue ended");
        }
    }

    fn serve(&mut self, device: &Arc<OwnedFd>, service: &Arc<Service>, pulse: &Pulse) -> io::Result<()> {
        let mut others = Others::default();
        // Deferred syncs end together when there is no other request.
        let mut begun: Vec<(usize, BegunSync)> = Vec::with_capacity(DEPTH);
        let mut meanwhile = 0;
        loop {
            while let Some((slot_index, apart)) = others.next() {
                self.end_syncs(service, &mut begun)?;
                self.reply_apart(device, slot_index, apart)?;
            }
            if begun.is_empty() {
                pulse.set_busy(false);
            }
            let next = match begun.is_empty() {
                true if others.is_empty() => self.ring.next()?,
                true => self.ring.try_next()?,
                false if meanwhile < MEANWHILE_MAX => self.ring.try_next()?,
                false => None,
            };
            meanwhile = if begun.is_empty() { 0 } else { meanwhile + 1 };
            let Some(slot_index) = next else {
                if begun.is_empty() && others.is_empty() {
                    return Ok(());
                }
                if begun.is_empty() {
                    others.wait();
                }
                self.end_syncs(service, &mut begun)?;
                continue;
            };
            let Some((headers, payload)) = slot_of(&mut self.ring, slot_index) else {
                continue;
            };
            pulse.set_busy(true);
            let (result, stale) = match answer(service, headers, payload, &mut self.scratch) {
                Answer::Done(len) => (Ok(len), None),
                Answer::DoneStale(len, stale) => (Ok(len), Some(stale)),
                Answer::Failed(error) => (Err(error), None),
                Answer::Begun(sync) => {
                    begun.push((slot_index, sync));
                    continue;
                }
                Answer::Apart(request) => match others.start(slot_index, service, request) {
                    Ok(()) => continue,
                    Err(error) => {
                        tracing::warn!(%error, "a request that needs a thread of its own");
                        (Err(Errno::EAGAIN), None)
                    }
                },
                // Such requests do not come this way, but every slot has to be returned.
                Answer::Silent => (Err(Errno::EINVAL), None),
            };
            if let Some(stale) = stale {
                // A syncing thread may hold the lock that the kernel waits for.
                self.end_syncs(service, &mut begun)?;
                notify::send_stale(device, stale);
            }
            self.reply(slot_index, result)?;
            if let Some(nodes) = service.take_stale_nodes() {
                notify::send_stale_attributes(device, nodes);
            }
        }
    }

    fn end_syncs(&mut self, service: &Service, begun: &mut Vec<(usize, BegunSync)>) -> io::Result<()> {
        for (slot_index, sync) in begun.drain(..) {
            self.reply(slot_index, service.end_sync(&sync))?;
        }
        Ok(())
    }

    fn reply_apart(&mut self, device: &Arc<OwnedFd>, slot_index: usize, apart: Apart) -> io::Result<()> {
        let Apart { reply, stale } = apart;
        if let Some(stale) = stale {
            notify::send_stale(device, stale);
        }
        let result = reply.and_then(|bytes| {
            let (_, payload) = slot_of(&mut self.ring, slot_index).ok_or(Errno::EIO)?;
            payload.get_mut(..bytes.len()).ok_or(Errno::EIO)?.copy_from_slice(&bytes);
            Ok(bytes.len())
        });
        self.reply(slot_index, result)
    }

    fn reply(&mut self, slot_index: usize, result: Result<usize>) -> io::Result<()> {
        let Some((headers, _)) = slot_of(&mut self.ring, slot_index) else {
            return Ok(());
        };
        let commit_id = headers.commit_id;
        let unique = InHeader::read_from_prefix(&headers.in_out).map_or(0, |(h, _)| h.unique);
        put_reply(headers, unique, result);
        self.ring.commit(slot_index, commit_id)
    }
}

/// Requests of a queue that other threads answer.
struct Others {
    count: usize,
    tell: mpsc::Sender<(usize, Apart)>,
    told: mpsc::Receiver<(usize, Apart)>,
    /// An answer that was received and not yet taken.
    received: Option<(usize, Apart)>,
}

impl Default for Others {
    fn default() -> Self {
        let (tell, told) = mpsc::channel();
        Self { count: 0, tell, told, received: None }
    }
}

impl Others {
    fn is_empty(&self) -> bool {
        self.count == 0
    }

    fn start(&mut self, slot_index: usize, service: &Arc<Service>, request: OwnedRequest) -> io::Result<()> {
        let (service, tell) = (Arc::clone(service), self.tell.clone());
        let answer = move || {
            // A queue that has ended needs no answer.
            tell.send((slot_index, service.serve_with_data(&request))).unwrap_or_default();
        };
        std::thread::Builder::new().name("fuse-apart".to_owned()).spawn(answer)?;
        self.count += 1;
        Ok(())
    }

    /// Waits for an answer, but no longer than a request of the kernel may wait meanwhile.
    fn wait(&mut self) {
        if self.received.is_none() {
            self.received = self.told.recv_timeout(APART_STEP).ok();
        }
    }

    /// The next answer.
    fn next(&mut self) -> Option<(usize, Apart)> {
        let answered = self.received.take().or_else(|| self.told.try_recv().ok())?;
        self.count = self.count.saturating_sub(1);
        Some(answered)
    }
}

fn slot_of(ring: &mut RingQueue, slot_index: usize) -> Option<(&mut Headers, &mut [u8])> {
    let (headers, payload) = ring.slot(slot_index)?;
    let (headers, _) = Headers::mut_from_prefix(headers).ok()?;
    Some((headers, payload))
}

fn answer(service: &Service, headers: &Headers, payload: &mut [u8], scratch: &mut [u8]) -> Answer {
    match try_answer(service, headers, payload, scratch) {
        Ok(answer) => answer,
        Err(error) => Answer::Failed(error),
    }
}

fn try_answer(service: &Service, headers: &Headers, payload: &mut [u8], scratch: &mut [u8]) -> Result<Answer> {
    let (header, _) = InHeader::read_from_prefix(&headers.in_out).map_err(|_| Errno::EINVAL)?;
    let fixed_bytes = opcode::fixed_bytes(header.opcode).ok_or(Errno::ENOSYS)?;
    let fixed = headers.fixed.get(..fixed_bytes).ok_or(Errno::EINVAL)?;
    let payload_len = usize::try_from(headers.payload_len).map_err(|_| Errno::EINVAL)?;
    if payload_len == 0 {
        let request = Request::from_parts(header, fixed, &[])?;
        return Ok(service.serve(&request, payload));
    }
    let rest = payload.get(..payload_len).ok_or(Errno::EINVAL)?;
    let request = Request::from_parts(header, fixed, rest)?;
    let answer = service.serve(&request, scratch);
    if let Answer::Done(len) | Answer::DoneStale(len, _) = answer {
        let from = scratch.get(..len).ok_or(Errno::EIO)?;
        payload.get_mut(..len).ok_or(Errno::EIO)?.copy_from_slice(from);
    }
    Ok(answer)
}

fn put_reply(headers: &mut Headers, unique: u64, result: Result<usize>) {
    let len = result.and_then(|len| u32::try_from(len).map_err(|_| Errno::EIO));
    headers.payload_len = len.unwrap_or(0);
    let header = OutHeader::new(unique, result);
    if header.write_to_prefix(&mut headers.in_out).is_err() {
        tracing::error!("the headers of a ring are too small for a reply");
    }
}
