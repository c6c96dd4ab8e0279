//! How much dirty memory the kernel lets one mount have.
//!
//! Linux starts every FUSE mount at one percent of what it allows in all, because an unprivileged
//! server may never write anything back. For a mount that keeps dirty pages in the kernel this is
//! less than a second of writing.

use crate::error::{Error, Result};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Lets the mount on `dir` hold as much dirty memory as any other file system. Only root may; it
/// asks nothing of the server, which may not even be running yet.
///
/// # Errors
/// `dir` is not a mount, or the limit cannot be written.
pub fn raise_dirty_limit(dir: &Path) -> Result<()> {
    let at_path = |source| Error::MountPoint {
        path: dir.to_owned(),
        source,
    };
    let dir = canonical_without_asking(dir).map_err(at_path)?;
    let table = fs::read("/proc/self/mountinfo").map_err(at_path)?;
    let device = device_of(&table, dir.as_os_str().as_bytes())
        .ok_or_else(|| at_path(std::io::ErrorKind::NotFound.into()))?;
    let file = format!("/sys/class/bdi/{device}/max_ratio");
    fs::write(file, "100").map_err(at_path)
}

/// The path with its parent's links resolved: to look at the mount itself might need the server.
fn canonical_without_asking(dir: &Path) -> std::io::Result<PathBuf> {
    let dir = std::path::absolute(dir)?;
    match (dir.parent(), dir.file_name()) {
        (Some(parent), Some(name)) => Ok(fs::canonicalize(parent)?.join(name)),
        _ => Ok(dir),
    }
}

/// Device number `MAJOR:MINOR` of the topmost mount on `dir`, from the text of `mountinfo`.
fn device_of(table: &[u8], dir: &[u8]) -> Option<String> {
    let lines = table.split(|byte| *byte == b'\n');
    let mut found = None;
    for line in lines {
        let mut fields = line.split(|byte| *byte == b' ');
        let (device, point) = (fields.nth(2), fields.nth(1));
        if point.is_some_and(|point| unescape(point) == dir) {
            found = device;
        }
    }
    String::from_utf8(found?.to_vec()).ok()
}

/// Spaces, tabs, line ends and backslashes stand there as a backslash with three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, behind)) = rest.split_first() {
        let digits = behind
            .get(..3)
            .and_then(|digits| str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match (first, digits) {
            (b'\\', Some(byte)) => {
                bytes.push(byte);
                rest = behind.get(3..).unwrap_or_default();
            }
            _ => {
                bytes.push(*first);
                rest = behind;
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_topmost_mount_counts() {
        let table = b"21 1 0:20 / /proc rw - proc proc rw\n\
            30 1 0:41 / /mnt/a\\040b rw - fuse x rw\n\
            31 1 0:42 / /mnt/a\\040b rw - fuse x rw\n\
            32 1 0:43 / /mnt/a rw - fuse x rw\n";
        assert_eq!(device_of(table, b"/mnt/a b").as_deref(), Some("0:42"));
        assert_eq!(device_of(table, b"/mnt/a").as_deref(), Some("0:43"));
        assert_eq!(device_of(table, b"/mnt"), None);
        assert_eq!(unescape(b"\\"), b"\\");
    }
}
