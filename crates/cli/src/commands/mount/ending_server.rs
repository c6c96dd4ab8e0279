//! Waits for the end of a mount's server, where no lock on the image says that it has ended: of an image on a device
//! elsewhere. Called by `umount`.

use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags};
use spinney::blockdev::Locator;

/// The server of a mount.
pub(super) struct EndingServer(OwnedFd);

impl EndingServer {
    /// The server of the mount at `dir`, if its image lies on a device elsewhere, or on several: these may have changed
    /// since, so the locks of those that are known do not tell whether all are free.
    pub(super) fn find(image: &Path, dir: &Path) -> Option<Self> {
        let devices = Locator::parse_list(image).unwrap_or_default();
        if devices.len() <= 1 && devices.iter().all(|device| device.path().is_some()) {
            return None;
        }
        let processes = std::fs::read_dir("/proc").ok()?.flatten();
        let pid = processes.filter(|entry| serves(&entry.path(), dir)).find_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            Pid::from_raw(pid)
        })?;
        Some(Self(rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok()?))
    }

    /// Waits until it has ended; false if that takes longer.
    pub(super) fn wait(&self, time_max: Duration) -> bool {
        let Ok(time_max) = Timespec::try_from(time_max) else { return false };
        let mut polled = [PollFd::new(&self.0, PollFlags::IN)];
        let waited = rustix::io::retry_on_intr(|| rustix::event::poll(&mut polled, Some(&time_max)));
        waited.is_ok_and(|count| count > 0)
    }
}

/// True for a process whose command line is that of the server of a mount.
fn serves(process: &Path, dir: &Path) -> bool {
    let line = std::fs::read(process.join("cmdline")).unwrap_or_default();
    let words: Vec<&[u8]> = line.strip_suffix(&[0]).unwrap_or_default().split(|byte| *byte == 0).collect();
    let start: [&[u8]; 4] = [b"spinney", b"mount", b"--role", b"server"];
    words.starts_with(&start) && words.last() == Some(&dir.as_os_str().as_bytes())
}
