//! `spinney umount` unmounts a mount, and reports data that the file system had to refuse. Called by `args`.

use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use clap::Args;
use rustix::io::{Errno, retry_on_intr};
use spinney::blockdev::{Access, Locator};

use super::ending_server::EndingServer;
use super::holders::holders;
use crate::commands::failure::{Failure, Status};
use crate::commands::output;
use spinney::mounts::{self as table, Mount as Row};

/// Longest wait for a server that writes its last data; then a message is printed.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// Time after which a busy mount is reported.
const BUSY_MAX: Duration = Duration::from_secs(1);
/// Interval of checks whether it has ended, and of retries.
const WAIT_STEP: Duration = Duration::from_millis(5);

/// Unmount, and wait until the image is complete
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  spinney umount /mnt/site\n  spinney umount --lazy /mnt/site",
    after_long_help = "\
This command waits until the image is complete and can be used by others. So does umount(8) where
root mounted; of the mount of another user, it and fusermount3 -u return while the server still
writes what it has in memory. Where not everything could be written (except to files that are gone
by now) it says so, and ends with 1; the directory is unmounted all the same. Where the server does
not end writing for a minute it stays mounted, which ends with 7.

Examples:
  spinney umount /mnt/site
  spinney umount --lazy /mnt/site     now, even if files are open; it ends when they are closed"
)]
pub(crate) struct Umount {
    /// Directory that an image is mounted on, or the image itself: of several mounts of it that you made, the last one
    #[arg(value_name = "DIR|IMAGE")]
    dir: PathBuf,
    /// Detach the mount at once; it ends when it is no longer in use
    #[arg(short, long)]
    lazy: bool,
}

impl Umount {
    /// Runs the command.
    ///
    /// # Errors
    /// The first failure; `failure::status_of` gives its status.
    pub(crate) fn run(&self) -> Result<()> {
        let shown = self.dir.display();
        // Only directories above the mount are accessed: its server may be stuck.
        let dir = resolve(&self.dir).with_context(|| shown.to_string())?;
        let row = match table::find(&dir)?.filter(Row::is_ours) {
            None => table::find_image(&dir)?,
            row => row,
        };
        let Some(row) = row else {
            let text = format!("{shown}: neither is an image mounted here by spinney, nor is this such an image");
            return Err(Failure::refused(text).into());
        };
        let dir = row.dir.clone();
        let written = if self.lazy || row.read_only {
            Ok(())
        } else {
            write_all(&dir).ok_or_else(|| {
                let text = format!(
                    "{shown}: not unmounted: after {} s its server has not written everything; it may be stopped, or \
                     its device slow (--lazy unmounts all the same)",
                    WAIT_MAX.as_secs()
                );
                Failure::new(Status::Busy, text)
            })?
        };
        let server = EndingServer::find(&row.source, &dir);
        unmount(&dir, self.lazy).inspect_err(|_| {
            let users = holders(&dir);
            if !users.is_empty() {
                output::warn(&format!("{shown} is in use by {}", users.join(", ")));
            }
        })?;
        // A synced mount has waited for its server. One that has further mount points goes on.
        let is_last = table::alike(&row)?.is_empty();
        if is_last && !self.lazy && !row.read_only {
            match server {
                Some(server) if !server.wait(WAIT_MAX) => {
                    output::warn(&format!("{} is still being written", row.source.display()));
                }
                None if !row.is_synced() => wait_for(&row.source),
                _ => {}
            }
        }
        written.map_err(|error| {
            let reason = match Errno::from_io_error(&error) {
                Some(Errno::ROFS) => "a failure had stopped all writing".to_owned(),
                _ => error.to_string(),
            };
            let text = format!("{shown}: unmounted, but not everything written there is in the image: {reason}");
            Failure::refused(text).into()
        })
    }
}

/// Unmounts. The kernel closes files of programs that have just ended a moment later (with asynchronous I/O), so a busy
/// mount is retried.
fn unmount(dir: &Path, lazy: bool) -> spinney::fuse::Result<()> {
    let start = Instant::now();
    loop {
        match spinney::fuse::unmount(dir, lazy) {
            Err(spinney::fuse::Error::Unmount { source, .. })
                if source.raw_os_error() == Some(Errno::BUSY.raw_os_error()) && start.elapsed() < BUSY_MAX =>
            {
                // The kernel gives no notice when it closes the last file, so this polls.
                std::thread::sleep(WAIT_STEP);
            }
            result => return result,
        }
    }
}

/// The absolute path of a directory, without accessing the file system mounted on it.
fn resolve(dir: &Path) -> Result<PathBuf> {
    let absolute = std::path::absolute(dir)?;
    if table::find(&absolute)?.is_some_and(|row| row.is_ours()) {
        return Ok(absolute);
    }
    match (absolute.parent(), absolute.file_name()) {
        (Some(parent), Some(name)) => {
            let candidate = parent.canonicalize()?.join(name);
            if table::find(&candidate)?.is_some_and(|row| row.is_ours()) {
                return Ok(candidate);
            }
            Ok(absolute.canonicalize()?)
        }
        _ => Ok(absolute.canonicalize()?),
    }
}

/// Writes all data of a mount, and returns whether that failed, now or at any time before; `None` if it takes too long.
fn write_all(dir: &Path) -> Option<io::Result<()>> {
    let (done, is_done) = mpsc::sync_channel(1);
    let dir = dir.to_owned();
    // A stuck server blocks this thread, but not the program.
    std::thread::spawn(move || {
        // If it cannot be opened, its server is gone, or it belongs to another user.
        let written = File::open(dir).map_or(Ok(()), |root| write_all_of(&root));
        // The receiver is gone if it took too long.
        done.send(written).unwrap_or_default();
    });
    is_done.recv_timeout(WAIT_MAX).ok()
}

fn write_all_of(root: &File) -> io::Result<()> {
    // Writes the kernel's dirty pages, and in synced mounts the server's data; then the rest. The kernel also writes
    // times of files whose data it collects, and reports an interruption of that at the next sync: either that a
    // program was killed meanwhile, which a second sync no longer reports...
    match retry_on_intr(|| rustix::fs::syncfs(root)) {
        // ... or that the file is gone: nothing is missing.
        Ok(()) | Err(Errno::STALE) => {}
        Err(error) => return Err(error.into()),
    }
    rustix::fs::fsync(root)?;
    // The kernel has reported it to another program, or has forgotten it.
    spinney::fuse::check_written(root.as_fd())
}

/// Waits until the image is no longer open for writing.
fn wait_for(image: &Path) {
    let (done, is_done) = mpsc::sync_channel(1);
    let path = image.to_owned();
    // A lock that is never released blocks this thread, but not the program.
    std::thread::spawn(move || {
        // The user who mounted chose this path, and may be another one than the caller.
        let access = Access { no_follow: true, wait: true, ..Access::READ };
        let devices = Locator::parse_list(path).unwrap_or_default();
        for device in devices.iter().filter(|device| device.path().is_some()) {
            // The image is free, or cannot be opened, and there is nothing to wait for.
            drop(spinney::blockdev::open(device, access));
        }
        // The receiver is gone if it took too long.
        done.send(()).unwrap_or_default();
    });
    if is_done.recv_timeout(WAIT_MAX).is_err() {
        output::warn(&format!("{} is still being written", image.display()));
    }
}
