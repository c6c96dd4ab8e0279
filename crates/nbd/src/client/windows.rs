//! Read-ahead: windows of the device that were asked for before, or with more, than they were needed.
//!
//! An answer of a server takes longer than the transfer of a window, so a read of metadata asks for the window around
//! it, and reads that follow each other make the next windows come early, up to [`AHEAD_MAX`]. Windows are larger the
//! longer the first answer takes. Other reads get a window at their second visit.
//!
//! Invariants: windows of at most [`KEPT_BYTES_MAX`] bytes are kept or under way; a write forgets the windows that it
//! touches after it was answered, before it returns, so that no later read sees older bytes. Failure: a window that
//! cannot be read is dropped, and the caller reads by itself. Called by `device`.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use blockdev::Kind;
use parking_lot::Mutex;

use super::connections::Connections;
use super::link::{Answer, Failed, Lost, Ticket};
use crate::number::{to_u32, to_u64, to_usize};
use crate::wire::Command;

/// Time that a byte is expected to take on its way: 500 MB a second.
const TRANSFER_NANOS: u64 = 2;
/// Bytes of windows that are kept or under way.
const KEPT_BYTES_MAX: u64 = 48 << 20;
/// Most windows under way before the end of a sequential read.
const AHEAD_MAX: u64 = 16;
/// Bytes of an announced range that are asked for, if that is more than [`AHEAD_MAX`] windows.
const ANNOUNCED_BYTES_MAX: u64 = 8 << 20;
/// A read of so many bytes is a request of its own, unless its windows are known: its caller announces what follows.
const LARGE_BYTES: u64 = 512 << 10;
/// Sequential reads that are followed at the same time.
const RUNS_MAX: usize = 8;
/// Windows that a run of reads of metadata may leave out.
const GAP_WINDOWS: u64 = 4;
/// Windows whose last visit is remembered.
const VISITS_MAX: usize = 256;

/// Windows of a device.
pub(super) struct Windows {
    /// 0 until the first read.
    window_bytes: AtomicU64,
    request_bytes_max: u32,
    size: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    windows: HashMap<u64, Arc<Window>>,
    /// Of the windows, the oldest first.
    order: VecDeque<u64>,
    runs: VecDeque<Run>,
    visits: VecDeque<u64>,
}

/// Reads that follow each other.
#[derive(Debug, Clone, Copy)]
struct Run {
    /// Where the next read is expected.
    next: u64,
    /// First window that was not asked for.
    ahead: u64,
    /// Windows to have under way.
    depth: u64,
}

/// A window.
struct Window(Mutex<Contents>);

enum Contents {
    Underway(Ticket),
    Here(Vec<u8>),
    Failed,
}

/// The windows that a read uses.
struct Plan {
    /// Windows that hold the wanted bytes.
    wanted: Range<u64>,
    /// Windows that will probably be wanted.
    coming: Range<u64>,
    uses_windows: bool,
}

impl Windows {
    /// Windows for a device of `size` bytes. Their length follows from the first read.
    pub(super) fn new(size: u64, request_bytes_max: u32) -> Self {
        Self { window_bytes: AtomicU64::new(0), request_bytes_max, size, state: Mutex::default() }
    }

    /// Chooses the length of windows by the time of the first read: the server may be slow, or the way to it long.
    pub(super) fn note_time(&self, time: Duration, len: u64) {
        let transfer = Duration::from_nanos(len.saturating_mul(TRANSFER_NANOS));
        let window_bytes: u64 = match time.saturating_sub(transfer).as_micros() {
            0..1000 => 64 << 10,
            1000..3000 => 256 << 10,
            _ => 1 << 20,
        };
        let most = u64::from(self.request_bytes_max).max(4096);
        let window_bytes = window_bytes.min(1 << most.ilog2());
        // The first read counts: there are no windows of another length.
        let _ = self.window_bytes.compare_exchange(0, window_bytes, Ordering::AcqRel, Ordering::Acquire);
    }

    /// True until the first read has said how long windows are.
    pub(super) fn is_new(&self) -> bool {
        self.window_bytes() == 0
    }

    fn window_bytes(&self) -> u64 {
        self.window_bytes.load(Ordering::Acquire)
    }

    /// Fills `buf`, if its bytes come from windows; false where the caller has to read.
    ///
    /// # Errors
    /// `TimedOut` where the server does not answer: the caller has waited long enough.
    pub(super) fn read(&self, connections: &Connections, offset: u64, buf: &mut [u8], kind: Kind) -> io::Result<bool> {
        let len = to_u64(buf.len());
        if self.is_new() {
            return Ok(false);
        }
        let plan = self.plan(offset, len, kind);
        let wanted = if plan.uses_windows { self.get(connections, plan.wanted.clone()) } else { Vec::new() };
        // Later than the windows that this read waits for.
        drop(self.get(connections, plan.coming));
        if !plan.uses_windows || wanted.len() != to_usize(plan.wanted.end - plan.wanted.start) {
            return Ok(false);
        }
        let mut filled = 0;
        for (number, window) in plan.wanted.zip(wanted) {
            let start = number.saturating_mul(self.window_bytes());
            let from = to_usize(offset.saturating_add(to_u64(filled)).saturating_sub(start));
            let mut contents = window.0.lock();
            let bytes = match contents.bytes() {
                Ok(bytes) => bytes,
                Err(failed) => {
                    drop(contents);
                    self.remove(number, &window);
                    return failed.map_or(Ok(false), |lost| Err(lost.as_io()));
                }
            };
            let rest = buf.get_mut(filled..).unwrap_or_default();
            let here = bytes.get(from..).unwrap_or_default();
            let count = here.len().min(rest.len());
            let (to, _) = rest.split_at_mut(count);
            to.copy_from_slice(here.get(..count).unwrap_or_default());
            filled += count;
        }
        Ok(filled == buf.len())
    }

    /// Asks for a range that will be read.
    pub(super) fn announce(&self, connections: &Connections, offset: u64, len: u64) {
        if self.is_new() {
            return;
        }
        let windows = self.numbers(offset, len);
        let most = AHEAD_MAX.max(ANNOUNCED_BYTES_MAX / self.window_bytes());
        let end = windows.end.min(windows.start.saturating_add(most));
        drop(self.get(connections, windows.start..end));
    }

    /// Forgets the windows of a range. Every change calls this before it returns.
    pub(super) fn forget(&self, offset: u64, len: u64) {
        if self.is_new() {
            return;
        }
        let range = self.numbers(offset, len.max(1));
        let mut gone = Vec::new();
        let mut state = self.state.lock();
        let touched: Vec<u64> = state.order.iter().copied().filter(|number| range.contains(number)).collect();
        for number in touched {
            gone.extend(state.windows.remove(&number));
            state.order.retain(|kept| *kept != number);
        }
        drop(state);
        // Requests under way are abandoned without the lock.
        drop(gone);
    }

    fn numbers(&self, offset: u64, len: u64) -> Range<u64> {
        let end = offset.saturating_add(len).min(self.size);
        offset / self.window_bytes()..end.div_ceil(self.window_bytes())
    }

    fn plan(&self, offset: u64, len: u64, kind: Kind) -> Plan {
        let wanted = self.numbers(offset, len);
        let mut state = self.state.lock();
        let coming = state.note_run(&wanted, (offset, len), self.window_bytes(), kind == Kind::Metadata);
        let is_known = wanted.clone().all(|number| state.windows.contains_key(&number));
        let is_short = wanted.end - wanted.start <= 2;
        let was_visited = state.visits.contains(&wanted.start);
        if !was_visited {
            if state.visits.len() >= VISITS_MAX {
                state.visits.pop_front();
            }
            state.visits.push_back(wanted.start);
        }
        let is_large = len >= LARGE_BYTES.max(2 * self.window_bytes());
        let coming = coming.filter(|_| !is_large);
        let in_run = coming.is_some();
        let uses_windows = is_known || (!is_large && (in_run || (is_short && (kind == Kind::Metadata || was_visited))));
        let last = self.size.div_ceil(self.window_bytes());
        let coming = coming.map_or(0..0, |coming| coming.start.min(last)..coming.end.min(last));
        Plan { wanted, coming, uses_windows }
    }

    /// These windows, in order; those that are not here are asked for. Shorter where that fails.
    fn get(&self, connections: &Connections, numbers: Range<u64>) -> Vec<Arc<Window>> {
        let mut found = Vec::new();
        for number in numbers {
            let known = self.state.lock().windows.get(&number).cloned();
            let window = match known {
                Some(window) => window,
                None => match self.ask(connections, number) {
                    Some(window) => window,
                    None => break,
                },
            };
            found.push(window);
        }
        found
    }

    /// Asks for a window, unless another thread has meanwhile.
    fn ask(&self, connections: &Connections, number: u64) -> Option<Arc<Window>> {
        let start = number.checked_mul(self.window_bytes()).filter(|start| *start < self.size)?;
        let len = self.window_bytes().min(self.size - start);
        let window = Arc::new(Window(Mutex::new(Contents::Failed)));
        // Those who find it in the list wait until the request is sent.
        let mut contents = window.0.lock();
        let mut gone = Vec::new();
        {
            let mut state = self.state.lock();
            if let Some(known) = state.windows.get(&number) {
                return Some(Arc::clone(known));
            }
            while to_u64(state.order.len()) >= KEPT_BYTES_MAX / self.window_bytes() {
                let Some(oldest) = state.order.pop_front() else { break };
                gone.extend(state.windows.remove(&oldest));
            }
            state.windows.insert(number, Arc::clone(&window));
            state.order.push_back(number);
        }
        drop(gone);
        match connections.begin(Command::Read, 0, (start, to_u32(to_usize(len)))) {
            Ok(ticket) => {
                *contents = Contents::Underway(ticket);
                drop(contents);
                Some(window)
            }
            Err(_) => {
                drop(contents);
                self.remove(number, &window);
                None
            }
        }
    }

    /// Removes a window that failed.
    fn remove(&self, number: u64, window: &Arc<Window>) {
        let mut state = self.state.lock();
        if state.windows.get(&number).is_some_and(|known| Arc::ptr_eq(known, window)) {
            state.windows.remove(&number);
            state.order.retain(|kept| *kept != number);
        }
    }
}

impl Contents {
    /// The bytes, once they are here.
    ///
    /// # Errors
    /// Where they cannot be read; with the reason if that is a server that does not answer.
    fn bytes(&mut self) -> Result<&[u8], Option<Lost>> {
        if let Self::Underway(_) = self {
            let Self::Underway(ticket) = std::mem::replace(self, Self::Failed) else { return Err(None) };
            match ticket.wait() {
                Ok(Answer::Data(bytes)) => *self = Self::Here(bytes),
                Err(Failed::Lost(lost)) if lost.is_timeout() => return Err(Some(lost)),
                _ => {}
            }
        }
        match self {
            Self::Here(bytes) => Ok(bytes),
            _ => Err(None),
        }
    }
}

impl State {
    /// Notes a read; where it continues others, the windows to ask for early.
    fn note_run(
        &mut self,
        wanted: &Range<u64>,
        (offset, len): (u64, u64),
        window_bytes: u64,
        is_metadata: bool,
    ) -> Option<Range<u64>> {
        let end = offset.saturating_add(len);
        // Gaps and steps back do not end a run: blocks of one tree lie between those of others.
        let gap_max = if is_metadata { GAP_WINDOWS.saturating_mul(window_bytes) } else { window_bytes };
        let is_near = |run: &Run| run.next.abs_diff(offset) <= gap_max;
        let Some(place) = self.runs.iter().position(is_near) else {
            if self.runs.len() >= RUNS_MAX {
                self.runs.pop_front();
            }
            let ahead = wanted.end.saturating_add(u64::from(is_metadata));
            self.runs.push_back(Run { next: end, ahead, depth: 0 });
            return is_metadata.then_some(wanted.end..ahead);
        };
        let mut run = self.runs.remove(place)?;
        let enters_window = run.next / window_bytes != end / window_bytes || end.is_multiple_of(window_bytes);
        run.next = run.next.max(end);
        if enters_window || run.depth == 0 {
            run.depth = (run.depth * 2).clamp(1, AHEAD_MAX);
        }
        let from = run.ahead.max(wanted.end);
        let to = wanted.end.saturating_add(run.depth).max(from);
        run.ahead = to;
        self.runs.push_back(run);
        Some(from..to)
    }
}
