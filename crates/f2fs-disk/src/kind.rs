//! Kinds of files.

/// Longest name, in bytes.
pub const NAME_BYTES_MAX: usize = 255;

/// What an inode is, as its mode says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A named pipe.
    Fifo,
    /// A character device.
    CharDevice,
    /// A directory.
    Directory,
    /// A block device.
    BlockDevice,
    /// A regular file.
    File,
    /// A symbolic link.
    Symlink,
    /// A socket.
    Socket,
}

impl Kind {
    /// The kind in the type bits of a mode; `None` for a value that no kind has.
    pub(crate) fn from_mode(mode: u16) -> Option<Self> {
        Some(match mode >> 12 {
            0o01 => Self::Fifo,
            0o02 => Self::CharDevice,
            0o04 => Self::Directory,
            0o06 => Self::BlockDevice,
            0o10 => Self::File,
            0o12 => Self::Symlink,
            0o14 => Self::Socket,
            _ => return None,
        })
    }

    /// True for what has a device number.
    pub(crate) const fn is_device(self) -> bool {
        matches!(self, Self::CharDevice | Self::BlockDevice)
    }
}
