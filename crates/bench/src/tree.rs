//! Copies a source tree into a volume through the library, or into a directory through system calls, with the same
//! threads. `spinney_side`, `kernel_side` and `library` call it.

use std::collections::HashMap;
use std::fs::{File, FileTimes, Metadata, Permissions};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

use anyhow::Result;
use btrfs::Volume;
use walkdir::WalkDir;

use crate::row::{as_float, as_u64};
use vfs::file_system::{NodeKind, Time, WholeNode};
use vfs::{FileOptions, Times};

/// Files that wait for a worker at most.
const QUEUE: usize = 256;
/// Files up to this size are created with their contents in one step.
const WHOLE_BYTES: u64 = 1 << 20;

/// Bytes of the regular files of a tree.
pub(crate) fn size(source: &Path) -> Result<f64> {
    let mut bytes = 0;
    for entry in WalkDir::new(source) {
        let entry = entry?;
        if entry.file_type().is_file() {
            bytes += entry.metadata()?.len();
        }
    }
    Ok(as_float(bytes))
}

/// The destination of a copied tree. New files get the owner, mode and times of the source.
pub(crate) trait Target: Sync {
    fn directory(&self, to: &Path, metadata: &Metadata) -> Result<()>;
    fn symlink(&self, to: &Path, metadata: &Metadata, target: &Path) -> Result<()>;
    fn file(&self, to: &Path, metadata: &Metadata, data: &[u8]) -> Result<()>;
    fn hard_link(&self, first: &Path, to: &Path) -> Result<()>;
}

struct Job {
    from: PathBuf,
    to: PathBuf,
}

/// State shared by the threads of one copy.
struct Copy<'a, T> {
    target: &'a T,
    jobs: Mutex<Receiver<Job>>,
    /// First name of each file with several.
    links: Mutex<HashMap<u64, PathBuf>>,
    bytes: Mutex<u64>,
}

/// Copies names, contents, owners, modes, times and hard links; returns bytes.
pub(crate) fn copy(target: &impl Target, source: &Path, threads: usize) -> Result<f64> {
    let (sender, receiver) = sync_channel::<Job>(QUEUE);
    let (jobs, links, bytes) = (Mutex::new(receiver), Mutex::default(), Mutex::new(0));
    let copy = Copy { target, jobs, links, bytes };
    thread::scope(|scope| -> Result<()> {
        let copy = &copy;
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(move || work(copy))).collect();
        for entry in WalkDir::new(source).min_depth(1).sort_by_file_name() {
            let entry = entry?;
            let to = entry.path().strip_prefix(source)?.to_path_buf();
            if entry.file_type().is_dir() {
                target.directory(&to, &entry.metadata()?)?;
            } else if sender.send(Job { from: entry.into_path(), to }).is_err() {
                break;
            }
        }
        drop(sender);
        workers.into_iter().try_for_each(|worker| worker.join().expect("a worker does not panic"))
    })?;
    let total = *copy.bytes.lock().expect("no worker panicked");
    Ok(as_float(total))
}

fn work(copy: &Copy<'_, impl Target>) -> Result<()> {
    let mut sum = 0;
    loop {
        let job = copy.jobs.lock().expect("no worker panicked").recv();
        let Ok(job) = job else { break };
        sum += one(copy, job)?;
    }
    *copy.bytes.lock().expect("no worker panicked") += sum;
    Ok(())
}

fn one(copy: &Copy<'_, impl Target>, job: Job) -> Result<u64> {
    let metadata = std::fs::symlink_metadata(&job.from)?;
    if metadata.is_symlink() {
        copy.target.symlink(&job.to, &metadata, &std::fs::read_link(&job.from)?)?;
        return Ok(0);
    }
    let data = std::fs::read(&job.from)?;
    if metadata.nlink() < 2 {
        copy.target.file(&job.to, &metadata, &data)?;
        return Ok(as_u64(data.len()));
    }
    // Held until the file exists, so that no other worker links to it too early or copies it again.
    let mut links = copy.links.lock().expect("no worker panicked");
    if let Some(first) = links.get(&metadata.ino()) {
        copy.target.hard_link(first, &job.to)?;
        return Ok(0);
    }
    copy.target.file(&job.to, &metadata, &data)?;
    links.insert(metadata.ino(), job.to);
    Ok(as_u64(data.len()))
}

impl Target for Volume {
    fn directory(&self, to: &Path, metadata: &Metadata) -> Result<()> {
        self.create_node(to, &node(metadata, NodeKind::Directory))?;
        Ok(())
    }

    fn symlink(&self, to: &Path, metadata: &Metadata, target: &Path) -> Result<()> {
        let target = target.as_os_str().as_bytes();
        self.create_node(to, &WholeNode { target, ..node(metadata, NodeKind::Symlink) })?;
        Ok(())
    }

    fn file(&self, to: &Path, metadata: &Metadata, data: &[u8]) -> Result<()> {
        let new = node(metadata, NodeKind::File);
        if metadata.len() <= WHOLE_BYTES {
            self.create_node(to, &WholeNode { data, ..new })?;
            return Ok(());
        }
        self.create_node(to, &new)?;
        FileOptions::new().write(true).open(self, to)?.write_at(data, 0)?;
        self.set_times(to, &Times { atime: new.atime, mtime: new.mtime, ..Times::default() })?;
        Ok(())
    }

    fn hard_link(&self, first: &Path, to: &Path) -> Result<()> {
        Ok(self.by_paths().hard_link(first, to)?)
    }
}

fn node(metadata: &Metadata, kind: NodeKind) -> WholeNode<'static> {
    let time = |sec, nsec| Some(Time::new(sec, u32::try_from(nsec).unwrap_or(0)));
    WholeNode {
        kind,
        permissions: metadata.mode() & 0o7777,
        uid: metadata.uid(),
        gid: metadata.gid(),
        atime: time(metadata.atime(), metadata.atime_nsec()),
        mtime: time(metadata.mtime(), metadata.mtime_nsec()),
        ..WholeNode::default()
    }
}

/// A directory of a volume.
pub(crate) struct Below<'a> {
    pub(crate) volume: &'a Volume,
    pub(crate) dir: PathBuf,
}

impl Target for Below<'_> {
    fn directory(&self, to: &Path, metadata: &Metadata) -> Result<()> {
        Target::directory(self.volume, &self.dir.join(to), metadata)
    }

    fn symlink(&self, to: &Path, metadata: &Metadata, target: &Path) -> Result<()> {
        Target::symlink(self.volume, &self.dir.join(to), metadata, target)
    }

    fn file(&self, to: &Path, metadata: &Metadata, data: &[u8]) -> Result<()> {
        Target::file(self.volume, &self.dir.join(to), metadata, data)
    }

    fn hard_link(&self, first: &Path, to: &Path) -> Result<()> {
        Target::hard_link(self.volume, &self.dir.join(first), &self.dir.join(to))
    }
}

/// A directory of a mounted file system.
pub(crate) struct Directory(pub(crate) PathBuf);

impl Target for Directory {
    fn directory(&self, to: &Path, metadata: &Metadata) -> Result<()> {
        let to = self.0.join(to);
        std::fs::create_dir(&to)?;
        describe(&File::open(to)?, metadata)
    }

    fn symlink(&self, to: &Path, metadata: &Metadata, target: &Path) -> Result<()> {
        use rustix::fs::{AtFlags, CWD, Timespec, Timestamps};
        let to = self.0.join(to);
        std::os::unix::fs::symlink(target, &to)?;
        std::os::unix::fs::lchown(&to, Some(metadata.uid()), Some(metadata.gid()))?;
        let time = |tv_sec, tv_nsec| Timespec { tv_sec, tv_nsec };
        let times = Timestamps {
            last_access: time(metadata.atime(), metadata.atime_nsec()),
            last_modification: time(metadata.mtime(), metadata.mtime_nsec()),
        };
        Ok(rustix::fs::utimensat(CWD, &to, &times, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    fn file(&self, to: &Path, metadata: &Metadata, data: &[u8]) -> Result<()> {
        use std::io::Write as _;
        let mut file = File::create_new(self.0.join(to))?;
        file.write_all(data)?;
        describe(&file, metadata)
    }

    fn hard_link(&self, first: &Path, to: &Path) -> Result<()> {
        Ok(std::fs::hard_link(self.0.join(first), self.0.join(to))?)
    }
}

/// Owner, mode and times.
fn describe(file: &File, metadata: &Metadata) -> Result<()> {
    std::os::unix::fs::fchown(file, Some(metadata.uid()), Some(metadata.gid()))?;
    file.set_permissions(Permissions::from_mode(metadata.mode() & 0o7777))?;
    let times = FileTimes::new().set_accessed(metadata.accessed()?).set_modified(metadata.modified()?);
    Ok(file.set_times(times)?)
}
