//! Tests the permission rules of `Permitted` on a file system in memory, without a server.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use access::{Permitted, User};
use vfs::file_system::{Errno, Follow, NodeId};
use vfs::{FileSystem, Volume};
use vfs_conformance::MemoryFs;

/// `/closed/file` for root alone, `/shared` sticky for all, `/home` of user 7 with a file that its group may read.
fn file_system() -> Arc<dyn FileSystem> {
    let fs: Arc<dyn FileSystem> = Arc::new(MemoryFs::default());
    let root = Volume::new(Arc::clone(&fs));
    for (dir, permissions) in [("closed", 0o700), ("shared", 0o1777), ("home", 0o750)] {
        root.create_dir(dir).unwrap();
        root.set_permissions(dir, permissions).unwrap();
    }
    root.write("closed/file", "secret").unwrap();
    root.write("shared/file", "of root").unwrap();
    root.write("home/file", "text").unwrap();
    root.set_permissions("home/file", 0o640).unwrap();
    for path in ["home", "home/file"] {
        root.set_owner(path, Some(7), Some(70)).unwrap();
    }
    fs
}

fn view(fs: &Arc<dyn FileSystem>, uid: u32, groups: &[u32], base: NodeId) -> Volume {
    let user = User { uid, gid: uid, groups: groups.to_vec(), serves: false };
    Volume::new(Arc::new(Permitted::new(Arc::clone(fs), user, base, false)))
}

#[test]
fn a_user_gets_what_owner_group_and_sticky_bit_permit() {
    let fs = file_system();
    let (owner, member, other) =
        (view(&fs, 7, &[], NodeId::ROOT), view(&fs, 8, &[70], NodeId::ROOT), view(&fs, 9, &[], NodeId::ROOT));
    let errno = |result: vfs::Result<()>| result.unwrap_err().errno();
    owner.write("home/file", "new").unwrap();
    assert_eq!(member.read("home/file").unwrap(), b"new");
    assert_eq!(errno(member.write("home/file", "x")), Errno::EACCES);
    assert_eq!(errno(other.read("home/file").map(drop)), Errno::EACCES);
    assert_eq!(errno(owner.read("closed/file").map(drop)), Errno::EACCES);
    // In a sticky directory a user may remove names of their own files, but not those of others.
    other.write("shared/own", "x").unwrap();
    assert_eq!(errno(other.remove_file("shared/file")), Errno::EPERM);
    assert_eq!(errno(member.remove_file("shared/own")), Errno::EPERM);
    other.remove_file("shared/own").unwrap();
}

#[test]
fn no_path_leads_out_of_the_base() {
    let fs = file_system();
    let home = fs.resolve(b"/home", Follow::Last).unwrap();
    let below = view(&fs, 7, &[], home.node);
    assert_eq!(below.read("/file").unwrap(), b"text");
    assert_eq!(below.read("../../file").unwrap(), b"text");
    below.symlink("/../shared/file", "out").unwrap();
    assert_eq!(below.read("out").unwrap_err().errno(), Errno::ENOENT);
}

#[test]
fn a_read_only_view_refuses_root_too() {
    let fs = file_system();
    let root = User { uid: 0, gid: 0, groups: Vec::new(), serves: true };
    let volume = Volume::new(Arc::new(Permitted::new(Arc::clone(&fs), root, NodeId::ROOT, true)));
    assert_eq!(volume.read("closed/file").unwrap(), b"secret");
    assert_eq!(volume.write("closed/file", "x").unwrap_err().errno(), Errno::EROFS);
    assert_eq!(volume.remove_file("closed/file").unwrap_err().errno(), Errno::EROFS);
}
