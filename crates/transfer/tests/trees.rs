//! Trees in memory as sources: where paths lead, what replaces what, and that a copy has all of it.

#![allow(clippy::unwrap_used, missing_docs, reason = "tests fail by panicking")]

use std::path::Path;
use std::sync::Arc;

use transfer::{Contents, NewNode, Options, Result, Stored, Transfer, Tree, VolumeSink, VolumeSinkOptions};
use vfs::Volume;
use vfs::file_system::{NodeKind, Time};
use vfs_conformance::MemoryFs;

/// Contents in memory, with a hole before them.
struct Bytes(u64, Vec<u8>);

impl Contents for Bytes {
    fn next_data(&self, at: u64, size: u64) -> Result<Option<(u64, u64)>> {
        let start = at.max(self.0);
        Ok((start < size).then_some((start, size)))
    }

    fn read_at(&self, buffer: &mut [u8], at: u64) -> Result<usize> {
        let skip = usize::try_from(at - self.0).unwrap();
        let rest = self.1.get(skip..).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn size(&self) -> Result<u64> {
        Ok(self.0 + u64::try_from(self.1.len()).unwrap())
    }
}

impl Stored for Bytes {
    fn open(&self) -> Result<Box<dyn Contents + Send + Sync>> {
        Ok(Box::new(Self(self.0, self.1.clone())))
    }
}

fn node(kind: NodeKind) -> NewNode {
    let attr = transfer::plain_metadata(kind, 0o640, Time::new(7, 8));
    NewNode { attr, target: None, xattrs: Vec::new(), contents: None }
}

fn file(text: &str) -> NewNode {
    let mut node = node(NodeKind::File);
    node.attr.size = u64::try_from(text.len()).unwrap();
    node.contents = Some(Arc::new(Bytes(0, text.into())));
    node
}

fn symlink(target: &str) -> NewNode {
    NewNode { target: Some(target.into()), ..node(NodeKind::Symlink) }
}

fn put(tree: &mut Tree, path: &str, node: NewNode) {
    tree.put(Path::new(path), node).unwrap();
}

/// The volume that a copy of the tree fills.
fn copied(tree: &Tree) -> Volume {
    let volume = Volume::new(Arc::new(MemoryFs::default()));
    let sink = VolumeSink::new(&volume, "/", VolumeSinkOptions::default());
    Transfer::new(tree, &sink, &Options::default(), &()).contents().unwrap();
    volume
}

#[test]
fn a_copy_has_everything() {
    let mut tree = Tree::new(Time::new(1, 2));
    put(&mut tree, "a/b/small", file("text"));
    let mut large = node(NodeKind::File);
    large.attr.size = (5 << 20) + (3 << 20);
    large.contents = Some(Arc::new(Bytes(5 << 20, vec![9; 3 << 20])));
    large.xattrs = vec![(b"user.note".to_vec(), b"x".to_vec())];
    put(&mut tree, "large", large);
    put(&mut tree, "link", symlink("a/b"));
    tree.link(Path::new("a/b/small"), Path::new("a/second")).unwrap();
    let volume = copied(&tree);
    assert_eq!(volume.read("a/second").unwrap(), b"text");
    let (first, second) = (volume.metadata("a/b/small").unwrap(), volume.metadata("a/second").unwrap());
    assert_eq!((first.ino, first.nlink, second.nlink), (second.ino, 2, 2));
    assert_eq!((first.mtime, first.permissions), (Time::new(7, 8), 0o640));
    assert_eq!(volume.metadata("a/b").unwrap().mtime, Time::new(1, 2));
    let large = volume.read("large").unwrap();
    assert!(large[..5 << 20].iter().all(|byte| *byte == 0) && large[5 << 20..] == vec![9; 3 << 20]);
    assert_eq!(volume.get_xattr("large", b"user.note").unwrap().unwrap(), b"x");
    assert_eq!(volume.read_link("link").unwrap().as_os_str(), "a/b");
}

#[test]
fn links_on_the_way_stay_in_the_tree() {
    let mut tree = Tree::new(Time::default());
    put(&mut tree, "usr/lib", node(NodeKind::Directory));
    put(&mut tree, "lib", symlink("usr/lib"));
    put(&mut tree, "out", symlink("../../../usr"));
    put(&mut tree, "root", symlink("/"));
    put(&mut tree, "lib/one", file("1"));
    put(&mut tree, "out/two", file("2"));
    put(&mut tree, "usr/lib/../../../../three", file("3"));
    put(&mut tree, "root/lib/four", file("4"));
    for path in ["usr/lib/one", "usr/two", "three", "usr/lib/four"] {
        assert!(tree.find(Path::new(path)).unwrap().is_some(), "{path}");
    }
    let real = |path| tree.real_path(Path::new(path)).unwrap();
    for (path, expected) in [
        ("out/lib/./one", Some("usr/lib/one")),
        ("root/lib/new", Some("usr/lib/new")),
        ("usr/lib/../../../lib", Some("lib")),
        ("usr/none/x", None),
        ("/", Some("")),
    ] {
        assert_eq!(real(path), expected.map(Into::into), "{path}");
    }
    put(&mut tree, "round", symlink("round"));
    let error = tree.put(Path::new("round/x"), file("")).unwrap_err();
    assert_eq!(error.to_string(), "round/x: more than 40 symbolic links on the way");
    let error = tree.put(Path::new("three/x"), file("")).unwrap_err();
    assert_eq!(error.to_string(), "three/x: `three` on the way is no directory");
    assert!(tree.put(Path::new("a/.."), file("")).is_err());
}

#[test]
fn later_nodes_replace_earlier_ones() {
    let mut tree = Tree::new(Time::default());
    put(&mut tree, "dir/kept", file("1"));
    put(
        &mut tree,
        "dir",
        NewNode {
            attr: transfer::plain_metadata(NodeKind::Directory, 0o700, Time::default()),
            ..node(NodeKind::Directory)
        },
    );
    put(&mut tree, "gone/x", file("2"));
    put(&mut tree, "gone", file("3"));
    put(&mut tree, "was-file", file("4"));
    tree.link(Path::new("was-file"), Path::new("other")).unwrap();
    put(&mut tree, "was-file", node(NodeKind::Directory));
    assert!(tree.link(Path::new("missing"), Path::new("x")).is_err());
    assert!(tree.link(Path::new("dir"), Path::new("x")).is_err());
    let volume = copied(&tree);
    assert_eq!(volume.read("dir/kept").unwrap(), b"1");
    assert_eq!(volume.metadata("dir").unwrap().permissions, 0o700);
    assert_eq!(volume.read("gone").unwrap(), b"3");
    assert!(volume.metadata("was-file").unwrap().is_dir());
    assert_eq!((volume.read("other").unwrap(), volume.metadata("other").unwrap().nlink), (b"4".to_vec(), 1));
    assert!(tree.remove(Path::new("dir")).unwrap() && !tree.remove(Path::new("dir")).unwrap());
    tree.clear(Path::new("")).unwrap();
    assert_eq!(tree.walk().count(), 1);
}
