//! Formats the shared extents of a file as the text in which a mount's server reports them, and parses it. Called by
//! `vfs_impl/xattr` and the command `du`.

use std::fmt;
use std::str::FromStr;

use super::lines::words_of;
use crate::file::SharedExtent;

/// The extents of a regular file, or some of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FileSharing {
    /// Number of the subvolume that the file is in.
    pub subvolume: u64,
    /// Its inode number.
    pub inode: u64,
    /// In the order of the file.
    pub extents: Vec<SharedExtent>,
    /// Byte in the file at which the ones after these begin; `None` where these were the last.
    pub next: Option<u64>,
}

/// Not the text of a [`FileSharing`].
///
/// To do: use the same version of the program as the server of the mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected lines of a name and numbers")]
pub struct NotSharing;

impl FileSharing {
    /// The extended attribute of any regular file in which a mount's server reports this text; the byte to begin at
    /// follows in decimal. It is stored nowhere.
    pub const XATTR_PREFIX: &str = "btrfs.shared.";

    /// Most extents in one text: it has to be shorter than the value of an attribute may be.
    pub(crate) const EXTENTS_MAX: usize = 800;

    /// Longest text, in bytes.
    pub const TEXT_BYTES_MAX: usize = 64 << 10;
}

impl fmt::Display for FileSharing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "file {} {}", self.subvolume, self.inode)?;
        for SharedExtent { offset, len, logical, is_shared } in &self.extents {
            writeln!(f, "extent {offset} {len} {logical} {}", u8::from(*is_shared))?;
        }
        self.next.map_or(Ok(()), |next| writeln!(f, "next {next}"))
    }
}

impl FromStr for FileSharing {
    type Err = NotSharing;

    /// Lines with unknown names are skipped: a later version may report more.
    fn from_str(text: &str) -> Result<Self, NotSharing> {
        let mut found: Option<Self> = None;
        for line in text.lines() {
            let (name, numbers) = words_of(line).ok_or(NotSharing)?;
            match (name, numbers.as_slice(), &mut found) {
                ("file", &[subvolume, inode, ..], None) => found = Some(Self { subvolume, inode, ..Self::default() }),
                ("extent", &[offset, len, logical, is_shared, ..], Some(found)) => {
                    found.extents.push(SharedExtent { offset, len, logical, is_shared: is_shared != 0 });
                }
                ("next", &[next, ..], Some(found)) => found.next = Some(next),
                ("file" | "extent" | "next", ..) => return Err(NotSharing),
                _ => {}
            }
        }
        found.ok_or(NotSharing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_says_all_of_it_and_is_short_enough() {
        let extent = SharedExtent { offset: u64::MAX >> 1, len: u64::MAX >> 1, logical: u64::MAX, is_shared: true };
        let extents = vec![extent; FileSharing::EXTENTS_MAX];
        let sharing = FileSharing { subvolume: u64::MAX, inode: u64::MAX, extents, next: Some(u64::MAX) };
        let text = sharing.to_string();
        assert!(text.len() <= FileSharing::TEXT_BYTES_MAX, "{}", text.len());
        assert_eq!(text.parse(), Ok(sharing));
        let empty = FileSharing { subvolume: 5, inode: 257, ..FileSharing::default() };
        assert_eq!(format!("{empty}news 1 2\n").parse(), Ok(empty));
        for wrong in
            ["", "extent 1 2 3 1\n", "file 1\n", "file 5 257\nextent 1 2 3\n", "file 5 x\n", "file 5 6\nnext\n"]
        {
            assert_eq!(wrong.parse::<FileSharing>(), Err(NotSharing), "{wrong:?}");
        }
    }
}
