//! A source tree into a volume through the library, on several threads.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

use anyhow::Result;
use spinney::{FileOptions, FileType, NewNode, Timestamp, Times, Volume};
use walkdir::WalkDir;

use crate::row::{as_float, as_u64};

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

struct Job {
    from: PathBuf,
    to: PathBuf,
}

/// Imports names, contents, owners, modes and times; synced at the end. Returns bytes.
pub(crate) fn import(volume: &Volume, source: &Path, threads: usize) -> Result<f64> {
    let bytes = Mutex::new(0u64);
    let (sender, receiver) = sync_channel::<Job>(QUEUE);
    let receiver = Mutex::new(receiver);
    thread::scope(|scope| -> Result<()> {
        let (receiver, bytes) = (&receiver, &bytes);
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(move || work(volume, receiver, bytes))).collect();
        for entry in WalkDir::new(source).min_depth(1).sort_by_file_name() {
            let entry = entry?;
            let to = entry.path().strip_prefix(source)?.to_path_buf();
            if entry.file_type().is_dir() {
                volume.create_node(&to, &node(&entry.metadata()?, FileType::Directory))?;
            } else if sender.send(Job { from: entry.into_path(), to }).is_err() {
                break;
            }
        }
        drop(sender);
        workers.into_iter().try_for_each(|worker| worker.join().expect("a worker does not panic"))
    })?;
    volume.sync()?;
    let total = *bytes.lock().expect("no worker panicked");
    Ok(as_float(total))
}

fn work(volume: &Volume, jobs: &Mutex<Receiver<Job>>, bytes: &Mutex<u64>) -> Result<()> {
    let mut sum = 0;
    loop {
        let job = jobs.lock().expect("no worker panicked").recv();
        let Ok(job) = job else { break };
        sum += one(volume, &job)?;
    }
    *bytes.lock().expect("no worker panicked") += sum;
    Ok(())
}

fn one(volume: &Volume, job: &Job) -> Result<u64> {
    let metadata = std::fs::symlink_metadata(&job.from)?;
    if metadata.is_symlink() {
        let target = std::fs::read_link(&job.from)?;
        let target = std::os::unix::ffi::OsStrExt::as_bytes(target.as_os_str());
        volume.create_node(&job.to, &NewNode { target, ..node(&metadata, FileType::Symlink) })?;
        return Ok(0);
    }
    let data = std::fs::read(&job.from)?;
    let new = node(&metadata, FileType::File);
    if metadata.len() <= WHOLE_BYTES {
        volume.create_node(&job.to, &NewNode { data: &data, ..new })?;
    } else {
        volume.create_node(&job.to, &new)?;
        FileOptions::new().write(true).open(volume, &job.to)?.write_at(&data, 0)?;
    }
    Ok(as_u64(data.len()))
}

fn node(metadata: &std::fs::Metadata, kind: FileType) -> NewNode<'static> {
    let time = |sec, nsec| Some(Timestamp::new(sec, u32::try_from(nsec).unwrap_or(0)));
    let times = Times {
        atime: time(metadata.atime(), metadata.atime_nsec()),
        mtime: time(metadata.mtime(), metadata.mtime_nsec()),
        ..Times::default()
    };
    let mode = metadata.mode() & 0o7777;
    NewNode { kind, mode, uid: metadata.uid(), gid: metadata.gid(), times, ..NewNode::default() }
}
