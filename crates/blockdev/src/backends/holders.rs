//! Finds out whether the operating system itself uses a file, attached as a loop device. `file` asks before it opens a
//! file for writing.
//!
//! The kernel takes no lock on the file behind a loop device, so only `sysfs` tells.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Where the kernel lists block devices.
pub(super) const SYS_BLOCK: &str = "/sys/block";

/// Size limit, in bytes, up to which a loop device counts as a mount's anchor: too small for a file system.
const ANCHOR_BYTES_MAX: u64 = 4096;

/// The name of a loop device that is attached to the file `(dev, ino)`, if any. `None` also
/// where `sysfs` cannot be read, as the kernel lists loop devices nowhere else that we read.
pub(super) fn loop_device_of(sys_block: &Path, dev: u64, ino: u64) -> Option<String> {
    fs::read_dir(sys_block)
        .ok()?
        .flatten()
        .filter(|entry| entry.file_name().as_bytes().starts_with(b"loop"))
        .find(|entry| is_backed_by(&entry.path(), dev, ino))
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
}

fn is_backed_by(loop_dir: &Path, dev: u64, ino: u64) -> bool {
    let Ok(raw) = fs::read(loop_dir.join("loop/backing_file")) else {
        return false;
    };
    if is_anchor(loop_dir) {
        return false;
    }
    let path = raw.strip_suffix(b"\n").unwrap_or(&raw);
    // The path of a deleted file leads nowhere; one that lives on under another name is missed.
    fs::metadata(Path::new(OsStr::from_bytes(path))).is_ok_and(|found| found.dev() == dev && found.ino() == ino)
}

/// Whether the loop device is an anchor: the block device that a server mounts so that the kernel
/// trusts it with syncing the whole file system. The kernel reads none of its bytes, and the server
/// holds a lock on the file itself.
fn is_anchor(loop_dir: &Path) -> bool {
    let limit = fs::read_to_string(loop_dir.join("loop/sizelimit")).unwrap_or_default();
    let bytes: Option<u64> = limit.trim().parse().ok();
    bytes.is_some_and(|bytes| (1..=ANCHOR_BYTES_MAX).contains(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_behind_a_loop_device_is_found_by_inode_not_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("disk image");
        let other_name = dir.path().join("link");
        fs::write(&image, b"x").unwrap();
        fs::hard_link(&image, &other_name).unwrap();
        let sys = dir.path().join("sys");
        fs::create_dir_all(sys.join("loop0")).unwrap();
        fs::create_dir_all(sys.join("loop7/loop")).unwrap();
        let mut line = other_name.as_os_str().as_bytes().to_vec();
        line.push(b'\n');
        fs::write(sys.join("loop7/loop/backing_file"), line).unwrap();

        let found = fs::metadata(&image).unwrap();
        let holder = loop_device_of(&sys, found.dev(), found.ino());
        assert_eq!(holder.as_deref(), Some("loop7"));
        fs::write(sys.join("loop7/loop/sizelimit"), "4096\n").unwrap();
        assert_eq!(loop_device_of(&sys, found.dev(), found.ino()), None);
        fs::write(sys.join("loop7/loop/sizelimit"), "0\n").unwrap();
        assert!(loop_device_of(&sys, found.dev(), found.ino()).is_some());
        assert_eq!(loop_device_of(&sys, found.dev(), found.ino() + 1), None);
        assert_eq!(loop_device_of(&dir.path().join("none"), 1, 1), None);
    }
}
