//! A volume as a server uses it: nodes instead of paths.

use std::sync::Arc;

use btrfs::{FsOptions, MakeOptions, Volume};
use vfs::FileSystem;
use vfs::file_system::{Caller, Entry, Handle, NewNode, NodeId, NodeKind, WriteFlags};

use super::{Image, check};

/// The privileged caller.
pub const ROOT: Caller = Caller { uid: 0, gid: 0, pid: 1 };

/// An image and the file system on it.
pub struct Served {
    pub image: Image,
    pub volume: Volume,
    pub fs: Arc<dyn FileSystem>,
}

impl Served {
    pub fn new() -> Self {
        Self::with(FsOptions::default())
    }

    pub fn with(options: FsOptions) -> Self {
        let (image, volume) = Image::make_with(MakeOptions::default());
        let fs = volume.serve(options).unwrap();
        Self { image, volume, fs }
    }

    /// Ends and checks the image.
    pub fn finish(self) {
        self.fs.sync_fs().unwrap();
        drop(self.fs);
        self.volume.close().unwrap();
        check(self.image.file.path());
    }

    /// A new node: files have the mode 644, everything else 755. Symlinks lead to `where`.
    pub fn make(&self, parent: NodeId, name: &str, kind: NodeKind) -> Entry {
        let is = |which| kind == which;
        let new = NewNode {
            kind,
            permissions: if is(NodeKind::File) { 0o644 } else { 0o755 },
            target: if is(NodeKind::Symlink) { b"where" } else { b"" },
            ..NewNode::default()
        };
        self.fs.create(&ROOT, parent, name.as_bytes(), &new).unwrap()
    }

    pub fn file(&self, parent: NodeId, name: &str) -> Entry {
        self.make(parent, name, NodeKind::File)
    }

    pub fn dir(&self, parent: NodeId, name: &str) -> Entry {
        self.make(parent, name, NodeKind::Directory)
    }

    pub fn write(&self, node: NodeId, offset: u64, data: &[u8]) {
        let flags = WriteFlags::default();
        self.fs.write(node, Handle(0), offset, data, flags).unwrap();
    }

    pub fn read(&self, node: NodeId) -> Vec<u8> {
        let size = self.fs.attr(node).unwrap().size;
        let mut buf = vec![0; usize::try_from(size).unwrap() + 10];
        let count = self.fs.read(node, Handle(0), 0, &mut buf).unwrap();
        buf.truncate(count);
        buf
    }
}
