//! Encodes the state of an opening in its handle: only whether reads change the access time. Called by `contents` and
//! `names`.

use vfs::file_system::{Handle, OpenFlags};

const NO_ATIME: u64 = 1;

pub(super) fn new(flags: OpenFlags) -> Handle {
    Handle(u64::from(flags.contains(OpenFlags::NO_ATIME)) * NO_ATIME)
}

pub(super) const fn leaves_atime(handle: Handle) -> bool {
    handle.0 & NO_ATIME != 0
}
