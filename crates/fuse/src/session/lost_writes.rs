//! Records write-back errors: data that the kernel's cache had accepted from programs and the file system then refused.
//! `data` notes them; `control` reports them at the unmount.
//!
//! The kernel reports such an error once, to the next `fsync` or `syncfs`, and keeps only the last one: an error
//! that a killed program leaves behind can hide it. The list here lets the unmount report it.

use parking_lot::Mutex;
use vfs::FileSystem;
use vfs::file_system::{Errno, NodeId};

/// Most files that are known individually.
const FILES_MAX: usize = 1000;

/// Files with lost data, in the order of the losses.
#[derive(Debug, Default)]
pub(super) struct Lost {
    files: Mutex<Vec<(NodeId, Errno)>>,
}

impl Lost {
    /// Notes that data of a file was refused.
    pub(super) fn note(&self, node: NodeId, error: Errno) {
        let mut files = self.files.lock();
        let is_known = files.iter().any(|(known, _)| *known == node);
        if is_known || error == Errno::ESTALE {
            return;
        }
        // The last one represents all further ones, and so never disappears.
        match files.len() + 1 {
            ..FILES_MAX => files.push((node, error)),
            FILES_MAX => files.push((NodeId::ROOT, error)),
            _ => {}
        }
    }

    /// The error of the first of them that still exists.
    pub(super) fn first(&self, fs: &dyn FileSystem) -> Option<Errno> {
        let is_there = |node| fs.attr(node).map_or_else(|error| error.errno() != Errno::ESTALE, |attr| attr.nlink > 0);
        let mut files = self.files.lock();
        files.retain(|(node, _)| is_there(*node));
        files.first().map(|(_, error)| *error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vfs::file_system::{Caller, NewNode};
    use vfs_conformance::{MemoryFs, MemoryOptions};

    #[test]
    fn what_was_lost_is_known_as_long_as_the_file_is_there() {
        let fs = MemoryFs::new(&MemoryOptions::default());
        let caller = Caller::default();
        let make = |name: &str| {
            let entry = fs.create(&caller, NodeId::ROOT, name.as_bytes(), &NewNode::default()).unwrap();
            fs.forget(entry.node, 1);
            entry.node
        };
        let lost = Lost::default();
        assert_eq!(lost.first(&fs), None);
        let (one, two) = (make("one"), make("two"));
        lost.note(one, Errno::ENOSPC);
        lost.note(one, Errno::EIO);
        lost.note(two, Errno::EROFS);
        assert_eq!(lost.first(&fs), Some(Errno::ENOSPC));
        fs.unlink(NodeId::ROOT, b"one").unwrap();
        assert_eq!(lost.first(&fs), Some(Errno::EROFS));
        fs.unlink(NodeId::ROOT, b"two").unwrap();
        assert_eq!(lost.first(&fs), None);
        lost.note(two, Errno::ESTALE);
        assert_eq!(lost.first(&fs), None);
    }

    #[test]
    fn more_files_than_are_known_one_by_one_are_lost_for_good() {
        let fs = MemoryFs::new(&MemoryOptions::default());
        let lost = Lost::default();
        let gone = |index: u64| NodeId(1_000_000 + index);
        for index in 0..900 {
            lost.note(gone(index), Errno::EIO);
        }
        assert_eq!(lost.first(&fs), None);
        for index in 0..1500 {
            lost.note(gone(index), Errno::EIO);
        }
        assert_eq!(lost.first(&fs), Some(Errno::EIO));
    }
}
