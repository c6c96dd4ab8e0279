//! The thread of the supervisor that has the kernel write what it keeps of a mount.
//!
//! It is one thread as long as the mount lasts, so that the server knows it: when the kernel has written, it asks the
//! server to make everything durable, as for anybody who calls `syncfs(2)`. This thread does not want that.

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

/// What the thread is to do.
struct Wanted {
    /// Of which mount; none where it was moved, so that what it keeps cannot be asked for.
    dir: Option<PathBuf>,
    /// A directory of it, which may be mounted for reading only.
    asked: Option<OwnedFd>,
}

/// The thread.
pub(super) struct Writer {
    wanted: mpsc::Sender<Wanted>,
    /// It is at work.
    is_writing: Arc<AtomicBool>,
}

impl Writer {
    /// Starts the thread. It tells on `channel` when it has done something.
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
                // A server that is gone waits for nothing.
                let _ = channel.send(&Message::WrittenBack { errno, read_only, thread }, None);
            }
        };
        std::thread::Builder::new().name("write-back".to_owned()).spawn(work)?;
        Ok(Self { wanted, is_writing })
    }

    /// Has it write; false where it is writing already.
    pub(super) fn write(&self, dir: Option<PathBuf>, asked: Option<OwnedFd>) -> bool {
        let is_idle = !self.is_writing.swap(true, Ordering::SeqCst);
        // The thread ends with this side of it.
        is_idle && self.wanted.send(Wanted { dir, asked }).is_ok()
    }
}

/// Has the kernel write all that it keeps of a mount.
fn write_all(dir: &Path) -> rustix::io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open(dir, flags, Mode::empty())?;
    rustix::fs::syncfs(File::from(root))
}

/// True where a directory is mounted for reading only, or cannot be looked at.
fn is_read_only(dir: &OwnedFd) -> bool {
    rustix::fs::fstatvfs(dir).map_or(true, |place| place.f_flag.contains(StatVfsMountFlags::RDONLY))
}
