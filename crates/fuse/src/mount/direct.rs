//! Mounts by system calls of this process, which needs the right to mount. Called by `mount`.
//!
//! An anchor is a small loop device that is only the source of a `fuseblk` mount; `sys/anchor` makes it.

use super::MountOptions;
use crate::error::{Error, Result};
use crate::sys;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::mount::{self, FsMountFlags, FsOpenFlags, MoveMountFlags};
use std::ffi::CString;
use std::fs::Metadata;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// Type bits of a mode.
const TYPE_MASK: u32 = 0o170_000;

/// Block size of a mount on an anchor. The anchor itself is never read.
const ANCHOR_BLOCK_BYTES: u32 = 4096;

/// Mounts as type `fuse`, without a block device.
pub(super) fn mount(dir: &Path, metadata: &Metadata, options: &MountOptions) -> Result<OwnedFd> {
    mount_as("fuse", None, dir, metadata, options)
}

/// Mounts as type `fuseblk` on an anchor made from `backing`, so that the kernel passes `sync` on to the server.
pub(super) fn mount_synced(
    dir: &Path,
    metadata: &Metadata,
    options: &MountOptions,
    backing: BorrowedFd<'_>,
) -> Result<OwnedFd> {
    let (anchor, path) = sys::make_anchor(backing).map_err(|source| Error::Mount { path: dir.to_owned(), source })?;
    let device = match mount_named(&path, dir, metadata, options) {
        Ok(device) => device,
        Err(error) => {
            tracing::debug!(%error, "the mount shows its anchor, {path}");
            mount_as("fuseblk", Some(&path), dir, metadata, options)?
        }
    };
    // The loop device now stays until the mount ends.
    drop(anchor);
    Ok(device)
}

/// Mounts an anchor so that the mount table shows the name of the served block device, by which `umount(8)` finds the
/// mount. The kernel opens the source by that same name, so this runs on a thread whose root directory has the anchor
/// there.
fn mount_named(anchor: &str, dir: &Path, metadata: &Metadata, options: &MountOptions) -> std::io::Result<OwnedFd> {
    let source = options.source.as_str();
    if !std::fs::metadata(source)?.file_type().is_block_device() {
        return Err(std::io::ErrorKind::InvalidInput.into());
    }
    let device = rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    let (of_file_system, attributes) = options.words();
    let filled = || -> std::io::Result<OwnedFd> {
        let context = mount::fsopen("fuseblk", FsOpenFlags::FSOPEN_CLOEXEC)?;
        let set = |name: &str, value: &str| mount::fsconfig_set_string(&context, name, value);
        set("source", source)?;
        set("subtype", &options.subtype)?;
        set("fd", &device.as_raw_fd().to_string())?;
        set("rootmode", &format!("{:o}", metadata.mode() & TYPE_MASK))?;
        set("user_id", &rustix::process::getuid().as_raw().to_string())?;
        set("group_id", &rustix::process::getgid().as_raw().to_string())?;
        set("blksize", &ANCHOR_BLOCK_BYTES.to_string())?;
        for word in &of_file_system {
            match word.split_once('=') {
                Some((name, value)) => set(name, value)?,
                None => mount::fsconfig_set_flag(&context, *word)?,
            }
        }
        mount::fsconfig_create(&context)?;
        Ok(mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?)
    };
    let tree = sys::with_node_at(anchor, Path::new(source), filled)?;
    mount::move_mount(&tree, "", CWD, dir, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
    Ok(device)
}

fn mount_as(
    kind: &str,
    anchor: Option<&str>,
    dir: &Path,
    metadata: &Metadata,
    options: &MountOptions,
) -> Result<OwnedFd> {
    let open_flags = OFlags::RDWR | OFlags::CLOEXEC;
    let device = rustix::fs::open("/dev/fuse", open_flags, Mode::empty())
        .map_err(|error| Error::NoDevice { source: error.into() })?;
    let (flags, rest) = options.flags_and_rest();
    let mut data = format!(
        "fd={},rootmode={:o},user_id={},group_id={}",
        device.as_raw_fd(),
        metadata.mode() & TYPE_MASK,
        rustix::process::getuid().as_raw(),
        rustix::process::getgid().as_raw(),
    );
    if anchor.is_some() {
        data.push_str(&format!(",blksize={ANCHOR_BLOCK_BYTES}"));
    }
    for option in rest {
        data.push(',');
        data.push_str(option);
    }
    let data = CString::new(data).map_err(|_| Error::Option)?;
    let kind = match options.subtype.as_str() {
        "" => kind.to_owned(),
        subtype => format!("{kind}.{subtype}"),
    };
    let source = match (anchor, options.source.as_str()) {
        (Some(anchor), _) => anchor,
        (None, "") => kind.as_str(),
        (None, source) => source,
    };
    mount::mount(source, dir, kind.as_str(), flags, data.as_c_str())
        .map_err(|error| Error::Mount { path: dir.to_owned(), source: error.into() })?;
    Ok(device)
}
