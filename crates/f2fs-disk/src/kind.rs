//! Defines the kinds of files, and converts them from and to modes and the types in directories. Used by `inode` and
//! `dentry`, `f2fs` and `f2fs-check`.

/// Longest name, in bytes.
pub const NAME_BYTES_MAX: usize = 255;

/// The kind of an inode, from its mode.
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
    #[must_use]
    pub const fn from_mode(mode: u16) -> Option<Self> {
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

    /// The type bits of its mode.
    #[must_use]
    pub const fn mode_bits(self) -> u16 {
        match self {
            Self::Fifo => 0o010_000,
            Self::CharDevice => 0o020_000,
            Self::Directory => 0o040_000,
            Self::BlockDevice => 0o060_000,
            Self::File => 0o100_000,
            Self::Symlink => 0o120_000,
            Self::Socket => 0o140_000,
        }
    }

    /// The kind of a number in a directory (`F2FS_FT_*`); `None` for one that no kind has.
    #[must_use]
    pub const fn from_file_type(file_type: u8) -> Option<Self> {
        Some(match file_type {
            1 => Self::File,
            2 => Self::Directory,
            3 => Self::CharDevice,
            4 => Self::BlockDevice,
            5 => Self::Fifo,
            6 => Self::Socket,
            7 => Self::Symlink,
            _ => return None,
        })
    }

    /// Its number in a directory (`F2FS_FT_*`).
    #[must_use]
    pub const fn file_type(self) -> u8 {
        match self {
            Self::File => 1,
            Self::Directory => 2,
            Self::CharDevice => 3,
            Self::BlockDevice => 4,
            Self::Fifo => 5,
            Self::Socket => 6,
            Self::Symlink => 7,
        }
    }

    /// True for kinds with a device number.
    pub(crate) const fn is_device(self) -> bool {
        matches!(self, Self::CharDevice | Self::BlockDevice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_lead_back_to_the_kind() {
        let mut found = 0;
        for kind in (0..=u8::MAX).filter_map(Kind::from_file_type) {
            assert_eq!(Kind::from_file_type(kind.file_type()), Some(kind));
            assert_eq!(Kind::from_mode(kind.mode_bits() | 0o7777), Some(kind));
            found += 1;
        }
        assert_eq!(found, 7);
    }
}
