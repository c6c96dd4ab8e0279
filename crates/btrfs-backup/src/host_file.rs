//! Opens files of directories that others may have written to. Called by `directory` and `store`.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

/// Opens a file to read it, without following a link or waiting for a pipe. Windows has neither.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
        options.custom_flags(i32::try_from(flags.bits()).unwrap_or(0));
    }
    options.open(path)
}
