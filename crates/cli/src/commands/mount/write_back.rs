//! Has the kernel write the dirty pages of a mount, on a thread of the supervisor.
//!
//! It is one thread for the life of the mount, known to the server: after writing, the kernel sends the server a sync,
//! as for each `syncfs(2)`, and for this thread the server need not commit. Caller: the supervisor.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;

use anyhow::Result;
use rustix::fs::{Mode, OFlags, StatVfsMountFlags};
use rustix::io::Errno;

use super::channel::{Channel, Message};

/// A request to the thread.
struct Wanted {
    /// The mount point; `None` if the mount was moved, so that it cannot be synced.
    dir: Option<PathBuf>,
    /// A directory of it; the answer tells whether that is mounted read-only.
    asked: Option<OwnedFd>,
}

/// Handle of the thread.
pub(super) struct Writer {
    wanted: mpsc::Sender<Wanted>,
    /// True while it runs a request.
    is_writing: Arc<AtomicBool>,
}

impl Writer {
    /// Starts the thread, which sends its results to `channel`.
    pub(super) fn start(channel: Channel) -> Result<Self> {
        let (wanted, told) = mpsc::channel::<Wanted>();
        let is_writing = Arc::<AtomicBool>::default();
        let at_work = Arc::clone(&is_writing);
        let work = move || {
            let thread = u32::try_from(rustix::thread::gettid().as_raw_nonzero().get()).unwrap_or(0);
            for Wanted { dir, asked } in told {
                let written = dir.map_or(Err(Errno::BUSY), |dir| write_all(&dir));
                let errno = written.err().map_or(0, Errno::raw_os_error);
                let read_only = asked.is_some_and(|asked| is_read_only(&asked));
                at_work.store(false, Ordering::SeqCst);
                // A server that has ended needs no answer.
                let _ = channel.send(&Message::WrittenBack { errno, read_only, thread }, None);
            }
        };
        std::thread::Builder::new().name("write-back".to_owned()).spawn(work)?;
        Ok(Self { wanted, is_writing })
    }

    /// Sends a request; false if one is still running.
    pub(super) fn write(&self, dir: Option<PathBuf>, asked: Option<OwnedFd>) -> bool {
        let is_idle = !self.is_writing.swap(true, Ordering::SeqCst);
        // The thread ends with the sender.
        is_idle && self.wanted.send(Wanted { dir, asked }).is_ok()
    }
}

/// Has the kernel write all dirty pages of a mount.
fn write_all(dir: &Path) -> rustix::io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open(dir, flags, Mode::empty())?;
    rustix::fs::syncfs(File::from(root))
}

/// True if a directory is mounted read-only, or cannot be examined.
fn is_read_only(dir: &OwnedFd) -> bool {
    rustix::fs::fstatvfs(dir).map_or(true, |place| place.f_flag.contains(StatVfsMountFlags::RDONLY))
}
