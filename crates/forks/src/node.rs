//! A node as a merge sees it: its kind and attributes, without its contents. `tree` reads it, `rules` compares it.

use std::collections::BTreeMap;

use vfs::Metadata;
use vfs::file_system::{NodeKind, Time};

/// Names and values of extended attributes.
pub(crate) type Xattrs = BTreeMap<Vec<u8>, Vec<u8>>;

/// A node of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) kind: NodeKind,
    pub(crate) attributes: Attributes,
    pub(crate) rdev: u32,
    pub(crate) size: u64,
    pub(crate) mtime: Time,
    pub(crate) nlink: u32,
    pub(crate) ino: u64,
    /// The target of a symbolic link.
    pub(crate) target: Vec<u8>,
}

/// The values that are merged separately from the contents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Attributes {
    pub(crate) permissions: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) xattrs: Xattrs,
}

impl Node {
    pub(crate) fn new(attr: &Metadata, target: Vec<u8>, xattrs: Xattrs) -> Self {
        Self {
            kind: attr.kind,
            attributes: Attributes { permissions: attr.permissions, uid: attr.uid, gid: attr.gid, xattrs },
            rdev: attr.rdev,
            size: attr.size,
            mtime: attr.mtime,
            nlink: attr.nlink,
            ino: attr.home.ino,
            target,
        }
    }

    pub(crate) fn is_dir(&self) -> bool {
        self.kind.is_dir()
    }
}
