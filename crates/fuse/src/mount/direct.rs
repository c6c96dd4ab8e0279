//! Mounting with the rights of this process.

use super::MountOptions;
use crate::error::{Error, Result};
use rustix::fs::{Mode, OFlags};
use std::ffi::CString;
use std::fs::Metadata;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Type bits of a mode.
const TYPE_MASK: u32 = 0o170_000;

pub(super) fn mount(dir: &Path, metadata: &Metadata, options: &MountOptions) -> Result<OwnedFd> {
    let open_flags = OFlags::RDWR | OFlags::CLOEXEC;
    let device = rustix::fs::open("/dev/fuse", open_flags, Mode::empty())
        .map_err(|error| Error::Device(error.into()))?;
    let (flags, rest) = options.flags_and_rest();
    let mut data = format!(
        "fd={},rootmode={:o},user_id={},group_id={}",
        device.as_raw_fd(),
        metadata.mode() & TYPE_MASK,
        rustix::process::getuid().as_raw(),
        rustix::process::getgid().as_raw(),
    );
    for option in rest {
        data.push(',');
        data.push_str(option);
    }
    let data = CString::new(data).map_err(|_| Error::Option)?;
    let kind = match options.subtype.as_str() {
        "" => "fuse".to_owned(),
        subtype => format!("fuse.{subtype}"),
    };
    let source = match options.source.as_str() {
        "" => kind.as_str(),
        source => source,
    };
    rustix::mount::mount(source, dir, kind.as_str(), flags, data.as_c_str()).map_err(|error| {
        Error::Mount {
            path: dir.to_owned(),
            source: error.into(),
        }
    })?;
    Ok(device)
}
