//! Makes `write(2)` fail with `ENOSPC` under a writeback cache, before the kernel has accepted too much data.
//!
//! With a writeback cache the kernel accepts writes without asking the server for space; on a full volume only `fsync`
//! or `close` would report that the data is lost. But if the cached attributes of a file are invalid, each write first
//! sends a GETATTR with the file handle (that of `stat` has none), and fails if that fails. So while space is short,
//! the server keeps invalidating the attributes of the files that are open for writing:
//!
//! ```text
//!  enough space --- less than an eighth is free ------> short: every write asks
//!      ^                                                  |  writes that may have filled half of the free space wait
//!      `--- a quarter more is free -----------------------'  until the kernel has written its dirty pages
//! ```
//!
//! The free space is exact only when the kernel has no dirty pages, so a volume fills up in a few steps that become
//! smaller. The first write after one whose data found no space fails, once. Writes in place leave the free space as it
//! is: the more of them the kernel has written, the more may come before it writes again.
//!
//! A program that writes a new file at once and closes it never asks a second time; `close` reports the error, but few
//! programs check it. New files are opened for direct writes as long as the volume is full.
//!
//! A single call of any length is taken whole, and so are stores into a mapping. Without requests for openings, or
//! without a function that makes the kernel write, the server does none of this. Called by `service`, `open` and
//! `attr`.

use parking_lot::Mutex;
use rustix::fs::OFlags;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use vfs::FileSystem;
use vfs::file_system::{Errno, Handle, NodeId};

/// Space is short below an eighth of the volume, which is the limit of the kernel's dirty pages if the mounting process
/// could set it, and a little more; but not above this limit, since then every write becomes slower.
const SHORT_BYTES_MAX: u64 = 512 << 20;
const SHORT_PART: u64 = 8;
const SHORT_BYTES_MORE: u64 = 16 << 20;
/// When so much was freed since data was refused, the volume no longer counts as full.
const FULL_BYTES_MORE: u64 = 4 << 20;
/// Most bytes written in place before the kernel has to write its dirty pages.
const CREDIT_BYTES_MAX: u64 = 16 << 20;
/// Assumed size of a write until it is known, and its least size.
const CALL_BYTES_DEFAULT: u64 = 1 << 20;
const CALL_BYTES_MIN: u64 = 4096;
/// Shortest interval between two readings of the free space, unless this much was written.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);
const LOOK_BYTES: u64 = 4 << 20;
/// How long attributes stay valid that the kernel got meanwhile for other reasons.
const TELL_INTERVAL: Duration = Duration::from_millis(100);
/// Shortest interval for nodes that were opened.
const TELL_INTERVAL_MIN: Duration = Duration::from_millis(5);

/// Known free space, and the writing nodes.
pub(super) struct Room {
    state: Option<Mutex<State>>,
    is_short: AtomicBool,
    /// Data was refused, and little was freed since.
    is_full: AtomicBool,
    has_news: AtomicBool,
}

#[derive(Default)]
struct State {
    writers: HashMap<NodeId, Writer>,
    /// Size of the volume in bytes.
    total: u64,
    free: u64,
    looked: Option<Instant>,
    /// Bytes that the kernel has written since.
    unseen: u64,
    /// Writes that asked since the kernel wrote its dirty pages, and bytes that it wrote since.
    calls: u64,
    written: u64,
    /// Average bytes of a write.
    call_bytes: u64,
    /// Bytes that may be written before the kernel writes again, without known free space.
    credit: u64,
    free_before: u64,
    /// A write waits until the kernel has written its dirty pages.
    is_writing: bool,
    /// Available bytes when data was last refused for lack of space.
    refused_at: Option<u64>,
    was_refused: bool,
    /// Openings with direct writes that their programs did not request.
    direct: HashSet<Handle>,
    has_new_writers: bool,
    told: Option<Instant>,
}

/// A node open for writing.
#[derive(Default)]
struct Writer {
    openings: u32,
    /// Error of refused data, not yet reported to a write.
    refused: Option<Errno>,
}

impl Room {
    pub(super) fn new(is_watched: bool) -> Self {
        let state = State { call_bytes: CALL_BYTES_DEFAULT, ..State::default() };
        Self {
            state: is_watched.then(|| Mutex::new(state)),
            is_short: AtomicBool::new(false),
            is_full: AtomicBool::new(false),
            has_news: AtomicBool::new(false),
        }
    }

    /// Notes an opening with these flags of `open(2)`.
    pub(super) fn opened(&self, node: NodeId, flags: u32, fs: &dyn FileSystem) {
        let Some(state) = self.state.as_ref().filter(|_| may_write(flags)) else { return };
        let mut state = state.lock();
        let writer = state.writers.entry(node).or_default();
        writer.openings += 1;
        // The program that opens it now has lost nothing.
        writer.refused = None;
        state.has_new_writers = true;
        self.look(&mut state, fs);
    }

    /// Notes that an opening with these flags is closed.
    pub(super) fn closed(&self, node: NodeId, flags: u32) {
        let Some(state) = self.state.as_ref().filter(|_| may_write(flags)) else { return };
        let mut state = state.lock();
        if let Some(writer) = state.writers.get_mut(&node) {
            writer.openings = writer.openings.saturating_sub(1);
            if writer.openings == 0 {
                state.writers.remove(&node);
            }
        }
    }

    /// Notes that the kernel wrote this many bytes of dirty pages, or that they were refused.
    pub(super) fn written(&self, node: NodeId, bytes: u64, refused: Option<Errno>, fs: &dyn FileSystem) {
        let Some(state) = &self.state else { return };
        let mut state = state.lock();
        state.unseen = state.unseen.saturating_add(bytes);
        state.written = state.written.saturating_add(bytes);
        if let Some(error) = refused {
            state.was_refused = true;
            if let Some(writer) = state.writers.get_mut(&node) {
                writer.refused = Some(error);
            }
        }
        self.look(&mut state, fs);
        if refused == Some(Errno::ENOSPC) && self.is_short() {
            state.refused_at = Some(state.free);
            self.is_full.store(true, Ordering::Relaxed);
        }
        if self.is_short.load(Ordering::Relaxed) {
            let since = state.told.map_or(TELL_INTERVAL, |told| told.elapsed());
            if since >= TELL_INTERVAL || (state.has_new_writers && since >= TELL_INTERVAL_MIN) {
                self.has_news.store(true, Ordering::Relaxed);
            }
        }
    }

    /// True if space is short, so that a write has to ask again.
    pub(super) fn is_short(&self) -> bool {
        self.is_short.load(Ordering::Relaxed)
    }

    /// Notes that a write asks. True if it has to wait until the kernel has written its dirty pages, which
    /// [`Room::all_written`] reports.
    pub(super) fn has_to_wait(&self, node: NodeId) -> bool {
        let Some(state) = self.state.as_ref().filter(|_| self.is_short()) else { return false };
        let mut state = state.lock();
        if !state.writers.contains_key(&node) {
            return false;
        }
        state.calls += 1;
        let may_be_kept = state.calls.saturating_mul(state.call_bytes);
        if state.is_writing || may_be_kept <= (state.free / 2).max(state.credit) {
            return false;
        }
        state.is_writing = true;
        true
    }

    /// Notes that the kernel has written the dirty pages it had when a write began to wait.
    pub(super) fn all_written(&self, fs: &dyn FileSystem) {
        let Some(state) = &self.state else { return };
        let mut state = state.lock();
        state.looked = None;
        self.look(&mut state, fs);
        if state.written > 0 {
            state.call_bytes = (state.written / state.calls.max(1)).max(CALL_BYTES_MIN);
            let taken = state.free_before.saturating_sub(state.free);
            // Written in place: they needed no space.
            state.credit = match taken < state.written / 4 && !state.was_refused {
                true => (state.credit * 2).max(state.call_bytes).min(CREDIT_BYTES_MAX),
                false => 0,
            };
        }
        (state.calls, state.written, state.free_before) = (0, 0, state.free);
        (state.is_writing, state.was_refused) = (false, false);
    }

    /// True if new files get direct writes: data written once before the file is closed would be lost before any write
    /// asks.
    pub(super) fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Relaxed)
    }

    /// Notes an opening with such direct writes.
    pub(super) fn opened_directly(&self, handle: Handle) {
        if let Some(state) = &self.state {
            state.lock().direct.insert(handle);
        }
    }

    /// Notes its end; false for all other handles.
    pub(super) fn closed_directly(&self, handle: Handle) -> bool {
        self.state.as_ref().is_some_and(|state| state.lock().direct.remove(&handle))
    }

    /// The error of refused data of a node, for the first write that asks.
    pub(super) fn take_refused(&self, node: NodeId) -> Option<Errno> {
        self.state.as_ref()?.lock().writers.get_mut(&node)?.refused.take()
    }

    /// Nodes whose attributes the kernel has to invalidate from now on, if any.
    pub(super) fn take_stale_nodes(&self) -> Option<Vec<NodeId>> {
        if !self.has_news.load(Ordering::Relaxed) || !self.has_news.swap(false, Ordering::Relaxed) {
            return None;
        }
        let mut state = self.state.as_ref()?.lock();
        state.has_new_writers = false;
        state.told = Some(Instant::now());
        Some(state.writers.keys().copied().collect())
    }

    /// Reads the free space, at intervals.
    fn look(&self, state: &mut State, fs: &dyn FileSystem) {
        let is_recent = state.looked.is_some_and(|looked| looked.elapsed() < LOOK_INTERVAL);
        if is_recent && state.unseen < LOOK_BYTES {
            return;
        }
        let Ok(status) = fs.status() else { return };
        let bytes = |blocks: u64| blocks.saturating_mul(status.block_bytes.into());
        (state.total, state.free) = (bytes(status.blocks), bytes(status.blocks_available));
        (state.looked, state.unseen) = (Some(Instant::now()), 0);
        let limit = (state.total / SHORT_PART + SHORT_BYTES_MORE).min(SHORT_BYTES_MAX).min(state.total / 2);
        let was_short = self.is_short();
        let is_short = state.free < if was_short { limit + limit / 4 } else { limit };
        if !is_short || state.refused_at.is_some_and(|free| state.free > free.saturating_add(FULL_BYTES_MORE)) {
            state.refused_at = None;
            self.is_full.store(false, Ordering::Relaxed);
        }
        if is_short != was_short {
            self.is_short.store(is_short, Ordering::Relaxed);
            // The kernel's dirty pages may exceed the free space: the first write waits.
            (state.calls, state.written, state.credit) = (0, 0, 0);
            state.call_bytes = if is_short { u64::MAX } else { CALL_BYTES_DEFAULT };
            state.free_before = state.free;
            self.has_news.store(is_short, Ordering::Relaxed);
        }
    }
}

fn may_write(flags: u32) -> bool {
    matches!(OFlags::from_bits_retain(flags) & OFlags::RWMODE, OFlags::WRONLY | OFlags::RDWR)
}

#[cfg(test)]
mod tests {
    use super::*;
    use vfs::file_system::{Caller, Handle, NewNode, OpenFlags, WriteFlags};
    use vfs_conformance::{MemoryFs, MemoryOptions};

    const CAPACITY: u64 = 4 << 20;
    const PIECE: u64 = 64 << 10;
    const WRITER: u32 = OFlags::WRONLY.bits();

    fn volume() -> (MemoryFs, NodeId) {
        let fs = MemoryFs::new(&MemoryOptions { capacity_bytes: CAPACITY, ..MemoryOptions::default() });
        let node = fs.create(&Caller::default(), NodeId::ROOT, b"file", &NewNode::default()).unwrap().node;
        fs.open(&Caller::default(), node, OpenFlags::WRITE).unwrap();
        (fs, node)
    }

    fn bytes(count: u64) -> Vec<u8> {
        vec![1; usize::try_from(count).unwrap()]
    }

    /// Writes `data`, as the kernel does with dirty pages.
    fn write(room: &Room, fs: &MemoryFs, node: NodeId, at: u64, data: &[u8]) {
        let written = fs.write(node, Handle(0), at, data, WriteFlags::FROM_CACHE);
        let refused = written.err().map(|error| error.errno());
        room.written(node, u64::try_from(data.len()).unwrap(), refused, fs);
    }

    #[test]
    fn nobody_asks_while_there_is_room() {
        let (fs, node) = volume();
        let room = Room::new(true);
        room.opened(node, WRITER, &fs);
        write(&room, &fs, node, 0, &[1; 1000]);
        assert!(!room.is_short() && !room.has_to_wait(node) && room.take_stale_nodes().is_none());
    }

    /// A writer asks before each piece, and the kernel writes its dirty pages when told to, or on its own.
    #[test]
    fn a_writer_is_told_of_what_was_refused_at_its_next_write() {
        let (fs, node) = volume();
        let room = Room::new(true);
        room.opened(node, WRITER, &fs);
        room.opened(NodeId(900), OFlags::RDONLY.bits(), &fs);
        let piece = bytes(PIECE);
        let mut at = 0;
        let mut write_piece = |room: &Room| {
            write(room, &fs, node, at, &piece);
            at += PIECE;
        };
        // Free space is not read twice in so short a time.
        while !room.is_short() {
            write_piece(&room);
            std::thread::sleep(LOOK_INTERVAL);
        }
        assert_eq!(room.take_stale_nodes(), Some(vec![node]));
        assert_eq!(room.take_stale_nodes(), None);
        assert!(!room.has_to_wait(NodeId(900)), "a reader does not wait");

        let (mut kept, mut taken, mut waits) = (0, 0, 0);
        let refused = loop {
            if room.has_to_wait(node) {
                waits += 1;
                (0..std::mem::take(&mut kept)).for_each(|_| write_piece(&room));
                room.all_written(&fs);
                if let Some(error) = room.take_refused(node) {
                    break error;
                }
            }
            kept += 1;
            taken += 1;
            assert!(taken < 10_000, "it goes on without end");
        };
        assert_eq!(refused, Errno::ENOSPC);
        assert_eq!(room.take_refused(node), None, "it is told once");
        let room_pieces = CAPACITY / PIECE / 2;
        assert!((room_pieces - 4..room_pieces + 4).contains(&taken), "{taken} of {room_pieces}");
        assert!(waits < 20, "{waits}");
        room.closed(node, WRITER);
        assert!(!room.has_to_wait(node));
    }

    #[test]
    fn writes_in_place_wait_less_and_less() {
        let (fs, node) = volume();
        let room = Room::new(true);
        room.opened(node, WRITER, &fs);
        fs.write(node, Handle(0), 0, &bytes(CAPACITY - PIECE), WriteFlags::default()).unwrap();
        std::thread::sleep(LOOK_INTERVAL);
        room.opened(node, WRITER, &fs);
        assert!(room.is_short());
        let mut waits = 0;
        let piece = bytes(PIECE);
        let mut kept = 0;
        for _ in 0..1000 {
            if room.has_to_wait(node) {
                waits += 1;
                (0..std::mem::take(&mut kept)).for_each(|_| write(&room, &fs, node, 0, &piece));
                room.all_written(&fs);
                assert_eq!(room.take_refused(node), None);
            }
            kept += 1;
        }
        assert!((5..30).contains(&waits), "{waits}");
        // After a deletion no write asks any more.
        fs.unlink(NodeId::ROOT, b"file").unwrap();
        fs.release(node, Handle(0));
        fs.forget(node, 1);
        std::thread::sleep(LOOK_INTERVAL);
        room.closed(node, WRITER);
        room.opened(NodeId(7), WRITER, &fs);
        assert!(!room.is_short());
    }

    #[test]
    fn a_mount_without_such_a_cache_is_not_watched() {
        let (fs, node) = volume();
        let room = Room::new(false);
        fs.write(node, Handle(0), 0, &bytes(CAPACITY - PIECE), WriteFlags::default()).unwrap();
        room.opened(node, WRITER, &fs);
        room.written(node, 1, Some(Errno::ENOSPC), &fs);
        room.all_written(&fs);
        assert!(!room.is_short() && !room.has_to_wait(node) && room.take_refused(node).is_none());
        room.closed(node, WRITER);
    }
}
