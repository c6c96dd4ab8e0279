//! Trees as lists that can be compared: of the host and of a volume.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;

use vfs::Volume;

/// The compared properties of a file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) mode: u32,
    pub(crate) nlink: u32,
    pub(crate) owner: (u32, u32),
    pub(crate) rdev: u64,
    pub(crate) size: u64,
    pub(crate) mtime_sec: i64,
    /// Contents, or the target of a link.
    pub(crate) contents: Vec<u8>,
}

pub(crate) type Tree = BTreeMap<Vec<u8>, Found>;

/// Every name below a directory of the host.
pub(crate) fn host(root: &Path) -> Tree {
    let mut tree = Tree::new();
    let mut left = vec![root.to_owned()];
    while let Some(dir) = left.pop() {
        for entry in fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            let attr = fs::symlink_metadata(&path).unwrap();
            let kind = attr.file_type();
            let contents = if kind.is_file() {
                fs::read(&path).unwrap()
            } else if kind.is_symlink() {
                fs::read_link(&path).unwrap().as_os_str().as_bytes().to_vec()
            } else {
                Vec::new()
            };
            if kind.is_dir() {
                left.push(path.clone());
            }
            let is_device = kind.is_block_device() || kind.is_char_device();
            let found = Found {
                mode: attr.mode(),
                nlink: if kind.is_dir() { 0 } else { u32::try_from(attr.nlink()).unwrap() },
                owner: (attr.uid(), attr.gid()),
                rdev: if is_device { attr.rdev() } else { 0 },
                size: if kind.is_dir() { 0 } else { attr.size() },
                mtime_sec: attr.mtime(),
                contents,
            };
            tree.insert(path.strip_prefix(root).unwrap().as_os_str().as_bytes().to_vec(), found);
        }
    }
    tree
}

/// Every name of a volume. Directories differ between formats in size and links.
pub(crate) fn volume(volume: &Volume) -> Tree {
    let mut tree = Tree::new();
    let mut left = vec![Vec::new()];
    while let Some(dir) = left.pop() {
        for entry in volume.read_dir(path(&dir)).unwrap() {
            let entry = entry.unwrap();
            let mut name = dir.clone();
            if !name.is_empty() {
                name.push(b'/');
            }
            name.extend_from_slice(entry.name_bytes());
            let attr = volume.symlink_metadata(path(&name)).unwrap();
            assert_eq!((entry.ino(), entry.file_type()), (attr.ino, attr.kind), "{entry:?}");
            let contents = if attr.is_file() {
                volume.read(path(&name)).unwrap()
            } else if attr.is_symlink() {
                volume.read_link(path(&name)).unwrap().as_os_str().as_bytes().to_vec()
            } else {
                Vec::new()
            };
            if attr.is_dir() {
                left.push(name.clone());
            }
            let found = Found {
                mode: attr.mode(),
                nlink: if attr.is_dir() { 0 } else { attr.nlink },
                owner: (attr.uid, attr.gid),
                rdev: u64::from(attr.rdev),
                size: if attr.is_dir() { 0 } else { attr.size },
                mtime_sec: attr.mtime.sec,
                contents,
            };
            assert!(tree.insert(name, found).is_none(), "a name is listed twice");
        }
    }
    tree
}

fn path(name: &[u8]) -> &Path {
    Path::new(std::ffi::OsStr::from_bytes(if name.is_empty() { b"/" } else { name }))
}

/// Names first, since they are most helpful when something is missing.
pub(crate) fn assert_same(expected: &Tree, found: &Tree) {
    let names = |tree: &Tree| tree.keys().map(|name| String::from_utf8_lossy(name).into_owned()).collect::<Vec<_>>();
    assert_eq!(names(expected), names(found));
    for (name, expected) in expected {
        let (name, found) = (String::from_utf8_lossy(name), &found[name]);
        let brief = |found: &Found| Found { contents: Vec::new(), ..copy(found) };
        assert_eq!(brief(expected), brief(found), "{name}");
        assert!(expected.contents == found.contents, "{name}: the contents differ");
    }
}

fn copy(found: &Found) -> Found {
    Found { contents: found.contents.clone(), ..*found }
}
